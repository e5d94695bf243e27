//! The equality that a `test` asks for.

use serde_json::json;

use super::*;

#[test]
fn values_are_the_same_where_all_numbers_elements_and_fields_are() {
    let whole = 1_i64 << 53;
    for (left, right, expected) in [
        (json!(1), json!(1.0), true),
        (json!(1), json!(1.5), false),
        // Both would be the same number with a fraction.
        (json!(whole), json!(whole + 1), false),
        (json!(1), json!("1"), false),
        (json!([1, 2]), json!([1.0, 2]), true),
        (json!([1, 2]), json!([1, 3]), false),
        (json!([1]), json!([1, 2]), false),
        (json!({"a": 1}), json!({"a": 1.0}), true),
        (json!({"a": 1}), json!({"a": 2}), false),
        (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
    ] {
        assert_eq!(is_same(&left, &right), expected, "{left} and {right}");
        assert_eq!(is_same(&right, &left), expected, "{right} and {left}");
    }
}
