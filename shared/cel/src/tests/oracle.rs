//! The same expressions by the parser's own interpreter: what both come to is the same.

use cel::{Context, Value};
use proptest::prelude::*;

use super::compiled;
use crate::{Budget, EvalError, Machine, Names, Program, Roots, value::Val};

/// Returns whether both are the same value.
fn same(own: &Val<'_>, other: &Value) -> bool {
    match (own, other) {
        (Val::Null, Value::Null) => true,
        (Val::Bool(own), Value::Bool(other)) => own == other,
        (Val::Int(own), Value::Int(other)) => own == other,
        (Val::Uint(own), Value::UInt(other)) => own == other,
        (Val::Double(own), Value::Float(other)) => own == other || own.is_nan() && other.is_nan(),
        (Val::Text(own), Value::String(other)) => **own == ***other,
        (Val::List(own), Value::List(other)) => {
            own.len() == other.len()
                && own
                    .iter()
                    .zip(other.iter())
                    .all(|(own, other)| same(&own, other))
        }
        (Val::Map(own), Value::Map(other)) => own.len() == other.map.len(),
        _ => false,
    }
}

/// Expressions of numbers, texts, lists and truths, some of which come to errors.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "0",
        "1",
        "2",
        "-3",
        "9223372036854775807",
        "2u",
        "1.5",
        "'a'",
        "'é'",
        "''",
        "true",
        "false",
        "null",
        "[]",
        "[1, 2]",
        "['a', 'b']",
        "{'a': 1}",
        "dyn(1)",
        "dyn('a')",
        "dyn([1])",
        "dyn(true)",
        "dyn(null)",
    ]);
    let leaf = leaf.prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        let operator = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in",
        ]);
        let call = prop::sample::select(vec![
            ".all(x, x == 1)",
            ".exists(x, x == 1)",
            ".exists_one(x, x == 'a')",
            ".map(x, [x])",
            ".filter(x, x != 2)",
            ".map(x, x > 1, x + 1)",
            ".size()",
            ".startsWith('a')",
            ".contains('a')",
            "[0]",
            "['a']",
            ".a",
        ]);
        prop_oneof![
            (pair, operator).prop_map(|((a, b), op)| format!("({a} {op} {b})")),
            (inner.clone(), call).prop_map(|(a, call)| format!("dyn({a}){call}")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("(dyn({a}) ? {b} : {c})")),
            inner.clone().prop_map(|a| format!("!dyn({a})")),
            inner.clone().prop_map(|a| format!("[{a}]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(1_500)))]

    #[test]
    fn both_cel_implementations_give_the_same_result(source in expressions()) {
        // What is refused for its types is an error of the other's evaluation, or hidden behind one side
        // of an `&&` or `||`.
        let Ok(own) = Program::compile(&source, &Names::default()) else {
            return Ok(());
        };
        let other = cel::Program::compile(&source).unwrap().execute(&Context::default());
        let mut machine = Machine::new(Roots::default(), &[], Budget::default());
        let own = machine.value(&own);
        let is_same = match (&own, &other) {
            (Ok(own), Ok(other)) => same(own, other),
            (Err(_), Err(_)) => true,
            // The other appends the keys of a map to a list, which the specification does not have.
            (Err(EvalError::NoSuchOverload { function, types }), Ok(_)) => {
                function.as_str() == "_+_" && types == "list, map"
            }
            // What cannot be a key is in no map, as in Go.
            (Ok(_), Err(cel::ExecutionError::NoSuchOverload(error))) => {
                error.function() == "@in" && error.argument_types().last().is_some_and(|of| of == "map")
            }
            _ => false,
        };
        prop_assert!(is_same, "{source}: {own:?} and {other:?}");
    }
}

#[test]
fn the_comparison_with_the_oracle_can_fail() {
    let program = compiled("1 + 1");
    let mut machine = Machine::new(Roots::default(), &[], Budget::default());
    let own = machine.value(&program).unwrap();
    assert!(
        same(&own, &Value::Int(2)) && !same(&own, &Value::Int(3)) && !same(&own, &Value::UInt(2))
    );
}
