use super::*;
use crate::{
    Dialect, Names, Program,
    ast::Expr,
    key_path::{KeyStep, Missing},
};

/// What a macro over `view` asks for, in words; the first macro of the expression.
fn asked(source: &str) -> Option<String> {
    asked_in(Dialect::Kubernetes, source)
}

fn asked_in(dialect: Dialect, source: &str) -> Option<String> {
    access_in(dialect, source).map(|access| words(&access.narrow))
}

fn access_in(dialect: Dialect, source: &str) -> Option<Access> {
    let mut names = Names::default().in_dialect(dialect);
    for name in ["view", "p", "q", "list"] {
        names.add_input(name);
    }
    let program =
        Program::compile(source, &names).unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut found = None;
    look(program.expr(), 0, &mut found);
    let (made, place) = found.unwrap_or_else(|| panic!("{source}: no macro"));
    Access::of(made, place)
}

/// Finds the macro whose range is `view`.
fn look<'e>(expr: &'e Expr, depth: usize, found: &mut Option<(&'e Macro, usize)>) {
    if let Expr::Macro(made) = expr {
        if matches!(made.range, Expr::Input(0)) {
            *found = found.or(Some((made, depth)));
        }
        look(&made.range, depth, found);
        made.filter
            .iter()
            .for_each(|filter| look(filter, depth + 1, found));
        look(&made.body, depth + 1, found);
        return;
    }
    expr.children()
        .into_iter()
        .for_each(|child| look(child, depth, found));
}

fn words(narrow: &Narrow) -> String {
    let joined = |parts: &[Narrow], between: &str| {
        let parts: Vec<_> = parts.iter().map(words).collect();
        format!("({})", parts.join(between))
    };
    match narrow {
        Narrow::Probe(probe) => format!("{} {:?}", probe.key, probe.matching),
        Narrow::Any(parts) => joined(parts, " or "),
        Narrow::All(ways) => joined(ways, " and "),
        Narrow::Over { inner, .. } => format!("over {}", words(inner)),
    }
}

#[test]
fn recognised_shapes_say_what_elements_have_to_have() {
    for (source, expected) in [
        ("view.exists(x, x.a.b == p)", "a.b Equal"),
        ("view.exists(x, p == x.a['b'])", "a.b Equal"),
        ("view.exists_one(x, x.a == p && x.b)", "a Equal"),
        ("view.filter(x, x.a == p).size() > 0", "a Equal"),
        ("view.map(x, x.a == p, x.b)", "a Equal"),
        ("!view.exists(x, x.a == p)", "a Equal"),
        ("view.all(x, x.a != p)", "a Equal"),
        ("view.all(x, !(x.a == p) || x.b)", "a Equal"),
        ("view.all(x, x.a != p && x.b != q)", "(a Equal or b Equal)"),
        ("view.exists(x, x.a in [p, q])", "a Among"),
        ("view.exists(x, p in x.a)", "a[] Equal"),
        ("view.exists(x, p in x.a.map(y, y.b))", "a[].b Equal"),
        (
            "view.exists(x, x.a == p && x.b == q)",
            "(a Equal and b Equal)",
        ),
        (
            "view.exists(x, x.a == p || x.b == q)",
            "(a Equal or b Equal)",
        ),
        (
            "view.exists(x, x.a.exists(y, y.b.exists(z, z.c == p)))",
            "a[].b[].c Equal",
        ),
        ("view.exists(x, !x.a.all(y, y.b != p))", "a[].b Equal"),
        ("list.exists(r, view.exists(x, x.a == r.a))", "a Equal"),
        ("view.exists(x, list.exists(r, x.a == r.a))", "over a Equal"),
        (
            "view.exists(x, x.a.exists(y, y.b in list.map(r, r.b)))",
            "a[].b Among",
        ),
        ("view.exists(x, has(x.a) && x.a == p)", "a? Equal"),
        ("view.exists(x, x.a == p && has(x.a))", "a? Equal"),
        (
            "view.exists(x, has(x.l) && x.l.exists(y, has(y.h) && y.h == p))",
            "l?[].h? Equal",
        ),
        (
            "view.exists(x, 'a' in x.l && x.l['a'] == p)",
            "(l[] Equal and l.a? Equal)",
        ),
        ("view.all(x, !has(x.a) || x.a != p)", "a? Equal"),
        ("view.exists(x, x.?a.orValue('') == p)", "a? Equal"),
        ("view.exists(x, x.?a.?b.orValue('') == p)", "a?.b? Equal"),
        (
            "view.exists(x, x.?l.orValue([]).exists(y, y.a == p))",
            "l?[].a Equal",
        ),
        ("view.exists(x, x.?a == optional.of(p))", "a? OptionalEqual"),
        (
            "view.exists(x, x.?m.orValue({}).u == p && has(x.m.u))",
            "m?.u Equal",
        ),
        (
            "view.exists(x, x.?l.orValue([]).exists(y, has(y.h) && y.h == p))",
            "l?[].h? Equal",
        ),
        (
            "view.exists(x, (has(x.a) && x.a == p) || x.a == q)",
            "(a? Equal or a Equal)",
        ),
    ] {
        assert_eq!(asked(source).as_deref(), Some(expected), "{source}");
    }
}

#[test]
fn other_shapes_are_not_recognised() {
    for source in [
        "view.exists(x, x.a > p)",
        "view.exists(x, x.a != p)",
        "view.all(x, x.a == p)",
        "view.exists(x, x.a == x.b)",
        "view.exists(x, x.a == p || x.b)",
        "view.all(x, x.a != p && x.b)",
        "view.map(x, x.a)",
        "view.map(x, x.a == p)",
        "view.exists(x, x.?a.or('') == p)",
        // What stands in the place of a missing field has to be constant.
        "view.exists(x, x.?l.orValue([q]).exists(y, y == p))",
        "view.exists(x, x.?m.orValue({'u': q}).u == p)",
        "view.exists(i, x, x.a == p)",
        "view.exists(x, x.a.all(y, y == p))",
        "view.exists(x, x[p] == q)",
        "view.exists(x, x.a[0] == q)",
        "view.exists(x, x.a.startsWith(p))",
        "view.exists(x, x.a.filter(y, y.b).exists(z, z == p))",
        "view.exists(x, x.a ? x.b == p : true)",
        "view.exists(x, x.a.exists(y, y == x.b))",
    ] {
        assert_eq!(asked(source), None, "{source}");
    }
}

#[test]
fn of_two_guards_of_a_field_one_that_skips_is_enough() {
    for (body, missing) in [
        ("'a' in x && has(x.a) && x.a == p", Missing::Skip),
        ("has(x.a) && 'a' in x && x.a == p", Missing::Skip),
        ("'a' in x && 'a' in x && x.a == p", Missing::SkipInMap),
    ] {
        let access = access_in(Dialect::Kubernetes, &format!("view.exists(x, {body})"));
        let Some(Narrow::All(ways)) = access.map(|access| access.narrow) else {
            panic!("{body}");
        };
        let Some(Narrow::Probe(probe)) = ways.last() else {
            panic!("{body}");
        };
        let name = "a".into();
        let expected = [KeyStep::Field { name, missing }];
        assert_eq!(probe.key.steps(), expected, "{body}");
    }
}

/// A plain value is its own result where `orValue` takes one, and else the call is an error.
#[test]
fn or_value_of_a_plain_value_is_a_path_in_the_kinds_of_kyverno_alone() {
    for (source, expected) in [
        (
            "view.exists(x, x.l.orValue([]).exists(y, y.a.orValue('') == p))",
            "l[].a Equal",
        ),
        ("view.exists(x, x.m.orValue({}).u == p)", "m.u Equal"),
        (
            "view.exists(x, has(x.l) && x.l.orValue([]).exists(y, y.a == p))",
            "l?[].a Equal",
        ),
        (
            "view.exists(x, x.?a.orValue('').orValue('b') == p)",
            "a? Equal",
        ),
    ] {
        let found = asked_in(Dialect::Kyverno, source);
        assert_eq!(found.as_deref(), Some(expected), "{source}");
        assert_eq!(asked_in(Dialect::Kubernetes, source), None, "{source}");
    }
    // The other value is evaluated in any case, and may fail.
    let other = "view.exists(x, x.a.orValue(x.b) == p)";
    assert_eq!(asked_in(Dialect::Kyverno, other), None);
}
