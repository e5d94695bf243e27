//! The memory of parsed JSON, by the allocator's own count.

#![allow(clippy::unwrap_used, reason = "it is a test")]

use anteroom_functions::{json::parsed_bytes_max, query_functions, testing::any_json};
use anteroom_jmespath::{
    Budget, BudgetKind, Environment, EvalError, Expression, json_memory::copied_bytes,
};
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

const MIB: u64 = 1024 * 1024;

/// The budgets of services: of a rule in place and in the long lane, of a replica in a container of 512 MiB, and of a
/// watcher for short and for long evaluations.
const BUDGETS: [(&str, u64, u64, u64); 5] = [
    ("in place", 20_000, 4 * MIB, 64 * MIB),
    ("a rule", 2_000_000, 4 * MIB, 64 * MIB),
    ("a replica", 20_000_000, 4 * MIB, 14 * MIB),
    ("a watcher, short", 20_000, MIB, 2 * MIB),
    ("a watcher", 20_000_000, 64 * MIB, 64 * MIB),
];

/// Each of these would take hundreds of megabytes: parts are shared, or a text is dense.
#[test]
fn what_takes_too_much_memory_ends_before_it_does() {
    let times = |count: usize| format!("[{}]", vec!["@"; count].join(","));
    let shared = |what: &str| format!("{what} | {} | {}", times(1_000), times(900));
    let document = json!({
        "name": "p",
        "dense": list(r#"{"a":false}"#, 130_000),
    });
    for expression in [
        shared("{a: name == 'q'}"),
        shared("`{\"a\":1}`"),
        format!("any_in({}, `[1]`)", shared("{a: name == 'q'}")),
        format!("equals(`1`, {})", shared("`{\"a\":1}`")),
        "parse_json(dense)".to_owned(),
    ] {
        let parsed = Expression::parse(&expression).unwrap();
        for (name, steps, built_bytes, json_bytes) in BUDGETS {
            let mut left = Budget {
                steps,
                built_bytes,
                json_bytes,
                ..Budget::default()
            };
            let environment = Environment::standard().with_functions(query_functions());
            let before = thread::allocatedp::read().unwrap().get();
            let made = parsed
                .evaluate_out_of(&document, &environment, &mut left)
                .and_then(|value| value.to_json_out_of(&mut left));
            let allocated = thread::allocatedp::read().unwrap().get() - before;
            let shown = &expression[..expression.len().min(40)];
            let Err(EvalError::Budget { which, .. }) = made else {
                panic!("{name}: {shown}: {:?}", made.map(drop));
            };
            assert_ne!(which, BudgetKind::Depth, "{name}: {shown}");
            // Arguments are copied, and the calls have handles.
            let most = json_bytes.min(steps * 64) + 8 * MIB;
            assert!(allocated <= most, "{name}: {shown}: {allocated} of {most}");
        }
    }
}

/// What policies read of large objects, with all figures of a rule.
#[test]
fn usual_documents_are_well_within_the_budget_of_a_rule() {
    let names: Vec<_> = (0..100_000)
        .map(|at| format!("web-{at:06}.example.com"))
        .collect();
    let port = |at: usize| json!({"name": format!("port-{at}"), "port": at, "protocol": "TCP"});
    let services: Vec<_> = (0..2_000)
        .map(|at| json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("service-{at}"), "namespace": "shop", "labels": {"app": "shop"}},
            "spec": {"selector": {"app": "shop"}, "ports": [port(at), port(at + 1)], "type": "ClusterIP"},
        }))
        .collect();
    let config = json!({"services": services}).to_string();
    assert!(
        (400_000..1_000_000).contains(&config.len()),
        "{}",
        config.len()
    );
    let document = json!({"names": names, "config": config, "services": services});
    for expression in [
        "names",
        "[names, names]",
        "services",
        "services[?metadata.name != 'service-7']",
        "parse_json(config).services[0].metadata.name",
        "any_in(names, names[-1])",
    ] {
        let mut left = Budget {
            steps: 2_000_000,
            built_bytes: 4 * MIB,
            json_bytes: 64 * MIB,
            ..Budget::default()
        };
        let parsed = Expression::parse(expression).unwrap();
        let environment = Environment::standard().with_functions(query_functions());
        let made = parsed
            .evaluate_out_of(&document, &environment, &mut left)
            .and_then(|value| value.to_json_out_of(&mut left));
        assert!(made.is_ok(), "{expression}: {:?}", made.map(drop));
    }
}

proptest! {
    #[test]
    fn a_copy_takes_no_more_than_is_counted(value in any_json()) {
        let before = held();
        let copy = value.clone();
        let taken = held().wrapping_sub(before);
        drop(copy);
        // A text that is the whole value is rounded up.
        let counted = copied_bytes(&value, u64::MAX).unwrap() + 16;
        prop_assert!(taken <= counted, "{} taken, {} counted: {}", taken, counted, value);
    }

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
