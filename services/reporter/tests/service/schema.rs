//! The definitions that are deployed, and whether an API server with them would keep an object as it is.

use std::{fs, path::PathBuf, sync::LazyLock};

use serde_json::Value;

static DEPLOYED: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files/crds");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let definitions = files.map(|file| -> Value {
        let text = fs::read_to_string(&file).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    });
    definitions
        .filter(|found| found["kind"] == "CustomResourceDefinition")
        .collect()
});

/// All that is deployed.
pub(crate) fn definitions() -> Vec<Value> {
    assert!(DEPLOYED.len() > 2, "where are they?");
    DEPLOYED.clone()
}

/// Returns the parts of an object that an API server would drop or refuse.
pub(crate) fn unfit(resource: &str, object: &Value) -> Vec<String> {
    let definition = DEPLOYED
        .iter()
        .find(|found| found["metadata"]["name"] == resource);
    let schema = &definition.unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut problems = Vec::new();
    look_at(object, schema, "", &mut problems);
    problems
}

fn look_at(value: &Value, schema: &Value, place: &str, problems: &mut Vec<String>) {
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !fits {
        problems.push(format!("{place} is no {}", schema["type"]));
    }
    let allowed = schema["enum"].as_array();
    if allowed.is_some_and(|allowed| !allowed.contains(value)) {
        problems.push(format!("{place} is {value}"));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            problems.push(format!("{place} lacks {required}"));
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        look_at(
            item,
            &schema["items"],
            &format!("{place}[{number}]"),
            problems,
        );
    }
    // The server's own, of which a definition says nothing.
    for (name, field) in value.as_object().into_iter().flatten() {
        let place = format!("{place}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) if place.starts_with(".metadata.") => {}
            (Value::Null, Value::Null) => problems.push(format!("{place} is not known")),
            (Value::Null, of_each) => look_at(field, of_each, &place, problems),
            (of_it, _) => look_at(field, of_it, &place, problems),
        }
    }
}

#[test]
fn the_schema_check_finds_every_unfit_field() {
    let report = serde_json::json!({"metadata": {"name": "a"}, "summary": {"pass": "1"}, "other": 1,
        "results": [{"policy": "p", "result": "maybe"}, {}]});
    let found = unfit(crate::world::REPORTS, &report);
    for part in [
        ".summary.pass",
        ".other",
        ".results[0].result",
        ".results[1]",
    ] {
        let has = found.iter().any(|problem| problem.starts_with(part));
        assert!(has, "{part}: {found:?}");
    }
}
