use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::operator::tests::any_json;

/// What becomes of it: `ok`, `skip`, or the path where it differs.
fn verdict(pattern: &Value, object: &Value) -> String {
    match matches(pattern, object) {
        Ok(()) => "ok".to_owned(),
        Err(Mismatch::Skip(_)) => "skip".to_owned(),
        Err(Mismatch::Differs(difference)) => difference.path,
    }
}

#[test]
fn leaves() {
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
        (json!("1-10"), json!(10), true),
        (json!("1-10"), json!(11), false),
        (json!("1Mi-1Gi"), json!("100Mi"), true),
        (json!("1!-10"), json!(11), true),
        (json!("1!-10"), json!(5), false),
        (json!("a-b"), json!("a-b"), true),
        (json!("1"), json!(1), true),
        (json!("true"), json!(true), true),
        (json!(1), json!("1"), true),
        (json!(1), json!(1.0), true),
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
fn anchors() {
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
    ] {
        assert_eq!(verdict(&pattern, &pod), expected, "{pattern}");
    }
}

#[test]
fn a_scalar_speaks_of_every_element_of_a_list() {
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
}

proptest! {
    #[test]
    fn no_pattern_panics(pattern in any_json(), object in any_json()) {
        let _ = matches(&pattern, &object);
    }

    #[test]
    fn no_text_panics(pattern in "[a-c0-9.!<>=|& *?-]{0,12}", value in any_json()) {
        let _ = leaf::matches(&Value::String(pattern), &value);
    }
}
