//! The Helm chart, as far as it can be read without Helm.

use super::*;

/// Returns what a schema refers to.
fn resolved<'a>(schema: &'a Value, whole: &'a Value) -> &'a Value {
    match text(schema, "/$ref").strip_prefix('#') {
        Some(pointer) => whole.pointer(pointer).unwrap(),
        None => schema,
    }
}

/// Adds the paths of keys that the schema has and the values do not.
fn lacking(schema: &Value, whole: &Value, values: &Value, path: &str, found: &mut Vec<String>) {
    let schema = resolved(schema, whole);
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, schema) in properties.into_iter().flatten() {
        let path = format!("{path}/{key}");
        match values.get(key) {
            Some(values) => lacking(schema, whole, values, &path, found),
            None => found.push(path),
        }
    }
}

/// Helm checks the values against the schema, which refuses unknown keys. This test checks the reverse.
#[test]
fn every_key_of_the_schema_has_a_value() {
    let schema = fs::read_to_string(root().join("deploy/chart/values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut found = Vec::new();
    let values = yaml("deploy/chart/values.yaml");
    lacking(&schema, &schema, &values, "", &mut found);
    assert_eq!(found, [] as [&str; 0]);
}

#[test]
fn every_definition_can_be_left_out() {
    let values = yaml("deploy/chart/values.yaml");
    let mut named = BTreeSet::new();
    for (group, domain) in [
        ("kyverno", "kyverno.io"),
        ("policies", "policies.kyverno.io"),
        ("wgpolicyk8s", "wgpolicyk8s.io"),
    ] {
        let plurals = values["crds"]["groups"][group].as_object().unwrap().keys();
        named.extend(plurals.map(|plural| format!("{plural}.{domain}.yaml")));
    }
    let files = fs::read_dir(root().join("deploy/chart/files/crds")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), named);
}

/// A variable that no service reads would be silently without effect.
#[test]
fn every_variable_is_documented() {
    let options = fs::read_to_string(root().join("docs/options.md")).unwrap();
    let mut variables = 0;
    for workload in of_kind(&manifests(), &["Deployment"]) {
        for variable in list(workload, "/spec/template/spec/containers/0/env") {
            let name = text(variable, "/name");
            let known = options.contains(&format!("`{name}`")) || name == "POD_NAME";
            assert!(known, "{name}");
            variables += 1;
        }
    }
    assert!(variables > 40);
}
