use std::cell::Cell;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn merged_as(document: &Value, patch: &Value, api: &str, kind: &str) -> Result<Value, String> {
    merge(document, patch, Schema::of(api, kind)).map_err(|error| error.to_string())
}

/// About a Pod's `spec`.
fn of_pod(spec: &Value, patch: &Value) -> Result<Value, String> {
    let merged = merged_as(&json!({"spec": spec}), &json!({"spec": patch}), "v1", "Pod")?;
    Ok(merged["spec"].clone())
}

#[test]
fn objects_are_merged_field_by_field() {
    let table = [
        (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
        (
            json!({"a": {"b": 1}}),
            json!({"a": {"c": 2}}),
            json!({"a": {"b": 1, "c": 2}}),
        ),
        (json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2})),
        (
            json!({}),
            json!({"a": {"b": null, "c": 1}}),
            json!({"a": {"c": 1}}),
        ),
        (
            json!({"a": null}),
            json!({"a": {"b": 1}}),
            json!({"a": {"b": 1}}),
        ),
        (json!({"a": {"b": 1}}), json!({"a": null}), json!({})),
        (json!({"a": 1}), json!({"a": "b"}), json!({"a": "b"})),
        // What was a text stays one.
        (json!({"a": "b"}), json!({"a": 1}), json!({"a": "1"})),
        (json!({"a": "b"}), json!({"a": 1.0}), json!({"a": "1"})),
        (json!({"a": "b"}), json!({"a": 1.5}), json!({"a": "1.5"})),
        (json!({"a": ""}), json!({"a": true}), json!({"a": "true"})),
        (json!({"a": ["b"]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"a": {}}), json!({"a": {}}), json!({"a": {}})),
        (json!({}), json!({"a": {}}), json!({"a": {}})),
        (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
    ];
    for (document, patch, expected) in table {
        let merged = merge(&document, &patch, Schema::UNKNOWN);
        assert_eq!(merged, Ok(expected), "{patch}");
    }
}

#[test]
fn a_merge_never_changes_a_values_type() {
    let shapes = [json!(1), json!({"b": 1}), json!([1])];
    for found in &shapes {
        for patch in &shapes {
            let merged = of_pod(&json!({"a": found}), &json!({"a": patch}));
            match std::mem::discriminant(found) == std::mem::discriminant(patch) {
                true => assert_eq!(merged, Ok(json!({"a": patch}))),
                false => assert!(merged.unwrap_err().contains("merge at `spec.a`")),
            }
        }
    }
}

#[test]
fn merge_directives_replace_delete_and_order() {
    let table = [
        (
            json!({"a": {"b": 1}}),
            json!({"a": {"$patch": "replace", "c": 2}}),
            json!({"a": {"c": 2}}),
        ),
        (
            json!({"a": {"b": 1}}),
            json!({"a": {"$patch": "delete"}}),
            json!({}),
        ),
        (
            json!({"a": {"b": 1}}),
            json!({"a": {"$patch": "merge", "c": 2}}),
            json!({"a": {"b": 1, "c": 2}}),
        ),
        (
            json!({"a": {"b": 1, "c": 2}}),
            json!({"a": {"$retainKeys": ["c", "d"], "d": 3}}),
            json!({"a": {"c": 2, "d": 3}}),
        ),
        (
            json!({"a": ["x", "y"]}),
            json!({"$deleteFromPrimitiveList/a": ["x"]}),
            json!({"a": ["y"]}),
        ),
        (
            json!({"a": ["x", "y", "z"]}),
            json!({"$setElementOrder/a": ["z", "x"]}),
            json!({"a": ["z", "x", "y"]}),
        ),
        (
            json!({"a": ["x"]}),
            json!({"a": [{"$patch": "replace"}, "y"]}),
            json!({"a": ["y"]}),
        ),
    ];
    for (document, patch, expected) in table {
        let merged = merge(&document, &patch, Schema::UNKNOWN);
        assert_eq!(merged, Ok(expected), "{patch}");
    }
    let table = [
        (
            json!({"a": {"$patch": "remove"}}),
            "a: `$patch` is none of delete, merge, replace",
        ),
        (
            json!({"$patch": 1}),
            "the patch: `$patch` is none of delete, merge, replace",
        ),
        (
            json!({"a": {"b": {"$retainKeys": "c"}}}),
            "a.b: `$retainKeys` is not a list",
        ),
        (
            json!({"$retainKeys": ["a"], "b": 1}),
            "the patch: `b` is not among its `$retainKeys`",
        ),
    ];
    for (patch, expected) in table {
        let error = merge(&json!({}), &patch, Schema::UNKNOWN).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn lists_are_merged_by_their_keys() {
    let table = [
        // What the patch speaks of comes first.
        (
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}),
            json!({"containers": [{"name": "b", "image": "2"}, {"name": "c"}]}),
            json!({"containers": [{"name": "b", "image": "2"}, {"name": "c"}, {"name": "a", "image": "1"}]}),
        ),
        (
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": 2}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "2"}]}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b"}]}),
        ),
        (
            json!({"containers": [{"name": "a"}]}),
            json!({"containers": [{"$patch": "replace"}, {"name": "b"}]}),
            json!({"containers": [{"name": "b"}]}),
        ),
        (
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}]}),
        ),
        // The protocol tells ports apart where both give it. They stay where they are; only new ones come first.
        (
            json!({"containers": [{"name": "a", "ports": [
                {"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]}]}),
            json!({"containers": [{"name": "a", "ports": [
                {"containerPort": 53, "protocol": "UDP", "name": "dns"},
                {"containerPort": 80, "protocol": "TCP"}]}]}),
            json!({"containers": [{"name": "a", "ports": [
                {"containerPort": 80, "protocol": "TCP"},
                {"containerPort": 53, "protocol": "TCP"},
                {"containerPort": 53, "protocol": "UDP", "name": "dns"}]}]}),
        ),
        (
            json!({"containers": [{"name": "a", "ports": [
                {"containerPort": 1, "protocol": "TCP"}, {"containerPort": 2, "protocol": "TCP"}]}]}),
            json!({"containers": [{"name": "a", "ports": [
                {"containerPort": 1, "protocol": "TCP", "$patch": "delete"},
                {"containerPort": 2, "protocol": "TCP", "name": "b"}, {"containerPort": 2, "hostPort": 3}]}]}),
            json!({"containers": [{"name": "a", "ports": [
                {"containerPort": 2, "protocol": "TCP", "name": "b", "hostPort": 3}]}]}),
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "imagePullSecrets": [{"name": "s"}]}),
            json!({"volumes": [{"name": "w", "emptyDir": {}}], "imagePullSecrets": [{"name": "s"}]}),
            json!({"volumes": [{"name": "w", "emptyDir": {}}, {"name": "v", "emptyDir": {}}],
                "imagePullSecrets": [{"name": "s"}]}),
        ),
        // These are replaced.
        (
            json!({"tolerations": [{"key": "a"}], "dnsConfig": {"options": [{"name": "a"}]}}),
            json!({"tolerations": [{"key": "b"}], "dnsConfig": {"options": [{"name": "b"}]}}),
            json!({"tolerations": [{"key": "b"}], "dnsConfig": {"options": [{"name": "b"}]}}),
        ),
        (
            json!({"hostAliases": [{"ip": "1.1.1.1"}], "topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1}]}),
            json!({"hostAliases": [{"ip": "1.1.1.1", "hostnames": ["h"]}], "topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 2}]}),
            json!({"hostAliases": [{"ip": "1.1.1.1", "hostnames": ["h"]}], "topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 2}]}),
        ),
        (
            json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
            json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}),
            json!({"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}),
        ),
        // Elements without the key stay, and so does the second of two with one.
        (
            json!({"containers": [{"image": "x"}, {"name": "a"}, {"name": "a", "image": "y"}]}),
            json!({"containers": [{"name": "a", "tty": true}]}),
            json!({"containers": [{"name": "a", "tty": true}, {"image": "x"}, {"name": "a", "image": "y"}]}),
        ),
    ];
    for (document, patch, expected) in table {
        assert_eq!(of_pod(&document, &patch), Ok(expected), "{patch}");
    }
    assert_eq!(
        of_pod(&json!({}), &json!({"containers": [{"image": "x"}]})),
        Err("spec.containers.[]: an element needs its `name`, by which it is merged".to_owned())
    );
    assert_eq!(
        of_pod(&json!({}), &json!({"containers": ["x"]})),
        Err("spec.containers.[]: an object is expected in this list".to_owned())
    );
}

#[test]
fn each_kind_has_its_own_merge_keys() {
    let pod = |spec: Value| json!({"template": {"spec": spec}});
    let containers = |image: &str| json!({"containers": [{"name": "a", "image": image}]});
    let two = json!({"containers": [{"name": "b"}, {"name": "a", "image": "x"}]});
    let patch = json!({"containers": [{"name": "b"}]});
    for (api, kind, wrap) in [
        ("apps/v1", "Deployment", 1),
        ("batch/v1", "Job", 1),
        ("batch/v1", "CronJob", 2),
    ] {
        let wrapped = |spec: Value| match wrap {
            1 => json!({"spec": pod(spec)}),
            _ => json!({"spec": {"jobTemplate": {"spec": pod(spec)}}}),
        };
        assert_eq!(
            merged_as(
                &wrapped(containers("x")),
                &wrapped(patch.clone()),
                api,
                kind
            ),
            Ok(wrapped(two.clone())),
            "{kind}"
        );
    }
    // Another group's kind of the same name is not known.
    let document = json!({"spec": {"ports": [{"port": 1}]}});
    let patch = json!({"spec": {"ports": [{"port": 2}]}});
    assert_eq!(
        merged_as(&document, &patch, "serving.knative.dev/v1", "Service"),
        Ok(patch.clone())
    );
    let both = json!({"spec": {"ports": [{"port": 2}, {"port": 1}]}});
    assert_eq!(merged_as(&document, &patch, "v1", "Service"), Ok(both));
    let document = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patch = json!({"metadata": {"finalizers": ["c", "b"]}});
    let all = json!({"metadata": {"finalizers": ["c", "b", "a"]}});
    for (api, kind, expected) in [
        ("v1", "ConfigMap", &all),
        // A kind without a table of its own, such as a newer kind.
        ("coordination.k8s.io/v1", "Lease", &all),
        ("apps/v1", "Newer", &all),
        // What users define.
        ("gateway.networking.k8s.io/v1", "Gateway", &patch),
        ("example.com/v1", "Lease", &patch),
    ] {
        assert_eq!(
            merged_as(&document, &patch, api, kind).as_ref(),
            Ok(expected),
            "{api}"
        );
    }
}

#[test]
fn a_merge_too_deep_or_too_large_is_refused() {
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    assert!(merge(&json!({}), &nested(DEPTH_MAX), Schema::UNKNOWN).is_ok());
    let error = merge(&json!({}), &nested(DEPTH_MAX + 1), Schema::UNKNOWN);
    assert_eq!(error, Err(PatchError::TooDeep));
    let error = merge(&nested(DEPTH_MAX + 1), &json!({}), Schema::UNKNOWN);
    assert_eq!(error, Err(PatchError::TooDeep));
    // A list is a level as an object is.
    let lists = (0..=DEPTH_MAX).fold(json!(1), |inner, _| json!([inner]));
    let error = merge(&lists, &json!({}), Schema::UNKNOWN);
    assert_eq!(error, Err(PatchError::TooDeep));
    let large = json!({"a": "x".repeat(crate::BUILT_BYTES_MAX)});
    assert_eq!(
        merge(&json!({}), &large, Schema::UNKNOWN),
        Err(PatchError::TooLarge)
    );
}

/// Returns the work of a merge into a Pod, in bytes of text.
fn work_of(document: &Value, patch: &Value) -> usize {
    let charged = Cell::new(0_usize);
    let count = |bytes: usize| {
        charged.set(charged.get() + bytes);
        true
    };
    let schema = Schema::of("v1", "Pod");
    let made = merge_charged(document, patch, schema, &count);
    assert!(made.is_ok(), "{made:?}");
    assert_eq!(made, merge(document, patch, schema));
    charged.get()
}

#[test]
fn a_merge_copies_each_value_once_however_deep_the_patch_is() {
    let nested = |inner: Value| (0..50).fold(inner, |inner, _| json!({"a": inner}));
    let document = nested(json!({"text": "x".repeat(100_000)}));
    let charged = work_of(&document, &nested(json!({"b": 1})));
    assert!((100_000..110_000).contains(&charged), "{charged}");
}

#[test]
fn a_merge_by_keys_is_charged_by_what_it_copies_compares_and_searches() {
    let containers = |containers: Vec<Value>| json!({"spec": {"containers": containers}});
    let named = |count: usize| {
        let named = (0..count).map(|at| json!({"name": at.to_string()}));
        containers(named.collect())
    };
    let [small, large] = [1_000, 10_000].map(|count| work_of(&named(count), &named(count)));
    assert!(small >= 2 * 1_000 * VALUE_BYTES, "{small}");
    assert!((9 * small..12 * small).contains(&large), "{small} {large}");
    // The protocol alone tells these ports apart, so each is compared with all that the object has.
    let ports = |protocol: &str| {
        let port = |at| json!({"containerPort": 1, "protocol": format!("{protocol}{at}")});
        let ports: Vec<_> = (0..300).map(port).collect();
        containers(vec![json!({"name": "a", "ports": ports})])
    };
    let compared = work_of(&ports("a"), &ports("b"));
    assert!(compared > 300 * 300 * VALUE_BYTES, "{compared}");
    // Each element is merged into the first, whose text is copied.
    let mut patch = vec![json!({"name": "a", "image": "x".repeat(10_000)})];
    patch.extend(vec![json!({"name": "a", "tty": true}); 100]);
    let copied = work_of(&json!({}), &containers(patch));
    assert!(copied > 100 * 10_000, "{copied}");
}

/// Each element is written as a text, and looked up among the others.
#[test]
fn a_directive_about_a_list_is_charged_by_the_elements_of_both() {
    let texts: Value = (0..1_000).map(|at| at.to_string()).collect();
    let document = json!({"a": texts});
    let copied = work_of(&document, &json!({}));
    for directive in ["$deleteFromPrimitiveList/a", "$setElementOrder/a"] {
        let charged = work_of(&document, &json!({directive: texts}));
        let expected = copied + 4 * 1_000 * VALUE_BYTES;
        assert!(charged >= expected, "{directive}: {charged} of {expected}");
    }
}

#[test]
fn a_merge_whose_work_is_too_much_ends_there() {
    let asked = Cell::new(0_usize);
    let five = |_: usize| {
        asked.set(asked.get() + 1);
        asked.get() < 5
    };
    let patch = json!({"spec": {"containers": vec![json!({"name": "a"}); 100]}});
    let made = merge_charged(&json!({}), &patch, Schema::of("v1", "Pod"), &five);
    assert_eq!(made, Err(PatchError::TooCostly));
    assert_eq!(asked.get(), 5);
}

#[test]
fn only_retained_fields_stay_and_what_the_patch_has_is_merged_into_them() {
    let document = json!({"a": {"b": 1, "c": {"d": 1}, "e": 2}});
    let patch = json!({"a": {"$retainKeys": ["c", "f"], "c": {"g": 1}}});
    let merged = merge(&document, &patch, Schema::UNKNOWN);
    assert_eq!(merged, Ok(json!({"a": {"c": {"d": 1, "g": 1}}})));
}

fn any_spec() -> impl Strategy<Value = Value> {
    let container = ("[ab]", prop::option::of("[xy]"), prop::option::of(0..3_u16)).prop_map(
        |(name, image, port)| {
            let mut container = json!({"name": name});
            if let Some(image) = image {
                container["image"] = image.into();
            }
            if let Some(port) = port {
                container["ports"] = json!([{"containerPort": port}]);
            }
            container
        },
    );
    (
        prop::collection::vec(container, 0..4),
        prop::collection::vec("[pq]", 0..3),
        prop::option::of(any::<bool>()),
    )
        .prop_map(|(containers, finalizers, flag)| {
            json!({"metadata": {"finalizers": finalizers}, "spec": {"containers": containers, "flag": flag}})
        })
}

proptest! {
    #[test]
    fn merging_a_patch_twice_changes_nothing_more(document in any_spec(), patch in any_spec()) {
        let schema = Schema::of("v1", "Pod");
        let once = merge(&document, &patch, schema).unwrap();
        prop_assert_eq!(merge(&once, &patch, schema), Ok(once.clone()));
    }

    #[test]
    fn an_empty_patch_changes_nothing(document in any_spec()) {
        let schema = Schema::of("v1", "Pod");
        prop_assert_eq!(merge(&document, &json!({}), schema), Ok(document));
    }

    #[test]
    fn a_merge_keeps_every_element_of_both_lists(document in any_spec(), patch in any_spec()) {
        let merged = merge(&document, &patch, Schema::of("v1", "Pod")).unwrap();
        let names = |value: &Value| {
            let containers = value["spec"]["containers"].as_array().unwrap().iter();
            containers.map(|c| c["name"].to_string()).collect::<std::collections::BTreeSet<_>>()
        };
        let expected: std::collections::BTreeSet<_> = names(&document).union(&names(&patch)).cloned().collect();
        prop_assert_eq!(names(&merged), expected);
    }
}
