//! The text of a tree parses to the same tree, if it parses at all: different trees have different texts.

use anteroom_jmespath::{
    Expression, Graft,
    ast::{Argument, Ast, Expr, ExprId},
};
use proptest::prelude::*;

/// Returns whether two trees are the same, wherever their subexpressions lie.
fn same(one: (&Ast, ExprId), other: (&Ast, ExprId)) -> bool {
    let ((a, at), (b, bt)) = (one, other);
    let (s, t) = (a.expr(at), b.expr(bt));
    let own = match (s, t) {
        (Expr::Field(s), Expr::Field(t)) => s == t,
        (Expr::Index(s), Expr::Index(t)) => s == t,
        (Expr::Slice(s), Expr::Slice(t)) => s == t,
        (Expr::Literal(s), Expr::Literal(t)) => s == t,
        (Expr::Parameter(s), Expr::Parameter(t)) => {
            a.parameters()[s.index()] == b.parameters()[t.index()]
        }
        (Expr::Compare { operator: s, .. }, Expr::Compare { operator: t, .. }) => s == t,
        (Expr::Object(s), Expr::Object(t)) => s.iter().map(|s| &s.0).eq(t.iter().map(|t| &t.0)),
        (
            Expr::Call {
                function: f,
                arguments: x,
            },
            Expr::Call {
                function: g,
                arguments: y,
            },
        ) => {
            let kinds = |all: &[Argument]| -> Vec<bool> {
                let is_value = |one: &Argument| matches!(one, Argument::Value(_));
                all.iter().map(is_value).collect()
            };
            a.function_name(*f) == b.function_name(*g) && kinds(x) == kinds(y)
        }
        _ => std::mem::discriminant(s) == std::mem::discriminant(t),
    };
    let (below, above) = (s.children(), t.children());
    own && below.len() == above.len()
        && below
            .into_iter()
            .zip(above)
            .all(|(s, t)| same((a, s), (b, t)))
}

fn check(text: &str) -> Result<(), String> {
    let Ok(parsed) = Expression::parse(text) else {
        return Ok(());
    };
    let ast = parsed.ast();
    let written = ast.text(ast.root()).to_string();
    // Some have no spelling, and say so with brackets that no parser takes.
    let Ok(again) = Expression::parse(&written) else {
        return match written.contains(".(") || written.contains(")!") {
            true => Ok(()),
            false => Err(format!("{text}: {written}")),
        };
    };
    match same((ast, ast.root()), (again.ast(), again.ast().root())) {
        true => Ok(()),
        false => Err(format!("{text}: {written}")),
    }
}

#[test]
fn trees_are_written_as_they_are_read() {
    for (text, written) in [
        ("items[]. spec.rules [].host", "items[].spec.rules[].host"),
        ("a.b[0].\"c-d\"", "a.b[0].\"c-d\""),
        ("(a | b) | c", "(a | b) | c"),
        ("a && (b || !c)", "a && (b || !c)"),
        ("[?a=='x'][].y", "[?a == 'x'][].y"),
        ("(a[*].b)[?c]", "(a[*].b)[?c]"),
        ("a[*].b[?c]", "a[*].b[?c]"),
        ("a[1:2].x", "a[1:2].x"),
        ("(a.b)[*]", "(a.b)[*]"),
        ("(a.b)[1:2]", "(a.b)[1:2]"),
        ("!(a.b) || !a[0]", "!(a.b) || !a[0]"),
        ("(a.b[0])[*].c", "(a.b[0])[*].c"),
        ("(a[0])[*]", "a[0][*]"),
        ("[].a", "[].a"),
        ("a[*][*].b", "a[*][*].b"),
        ("a[*][0]", "a[*][0]"),
        ("a[*][0].b", "a[*][0].b"),
        ("a[*][0][1:2]", "a[*][0][1:2]"),
        ("a[*].b[0][*]", "a[*].b[0][*]"),
        ("a[*].b.c[?d]", "a[*].b.c[?d]"),
        ("a . _b . \"9c\"", "a._b.\"9c\""),
        ("*.a.b", "*.a.b"),
        ("{a: b, c: [d, `1`]}", "{a: b, c: [d, `1`]}"),
        ("sort_by(@, &a.b)", "sort_by(@, &a.b)"),
        ("'it\\'s' == `\"\\`'\"`", "`\"it's\"` == `\"\\`'\"`"),
    ] {
        let parsed = Expression::parse(text).unwrap();
        let ast = parsed.ast();
        assert_eq!(ast.text(ast.root()).to_string(), written);
        check(text).unwrap();
    }
}

/// Keys of indexes are compared by their texts, so a grafted tree never has the text of a parsed tree.
#[test]
fn a_tree_that_no_text_spells_is_written_in_brackets_that_no_parser_takes() {
    let parsed = Expression::parse("[x, a.b, (c.d)[1:2], y[1:2]]").unwrap();
    let ast = parsed.ast();
    let [x, path, sliced, other] = ast.expr(ast.root()).children()[..] else {
        panic!();
    };
    let slice = ast.expr(other).children()[0];
    assert_eq!(ast.text(slice).to_string(), "y[1:2]!");

    let mut graft = Graft::new(ast);
    let (left, path) = (graft.copy(x).unwrap(), graft.copy(path).unwrap());
    let current = graft.add(Expr::Current).unwrap();
    let project = |left, right| Expr::Project { left, right };
    let of_path = graft.add(project(path, current)).unwrap();
    let of_path = graft.add(project(left, of_path)).unwrap();
    let of_slice = graft.copy(sliced).unwrap();
    let of_slice = graft.add(project(left, of_slice)).unwrap();
    let arguments = [Argument::Reference(of_path), Argument::Value(of_slice)];
    let root = graft.call("map", arguments.into()).unwrap();
    let text = "map(&x[*].((a.b)[*]), x[*].((c.d)[1:2]))";
    assert_eq!(graft.finish(root).as_str(), text);
    assert!(Expression::parse(text).is_err());
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "b",
        "@",
        "$p",
        "`1`",
        "'x'",
        "\"c-d\"",
        "[0]",
        "[]",
        "[*]",
        "[?a]",
        "*",
        "[1:]",
        "length(@)",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 24, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        let between = prop::sample::select(vec![
            " | ", " || ", " && ", " == ", " > ", ".", "", "", "",
        ]);
        prop_oneof![
            4 => (pair.clone(), between).prop_map(|((a, b), between)| format!("{a}{between}{b}")),
            2 => inner.clone().prop_map(|a| format!("({a})")),
            1 => inner.clone().prop_map(|a| format!("!{a}")),
            1 => pair.clone().prop_map(|(a, b)| format!("[{a}, {b}]")),
            1 => pair.clone().prop_map(|(a, b)| format!("{a}[?{b}]")),
            1 => pair.clone().prop_map(|(a, b)| format!("{{x: {a}, y: {b}}}")),
            1 => pair.prop_map(|(a, b)| format!("map(&{a}, {b})")),
            1 => inner.clone().prop_map(|a| format!("{a}[]")),
            1 => inner.clone().prop_map(|a| format!("{a}[*]")),
            1 => inner.clone().prop_map(|a| format!("{a}.*")),
            1 => inner.prop_map(|a| format!("{a}[-1:5:2]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_expression_survives_printing_and_parsing(text in expression()) {
        prop_assert_eq!(check(&text), Ok(()));
    }
}
