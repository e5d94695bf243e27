use anteroom_wire::body::encode_json;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::Budget;

fn order(left: &Val<'_>, right: &Val<'_>) -> Option<Option<std::cmp::Ordering>> {
    compare(left, right, &mut Budget::default()).unwrap()
}

#[test]
fn json_values_have_their_cel_types() {
    for (json, name) in [
        (json!(null), "null_type"),
        (json!(true), "bool"),
        (json!(-3), "int"),
        (json!(3.0), "double"),
        (json!(u64::MAX), "double"),
        (json!("a"), "string"),
        (json!([1]), "list"),
        (json!({"a": 1}), "map"),
    ] {
        assert_eq!(Val::of(&json).type_name(), name, "{json}");
    }
}

#[test]
fn numbers_of_different_types_are_compared_exactly() {
    use std::cmp::Ordering::*;
    let big = 9_007_199_254_740_993_i64;
    for (left, right, expected) in [
        (Val::Int(1), Val::Double(1.0), Some(Some(Equal))),
        (
            Val::Int(big),
            Val::Double(9_007_199_254_740_992.0),
            Some(Some(Greater)),
        ),
        (Val::Uint(u64::MAX), Val::Int(-1), Some(Some(Greater))),
        (Val::Double(-0.5), Val::Int(0), Some(Some(Less))),
        (Val::Double(-0.5), Val::Int(-1), Some(Some(Greater))),
        (Val::Double(f64::NAN), Val::Int(1), Some(None)),
        (
            Val::Double(f64::INFINITY),
            Val::Uint(u64::MAX),
            Some(Some(Greater)),
        ),
        (
            Val::Double(f64::NEG_INFINITY),
            Val::Int(i64::MIN),
            Some(Some(Less)),
        ),
        (Val::Int(1), Val::text("1"), None),
    ] {
        assert_eq!(order(&left, &right), expected, "{left:?} {right:?}");
    }
}

#[test]
fn values_are_equal_by_content() {
    let json = json!({"a": [1, 2.0], "b": null});
    let own = Val::Map(Map::Own(Arc::from([
        (Val::text("b"), Val::Null),
        (Val::text("a"), Val::list(vec![Val::Uint(1), Val::Int(2)])),
    ])));
    let mut budget = Budget::default();
    assert_eq!(equal(&Val::of(&json), &own, &mut budget), Ok(true));
    assert_eq!(equal(&own, &Val::of(&json["a"]), &mut budget), Ok(false));
    assert_eq!(equal(&Val::text("1"), &Val::Int(1), &mut budget), Ok(false));
}

#[test]
fn what_is_read_in_place_equals_what_was_parsed() {
    for json in [
        json!([1, -2.5, "a", null]),
        json!({"b": [true, []], "a": {"c": {}}}),
    ] {
        let body = encode_json(&json).unwrap();
        let there = Val::of_node(BodyNode::new(&body));
        let found = equal(&there, &Val::of(&json), &mut Budget::default());
        assert_eq!(found, Ok(true), "{json}");
    }
}

proptest! {
    #[test]
    fn the_order_of_ints_and_doubles_is_consistent(left: i64, right: i64, double: f64) {
        prop_assert_eq!(order(&Val::Int(left), &Val::Int(right)), Some(Some(left.cmp(&right))));
        let there = order(&Val::Int(left), &Val::Double(double)).unwrap();
        let back = order(&Val::Double(double), &Val::Int(left)).unwrap();
        prop_assert_eq!(there.map(std::cmp::Ordering::reverse), back);
    }
}
