//! Tests of canonical text: compiling it again gives the same expression.

use proptest::prelude::*;

use crate::{Dialect, FactScope, Names, Program};

/// Names of every kind.
fn names() -> Names {
    let mut names = Names::default().with_params();
    let one = Program::compile("object.a", &names).unwrap();
    names.define("v", &one);
    names.define("in_use", &one);
    names.add_input("view");
    names.add_input("p0");
    names
}

fn same_again(source: &str) -> Option<String> {
    let names = names();
    let program = Program::compile(source, &names).ok()?;
    let text = program.text(&names);
    let again = Program::compile(&text, &names)
        .unwrap_or_else(|error| panic!("{source} became {text}: {error}"));
    assert_eq!(
        format!("{:?}", program.expr()),
        format!("{:?}", again.expr()),
        "{source} became {text}"
    );
    assert_eq!(again.text(&names), text, "{source}");
    Some(text)
}

#[test]
fn canonical_text_is_compiled_to_the_same_expression() {
    for (source, text) in [
        ("a", None),
        (
            "object.spec . replicas<=5",
            Some("object.spec.replicas <= 5"),
        ),
        ("(1 + 2) * -3", Some("(1 + 2) * -3")),
        ("1 - (2 - 3)", Some("1 - (2 - 3)")),
        ("!(!(object.a))", Some("!(!object.a)")),
        ("-(-object.a)", Some("-(-object.a)")),
        (
            "true && (false && true) || !true",
            Some("true && (false && true) || !true"),
        ),
        (
            "(object.a || object.b) && !(object.c || object.d)",
            Some("(object.a || object.b) && !(object.c || object.d)"),
        ),
        ("-(3) < object.a", Some("-(3) < object.a")),
        (
            "object.a in [1, 'b', null]",
            Some("object.a in [1, \"b\", null]"),
        ),
        ("'\\u0001' + object.a", Some("\"\\u0001\" + object.a")),
        (
            "object.a ? 1 : object.b ? 2 : 3",
            Some("object.a ? 1 : object.b ? 2 : 3"),
        ),
        (
            "(object.a ? true : false) ? 2 : 3",
            Some("(object.a ? true : false) ? 2 : 3"),
        ),
        (
            "object.?a.b[?'c d'].orValue('\\n\"\\\\')",
            Some(r#"object[?"a"].b[?"c d"].orValue("\n\"\\")"#),
        ),
        (
            "has(request.name) && request.name == params.x",
            Some("has(request.name) && request.name == params.x"),
        ),
        (
            "request.?name",
            Some("has(request.name) ? optional.of(request.name) : optional.none()"),
        ),
        (
            "variables.v + variables.in_use",
            Some("variables.v + variables.in_use"),
        ),
        (
            "view.items.filter(view, view.a == p0)",
            Some("view.items.filter(_0, _0.a == p0)"),
        ),
        (
            "view.map(i, i > 1, [i, 2u, 1.5, 1e100, b'\\x01', ?object.?a])",
            Some("view.map(_0, _0 > 1, [_0, 2u, 1.5, 1e100, b\"\\x01\", ?object[?\"a\"]])"),
        ),
        (
            "[1].all(i, v, [2].exists(w, w == i + v))",
            Some("[1].all(_0, _1, [2].exists(_2, _2 == _0 + _1))"),
        ),
        (
            "{'a': 1, ?'b': object.?b}.transformMap(k, v, k != '', v)",
            Some("{\"a\": 1, ?\"b\": object[?\"b\"]}.transformMap(_0, _1, _0 != \"\", _1)"),
        ),
        (
            "object.l.transformList(i, v, v > 1, i)",
            Some("object.l.transformList(_0, _1, _1 > 1, _0)"),
        ),
        (
            "object.m.transformMap(k, v, k)",
            Some("object.m.transformMap(_0, _1, _0)"),
        ),
        ("object.l.map(x, x)", Some("object.l.map(_0, _0)")),
        (
            "'a'.startsWith('b') && sets.contains([1], [2]) && type(1) == int",
            Some("\"a\".startsWith(\"b\") && sets.contains([1], [2]) && type(1) == int"),
        ),
        (
            "optional.of(1).optMap(x, x + 1).hasValue()",
            Some("optional.of(1).optMap(_0, _0 + 1).hasValue()"),
        ),
        (
            "object.list.sortBy(x, x.n)[0]",
            Some("object.list.sortBy(_0, _0.n)[0]"),
        ),
        (
            "type(timestamp('2020-01-01T00:00:00Z')) == google.protobuf.Timestamp",
            Some("type(timestamp(\"2020-01-01T00:00:00Z\")) == google.protobuf.Timestamp"),
        ),
    ] {
        assert_eq!(same_again(source).as_deref(), text, "{source}");
    }
}

#[test]
fn subqueries_are_written_as_what_they_are() {
    let names = Names::default().in_dialect(Dialect::Kyverno);
    let names = names.with_facts(FactScope::Cluster);
    let count = |plural: &str| format!("resource.list('v1', '{plural}', '').items.size() > 0");
    let source = format!("({} || object.a) && {}", count("pods"), count("services"));
    let program = Program::compile(&source, &names).unwrap();
    let text = program.text(&names);
    let marked = program.with_subqueries(&[], &names);
    assert_eq!(marked.subqueries().len(), 2);
    assert_eq!(marked.text(&names), text);
}

fn exprs() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "-3",
        "2u",
        "1.5",
        "'a'",
        "'é\\n'",
        "b'a'",
        "true",
        "null",
        "object.a",
        "object['a b']",
        "oldObject",
        "request.userInfo",
        "has(object.a)",
        "params",
        "namespaceObject.metadata",
        "view",
        "p0",
        "variables.v",
        "x",
        "y",
        "[]",
        "{}",
        "object.?a",
        "int",
        "-9223372036854775808",
    ]);
    leaf.prop_map(str::to_owned)
        .prop_recursive(5, 40, 3, |inner| {
            let operators = prop::sample::select(vec![
                "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
            ]);
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                (pair.clone(), operators).prop_map(|((a, b), sign)| format!("({a}) {sign} ({b})")),
                (
                    pair.clone(),
                    prop::sample::select(vec!["&&", "||", "+", "-"])
                )
                    .prop_map(|((a, b), sign)| format!("{a} {sign} {b}")),
                (pair.clone(), inner.clone())
                    .prop_map(|((a, b), c)| format!("({a}) ? ({b}) : ({c})")),
                inner.clone().prop_map(|a| format!("!({a})")),
                inner.clone().prop_map(|a| format!("-({a})")),
                inner.clone().prop_map(|a| format!("({a}).f")),
                inner.clone().prop_map(|a| format!("has(({a}).f)")),
                inner.clone().prop_map(|a| format!("size({a})")),
                pair.clone().prop_map(|(a, b)| format!("({a})[{b}]")),
                pair.clone().prop_map(|(a, b)| format!("({a})[?{b}]")),
                pair.clone().prop_map(|(a, b)| format!("[{a}, {b}]")),
                pair.clone()
                    .prop_map(|(a, b)| format!("{{'k': {a}, 'l': {b}}}")),
                pair.clone()
                    .prop_map(|(a, b)| format!("({a}).orValue({b})")),
                (
                    pair.clone(),
                    prop::sample::select(vec![
                        "all",
                        "exists",
                        "exists_one",
                        "map",
                        "filter",
                        "sortBy"
                    ])
                )
                    .prop_map(|((a, b), name)| format!("({a}).{name}(x, {b})")),
                (pair.clone(), inner.clone())
                    .prop_map(|((a, b), c)| format!("({a}).map(y, {b}, {c})")),
                pair.prop_map(|(a, b)| format!("({a}).transformList(x, y, {b})")),
            ]
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2_000)))]

    #[test]
    fn random_terms_are_the_same_when_written_and_compiled_again(source in exprs()) {
        // Subexpressions with macros' variables outside of a macro, or of types that do not fit, are no expressions.
        same_again(&source);
        same_again(&format!("object.list.all(x, y, {source})"));
    }
}
