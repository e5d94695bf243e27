//! The bodies of the fuzz targets over generated expressions and documents.

use anteroom_jmespath::fuzzing;
use proptest::prelude::*;

/// Every function, and parameters, where `oracle.rs` keeps to what is agreed upon.
const FUNCTIONS: &[&str] = &[
    "avg({})",
    "to_string({})",
    "sum({})",
    "join({}, {})",
    "map(&{}, {})",
    "sort_by({}, &{})",
    "merge({}, {})",
    "min_by({}, &{})",
    "keys({})",
    "length({})",
    "reverse({})",
    "contains({}, {})",
    "$p.a || {}",
    "{} == $q",
    "unknown({})",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parse_survives_any_text(text in any::<String>()) {
        fuzzing::parse(text.as_bytes());
    }

    #[test]
    fn parse_survives_any_tokens(text in "[\\[\\]()*.&|!@$`'\"{}:,?=<>0-9ab\\\\ -]{0,40}") {
        fuzzing::parse(text.as_bytes());
    }

    #[test]
    fn evaluate_keeps_to_its_budget(
        text in crate::support::expression(FUNCTIONS),
        document in crate::support::document(),
    ) {
        fuzzing::evaluate(format!("{text}\0{document}").as_bytes());
    }
}
