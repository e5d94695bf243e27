//! The `jmespath` crate as an oracle, where the specification leaves one answer.
//!
//! Left out, because the crate differs, and why ours stays:
//!
//! * `left.*.a.b`: the crate projects `b` too; the implementations in Python, Go and JavaScript, and
//!   with Go's all of Kyverno's policies, end the projection at the second dot. (`*.a.b` has no such
//!   riddle.)
//! * `avg` of nothing is null by the specification, an error in the crate.
//! * `to_string` of a number that was computed: the crate computes floats, so `abs(-4)` reads `4.0`.
//! * Integers beyond 2^53, floats that differ in their last digits, and invalid arguments of `map` and
//!   the like that are not reached: none is generated.

use anteroom_jmespath::{Environment, Expression};
use proptest::prelude::*;
use serde_json::Value;

/// The functions of the specification on which there is agreement.
const FUNCTIONS: &[&str] = &[
    "abs({})",
    "ceil({})",
    "contains({}, {})",
    "ends_with({}, {})",
    "floor({})",
    "join({}, {})",
    "keys({})",
    "length({})",
    "map(&{}, {})",
    "max({})",
    "max_by({}, &{})",
    "merge({}, {})",
    "min({})",
    "min_by({}, &{})",
    "not_null({}, {})",
    "reverse({})",
    "sort({})",
    "sort_by({}, &{})",
    "starts_with({}, {})",
    "sum({})",
    "to_array({})",
    "to_number({})",
    "type({})",
    "values({})",
];

/// The oracle's answer: a value, or that there is none.
fn oracle(text: &str, document: &Value) -> Option<Value> {
    let ast = jmespath::parse(text).unwrap();
    let data = jmespath::Rcvar::new(jmespath::Variable::try_from(document.clone()).unwrap());
    let mut context = jmespath::Context::new(text, &jmespath::DEFAULT_RUNTIME);
    let result = jmespath::interpret(&data, &ast, &mut context).ok()?;
    Some(serde_json::to_value(&*result).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_expression_gives_the_same_as_the_oracle(
        text in crate::support::expression(FUNCTIONS),
        document in crate::support::document(),
    ) {
        prop_assume!(!text.contains(".*.") && !text.contains(".*["));
        let parsed = Expression::parse(&text);
        prop_assert_eq!(parsed.is_ok(), jmespath::parse(&text).is_ok(), "{}", text);
        let Ok(expression) = parsed else { return Ok(()) };
        let ours = expression.evaluate_json(&document, &Environment::default());
        match (&ours, &oracle(&text, &document)) {
            (Err(_), None) => {}
            (Ok(ours), Some(theirs)) if crate::support::same(ours, theirs) => {}
            (_, theirs) => prop_assert!(false, "{text} on {document}: {ours:?}, not {theirs:?}"),
        }
    }
}
