//! Schemas: the table of own types, those of CustomResourceDefinitions, and records.

use super::*;
use crate::apply::{built_in, record, smallest};

/// Bytes of the table: it is part of every program that merges.
const TABLE_BYTES_MAX: usize = 150_000;

#[test]
fn the_table_of_own_types_is_read_and_small() {
    let (types, kinds) = record::read_kinds(built_in::TABLE).unwrap();
    assert!(built_in::TABLE.len() <= TABLE_BYTES_MAX);
    assert!(
        types.len() > 500 && kinds.len() > 90,
        "{} {}",
        types.len(),
        kinds.len()
    );
    assert_eq!(record::write_kinds(&types, &kinds), built_in::TABLE);
    let roots: Vec<_> = kinds.values().copied().collect();
    assert_eq!(smallest::table(&types, &roots), (types, roots));
}

#[test]
fn groups_of_own_kinds_are_told_from_those_of_definitions() {
    for (group, is_own) in [
        ("", true),
        ("apps", true),
        ("networking.k8s.io", true),
        ("app", false),
        ("v1", false),
        ("example.com", false),
    ] {
        assert_eq!(ObjectSchema::is_built_in_group(group), is_own, "{group}");
    }
}

#[test]
fn every_own_kind_has_metadata_and_merges_labels() {
    let (_, kinds) = record::read_kinds(built_in::TABLE).unwrap();
    for kind in kinds.keys() {
        let (api_version, kind) = kind.split_once(' ').unwrap();
        let object = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["a"]}});
        let patch = json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["b"]}});
        let expected =
            json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["a", "b"]}});
        assert_eq!(applied(api_version, kind, &object, &patch), Ok(expected));
    }
}

#[test]
fn built_in_types_refuse_patches_of_atomic_fields() {
    let of_deployment =
        |spec: Value| applied("apps/v1", "Deployment", &json!({}), &json!({"spec": spec}));
    let table = [
        (
            json!({"selector": {"matchLabels": {"a": "1"}}}),
            Some(".spec.selector"),
        ),
        (
            json!({"template": {"spec": {"nodeSelector": {"a": "1"}}}}),
            Some(".spec.template.spec.nodeSelector"),
        ),
        (
            json!({"template": {"spec": {"tolerations": [{"key": "a"}]}}}),
            Some(".spec.template.spec.tolerations"),
        ),
        (
            json!({"template": {"spec": {"containers": [{"name": "a", "command": ["b"]}]}}}),
            Some(".spec.template.spec.containers[0].command"),
        ),
        (json!({"replicas": 3}), None),
        (
            json!({"template": {"spec": {"securityContext": {"runAsUser": 1}}}}),
            None,
        ),
        (
            json!({"template": {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1}}}]}}}),
            None,
        ),
    ];
    for (spec, atomic) in table {
        let merged = of_deployment(spec.clone());
        let expected = match atomic {
            None => Ok(json!({"spec": spec})),
            Some(path) => Err(format!(
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {path}"
            )),
        };
        assert_eq!(merged, expected);
    }
}

#[test]
fn a_record_says_what_the_schema_says() {
    let schemas = [
        every_sort(),
        ObjectSchema::built_in("v1", "Pod").unwrap(),
        ObjectSchema::built_in("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap(),
    ];
    for schema in schemas {
        let record = schema.to_record();
        let read = ObjectSchema::from_record(&record).unwrap();
        assert_eq!(read.to_record(), record);
        let types = smallest::table(schema.types(), &[schema.root()]);
        assert_eq!(types, smallest::table(read.types(), &[read.root()]));
    }
    let pod = ObjectSchema::built_in("v1", "Pod").unwrap().to_record();
    assert!(pod.len() < 20_000, "{}", pod.len());
}

#[test]
fn a_record_that_is_none_is_an_error() {
    let table = [
        "",
        "1",
        "{}",
        r#"{"types":[]}"#,
        r#"{"root":0,"types":[]}"#,
        r#"{"root":1,"types":["s"]}"#,
        r#"{"root":-1,"types":["s"]}"#,
        r#"{"root":0,"types":["x"]}"#,
        r#"{"root":0,"types":[1]}"#,
        r#"{"root":0,"types":[{"x":1}]}"#,
        r#"{"root":0,"types":[{"l":{}}]}"#,
        r#"{"root":0,"types":[{"l":{"e":1}}]}"#,
        r#"{"root":0,"types":[{"m":{"f":{"a":1}}}]}"#,
        r#"{"root":0,"types":[{"m":{"e":"s"}}]}"#,
        r#"{"root":0,"types":[{"l":{"e":0,"k":[1]}}]}"#,
        r#"{"root":0,"types":[{"l":{"e":0,"k":[["a"]]}}]}"#,
    ];
    for record in table {
        let read = ObjectSchema::from_record(record);
        assert!(
            matches!(read, Err(SchemaError::Malformed { .. })),
            "{record}"
        );
    }
}

#[test]
fn a_definition_that_declares_no_objects_is_an_error() {
    let of = |field: Value| json!({"type": "object", "properties": {"a": field}});
    let table = [
        json!(null),
        json!({}),
        json!({"type": "string"}),
        of(json!({"type": "list"})),
        of(json!({"type": 1})),
        of(json!({"type": "array"})),
        of(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"})),
        of(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"})),
        of(json!({"type": "object", "x-kubernetes-map-type": "loose"})),
        of(json!({"$ref": "#/definitions/a"})),
    ];
    for schema in table {
        let read = ObjectSchema::from_crd(&schema);
        assert!(
            matches!(read, Err(SchemaError::Malformed { .. })),
            "{schema}"
        );
    }
}

/// The API server's own schemas say that a quantity is a text, and nothing of what is raw.
#[test]
fn quantities_and_raw_values_are_known_by_the_names_of_their_types() {
    let of = |name: &str| format!("io.k8s.apimachinery.pkg.{name}");
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{}", of(name))});
    let kind = json!({"type": "object", "properties": {
        "metadata": reference("apis.meta.v1.ObjectMeta"),
        "quantity": {"description": "an amount", "allOf": [reference("api.resource.Quantity")]},
        "raw": reference("runtime.RawExtension"),
    }, "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "A"}]});
    let document = json!({"components": {"schemas": {
        "A": kind,
        of("apis.meta.v1.ObjectMeta"): {"type": "object"},
        of("api.resource.Quantity"): {"type": "string"},
        of("runtime.RawExtension"): {"type": "object"},
    }}});
    let kinds = published(&[document]).unwrap();
    let merged = |patch: &Value| apply(&json!({}), patch, &kinds["v1 A"], Atomics::Refused);
    for amount in [json!({"quantity": 1}), json!({"quantity": "1Gi"})] {
        assert_eq!(merged(&amount), Ok(amount));
    }
    let no_amount = merged(&json!({"quantity": {"a": 1}}));
    assert!(
        matches!(no_amount, Err(ApplyError::Patch { .. })),
        "{no_amount:?}"
    );
    let paths = vec![".raw".to_owned()];
    let raw = merged(&json!({"raw": {"a": 1}}));
    assert_eq!(raw, Err(ApplyError::Atomic { paths }));
}

#[test]
fn types_that_are_parts_of_themselves_are_found_equal() {
    let schema = |name: &str| {
        json!({"type": "object", "properties": {
        "metadata": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
        "self": {"allOf": [{"$ref": format!("#/components/schemas/{name}")}]},
    }, "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": name}]})
    };
    let document = json!({"components": {"schemas": {
        "A": schema("A"), "B": schema("B"),
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object"},
    }}});
    let table = built_in_table(&[document]).unwrap();
    let (types, kinds) = record::read_kinds(&table).unwrap();
    assert_eq!(kinds["v1 A"], kinds["v1 B"]);
    let all: BTreeSet<String> = types
        .iter()
        .map(|of| record::write(of).to_string())
        .collect();
    assert_eq!(all.len(), types.len(), "{table}");
}
