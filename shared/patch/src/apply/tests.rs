use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::{BUILT_BYTES_MAX, DEPTH_MAX};

mod limits;
mod lists;
mod properties;
mod schemas;

/// Merges into an object of one of Kubernetes' own kinds.
fn applied(api_version: &str, kind: &str, object: &Value, patch: &Value) -> Result<Value, String> {
    let schema = ObjectSchema::built_in(api_version, kind).unwrap();
    apply(object, patch, &schema, Atomics::Refused).map_err(|error| error.to_string())
}

/// About a Pod's `spec`.
fn of_pod(spec: &Value, patch: &Value) -> Result<Value, String> {
    let merged = applied("v1", "Pod", &json!({"spec": spec}), &json!({"spec": patch}))?;
    Ok(merged["spec"].clone())
}

/// A kind with a field of every sort.
fn every_sort() -> ObjectSchema {
    let text = json!({"type": "string"});
    let element = json!({"type": "object", "properties": {
        "name": text, "protocol": {"type": "string", "default": "TCP"}, "value": {"type": "integer"},
        "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "pair": {"type": "object", "properties": {"a": text, "b": text}},
        "rules": {"type": "array", "items": text, "x-kubernetes-list-type": "atomic"},
    }});
    let pair = json!({"type": "object", "properties": {"a": text, "b": text}});
    let atomic = json!({"type": "object", "properties": {"a": text, "b": text}, "x-kubernetes-map-type": "atomic"});
    ObjectSchema::from_crd(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": text, "number": {"type": "number"}, "flag": {"type": "boolean"},
        "port": {"x-kubernetes-int-or-string": true},
        "labels": {"type": "object", "additionalProperties": text},
        "pairs": {"type": "object", "additionalProperties": pair},
        "atomics": {"type": "object", "additionalProperties": atomic},
        "pair": pair, "atomicPair": atomic,
        "keyed": {"type": "array", "items": element, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "protocol"]},
        "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "numbers": {"type": "array", "items": {"type": "number"}, "x-kubernetes-list-type": "set"},
        "atomicList": {"type": "array", "items": text},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "open": {"type": "object", "properties": {"known": text, "inner": pair},
            "x-kubernetes-preserve-unknown-fields": true},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true},
    }}}}))
    .unwrap()
}

/// About the `spec` of that kind.
fn of_every_sort(spec: &Value, patch: &Value, atomics: Atomics) -> Result<Value, String> {
    let (object, patch) = (json!({"spec": spec}), json!({"spec": patch}));
    let merged = apply(&object, &patch, &every_sort(), atomics);
    Ok(merged.map_err(|error| error.to_string())?["spec"].clone())
}

#[test]
fn objects_and_maps_are_merged_field_by_field() {
    let table = [
        (json!({}), json!({"text": "a"}), json!({"text": "a"})),
        (
            json!({"text": "a"}),
            json!({"text": "b"}),
            json!({"text": "b"}),
        ),
        (
            json!({"text": "a"}),
            json!({"flag": true}),
            json!({"text": "a", "flag": true}),
        ),
        (
            json!({"text": null}),
            json!({"text": "b"}),
            json!({"text": "b"}),
        ),
        (
            json!({"text": null}),
            json!({"flag": false}),
            json!({"text": null, "flag": false}),
        ),
        (
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"b": "2"}}),
            json!({"labels": {"a": "1", "b": "2"}}),
        ),
        (
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"a": "2"}}),
            json!({"labels": {"a": "2"}}),
        ),
        (
            json!({"labels": {"a": "1"}}),
            json!({"labels": {}}),
            json!({"labels": {"a": "1"}}),
        ),
        (
            json!({"labels": null}),
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"a": "1"}}),
        ),
        (
            json!({"labels": null}),
            json!({"labels": {}}),
            json!({"labels": {}}),
        ),
        (json!({}), json!({"labels": {}}), json!({"labels": {}})),
        (
            json!({"pair": {"a": "1"}}),
            json!({"pair": {"b": "2"}}),
            json!({"pair": {"a": "1", "b": "2"}}),
        ),
        (
            json!({"pairs": {"x": {"a": "1"}, "y": {}}}),
            json!({"pairs": {"x": {"b": "2"}, "z": {"a": "3"}}}),
            json!({"pairs": {"x": {"a": "1", "b": "2"}, "y": {}, "z": {"a": "3"}}}),
        ),
        (
            json!({"number": 1}),
            json!({"number": 1.5}),
            json!({"number": 1.5}),
        ),
        (
            json!({"port": 80}),
            json!({"port": "http"}),
            json!({"port": "http"}),
        ),
    ];
    for (object, patch, expected) in table {
        let merged = of_every_sort(&object, &patch, Atomics::Refused);
        assert_eq!(merged, Ok(expected), "{object} under {patch}");
    }
}

#[test]
fn undeclared_fields_are_merged_by_their_shape_where_the_schema_keeps_them() {
    let table = [
        (
            json!({"free": {"a": {"b": 1}}}),
            json!({"free": {"a": {"c": 2}}}),
            json!({"free": {"a": {"b": 1, "c": 2}}}),
        ),
        (
            json!({"free": {"a": [1, 2]}}),
            json!({"free": {"a": [3]}}),
            json!({"free": {"a": [3]}}),
        ),
        (
            json!({"free": {"a": {"b": 1}}}),
            json!({"free": {"a": 1}}),
            json!({"free": {"a": 1}}),
        ),
        (
            json!({"free": {"a": [1]}}),
            json!({"free": {"a": {"b": 1}}}),
            json!({"free": {"a": {"b": 1}}}),
        ),
        (
            json!({"open": {"other": {"a": 1}}}),
            json!({"open": {"other": {"b": 1}}}),
            json!({"open": {"other": {"a": 1, "b": 1}}}),
        ),
        (
            json!({"open": {"inner": {"a": "1", "c": {"d": 1}}}}),
            json!({"open": {"inner": {"c": {"e": 2}}}}),
            json!({"open": {"inner": {"a": "1", "c": {"d": 1, "e": 2}}}}),
        ),
        (
            json!({"any": 1}),
            json!({"any": {"a": 1}}),
            json!({"any": {"a": 1}}),
        ),
        (
            json!({"any": {"a": 1}}),
            json!({"any": {"b": {"c": [1]}}}),
            json!({"any": {"a": 1, "b": {"c": [1]}}}),
        ),
        (
            json!({"embedded": {"kind": "A", "metadata": {"finalizers": ["a"]}, "spec": {"a": 1}}}),
            json!({"embedded": {"metadata": {"finalizers": ["b"]}, "spec": {"b": 1}}}),
            json!({"embedded": {"kind": "A", "metadata": {"finalizers": ["a", "b"]}, "spec": {"a": 1, "b": 1}}}),
        ),
    ];
    for (object, patch, expected) in table {
        let merged = of_every_sort(&object, &patch, Atomics::Refused);
        assert_eq!(merged, Ok(expected), "{object} under {patch}");
    }
}

#[test]
fn a_patch_may_not_touch_what_is_atomic() {
    let table = [
        (json!({"atomicList": ["a"]}), vec![".spec.atomicList"]),
        (json!({"atomicList": []}), vec![".spec.atomicList"]),
        (json!({"atomicPair": {"a": "1"}}), vec![".spec.atomicPair"]),
        (
            json!({"atomicPair": {}, "atomicList": []}),
            vec![".spec.atomicList", ".spec.atomicPair"],
        ),
        (
            json!({"keyed": [{"name": "a"}, {"name": "b", "rules": []}]}),
            vec![".spec.keyed[1].rules"],
        ),
        (json!({"any": [1]}), vec![".spec.any"]),
    ];
    for (patch, paths) in table {
        let (object, patch) = (json!({"spec": {}}), json!({"spec": patch}));
        let paths = paths.into_iter().map(str::to_owned).collect();
        let refused = apply(&object, &patch, &every_sort(), Atomics::Refused);
        assert_eq!(refused, Err(ApplyError::Atomic { paths }), "{patch}");
        assert_eq!(
            apply(&object, &patch, &every_sort(), Atomics::Replaced),
            Ok(patch)
        );
    }
    // The API server does not look into maps.
    for patch in [
        json!({"atomics": {"x": {"a": "1"}}}),
        json!({"free": {"a": [1]}}),
    ] {
        assert_eq!(
            of_every_sort(&json!({}), &patch, Atomics::Refused),
            Ok(patch)
        );
    }
}

#[test]
fn atomic_lists_and_maps_are_replaced_whole_where_replacement_is_allowed() {
    let object =
        json!({"atomicList": ["a"], "atomicPair": {"a": "1"}, "atomics": {"x": {"a": "1"}}});
    let patch =
        json!({"atomicList": ["b"], "atomicPair": {"b": "2"}, "atomics": {"x": {"b": "2"}}});
    assert_eq!(of_every_sort(&object, &patch, Atomics::Replaced), Ok(patch));
}

#[test]
fn a_patch_that_does_not_fit_is_refused_with_its_path() {
    let table = [
        (
            json!({"text": 1}),
            ".spec.text: expected a text, found a number",
        ),
        (
            json!({"number": "1"}),
            ".spec.number: expected a number, found a text",
        ),
        (
            json!({"flag": "true"}),
            ".spec.flag: expected a boolean, found a text",
        ),
        (
            json!({"labels": {"a": 1}}),
            ".spec.labels.a: expected a text, found a number",
        ),
        (
            json!({"labels": ["a"]}),
            ".spec.labels: expected an object, found a list",
        ),
        (
            json!({"pair": {"c": "1"}}),
            ".spec.pair.c: the field is not declared in the schema",
        ),
        (
            json!({"unknown": 1}),
            ".spec.unknown: the field is not declared in the schema",
        ),
        (
            json!({"set": "a"}),
            ".spec.set: expected a list, found a text",
        ),
        (
            json!({"set": [["a"]]}),
            ".spec.set[0]: an element of a set may not be a list",
        ),
        (
            json!({"set": [{}]}),
            ".spec.set[0]: an element of a set may not be an object",
        ),
        (
            json!({"set": [null]}),
            ".spec.set[0]: an element of a set may not be null",
        ),
        (
            json!({"set": [1]}),
            ".spec.set[=1]: expected a text, found a number",
        ),
        (
            json!({"set": ["a", "a"]}),
            ".spec.set[=\"a\"]: the element is there twice",
        ),
        // A fault of a different kind is reported rather than the duplicate.
        (
            json!({"set": ["a", "a"], "undeclared": 1}),
            ".spec.undeclared: the field is not declared in the schema",
        ),
        (
            json!({"keyed": ["a"]}),
            ".spec.keyed[0]: an element of a list with keys must be an object",
        ),
        (
            json!({"keyed": [{"name": "a", "value": "x"}]}),
            ".spec.keyed[name=\"a\",protocol=\"TCP\"].value: expected a number, found a text",
        ),
        (
            json!({"keyed": [{"name": "a"}, {"name": "a", "protocol": "TCP"}]}),
            ".spec.keyed[name=\"a\",protocol=\"TCP\"]: the element is there twice",
        ),
        (
            json!({"text": null}),
            ".spec.text: null is no value here: a merge takes nothing away",
        ),
        (
            json!({"free": {"a": null}}),
            ".spec.free.a: null is no value here: a merge takes nothing away",
        ),
        (
            json!({"port": {"a": [null]}}),
            ".spec.port.a[0]: null is no value here: a merge takes nothing away",
        ),
    ];
    for (patch, expected) in table {
        let refused = of_every_sort(&json!({}), &patch, Atomics::Refused).unwrap_err();
        assert_eq!(
            refused,
            format!("invalid ApplyConfiguration: {expected}"),
            "{patch}"
        );
    }
    for patch in [json!(null), json!([]), json!("a")] {
        let refused = apply(&json!({}), &patch, &every_sort(), Atomics::Refused);
        assert!(matches!(refused, Err(ApplyError::Patch { .. })), "{patch}");
    }
}

#[test]
fn an_object_that_does_not_fit_is_refused_with_its_path() {
    let table = [
        (
            json!({"text": 1}),
            ".spec.text: expected a text, found a number",
        ),
        (
            json!({"labels": []}),
            ".spec.labels: expected an object, found a list",
        ),
        (
            json!({"keyed": [null]}),
            ".spec.keyed[0]: an element of a list with keys must be an object",
        ),
        (
            json!({"set": [null]}),
            ".spec.set[0]: an element of a set may not be null",
        ),
    ];
    for (object, expected) in table {
        let refused = of_every_sort(&object, &json!({}), Atomics::Refused).unwrap_err();
        assert_eq!(
            refused,
            format!("the object does not fit its schema: {expected}")
        );
    }
}

#[test]
fn a_field_of_the_object_that_the_schema_does_not_have_stays() {
    let object = json!({"later": {"a": null, "b": [1]}, "pair": {"c": 1}});
    let merged = of_every_sort(&object, &json!({"pair": {"a": "1"}}), Atomics::Refused);
    assert_eq!(
        merged,
        Ok(json!({"later": {"a": null, "b": [1]}, "pair": {"a": "1", "c": 1}}))
    );
}

#[test]
fn type_and_metadata_of_a_patch() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "1"},
        "creationTimestamp": null, "managedFields": [{"manager": "m"}]}, "data": {"k": "v"}});
    let merged = |patch: Value| applied("v1", "ConfigMap", &object, &patch);
    let with = |pointer: &str, value: Value| {
        let mut changed = object.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        Ok(changed)
    };
    assert_eq!(merged(json!({})), Ok(object.clone()));
    // The type is the object's, whatever the patch says, and of whatever shape.
    assert_eq!(
        merged(json!({"apiVersion": "v2", "kind": "Secret"})),
        Ok(object.clone())
    );
    assert_eq!(
        merged(json!({"apiVersion": null, "kind": 1})),
        Ok(object.clone())
    );
    // A name is a field as any other.
    assert_eq!(
        merged(json!({"metadata": {"name": "b"}})),
        with("/metadata/name", json!("b"))
    );
    let labels = json!({"metadata": {"labels": {"y": "2"}}});
    assert_eq!(
        merged(labels),
        with("/metadata/labels", json!({"x": "1", "y": "2"}))
    );
    assert!(
        merged(json!({"metadata": {"managedFields": []}}))
            .unwrap_err()
            .contains(".metadata.managedFields")
    );
    assert!(
        merged(json!({"metadata": {"label": {}}}))
            .unwrap_err()
            .contains("not declared")
    );
}

#[test]
fn kinds_without_a_schema_are_an_error() {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Thing"});
    let error = ObjectSchema::of(&object).unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no schema for kind `Thing` of `example.com/v1`"
    );
    assert!(ObjectSchema::of(&json!({"apiVersion": "v1", "kind": "PodList"})).is_err());
    assert!(ObjectSchema::of(&json!({})).is_err());
    assert!(ObjectSchema::of(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})).is_ok());
}
