use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{meter, testing::any_json};

/// Returns `ok`, `skip`, or the path of the difference.
fn verdict(pattern: &Value, object: &Value) -> String {
    match matches(pattern, object) {
        Ok(()) => "ok".to_owned(),
        Err(Mismatch::Skip { .. }) => "skip".to_owned(),
        Err(Mismatch::Differs(difference)) => difference.path,
    }
}

#[test]
fn scalar_patterns_match_values() {
    for (pattern, value, expected) in [
        (json!("a*"), json!("abc"), true),
        (json!("?*"), json!("a"), true),
        (json!("?*"), json!(""), false),
        (json!("?*"), json!(null), false),
        (json!("*"), json!(5), true),
        (json!("a | b"), json!("b"), true),
        (json!("a|b"), json!("c"), false),
        (json!("!a & !b"), json!("c"), true),
        (json!("!a & !b"), json!("b"), false),
        (json!("!*:latest"), json!("nginx:latest"), false),
        (json!("!*:latest"), json!("nginx:1"), true),
        (json!(">=2"), json!(2), true),
        (json!(">2"), json!("2"), false),
        (json!("<1Gi"), json!("512Mi"), true),
        (json!("<=1h"), json!("3600s"), true),
        (json!(">1h"), json!("30m"), false),
        (json!("<=5"), json!(null), true),
        // One reading is enough: what both sides are is not compared as text again.
        (json!("!1Gi"), json!("1024Mi"), false),
        (json!("!1Gi"), json!("1025Mi"), true),
        (json!("!60s"), json!("1m"), false),
        (json!("!60s"), json!("61s"), true),
        (json!("!60s"), json!("soon"), true),
        (json!("!0"), json!(null), false),
        (json!("!x"), json!(null), false),
        (json!("1-10"), json!(10), true),
        (json!("1-10"), json!(11), false),
        (json!("1Mi-1Gi"), json!("100Mi"), true),
        (json!("1!-10"), json!(11), true),
        (json!("1!-10"), json!(5), false),
        (json!("a!-10"), json!(11), false),
        // An operator alone is a text.
        (json!("<|b"), json!("<"), true),
        (json!("a-b"), json!("a-b"), true),
        (json!("1"), json!(1), true),
        (json!("true"), json!(true), true),
        (json!(1), json!("1"), true),
        (json!(1), json!(1.0), true),
        (json!(1), json!("+01"), true),
        (json!(1), json!("1.0"), false),
        (json!(1.0), json!("1.0"), true),
        (json!(1.5), json!("1.5"), true),
        // What is no integer has six decimals as a quantity, and an exponent as text.
        (json!("0"), json!(1e-7), true),
        (json!(">0"), json!(1e-7), false),
        (json!("<0.1"), json!(0.05), true),
        (json!("?E-02"), json!(0.05), true),
        (json!("*E+20"), json!(1e20), true),
        (json!("1?"), json!(10), true),
        (json!(1), json!(2), false),
        (json!(true), json!(true), true),
        (json!(true), json!("true"), false),
        (json!(null), json!(null), true),
        (json!(null), json!(0), true),
        (json!(null), json!("x"), false),
        (json!("x"), json!({}), false),
        (json!("|"), json!("a"), false),
    ] {
        let found = leaf::matches(&pattern, &value);
        assert_eq!(found, expected, "{pattern} {value}");
    }
}

#[test]
fn anchors_decide_between_match_skip_and_violation() {
    let pod = json!({ "spec": { "containers": [
        { "name": "a", "image": "x:latest", "imagePullPolicy": "Always" },
        { "name": "b", "image": "y:1", "securityContext": { "privileged": false } },
    ], "hostPID": true, "volumes": [{ "hostPath": {} }, { "emptyDir": {} }] } });
    for (pattern, expected) in [
        (json!({ "spec": { "containers": [{ "name": "?" }] } }), "ok"),
        (
            json!({ "spec": { "containers": [{ "image": "*:1" }] } }),
            "/spec/containers/0/image/",
        ),
        // Only of those that are of `latest`.
        (
            json!({ "spec": { "containers": [{ "(image)": "*:latest", "imagePullPolicy": "Always" }] } }),
            "ok",
        ),
        (
            json!({ "spec": { "containers": [{ "(image)": "*:1", "imagePullPolicy": "Always" }] } }),
            "/spec/containers/1/imagePullPolicy/",
        ),
        (
            json!({ "spec": { "containers": [{ "(image)": "z", "name": "z" }] } }),
            "skip",
        ),
        (
            json!({ "spec": { "(nope)": true, "hostPID": false } }),
            "skip",
        ),
        (
            json!({ "spec": { "containers": [{ "=(securityContext)": { "=(privileged)": false } }] } }),
            "ok",
        ),
        (
            json!({ "spec": { "containers": [{ "=(securityContext)": { "=(privileged)": true } }] } }),
            "/spec/containers/1/securityContext/privileged/",
        ),
        (
            json!({ "spec": { "=(hostIPC)": "false", "X(hostNetwork)": "null" } }),
            "ok",
        ),
        (
            json!({ "spec": { "X(hostPID)": "null" } }),
            "/spec/hostPID/",
        ),
        (
            json!({ "spec": { "volumes": [{ "X(hostPath)": "null" }] } }),
            "/spec/volumes/0/hostPath/",
        ),
        (
            json!({ "spec": { "^(containers)": [{ "image": "y:*" }] } }),
            "ok",
        ),
        (
            json!({ "spec": { "^(containers)": [{ "image": "z:*" }] } }),
            "/spec/containers/",
        ),
        (
            json!({ "spec": { "^(containers)": ["*"] } }),
            "/spec/containers/",
        ),
        (json!({ "spec": { "^(initContainers)": ["*"] } }), "ok"),
        (
            json!({ "spec": { "^(initContainers)": [{ "image": "z:*" }] } }),
            "ok",
        ),
        (
            json!({ "spec": { "containers": [{ "<(image)": "*:latest", "imagePullPolicy": "Never" }] } }),
            "/spec/containers/0/imagePullPolicy/",
        ),
        (
            json!({ "spec": { "hostPID": false, "containers": [{ "<(image)": "z" }] } }),
            "skip",
        ),
        (json!({ "spec": { "containers": "*" } }), "ok"),
        (
            json!({ "spec": { "initContainers": "*" } }),
            "/spec/initContainers/",
        ),
        (
            json!({ "spec": { "initContainers": [{ "name": "*" }] } }),
            "/spec/initContainers/",
        ),
        (json!({ "spec": [] }), "/spec/"),
        // Space is of an anchor outside of it, and of the key inside.
        (
            json!({ "spec": { " (hostPID)\t": false, "nope": true } }),
            "skip",
        ),
        (
            json!({ "spec": { "X(hostPID) ": "null" } }),
            "/spec/hostPID/",
        ),
        (json!({ "spec": { "X( hostPID )": "null" } }), "ok"),
        (json!({ "spec": { "<( hostPID )": false } }), "ok"),
        (json!({ "spec": { "( hostPID )": true } }), "skip"),
        (json!({ "spec": { " hostPID": true } }), "/spec/ hostPID/"),
    ] {
        assert_eq!(verdict(&pattern, &pod), expected, "{pattern}");
    }
}

#[test]
fn a_list_without_matching_anchors_does_not_hide_its_neighbours() {
    let object = json!({ "kept": "bad", "lists": {
        "inits": [{ "image": "other/a", "pull": "Never" }],
        "mains": [{ "image": "reg/a", "pull": "Never" }],
        "node": "n",
    } });
    let of_reg = json!([{ "(image)": "reg/*", "pull": "Always" }]);
    let of_all = json!([{ "(image)": "*", "pull": "Never" }]);
    let with_global = json!([{ "<(image)": "reg/*" }]);
    let differs = "/lists/mains/0/pull/";
    for (lists, expected) in [
        // None of the anchors applies.
        (json!({ "=(inits)": of_reg, "node": "x" }), "skip"),
        (json!({ "=(inits)": with_global, "node": "x" }), "skip"),
        // A sibling differs, before it or after it.
        (json!({ "=(inits)": of_reg, "=(mains)": of_reg }), differs),
        (
            json!({ "=(inits)": with_global, "=(mains)": of_reg }),
            differs,
        ),
        (
            json!({ "=(inits)": of_reg, "X(node)": "null" }),
            "/lists/node/",
        ),
        (
            json!({ "=(inits)": of_reg, "^(mains)": [{ "image": "z" }] }),
            "/lists/mains/",
        ),
        // A sibling applies: what bears no anchor is judged too.
        (
            json!({ "=(inits)": of_reg, "=(mains)": of_all, "node": "x" }),
            "/lists/node/",
        ),
        (
            json!({ "=(inits)": of_reg, "=(absent)": "x", "node": "x" }),
            "/lists/node/",
        ),
        (
            json!({ "=(inits)": of_reg, "=(mains)": of_all, "node": "n" }),
            "ok",
        ),
        // A condition of the map itself hides all of it.
        (json!({ "(node)": "x", "=(mains)": of_reg }), "skip"),
        (json!({ "(absent)": "x", "=(mains)": of_reg }), "skip"),
        (json!({ "(inits)": of_reg, "=(mains)": of_reg }), "skip"),
        (json!({ "(node)": "n", "=(mains)": of_reg }), differs),
    ] {
        let pattern = json!({ "lists": lists });
        assert_eq!(verdict(&pattern, &object), expected, "{pattern}");
    }
}

#[test]
fn a_global_anchor_reaches_through_maps_and_not_through_lists() {
    let object = json!({ "a": { "b": { "c": 1 } }, "d": 1 });
    let global = json!({ "b": { "<(c)": 2 } });
    for (pattern, expected) in [
        (json!({ "=(a)": global, "=(d)": 2 }), "skip"),
        // What differs before it is told first.
        (
            json!({ "(d)": 1, "=(a)": { "=(b)": { "c": 2 } } }),
            "/a/b/c/",
        ),
        (json!({ "=(a)": global, "X(d)": "null" }), "skip"),
        (
            json!({ "=(a)": { "=(b)": { "(c)": 2 } }, "X(d)": "null" }),
            "/d/",
        ),
    ] {
        assert_eq!(verdict(&pattern, &object), expected, "{pattern}");
    }
}

#[test]
fn fields_that_may_skip_are_judged_first_in_reverse_alphabetical_order() {
    let object = json!({ "a": [{ "n": 1, "v": 1 }], "b": [{ "n": 1, "v": 1 }], "c": 1, "d": 1 });
    let differs = json!([{ "(n)": 1, "v": 2 }]);
    let skips = json!([{ "(n)": 2, "v": 2 }]);
    for (pattern, expected) in [
        (json!({ "a": differs, "b": skips }), "skip"),
        (json!({ "a": skips, "b": differs }), "/b/0/v/"),
        (json!({ "c": 2, "b": skips }), "skip"),
        (json!({ "a": 2, "b": differs }), "/b/0/v/"),
        (json!({ "d": 2, "c": 2 }), "/c/"),
        (json!({ "a": [{ "n": 2 }], "b": [{ "n": 2 }] }), "/a/0/n/"),
        // A global anchor stands where its sign stands in the alphabet: last of these.
        (json!({ "<(c)": 2, "a": differs }), "/a/0/v/"),
        (json!({ "<(c)": 2, "c": 2 }), "skip"),
    ] {
        assert_eq!(verdict(&pattern, &object), expected, "{pattern}");
    }
}

#[test]
fn a_scalar_pattern_judges_every_element_of_a_list() {
    let object = json!({ "a": ["x1", "x2"], "b": [["y"], ["z"]] });
    assert_eq!(verdict(&json!({ "a": "x*" }), &object), "ok");
    assert_eq!(verdict(&json!({ "a": ["x?"] }), &object), "ok");
    assert_eq!(verdict(&json!({ "a": "x1" }), &object), "/a/");
    assert_eq!(verdict(&json!({ "b": [["y"], ["z"]] }), &object), "ok");
    assert_eq!(verdict(&json!({ "b": [["y"], ["y"]] }), &object), "/b/1/");
    assert_eq!(
        verdict(&json!({ "b": [["y"], ["z"], ["z"]] }), &object),
        "/b/"
    );
    assert_eq!(verdict(&json!({ "a": [] }), &object), "/a/");
}

#[test]
fn keys_of_labels_and_annotations_may_hold_wildcards() {
    let object = json!({ "metadata": { "labels": { "app.corp/team": "blue", "app": "x" } } });
    let pattern = |key: &str, value: &str| json!({ "metadata": { "labels": { key: value } } });
    assert_eq!(verdict(&pattern("*corp/team", "blue"), &object), "ok");
    assert_eq!(
        verdict(&pattern("*/team", "red"), &object),
        "/metadata/labels/*/team/"
    );
    assert_eq!(
        verdict(&pattern("X(app.*)", "null"), &object),
        "/metadata/labels/app.corp/team/"
    );
    assert_eq!(verdict(&pattern("=(other.*)", "?*"), &object), "ok");
    assert_eq!(
        verdict(&pattern("?*", "?*"), &json!({ "metadata": {} })),
        "/metadata/labels/"
    );
    // A written key stays, whatever fits the wildcard.
    for (own, passes) in [("x", true), ("y", false)] {
        let both = json!({ "metadata": { "labels": { "app": own, "app*": "?*" } } });
        assert_eq!(verdict(&both, &object) == "ok", passes, "{own}");
    }
}

proptest! {
    #[test]
    fn matching_any_pattern_never_panics(pattern in any_json(), object in any_json()) {
        let _ = matches(&pattern, &object);
    }

    #[test]
    fn matching_any_leaf_text_never_panics(pattern in "[a-c0-9.!<>=|& *?-]{0,12}", value in any_json()) {
        let _ = leaf::matches(&Value::String(pattern), &value);
    }
}

/// A pattern may be of one user's, and the value of another's.
#[test]
fn each_alternative_of_a_pattern_is_charged() {
    let pattern = json!("b|".repeat(1_000) + "a & a");
    for (value, least) in [(json!("a"), 1_000), (json!("a".repeat(1_600)), 100_000)] {
        let (_, left) = meter::within(1_000_000, || matches(&pattern, &value));
        let taken = 1_000_000 - left;
        assert!((least..least * 3).contains(&taken), "{taken}");
    }
}

#[test]
fn each_key_of_a_pattern_is_charged_for_each_element() {
    let keys: serde_json::Map<_, _> = (0..100).map(|at| (format!("=(k{at})"), json!(1))).collect();
    let elements = vec![json!({}); 100];
    let (_, left) = meter::within(1_000_000, || {
        matches(&json!({"spec": [keys]}), &json!({"spec": elements}))
    });
    let taken = 1_000_000 - left;
    assert!((10_000..50_000).contains(&taken), "{taken}");
}

/// A few patterns over a large object would otherwise write megabytes of text for two steps each.
#[test]
fn messages_name_objects_by_their_shape_and_quote_the_beginning_of_long_texts() {
    let many: serde_json::Map<_, _> = (0..10_000)
        .map(|at| (format!("k{at}"), json!(at)))
        .collect();
    let long = "ä".repeat(10_000);
    let beginning = "ä".repeat(QUOTED_BYTES_MAX / 2);
    for (pattern, value, expected) in [
        (
            json!("x"),
            json!(many),
            "an object does not match \"x\" at path /a/".to_owned(),
        ),
        (
            json!("x"),
            json!([[many]]),
            "a list does not match \"x\" at path /a/".to_owned(),
        ),
        (
            json!(5),
            json!(long),
            format!("the value \"{beginning}…\" does not match 5 at path /a/"),
        ),
        (
            json!(long),
            json!(null),
            format!("the value null does not match \"{beginning}…\" at path /a/"),
        ),
        (
            json!("x"),
            json!("y"),
            "the value \"y\" does not match \"x\" at path /a/".to_owned(),
        ),
        (
            json!({ "b": 1 }),
            json!(null),
            "an object is expected, found nothing".to_owned(),
        ),
    ] {
        let found = matches(&json!({ "a": pattern }), &json!({ "a": value }));
        let Err(Mismatch::Differs(difference)) = found else {
            panic!("{found:?}");
        };
        assert_eq!(difference.message, expected);
    }
}

#[test]
fn the_message_of_each_mismatch_is_charged() {
    let name = "n".repeat(1_600);
    let anchored = format!("^({name})");
    let pattern = json!({ &anchored: [{ "a": "x" }] });
    let object = json!({ &name: vec![json!({ "a": "y" }); 100] });
    let (_, left) = meter::within(1_000_000, || matches(&pattern, &object));
    // Each element has a message with the path, which is 100 steps.
    let taken = 1_000_000 - left;
    assert!((10_000..13_000).contains(&taken), "{taken}");
}
