//! A difference leaves equal parts alone, and is charged by its work.

use std::cell::Cell;

use super::*;

/// Returns the work, in bytes of text.
fn work_of(before: &Value, after: &Value) -> usize {
    let charged = Cell::new(0_usize);
    let count = |bytes: usize| {
        charged.set(charged.get() + bytes);
        true
    };
    assert!(diff_charged(before, after, &count).is_ok());
    charged.get()
}

#[test]
fn a_difference_leaves_equal_objects_alone_and_no_others() {
    for (before, after, expected) in [
        (
            json!([{"n": 1}, {"n": 2}]),
            json!([{"n": 0}, {"n": 1}, {"n": 2}]),
            json!([{"op": "add", "path": "/0", "value": {"n": 0}}]),
        ),
        // All that the object had before is still there.
        (
            json!({"a": {"b": 1}}),
            json!({"a": {"b": 1, "c": 2}}),
            json!([{"op": "add", "path": "/a/c", "value": 2}]),
        ),
    ] {
        let made = diff_charged(&before, &after, &|_| true);
        assert_eq!(made, Ok(expected), "{before} and {after}");
    }
}

#[test]
fn a_difference_is_charged_by_the_values_that_are_compared() {
    let list = |length: usize, last: &str| {
        let mut elements = vec![json!("x"); length];
        elements.push(last.into());
        json!({"a": elements})
    };
    let [small, large] =
        [1_000, 10_000].map(|length| work_of(&list(length, "y"), &list(length, "z")));
    assert!(small >= 1_000 * VALUE_BYTES, "{small}");
    assert!((9 * small..11 * small).contains(&large), "{small} {large}");
    // A text that is copied into the patch.
    let text = "x".repeat(10_000);
    let copied = work_of(&json!({}), &json!({"a": text}));
    assert!((10_000..11_000).contains(&copied), "{copied}");
}

/// Each level compares all that is below it.
#[test]
fn a_difference_in_nested_lists_is_charged_at_each_level() {
    let nested = |inner: u32| (0..100).fold(json!(inner), |inner, _| json!([inner]));
    let charged = work_of(&nested(1), &nested(2));
    assert!(charged > 100 * 100 / 2 * VALUE_BYTES, "{charged}");
}

#[test]
fn a_difference_whose_work_is_too_much_ends_there() {
    let asked = Cell::new(0_usize);
    let three = |_: usize| {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let lists = [1, 2].map(|last| json!([0, 0, 0, 0, last]));
    let made = diff_charged(&lists[0], &lists[1], &three);
    assert_eq!(made, Err(PatchError::TooCostly));
    assert_eq!(asked.get(), 3);
}
