use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{meter, testing::any_json};

/// Every row: operator, key, value, whether the condition is met.
fn check(rows: impl IntoIterator<Item = (&'static str, Value, Value, bool)>) {
    for (name, key, value, holds) in rows {
        let operator = Operator::parse(name).unwrap();
        assert_eq!(operator.holds(&key, &value), holds, "{key} {name} {value}");
    }
}

/// For pairs that are comparable: what is not equal is exactly what equals is not.
fn check_equality(rows: impl IntoIterator<Item = (Value, Value, bool)>) {
    for (key, value, equal) in rows {
        assert_eq!(
            Operator::Equals.holds(&key, &value),
            equal,
            "{key} Equals {value}"
        );
        assert_eq!(
            Operator::NotEquals.holds(&key, &value),
            !equal,
            "{key} NotEquals {value}"
        );
    }
}

#[test]
fn operator_names_are_read_in_any_case() {
    for name in Operator::names() {
        assert_eq!(Operator::parse(name), Operator::parse(&name.to_lowercase()));
        let operator = Operator::parse(name).unwrap();
        assert_eq!(Operator::parse(operator.name()), Some(operator), "{name}");
    }
    assert_eq!(Operator::parse("Equal"), Operator::parse("EQUALS"));
    assert_eq!(Operator::parse("Equls"), None);
    assert_eq!(Operator::parse(""), None);
}

#[test]
fn equality_by_the_type_of_the_key() {
    check_equality([
        (json!(true), json!(true), true),
        (json!(true), json!(false), false),
        (json!(true), json!("true"), false),
        (json!(1), json!(1.0), true),
        (json!(1.5), json!(1), false),
        (json!(1), json!("1"), true),
        (json!(1.5), json!("1.5"), true),
        (json!(1), json!("one"), false),
        (json!(1), json!(true), false),
        (
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992_i64),
            false,
        ),
        (json!(u64::MAX), json!(u64::MAX.to_string()), true),
        (json!("web"), json!("web"), true),
        (json!("web"), json!("w*"), true),
        (json!("web"), json!("we?"), true),
        (json!("w*"), json!("web"), false),
        (json!("web"), json!(1), false),
        (json!("1"), json!(1), false),
        (json!(""), json!(""), true),
        (json!("web"), json!(""), false),
        (json!([1, "a"]), json!([1.0, "a"]), true),
        (json!([1, 2]), json!([2, 1]), false),
        (json!([1]), json!(1), false),
        (json!({"a": {"b": 1}}), json!({"a": {"b": 1}}), true),
        (json!({"a": 1}), json!({"a": 1, "b": 2}), false),
        (json!({}), json!([]), false),
    ]);
}

#[test]
fn durations_come_before_quantities_and_text() {
    check_equality([
        (json!("1h"), json!("60m"), true),
        (json!("1h"), json!("2h"), false),
        (json!("1h"), json!(3600), true),
        (json!("1h"), json!(3600.9), true),
        (json!("60"), json!("1m"), false),
        (json!("1h"), json!("*"), true),
        (json!("0"), json!("0"), true),
        (json!("0s"), json!(0), true),
        (json!("0s"), json!("0"), false),
    ]);
}

#[test]
fn quantities_compare_by_value_only_with_quantities() {
    check_equality([
        (json!("1Gi"), json!("1024Mi"), true),
        (json!("1"), json!("1000m"), true),
        (json!("1.5"), json!("1500m"), true),
        (json!("1Gi"), json!("1G"), false),
        (json!("10"), json!("1*"), false),
        (json!("10"), json!(""), false),
        (
            json!("100000000000000000000000000001"),
            json!("100000000000000000000000000002"),
            false,
        ),
    ]);
}

#[test]
fn a_null_key_meets_no_condition() {
    for name in Operator::names() {
        for value in [json!(null), json!("a"), json!([null]), json!(1)] {
            assert!(
                !Operator::parse(name).unwrap().holds(&Value::Null, &value),
                "{name} {value}"
            );
        }
    }
}

#[test]
fn a_scalar_is_in_a_list_range_or_wildcard_that_matches() {
    for (key, value, is_in) in [
        (json!("a"), json!(["a", "b"]), true),
        (json!("c"), json!(["a", "b"]), false),
        (json!("a"), json!([]), false),
        (json!("apple"), json!(["b", "a*"]), true),
        (json!("a*"), json!(["apple"]), true),
        (json!(8080), json!(["8080"]), true),
        (json!(8080), json!([8080]), true),
        (json!(true), json!(["true"]), true),
        (json!("a"), json!("a"), true),
        (json!("apple"), json!("a*"), true),
        (json!("a*"), json!("apple"), false),
        (json!("b"), json!("[\"a\", \"b\"]"), true),
        (json!("c"), json!("[\"a\", \"b\"]"), false),
        (json!("a"), json!("null"), false),
        (json!("a"), json!("[\"a\", null]"), true),
        (json!("x"), json!("[\"a\", null]"), false),
        (json!(""), json!("[null]"), true),
        (json!("null"), json!([null]), false),
        (json!("<nil>"), json!([null]), true),
        (json!("5"), json!("1-10"), true),
        (json!(5), json!("1-10"), true),
        (json!("11"), json!("1-10"), false),
        (json!("512Mi"), json!("1Mi-1Gi"), true),
        (json!("1-10"), json!("1-10"), true),
        (json!("x"), json!("1-10"), false),
    ] {
        for (name, holds) in [
            ("AnyIn", is_in),
            ("AllIn", is_in),
            ("AnyNotIn", !is_in),
            ("AllNotIn", !is_in),
        ] {
            check([(name, key.clone(), value.clone(), holds)]);
        }
    }
}

#[test]
fn any_in_and_all_in_compare_each_element_of_a_list() {
    // any in, all in, any not in, all not in
    for (key, value, expected) in [
        (
            json!(["a", "b"]),
            json!(["a", "b", "c"]),
            [true, true, false, false],
        ),
        (
            json!(["a", "x"]),
            json!(["a", "b"]),
            [true, false, true, false],
        ),
        (
            json!(["x", "y"]),
            json!(["a", "b"]),
            [false, false, true, true],
        ),
        (json!([]), json!(["a"]), [false, true, false, true]),
        (
            json!(["apple", "x"]),
            json!(["a*"]),
            [true, false, true, false],
        ),
        (json!(["a*"]), json!(["apple"]), [true, true, false, false]),
        (json!([1, 2]), json!(["1", 2]), [true, true, false, false]),
        (json!(["a"]), json!("a"), [true, true, false, false]),
        (
            json!(["a", "b"]),
            json!("[\"a\"]"),
            [true, false, true, false],
        ),
        (json!(["apple"]), json!("a*"), [true, true, false, false]),
        (json!([1, 20]), json!("1-10"), [true, false, true, false]),
        (json!([1, 2]), json!("1-10"), [true, true, false, false]),
        (json!([20, 30]), json!("1-10"), [false, false, true, true]),
        (json!(["x"]), json!("1-10"), [false, false, false, true]),
        (
            json!([true, "x"]),
            json!(["true"]),
            [true, false, true, false],
        ),
        (json!([null]), json!(["null"]), [false, false, true, true]),
        (json!([null]), json!(["<nil>"]), [true, true, false, false]),
        (json!(["<*"]), json!([null]), [true, true, false, false]),
    ] {
        for (name, holds) in ["AnyIn", "AllIn", "AnyNotIn", "AllNotIn"]
            .into_iter()
            .zip(expected)
        {
            check([(name, key.clone(), value.clone(), holds)]);
        }
    }
}

#[test]
fn membership_in_a_value_without_elements_never_holds() {
    for name in ["AnyIn", "AllIn", "AnyNotIn", "AllNotIn", "In", "NotIn"] {
        check([
            (name, json!("a"), json!(null), false),
            (name, json!("a"), json!({"a": 1}), false),
            (name, json!("1"), json!(1), false),
            (name, json!("a"), json!("{\"a\": 1}"), false),
            (name, json!(["a", "b"]), json!("[1, 2]"), false),
            (name, json!({"a": 1}), json!(["a"]), false),
        ]);
    }
    // JSON it is, though of a number that no value holds.
    check([
        ("AnyNotIn", json!("a"), json!("1e400"), false),
        ("AllNotIn", json!(["a"]), json!("1e400"), false),
    ]);
    check([
        ("AnyIn", json!(["1"]), json!(1), true),
        ("AllIn", json!(["1"]), json!(1), false),
        ("AnyNotIn", json!(["1", "2"]), json!(1), true),
        ("AllNotIn", json!(["2"]), json!(1), false),
    ]);
}

#[test]
fn the_deprecated_membership_knows_strings() {
    check([
        ("In", json!("a"), json!(["a", "b"]), true),
        ("NotIn", json!("a"), json!(["a", "b"]), false),
        ("In", json!("apple"), json!(["a*"]), true),
        ("NotIn", json!("x"), json!(["a*"]), true),
        ("In", json!(1), json!(["1"]), true),
        ("In", json!("apple"), json!("a*"), true),
        ("NotIn", json!("x"), json!("a*"), false),
        ("In", json!("a"), json!("[\"a\"]"), true),
        ("NotIn", json!("x"), json!("[\"a\"]"), true),
        ("In", json!(["a", "b"]), json!(["a", "b", "c"]), true),
        ("In", json!(["a", "x"]), json!(["a", "b"]), false),
        ("NotIn", json!(["a", "x"]), json!(["a", "b"]), true),
        ("NotIn", json!(["a", "b"]), json!(["a", "b"]), false),
        ("In", json!(["a", "b"]), json!("[\"a\", \"b\"]"), true),
        ("NotIn", json!(["a", "x"]), json!("[\"a\", \"b\"]"), true),
        ("In", json!(["apple"]), json!(["a*"]), false),
        ("In", json!(["a"]), json!("a"), true),
        ("NotIn", json!(["a"]), json!("a"), true),
        ("NotIn", json!(["a"]), json!("b"), false),
        ("In", json!(1.0), json!("[\"1\"]"), true),
        ("In", json!(["a"]), json!([1]), false),
        ("NotIn", json!(["a"]), json!([1]), false),
        ("In", json!([1]), json!(["1"]), false),
    ]);
}

#[test]
fn ordering_operators_compare_numbers_quantities_durations_and_versions() {
    // Key and value, and which way they stand.
    for (key, value, ordering) in [
        (json!(2), json!(1), Some(Ordering::Greater)),
        (json!(1.5), json!(1), Some(Ordering::Greater)),
        (json!(1), json!("1.0"), Some(Ordering::Equal)),
        (json!("10"), json!(9), Some(Ordering::Greater)),
        (json!("10"), json!("9"), Some(Ordering::Greater)),
        (
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992_i64),
            Some(Ordering::Greater),
        ),
        (json!("1h"), json!("59m"), Some(Ordering::Greater)),
        (json!("1h"), json!(3600), Some(Ordering::Equal)),
        (json!(61), json!("1m"), Some(Ordering::Greater)),
        (json!("61"), json!("1m"), Some(Ordering::Greater)),
        // `1m` is a quantity too, and `1h` is none.
        (json!("3601"), json!("1h"), Some(Ordering::Greater)),
        (json!("3599"), json!("1h"), Some(Ordering::Less)),
        (json!(u64::MAX), json!("1h"), Some(Ordering::Greater)),
        (json!("nan"), json!("0"), None),
        (json!("1Gi"), json!("1G"), Some(Ordering::Greater)),
        (json!("100m"), json!("1"), Some(Ordering::Less)),
        (json!("1.10.0"), json!("1.9.0"), Some(Ordering::Greater)),
        (json!("1.0.0-rc.1"), json!("1.0.0"), Some(Ordering::Less)),
        (json!("1.0.0+a"), json!("1.0.0+b"), Some(Ordering::Equal)),
        (json!("1.0.0"), json!(1), None),
        (json!(1), json!("1Gi"), None),
        (json!("1Gi"), json!(1), None),
        (json!("a"), json!("b"), None),
        (json!(true), json!(false), None),
        (json!([2]), json!([1]), None),
        (json!(1), json!(null), None),
    ] {
        for (name, holds) in [
            ("GreaterThan", ordering == Some(Ordering::Greater)),
            ("GreaterThanOrEquals", ordering.is_some_and(Ordering::is_ge)),
            ("LessThan", ordering == Some(Ordering::Less)),
            ("LessThanOrEquals", ordering.is_some_and(Ordering::is_le)),
        ] {
            check([(name, key.clone(), value.clone(), holds)]);
        }
    }
}

#[test]
fn the_deprecated_duration_operators_compare_durations() {
    check([
        ("DurationGreaterThan", json!("1h"), json!("30m"), true),
        ("DurationGreaterThan", json!(3601), json!("1h"), true),
        ("DurationLessThan", json!(1), json!(2), true),
        ("DurationLessThanOrEquals", json!(1.9), json!(1), true),
        ("DurationGreaterThanOrEquals", json!("0"), json!(0), true),
        ("DurationGreaterThan", json!("10"), json!("1s"), false),
        ("DurationLessThan", json!("10"), json!("1s"), false),
        ("DurationLessThan", json!(true), json!("1s"), false),
    ]);
}

proptest! {
    #[test]
    fn no_operator_panics_and_opposite_operators_exclude_each_other(key in any_json(), value in any_json()) {
        for name in Operator::names() {
            let _ = Operator::parse(name).unwrap().holds(&key, &value);
        }
        prop_assert!(!(Operator::Equals.holds(&key, &value) && Operator::NotEquals.holds(&key, &value)));
        prop_assert!(!(Operator::AllIn.holds(&key, &value) && Operator::AnyNotIn.holds(&key, &value)));
        prop_assert!(!(Operator::AnyIn.holds(&key, &value) && Operator::AllNotIn.holds(&key, &value)));
    }
}

#[test]
fn long_texts_are_charged_for_each_member_that_they_are_compared_with() {
    let many = |text: &str| json!(vec![text; 1_000]);
    let long = "a".repeat(100_000);
    for (key, value, least) in [
        // A pattern at whose end the wildcard is.
        (json!(format!("{long}*")), many("x"), 300_000),
        (many("x"), json!([format!("{long}*")]), 300_000),
        (json!("x"), many("y*"), 50),
        (json!(long), many("x*"), 50),
    ] {
        let operator = Operator::parse("AnyIn").unwrap();
        let (_, left) = meter::within(10_000_000, || operator.holds(&key, &value));
        let taken = 10_000_000 - left;
        assert!((least..least * 200).contains(&taken), "{taken}");
    }
}

#[test]
fn long_keys_are_charged_as_long_texts_are() {
    let key = "k".repeat(160);
    assert_eq!(length(&json!({ &key: 1 })), length(&json!([key])));
}
