use serde_json::json;

use super::*;
use crate::ir::{Driver, Policy};

/// A policy whose one rule mutates Pods in this way.
fn policy(mutate: &Value) -> Policy {
    let mut mutate = mutate.clone();
    mutate["targets"] = json!([{"apiVersion": "v1", "kind": "Pod", "namespace": "shop"}]);
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "mutate": mutate,
        }]},
    });
    let driver = Driver {
        targets: true,
        ..Driver::ALL
    };
    crate::compile_for(&manifest, driver).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn merge(patch: &Value) -> Value {
    json!({"patchStrategicMerge": patch})
}

fn operations(list: &Value) -> Value {
    json!({"patchesJson6902": list})
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "x", "namespace": "shop", "resourceVersion": "1",
            "labels": {"a": "1", "b": "2"}, "managedFields": []},
        "spec": {
            "nodeName": "n",
            "containers": [
                {"name": "c", "image": "i", "args": ["x", "y"]},
                {"name": "d", "image": "j"},
            ],
        },
    })
}

/// The Pod with these values at these pointers; null takes away.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut pod = pod();
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap();
        match parent {
            Value::Array(elements) if name == "-" => elements.push(value.clone()),
            Value::Array(elements) => elements[name.parse::<usize>().unwrap()] = value.clone(),
            Value::Object(fields) if value.is_null() => drop(fields.remove(name)),
            parent => parent[name] = value.clone(),
        }
    }
    pod
}

/// Returns the path that the rule does not change; `None`: it changes all that differs.
fn outside(policy: &Policy, after: &Value) -> Option<String> {
    let refusal = policy.permits_change("r", 0, &pod(), after, "pods").err()?;
    let told = refusal.to_string();
    let (_, path) = told.split_once("the rule does not change `")?;
    Some(path.trim_end_matches('`').to_owned())
}

#[track_caller]
fn check(mutate: &Value, inside: &[Value], expected: &[(&str, Value)]) {
    let policy = policy(mutate);
    for after in inside {
        assert_eq!(outside(&policy, after), None, "{mutate} {after}");
    }
    for (path, after) in expected {
        let found = outside(&policy, after);
        assert_eq!(found.as_deref(), Some(*path), "{mutate} {after}");
    }
}

#[test]
fn a_merge_sets_its_own_values_and_changes_nothing_beside_them() {
    let labels = json!({"metadata": {"labels": {"a": "9", "c": "{{ request.name }}", "+(d)": "4", "b": null}}});
    check(
        &merge(&labels),
        &[
            pod(),
            with(&[("/metadata/labels/a", json!("9"))]),
            with(&[("/metadata/labels/c", json!("any"))]),
            with(&[("/metadata/labels/d", json!("4"))]),
            with(&[("/metadata/labels/b", Value::Null)]),
            with(&[("/metadata/managedFields", json!([1]))]),
            with(&[("/metadata/resourceVersion", json!("2"))]),
        ],
        &[
            (
                "metadata.labels.a",
                with(&[("/metadata/labels/a", json!("8"))]),
            ),
            (
                "metadata.labels.a",
                with(&[("/metadata/labels/a", Value::Null)]),
            ),
            (
                "metadata.labels.e",
                with(&[("/metadata/labels/e", json!("9"))]),
            ),
            (
                "metadata.labels.b",
                with(&[("/metadata/labels/b", json!("3"))]),
            ),
            (
                "metadata.labels",
                with(&[("/metadata/labels", Value::Null)]),
            ),
            // What has no parts in the patch is no parent.
            (
                "metadata.labels.d",
                with(&[("/metadata/labels/d", json!({}))]),
            ),
            (
                "metadata.annotations",
                with(&[("/metadata/annotations", json!({"a": "b"}))]),
            ),
            (
                "metadata.finalizers",
                with(&[("/metadata/finalizers", json!(["f"]))]),
            ),
            ("spec.nodeName", with(&[("/spec/nodeName", json!("m"))])),
            (
                "spec.containers",
                with(&[("/spec/containers/0/image", json!("evil"))]),
            ),
            ("status", with(&[("/status", json!({"phase": "Failed"}))])),
        ],
    );
}

#[test]
fn a_missing_parent_may_be_created_with_the_patched_fields_alone() {
    let annotations = json!({"metadata": {"annotations": {"a": "b"}}});
    check(
        &merge(&annotations),
        &[with(&[("/metadata/annotations", json!({"a": "b"}))])],
        &[(
            "metadata.annotations.c",
            with(&[("/metadata/annotations", json!({"a": "b", "c": "d"}))]),
        )],
    );
}

#[test]
fn elements_of_a_list_are_changed_where_the_patch_does() {
    let all = json!({"spec": {"containers": [{"(name)": "*", "imagePullPolicy": "Always"}]}});
    let second = json!({"name": "d", "image": "j", "imagePullPolicy": "Always"});
    let policy_of = |at: usize| {
        (
            format!("/spec/containers/{at}/imagePullPolicy"),
            json!("Always"),
        )
    };
    let (one, two) = (policy_of(0), policy_of(1));
    let both = with(&[(&one.0, one.1.clone()), (&two.0, two.1.clone())]);
    let first = both["spec"]["containers"][0].clone();
    check(
        &merge(&all),
        &[
            both,
            // What is merged comes first.
            with(&[("/spec/containers", json!([second, first]))]),
        ],
        &[
            (
                "spec.containers[0].image",
                with(&[("/spec/containers/0/image", json!("evil"))]),
            ),
            (
                "spec.containers[1].imagePullPolicy",
                with(&[(&two.0, json!("Never"))]),
            ),
            (
                "spec.containers[0].args",
                with(&[("/spec/containers/0/args/0", json!("evil"))]),
            ),
            (
                "spec.containers[2].name",
                with(&[("/spec/containers/-", json!({"name": "evil"}))]),
            ),
            ("spec.nodeName", with(&[("/spec/nodeName", json!("m"))])),
        ],
    );
    // A field of this name is no element.
    check(
        &merge(&json!({"spec": {"containers": {"image": "evil"}}})),
        &[],
        &[(
            "spec.containers",
            with(&[("/spec/containers/0", json!("evil"))]),
        )],
    );
}

#[test]
fn a_conditional_anchor_changes_no_field_but_those_that_it_adds() {
    let patch = json!({"spec": {"(nodeName)": "n", "<(hostNetwork)": false,
        "(securityContext)": {"+(runAsNonRoot)": true}}});
    check(
        &merge(&patch),
        &[with(&[(
            "/spec/securityContext",
            json!({"runAsNonRoot": true}),
        )])],
        &[
            ("spec.nodeName", with(&[("/spec/nodeName", Value::Null)])),
            (
                "spec.hostNetwork",
                with(&[("/spec/hostNetwork", json!(false))]),
            ),
            (
                "spec.securityContext.privileged",
                with(&[("/spec/securityContext", json!({"privileged": true}))]),
            ),
        ],
    );
    // With variables beside them, or in them.
    let name = "{{ request.name }}";
    let patch = json!({"spec": {
        "(nodeName)": name,
        "(securityContext)": {"+(runAsNonRoot)": true, "(runAsUser)": name},
        "(affinity)": {"(a)": {"+(b)": name}},
    }});
    check(
        &merge(&patch),
        &[
            with(&[("/spec/securityContext", json!({"runAsNonRoot": true}))]),
            with(&[("/spec/affinity", json!({"a": {"b": "any"}}))]),
        ],
        &[
            ("spec.nodeName", with(&[("/spec/nodeName", json!("m"))])),
            (
                "spec.securityContext.runAsUser",
                with(&[("/spec/securityContext", json!({"runAsUser": "9"}))]),
            ),
        ],
    );
}

#[test]
fn a_computed_key_is_any_key_and_its_value_is_what_is_written() {
    let labels = json!({"metadata": {"labels": {"{{ request.name }}": "yes"}}});
    check(
        &merge(&labels),
        &[with(&[("/metadata/labels/any", json!("yes"))])],
        &[
            (
                "metadata.labels.any",
                with(&[("/metadata/labels/any", json!("no"))]),
            ),
            ("spec.nodeName", with(&[("/spec/nodeName", json!("yes"))])),
        ],
    );
}

#[test]
fn a_patch_directive_may_change_every_field_of_its_object() {
    let replaced = json!({"metadata": {"labels": {"$patch": "replace", "a": "b"}}});
    check(
        &merge(&replaced),
        &[with(&[("/metadata/labels", json!({"a": "b"}))])],
        &[("spec.nodeName", with(&[("/spec/nodeName", Value::Null)]))],
    );
}

#[test]
fn operations_change_what_their_paths_name() {
    let list = json!([
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "c"},
        {"op": "replace", "path": "/spec/containers/0/image", "value": "fixed"},
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "e", "image": "f"}},
        {"op": "remove", "path": "/metadata/labels/b"},
        {"op": "test", "path": "/spec/nodeName", "value": "n"},
    ]);
    check(
        &operations(&list),
        &[
            with(&[("/metadata/annotations", json!({"a/b": "c"}))]),
            with(&[("/spec/containers/0/image", json!("fixed"))]),
            with(&[("/spec/containers/-", json!({"name": "e", "image": "f"}))]),
            with(&[("/metadata/labels/b", Value::Null)]),
        ],
        &[
            (
                "metadata.annotations.d",
                with(&[("/metadata/annotations", json!({"d": "c"}))]),
            ),
            (
                "metadata.labels.b",
                with(&[("/metadata/labels/b", json!("3"))]),
            ),
            (
                "spec.containers[0].image",
                with(&[("/spec/containers/0/image", json!("evil"))]),
            ),
            (
                "spec.containers[2].image",
                with(&[(
                    "/spec/containers/-",
                    json!({"name": "e", "image": "f", "securityContext": {"privileged": true}}),
                )]),
            ),
            ("spec.nodeName", with(&[("/spec/nodeName", json!("m"))])),
        ],
    );
}

#[test]
fn a_computed_step_is_any_step_and_a_computed_patch_is_anything() {
    let path = "/spec/containers/{{ request.object.data.at }}/image";
    let list = json!([{"op": "replace", "path": path, "value": "{{ request.name }}"}]);
    check(
        &operations(&list),
        &[with(&[("/spec/containers/1/image", json!("any"))])],
        &[
            (
                "spec.containers[1].name",
                with(&[("/spec/containers/1/name", json!("e"))]),
            ),
            ("spec.nodeName", with(&[("/spec/nodeName", json!("m"))])),
        ],
    );
    let evil = with(&[("/spec/containers/0/image", json!("evil"))]);
    check(
        &operations(&json!("{{ request.object.data.patch }}")),
        std::slice::from_ref(&evil),
        &[],
    );
    let moved = json!([{"op": "move", "from": "/spec/nodeName", "path": "/metadata/labels/node"}]);
    let node = with(&[
        ("/metadata/labels/node", json!("n")),
        ("/spec/nodeName", Value::Null),
    ]);
    check(&operations(&moved), &[node], &[("spec.containers", evil)]);
}

#[test]
fn a_foreach_changes_what_its_patches_change() {
    let each = json!({"foreach": [{
        "list": "target.spec.containers",
        "patchStrategicMerge": {"spec": {"containers": [{
            "name": "{{ element.name }}", "image": "registry/{{ element.image }}",
        }]}},
    }]});
    check(
        &each,
        &[with(&[("/spec/containers/0/image", json!("registry/i"))])],
        &[(
            "spec.containers[0].tty",
            with(&[("/spec/containers/0/tty", json!(true))]),
        )],
    );
}

/// The comparison of lists takes so many steps and no more, whatever is asked for.
#[test]
fn a_change_that_takes_too_long_to_compare_is_refused() {
    let labels = json!({"spec": {"volumes": [{"name": "a"}]}});
    let policy = policy(&merge(&labels));
    let list = |of: &str| -> Value {
        (0..2_000)
            .map(|n| json!({"name": format!("{of}{n}")}))
            .collect()
    };
    let [mut before, mut after] = [pod(), pod()];
    before["spec"]["volumes"] = list("x");
    let turned: Vec<_> = list("x")
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .cloned()
        .collect();
    after["spec"]["volumes"] = turned.into();
    let refusal = policy
        .permits_change("r", 0, &before, &after, "pods")
        .unwrap_err();
    assert!(
        refusal.to_string().contains("more than can be compared"),
        "{refusal}"
    );
}
