//! Random documents and expressions, shared by the property tests.

use proptest::prelude::*;
use serde_json::{Value, json};

/// Few names, so that expressions find something.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "\"e f\""];

pub(crate) fn document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5_i64..10).prop_map(Value::from),
        prop::sample::select(vec![0.5, 1.5, -2.5]).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "ab", "b", "é✓"]).prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 40, 5, |inner| {
        let key = prop::sample::select(vec!["a", "b", "c", "d", "e f"]).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..5).prop_map(|map| json!(map)),
        ]
    })
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned)
}

fn leaf() -> impl Strategy<Value = String> {
    let fixed = vec![
        "@",
        "*",
        "[0]",
        "[-1]",
        "[*]",
        "[]",
        "[1:]",
        "[::-1]",
        "[:3:2]",
        "'a'",
        "'ab'",
        "''",
        "`1`",
        "`0.5`",
        "`true`",
        "`null`",
        "`[]`",
        "`[1, 2]`",
        "`{\"a\": [1, {\"b\": \"a\"}]}`",
        "`\"b\"`",
    ];
    prop_oneof![2 => name(), 1 => prop::sample::select(fixed).prop_map(str::to_owned)]
}

/// Expressions with every construct of the specification. `functions` are templates with `{}` for
/// each argument.
pub(crate) fn expression(functions: &'static [&'static str]) -> impl Strategy<Value = String> {
    leaf().prop_recursive(5, 24, 3, move |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            4 => (inner.clone(), name()).prop_map(|(left, name)| format!("{left}.{name}")),
            2 => (inner.clone(), suffix()).prop_map(|(left, suffix)| format!("{left}{suffix}")),
            2 => two.clone().prop_map(|(left, condition)| format!("{left}[?{condition}]")),
            1 => (inner.clone(), inner.clone(), name()).prop_map(|(l, c, n)| format!("{l}[?{c}].{n}")),
            2 => (two.clone(), operator()).prop_map(|((left, right), operator)| format!("{left} {operator} {right}")),
            1 => inner.clone().prop_map(|inner| format!("({inner})")),
            1 => inner.clone().prop_map(|inner| format!("!{inner}")),
            1 => two.clone().prop_map(|(left, right)| format!("[{left}, {right}]")),
            1 => two.clone().prop_map(|(left, right)| format!("{{a: {left}, b: {right}}}")),
            1 => two.clone().prop_map(|(left, right)| format!("({left}).[{right}]")),
            1 => two.clone().prop_map(|(left, right)| format!("({left}).{{c: {right}}}")),
            3 => (prop::sample::select(functions), two).prop_map(|(template, (first, second))| {
                template.replacen("{}", &first, 1).replacen("{}", &second, 1)
            }),
        ]
    })
}

fn suffix() -> impl Strategy<Value = String> {
    let suffixes = vec![
        "[0]",
        "[-2]",
        "[*]",
        "[]",
        ".*",
        "[1:]",
        "[::2]",
        "[?a]",
        "[?@ == `1`]",
        "[*].a",
        "[].b",
        ".*.a",
    ];
    prop::sample::select(suffixes).prop_map(str::to_owned)
}

fn operator() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["||", "&&", "|", "==", "!=", "<", "<=", ">", ">="])
}

/// JSON equality: `2` and `2.0` are one number.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64() == right.as_f64()
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, left)| right.get(key).is_some_and(|right| same(left, right)))
        }
        _ => left == right,
    }
}
