//! The memory of parsed JSON, by the allocator's own count.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use anteroom_functions::{json::parsed_bytes_max, testing::any_json};
use proptest::prelude::*;
use serde_json::{Value, json};
use tikv_jemalloc_ctl::thread;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Returns the bytes that this thread has taken and not freed.
fn held() -> u64 {
    let taken = thread::allocatedp::read().unwrap().get();
    let freed = thread::deallocatedp::read().unwrap().get();
    taken.wrapping_sub(freed)
}

/// Returns the bytes that the value of a text takes.
fn taken(text: &str) -> u64 {
    let before = held();
    let value: Value = serde_json::from_str(text).unwrap();
    let taken = held().wrapping_sub(before);
    drop(value);
    taken
}

/// A list of so many equal elements.
fn list(element: &str, count: usize) -> String {
    format!("[{}]", vec![element; count].join(","))
}

/// An object with a member for each key, in the order of the keys.
fn object(keys: impl Iterator<Item = String>) -> String {
    let members: Vec<_> = keys.map(|key| format!("\"{key}\":0")).collect();
    format!("{{{}}}", members.join(","))
}

#[test]
fn large_texts_take_less_than_is_counted_and_not_much_less() {
    let numbered = |n: usize| format!("{n:05}");
    let config = json!({ "kind": "ConfigMap", "data": { "a": "{[,:".repeat(400_000), "b": "x" } });
    let schema = r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}"#;
    for (what, text, times) in [
        ("long text", config.to_string(), 1.3),
        ("maps of one", list(r#"{"a":0}"#, 10_000), 1.3),
        ("variables", list(r#"{"name":"a"}"#, 10_000), 1.3),
        ("schemas", list(schema, 10_000), 1.5),
        ("lists of one", list("[0]", 10_000), 1.5),
        ("one list", list("0", 65_537), 1.4),
        ("a full list", list("0", 65_536), 2.6),
        ("texts", list(r#""a""#, 65_537), 1.5),
        ("empty objects", list("{}", 65_537), 1.5),
        ("ascending keys", object((0..10_000).map(numbered)), 1.5),
        (
            "descending keys",
            object((0..10_000).rev().map(numbered)),
            1.5,
        ),
        (
            "mixed keys",
            object((0..10_007).map(|n| numbered(n * 7_919 % 10_007))),
            2.0,
        ),
        (
            "twelve keys",
            list(&object((0..12).map(numbered)), 1_000),
            1.5,
        ),
        (
            "eleven keys",
            list(&object((0..11).map(numbered)), 1_000),
            4.0,
        ),
    ] {
        let (taken, counted) = (taken(&text), parsed_bytes_max(text.as_bytes()));
        assert!(taken <= counted, "{what}: {taken} taken, {counted} counted");
        let most = taken as f64 * times;
        assert!(
            counted as f64 <= most,
            "{what}: {taken} taken, {counted} counted"
        );
    }
}

/// After each split, further keys go to the fuller half, so that the other one stays half full.
#[test]
fn nodes_that_stay_half_full_take_less_than_is_counted() {
    let in_front = |n: usize| format!("{:04}{:04}", n / 6, 6 - n % 6);
    let behind = |n: usize| format!("{:04}{:04}", 9_999 - n / 6, n % 6);
    for text in [
        object((0..4_000).map(in_front)),
        object((0..4_000).map(behind)),
    ] {
        let (taken, counted) = (taken(&text), parsed_bytes_max(text.as_bytes()));
        assert!(taken > 4_000 * 130, "{taken} taken by full nodes");
        assert!(taken <= counted, "{taken} taken, {counted} counted");
    }
}

proptest! {
    #[test]
    fn a_value_takes_no_more_than_is_counted(value in any_json(), is_pretty in any::<bool>()) {
        let text = match is_pretty {
            true => serde_json::to_string_pretty(&value).unwrap(),
            false => value.to_string(),
        };
        let (taken, counted) = (taken(&text), parsed_bytes_max(text.as_bytes()));
        prop_assert!(taken <= counted, "{} taken, {} counted: {}", taken, counted, text);
    }

    #[test]
    fn an_object_takes_no_more_than_is_counted_whatever_the_order_of_its_keys(
        keys in proptest::collection::vec("[a-z]{1,20}", 1..600),
    ) {
        let text = object(keys.into_iter());
        let (taken, counted) = (taken(&text), parsed_bytes_max(text.as_bytes()));
        prop_assert!(taken <= counted, "{} taken, {} counted", taken, counted);
    }
}
