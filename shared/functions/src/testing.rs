//! Arbitrary JSON for property tests.

use proptest::prelude::*;
use serde_json::Value;

/// Returns a strategy for JSON of up to three levels, with many texts that read as quantities, durations,
/// ranges and wildcards.
pub fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[-+]?[0-9]{0,3}(\\.[0-9])?(Mi|h|m|s)?(-[0-9]{1,2}(Mi|h)?)?".prop_map(Value::from),
        "[a-c*?\\[\\]\"{}.0-9-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
