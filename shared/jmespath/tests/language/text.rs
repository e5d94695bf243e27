//! The text of a tree parses to the same tree, if it parses at all: different trees have different texts.

use anteroom_jmespath::{
    Expression,
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
