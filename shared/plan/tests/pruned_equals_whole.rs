//! Over objects of which only what an expression reads is kept, its value is what it is over the whole
//! objects, errors included, whatever the expression and the objects.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use anteroom_jmespath::{Environment, Expression, MissingKey};
use anteroom_model::RetainedFields;
use anteroom_plan::{Document, pruned, reads};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMES: [&str; 5] = ["a", "b", "c", "items", "things"];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_i64..4).prop_map(Value::from),
        prop::sample::select(vec!["", "x", "a"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned);
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::btree_map(name, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// A strategy for expressions: each is composed of smaller expressions.
fn expression() -> impl Strategy<Value = String> {
    let field = prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned);
    let leaf = prop_oneof![
        6 => field.clone(),
        1 => Just("@".to_owned()),
        1 => prop::sample::select(vec!["'x'", "`1`", "`null`", "`[]`", "$p"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 20, 3, move |inner| {
        let one = (
            prop::sample::select(vec![
                "X.F",
                "X[]",
                "X[*]",
                "X[0]",
                "X[-1]",
                "X[0:2]",
                "X.*",
                "!X",
                "X[].F",
                "X[*].F",
                "X.F.F",
                "X[][].F",
                "length(X)",
                "keys(X)",
                "type(X)",
                "to_string(X)",
                "not_null(X, 'x')",
                "sort_by(X, &F)",
                "map(&F, X)",
                "max_by(X, &F)",
                "group_by(X, &F)",
                "X | F",
                "X[] | length(@)",
                "[X]",
                "{k: X}",
                "X.[F, F]",
                "X[].{k: F}",
                "values(X)",
                "sum(X[].F)",
            ]),
            inner.clone(),
            field.clone(),
        )
            .prop_map(|(form, x, f)| form.replace('F', &f).replace('X', &format!("({x})")));
        let two = (
            prop::sample::select(vec![
                "X[?Y]",
                "X[?Y].a",
                "X[?Y] | length(@)",
                "X == Y",
                "X != Y",
                "X || Y",
                "X && Y",
                "X | Y",
                "X[*].Y",
                "X.Y",
                "[X, Y]",
                "contains(X, Y)",
                "X[].Y | length(@)",
                "X[?Y] | [0].b",
            ]),
            inner.clone(),
            inner,
        )
            .prop_map(|(form, x, y)| {
                let inner = format!("({y})");
                let mut text = String::new();
                // What stands behind a dot may be no parenthesis.
                let form = form.replace(".Y", " | Y");
                for c in form.chars() {
                    match c {
                        'X' => text += &format!("({x})"),
                        'Y' => text += &inner,
                        c => text.push(c),
                    }
                }
                text
            });
        prop_oneof![one, two]
    })
}

fn whole(expression: &str, is_array: bool) -> String {
    match is_array {
        true => expression.to_owned(),
        // Most begin at the list.
        false if expression.len().is_multiple_of(2) => format!("items | ({expression})"),
        false => format!("things.items | ({expression})"),
    }
}

/// Evaluates an expression over pruned objects and over whole ones, on a list or an array, and
/// compares.
fn check(
    text: &str,
    objects: &[Value],
    is_array: bool,
    missing: MissingKey,
) -> Option<RetainedFields> {
    let expression = Expression::parse(text).ok()?;
    let document = match is_array {
        true => Document::Array,
        false => Document::List {
            plural: Some("things"),
        },
    };
    let kept = reads(&expression, document);
    let parameters = BTreeMap::from([("p".to_owned(), json!("x"))]);
    let environment = Environment {
        functions: anteroom_functions::query_functions(),
        parameters: &parameters,
        missing_key: missing,
        ..Environment::standard()
    };
    let evaluate = |objects: Vec<Value>| {
        let document = match is_array {
            true => Value::from(objects),
            false => json!({"kind": "ThingList", "items": objects, "things": {"items": objects}}),
        };
        let value = expression.evaluate_json(&document, &environment);
        value.map_err(|error| error.to_string())
    };
    let of_kept: Vec<_> = objects.iter().map(|object| pruned(object, &kept)).collect();
    let wanted = evaluate(objects.to_vec());
    assert_eq!(
        evaluate(of_kept),
        wanted,
        "{text} keeps {kept:?} of {objects:?}"
    );
    Some(kept)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn an_expression_gives_the_same_on_pruned_and_whole_objects(
        expression in expression(),
        objects in prop::collection::vec(value(), 0..5),
        is_array in any::<bool>(),
        fails in any::<bool>(),
    ) {
        let missing = if fails { MissingKey::Error } else { MissingKey::Null };
        check(&whole(&expression, is_array), &objects, is_array, missing);
        check(&expression, &objects, false, missing);
    }
}

/// Paths into objects, used as policies do.
fn path_expression() -> impl Strategy<Value = String> {
    let step = prop::sample::select(vec![".a", ".b", ".c", ".a", ".b", "[]", "[*]", "[0]", ".*"]);
    let path = prop::collection::vec(step, 0..4);
    let form = prop::sample::select(vec![
        "items[]P | length(@)",
        "length(items[*]P)",
        "items[]P",
        "items[?@P] | length(@)",
        "items[?@P == @Q] | length(@)",
        "items[?!(@P)]Q | length(@)",
        "items[]P | [0]",
        "items[]P | []Q | length(@)",
        "items[].[@P][] | length(@)",
        "items[0:2]P | length(@)",
        "items[?@P]Q",
    ]);
    (form, path.clone(), path)
        .prop_map(|(form, p, q)| form.replace('P', &p.concat()).replace('Q', &q.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn a_path_gives_the_same_on_pruned_and_whole_objects(
        expression in path_expression(),
        objects in prop::collection::vec(value(), 1..5),
        fails in any::<bool>(),
    ) {
        let missing = if fails { MissingKey::Error } else { MissingKey::Null };
        let kept = check(&expression, &objects, false, missing);
        prop_assert!(kept.is_some(), "{}", expression);
    }
}

/// The property would hold of an analysis that keeps everything: often much is left out.
#[test]
fn pruning_really_leaves_fields_out() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let (mut parsed, mut narrowed) = (0, 0);
    for _ in 0..1_000 {
        let expression = expression().new_tree(&mut runner).unwrap().current();
        let text = format!("items[*] | [?{expression}].a");
        if let Some(kept) = check(&text, &[], false, MissingKey::Null) {
            parsed += 1;
            narrowed += usize::from(kept != RetainedFields::Whole);
        }
    }
    assert!(parsed > 800, "{parsed}");
    assert!(narrowed * 3 > parsed, "{narrowed} of {parsed}");
}
