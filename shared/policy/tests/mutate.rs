//! Published policies that change objects, against what their own tests expect.

mod published;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anteroom_policy::{
    AdmissionRequest, Evaluation, Policy, RuleOutcome, Step, compile_with_mutation,
};
use serde_json::{Value, json};

/// Rows that come to what they should.
const PASSED_MIN: usize = 45;

/// Rows that need more than a policy and an object, by their test's folder.
const NEED_MORE: &[&str] = &[
    // An image registry.
    "resolve-image-to-digest",
];

#[test]
fn published_mutations_come_to_what_their_tests_expect() {
    let Some(folder) = published::folder() else {
        return;
    };
    let (mut passed, mut failed) = (0, Vec::new());
    for test in tests(&folder) {
        let needs_more = NEED_MORE
            .iter()
            .any(|name| test.display().to_string().contains(name));
        if needs_more {
            continue;
        }
        for (row, result) in rows(&test) {
            match result {
                Ok(()) => passed += 1,
                Err(problem) => failed.push(format!("{} {row}: {problem}", test.display())),
            }
        }
    }
    println!("{passed} passed");
    assert!(failed.is_empty(), "{passed} passed, but {failed:#?}");
    assert!(passed >= PASSED_MIN, "{passed}");
}

fn tests(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with("kyverno-test.yaml") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The rows of a test that name what an object becomes.
fn rows(test: &Path) -> Vec<(String, Result<(), String>)> {
    let at = |name: &Value| test.parent().unwrap().join(name.as_str().unwrap());
    let manifest = documents(test).remove(0);
    let listed = |name: &str| manifest[name].as_array().cloned().unwrap_or_default();
    let rows: Vec<_> = listed("results")
        .into_iter()
        .filter(|row| row["patchedResources"].is_string())
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let policies: Vec<Value> = listed("policies")
        .iter()
        .flat_map(|name| documents(&at(name)))
        .collect();
    let objects: Vec<Value> = listed("resources")
        .iter()
        .flat_map(|name| documents(&at(name)))
        .collect();
    let mut results = Vec::new();
    for row in &rows {
        let policy = policies
            .iter()
            .find(|policy| policy["metadata"]["name"] == row["policy"]);
        let patched = documents(&at(&row["patchedResources"]));
        for name in row["resources"].as_array().unwrap() {
            let title = format!("{} {}", row["rule"], name);
            let result = one(policy, &objects, &patched, row, name.as_str().unwrap());
            results.push((title, result));
        }
    }
    results
}

fn one(
    policy: Option<&Value>,
    objects: &[Value],
    patched: &[Value],
    row: &Value,
    name: &str,
) -> Result<(), String> {
    let name = name.rsplit('/').next().unwrap();
    let is_named =
        |object: &&Value| object["metadata"]["name"] == name && object["kind"] == row["kind"];
    let object = objects
        .iter()
        .find(is_named)
        .ok_or("there is no such object")?;
    let expected = patched.iter().find(is_named);
    let mut policy = policy.ok_or("there is no such policy")?.clone();
    policy["apiVersion"] = "kyverno.io/v1".into();
    let policy = compile_with_mutation(&policy).map_err(|problems| {
        let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
        all.join("; ")
    })?;
    let (outcomes, object) = run(&policy, object)?;
    // A row names a rule as it is written, also where the one derived from it is meant.
    let rule = row["rule"].as_str().unwrap();
    let own = outcomes
        .iter()
        .find(|(of, outcome)| of.ends_with(rule) && **outcome != RuleOutcome::NotMatched);
    let (_, outcome) = own.ok_or("no rule answers")?;
    let expected = expected.map(cleaned);
    let found = match outcome {
        RuleOutcome::Mutated { .. } if Some(cleaned(&object)) == expected => "pass",
        RuleOutcome::Mutated { .. } => "fail",
        RuleOutcome::Skipped { .. } => "skip",
        other => return Err(format!("{other:?}")),
    };
    match row["result"] == found {
        true => Ok(()),
        false => Err(format!(
            "{found}, expected {}; {}\n but {}",
            row["result"],
            cleaned(&object),
            expected.unwrap_or_default()
        )),
    }
}

/// What each rule comes to, and the object behind all of them.
fn run(policy: &Policy, object: &Value) -> Result<(BTreeMap<String, RuleOutcome>, Value), String> {
    let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", object["apiVersion"].as_str().unwrap()),
    };
    let mut request = AdmissionRequest::new(json!({
        "uid": "u", "operation": "CREATE", "name": object["metadata"]["name"],
        "namespace": object["metadata"]["namespace"].as_str().unwrap_or("default"),
        "kind": {"group": group, "version": version, "kind": object["kind"]},
        "object": object,
    }))
    .unwrap();
    let mut outcomes = BTreeMap::new();
    for rule in policy.rules() {
        let mut evaluation = Evaluation::start(policy, rule, &request);
        let Step::Done(report) = evaluation.step() else {
            return Err("it asks for facts".to_owned());
        };
        if let RuleOutcome::Mutated { object } = &report.outcome {
            request = request.with_object(object.clone());
        }
        outcomes.insert(rule.name().to_owned(), report.outcome);
    }
    Ok((outcomes, request.matched_object().clone()))
}

/// Without what says nothing, `namespace: default` among it: objects are compared like that by those who wrote the tests.
fn cleaned(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    match value {
        Value::Array(elements) => elements.iter().map(cleaned).collect(),
        Value::Object(entries) => {
            let cleaned = entries
                .iter()
                .map(|(key, value)| (key.clone(), cleaned(value)));
            let says_nothing = |(key, value): &(String, Value)| {
                is_empty(value) || (key == "namespace" && value == "default")
            };
            Value::Object(cleaned.filter(|entry| !says_nothing(entry)).collect())
        }
        scalar => scalar.clone(),
    }
}
