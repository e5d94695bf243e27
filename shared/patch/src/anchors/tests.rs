use std::cell::Cell;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::merge::merge;

/// Texts match where they are alike, or the pattern is `*`.
fn matches(pattern: &Value, found: &Value) -> bool {
    pattern == "*" || pattern == found
}

fn resolved(document: &Value, patch: &Value) -> Result<Option<Value>, String> {
    resolve(patch, document, Schema::of("v1", "Pod"), &matches).map_err(|error| error.to_string())
}

#[test]
fn anchors_of_objects_decide_which_fields_are_patched() {
    let document = json!({"kind": "Pod", "metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"a": {"b": 1}}});
    let table = [
        (json!({"spec": {"c": 1}}), Some(json!({"spec": {"c": 1}}))),
        (
            json!({"spec": {"+(a)": 1, "+(c)": 2}}),
            Some(json!({"spec": {"c": 2}})),
        ),
        (json!({"spec": {"+(a)": 1}}), None),
        (
            json!({"spec": {"+(z)": {"+(y)": [1]}}}),
            Some(json!({"spec": {"z": {"y": [1]}}})),
        ),
        (
            json!({"(kind)": "Pod", "spec": {"c": 1}}),
            Some(json!({"spec": {"c": 1}})),
        ),
        (json!({"(kind)": "Service", "spec": {"c": 1}}), None),
        (
            json!({"metadata": {"(labels)": {"app": "x"}}, "spec": {"c": 1}}),
            Some(json!({"spec": {"c": 1}})),
        ),
        (
            json!({"metadata": {"<(name)": "q"}, "spec": {"c": 1}}),
            None,
        ),
        (
            json!({"metadata": {"<(name)": "*"}, "spec": {"c": 1}}),
            Some(json!({"spec": {"c": 1}})),
        ),
        (json!({"metadata": {"(none)": "*"}, "spec": {"c": 1}}), None),
        // A condition that adds holds where the field is there.
        (
            json!({"(spec)": {"+(c)": 1}}),
            Some(json!({"spec": {"c": 1}})),
        ),
        (json!({"(none)": {"+(c)": 1}}), None),
        // Space around an anchor is no part of it, and space inside is part of the key.
        (
            json!({" (kind) ": "Pod", "spec": {"c": 1}}),
            Some(json!({"spec": {"c": 1}})),
        ),
        (json!({"( kind )": "Pod", "spec": {"c": 1}}), None),
        (
            json!({"spec": {" +( a )": 1}}),
            Some(json!({"spec": {" a ": 1}})),
        ),
        (
            json!({"spec": {"empty": {}, "none": [], "c": {"d": {}}}, "+(other)": {}}),
            Some(json!({"spec": {"none": []}})),
        ),
        (json!({"spec": {"empty": {}}}), None),
        (
            json!({"spec": {"list": [{"name": "v", "empty": {}}, {}]}}),
            Some(json!({"spec": {"list": [{"name": "v"}]}})),
        ),
        (
            json!({"spec": {"gone": null}}),
            Some(json!({"spec": {"gone": null}})),
        ),
    ];
    for (patch, expected) in table {
        assert_eq!(resolved(&document, &patch), Ok(expected), "{patch}");
    }
}

#[test]
fn anchors_select_the_list_elements_to_patch() {
    let document = json!({"spec": {"containers": [
        {"name": "a", "image": "x", "ports": [{"containerPort": 1}]}, {"name": "b", "image": "y", "tty": true}]}});
    let containers = |patch: Value| json!({"spec": {"containers": patch}});
    let table = [
        (
            json!([{"(name)": "*", "stdin": true}]),
            Some(json!([{"name": "a", "stdin": true}, {"name": "b", "stdin": true}])),
        ),
        (
            json!([{"(image)": "y", "stdin": true}]),
            Some(json!([{"name": "b", "stdin": true}])),
        ),
        (json!([{"(image)": "z", "stdin": true}]), None),
        (
            json!([{"(name)": "*", "+(tty)": false}]),
            Some(json!([{"name": "a", "tty": false}])),
        ),
        (
            json!([{"+(tty)": false}]),
            Some(json!([{"name": "a", "tty": false}])),
        ),
        (json!([{"(name)": "*"}]), None),
        (
            json!([{"name": "c"}, {"(image)": "x", "tty": true}]),
            Some(json!([{"name": "c"}, {"name": "a", "tty": true}])),
        ),
        // By the keys of the list, where the elements have no names.
        (
            json!([{"(name)": "a", "ports": [{"(containerPort)": 1, "protocol": "UDP"}]}]),
            Some(json!([{"name": "a", "ports": [{"containerPort": 1, "protocol": "UDP"}]}])),
        ),
    ];
    for (patch, expected) in table {
        let found = resolved(&document, &containers(patch.clone()));
        assert_eq!(found, Ok(expected.map(containers)), "{patch}");
    }
}

#[test]
fn an_element_of_a_list_without_keys_is_selected_by_its_name() {
    let document =
        json!({"spec": {"things": [{"name": "a", "x": 1}, {"name": "", "x": 1}, {"x": 1}]}});
    let patch = json!({"spec": {"things": [{"(x)": 1, "y": 2}]}});
    let expected = json!({"spec": {"things": [{"name": "a", "y": 2}]}});
    assert_eq!(resolved(&document, &patch), Ok(Some(expected)));
}

#[test]
fn a_global_anchor_decides_for_the_whole_patch() {
    let document =
        json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}});
    let patch = |image: &str| json!({"spec": {"containers": [{"<(image)": image}], "flag": true}});
    assert_eq!(
        resolved(&document, &patch("y")),
        Ok(Some(json!({"spec": {"flag": true}})))
    );
    assert_eq!(resolved(&document, &patch("z")), Ok(None));
    assert_eq!(resolved(&json!({"spec": {}}), &patch("y")), Ok(None));
}

#[test]
fn a_list_patched_onto_another_value_is_refused() {
    let error = resolved(
        &json!({"spec": 1}),
        &json!({"spec": {"containers": [{"(name)": "*"}]}}),
    );
    assert_eq!(error, Ok(None));
    let error = resolved(
        &json!({"spec": {"containers": {}}}),
        &json!({"spec": {"containers": [{"(name)": "*"}]}}),
    );
    let expected = "merge at `containers`: the patch has a list where the object has none";
    assert_eq!(error, Err(expected.to_owned()));
}

#[test]
fn anchors_are_read_from_keys() {
    for (key, expected) in [
        ("(a)", Some((Anchor::Condition, "a"))),
        ("<(a)", Some((Anchor::Global, "a"))),
        (" +( a ) ", Some((Anchor::Add, " a "))),
        ("( )", Some((Anchor::Condition, " "))),
        ("a", None),
        ("()", None),
        ("=(a)", None),
        ("(a", None),
    ] {
        assert_eq!(Anchor::of(key), expected, "{key}");
    }
    assert!(Anchor::is_of_patterns("=(a)"));
    assert!(!Anchor::is_of_patterns("+(a)"));
    // What is added is found in lists, too.
    for (patch, adds) in [
        (json!({"a": [{"(b)": 1}, {"c": {"+(d)": 1}}]}), true),
        (json!({"a": [{"(b)": 1, "<(c)": 1}]}), false),
    ] {
        assert_eq!(Anchor::adds(&patch), adds, "{patch}");
    }
}

#[test]
fn a_patch_that_would_grow_too_large_is_refused() {
    let elements: Vec<_> = (0..4_000)
        .map(|at| json!({"name": at.to_string()}))
        .collect();
    let patch = json!({"spec": {"containers": [{"(name)": "*", "text": "x".repeat(4_000)}]}});
    let document = json!({"spec": {"containers": elements}});
    assert_eq!(
        resolved(&document, &patch),
        Err(PatchError::TooLarge.to_string())
    );
}

#[test]
fn each_element_that_an_anchor_is_compared_with_is_charged() {
    let containers = |containers: Vec<Value>| json!({"spec": {"containers": containers}});
    let document = containers(vec![json!({"name": "a"}); 300]);
    let patch = containers(vec![json!({"(image)": "x", "tty": true}); 300]);
    let charged = Cell::new(0_usize);
    let bytes_max = Cell::new(usize::MAX);
    let count = |bytes: usize| {
        charged.set(charged.get() + bytes);
        charged.get() < bytes_max.get()
    };
    let schema = Schema::of("v1", "Pod");
    let resolve = || resolve_charged(&patch, &document, schema, &matches, &count);
    assert_eq!(resolve(), Ok(None));
    assert!(charged.get() > 300 * 300 * VALUE_BYTES);
    charged.set(0);
    bytes_max.set(100_000);
    assert_eq!(resolve(), Err(PatchError::TooCostly));
    assert!(charged.get() < 101_000, "{}", charged.get());
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (0..2_i64).prop_map(Value::from),
        Just(json!("*")),
        Just(json!("a"))
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let key = prop_oneof![
            "[ab]",
            Just("spec".to_owned()),
            Just("containers".to_owned()),
            Just("name".to_owned()),
            Just("(name)".to_owned()),
            Just("<(name)".to_owned()),
            Just("+(a)".to_owned()),
            Just("(b)".to_owned()),
            Just("$patch".to_owned()),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn resolving_and_merging_any_patch_never_panics(document in any_value(), patch in any_value()) {
        let schema = Schema::of("v1", "Pod");
        if let Ok(Some(patch)) = resolve(&patch, &document, schema, &matches) {
            let _ = merge(&document, &patch, schema);
        }
    }

    #[test]
    fn no_anchor_is_left_in_a_resolved_patch(document in any_value(), patch in any_value()) {
        // A list of other things than objects is passed on as it is.
        let is_object = |value: &Value| value.is_object();
        if let Ok(Some(resolved)) = resolve(&patch, &document, Schema::UNKNOWN, &matches) {
            fn check(value: &Value, is_object: &dyn Fn(&Value) -> bool) -> bool {
                match value {
                    Value::Object(entries) => entries.iter().all(|(key, value)| {
                        Anchor::of(key).is_none() && check(value, is_object)
                    }),
                    Value::Array(elements) if elements.iter().all(is_object) => {
                        elements.iter().all(|element| check(element, is_object))
                    }
                    _ => true,
                }
            }
            prop_assert!(check(&resolved, &is_object), "{resolved}");
        }
    }
}
