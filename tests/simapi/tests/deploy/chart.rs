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

/// YAML takes a name of digits for a number, and the API server refuses that.
#[test]
fn names_that_users_choose_are_quoted() {
    let folder = root().join("deploy/chart/templates");
    let folders = [folder.join("tests"), folder];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    for file in files.map(|file| file.unwrap().path()) {
        let is_yaml = file
            .extension()
            .is_some_and(|of| of == "yaml" || of == "tpl");
        if !is_yaml {
            continue;
        }
        for line in fs::read_to_string(&file).unwrap().lines() {
            let bare = ["Release.Namespace }}", "Release.Name }}"];
            let is_bare = bare.iter().any(|end| line.contains(end));
            // What stands in a list of arguments is written as JSON, as is what is assigned.
            let is_unquoted = line.contains("Release.Name")
                && !line.contains("quote")
                && !line.contains("(list \"");
            let is_text = is_bare || is_unquoted;
            assert!(
                !is_text || line.contains("\"nats://") || line.contains(" := "),
                "{}: {line}: add `| quote`",
                file.display()
            );
        }
    }
}

/// A file that is mounted by itself, or by a path below the volume, would not follow the ConfigMap.
#[test]
fn exemptions_are_mounted_as_a_folder_where_policies_are_evaluated() {
    let manifests = manifests();
    let files = of_kind(&manifests, &["ConfigMap"]).find(|of| name(of) == "anteroom-exemptions");
    let files = files.unwrap()["data"].as_object().unwrap();
    for workload in of_kind(&manifests, &["Deployment"]) {
        let pod = &workload["spec"]["template"]["spec"];
        let volume = list(pod, "/volumes")
            .find(|volume| text(volume, "/configMap/name") == "anteroom-exemptions");
        let wanted = ["anteroom-reporter", "anteroom-webhook"].contains(&name(workload));
        assert_eq!(volume.is_some(), wanted, "{}", name(workload));
        let Some(volume) = volume else { continue };
        assert!(volume["configMap"].get("optional").is_none(), "{volume}");
        let mount = list(pod, "/containers/0/volumeMounts")
            .find(|mount| mount["name"] == volume["name"])
            .unwrap();
        assert!(mount.get("subPath").is_none(), "{mount}");
        let file = list(pod, "/containers/0/env")
            .find(|variable| text(variable, "/name") == "ANTEROOM_EXEMPTIONS_FILE")
            .unwrap();
        let file = Path::new(text(file, "/value"));
        let file = file.strip_prefix(text(mount, "/mountPath")).unwrap();
        assert!(files.contains_key(file.to_str().unwrap()), "{file:?}");
    }
}

/// Kubernetes kills a pod that takes longer, with the reviews that are under way.
#[test]
fn a_pod_has_time_to_drain_and_to_finish() {
    const SHUTDOWN_GRACE_SECONDS: u64 = 20;
    for workload in of_kind(&manifests(), &["Deployment"]) {
        let pod = &workload["spec"]["template"]["spec"];
        let drain = list(pod, "/containers/0/env")
            .find(|variable| text(variable, "/name") == "ANTEROOM_DRAIN_SECONDS");
        assert_eq!(drain.is_some(), name(workload) == "anteroom-webhook");
        let drains: u64 = drain.map_or(0, |variable| text(variable, "/value").parse().unwrap());
        let has = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(has > drains + SHUTDOWN_GRACE_SECONDS, "{}", name(workload));
    }
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
