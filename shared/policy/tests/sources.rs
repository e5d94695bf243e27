//! The reads of the published policies, entry by entry: from a view, or by a live read and why.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod published;

use anteroom_policy::{Reference, compile};
use serde_json::{Value, json};

use published::{folder, policies};

/// The source of a context entry's data.
#[derive(Debug, PartialEq)]
enum Route {
    /// From the request and other entries.
    Given,
    /// From a view, unchanged: its name.
    View(String),
    /// A live read, and the reason for it.
    Live(String),
    /// It is not read by this version.
    Unread(String),
}

/// A ClusterPolicy with a single rule, whose context is `entries`.
fn alone(entries: &[Value]) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "alone" },
        "spec": { "rules": [{
            "name": "alone", "context": entries,
            "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
            "validate": { "foreach": [{ "list": "request.object.data", "deny": {} }] },
        }] },
    })
}

/// The road of the last of `entries`, which sees the others.
fn route(entries: &[Value]) -> Route {
    let Some((entry, before)) = entries.split_last() else {
        return Route::Given;
    };
    let policy = match compile(&alone(entries)) {
        Ok(policy) => policy,
        Err(problems) => return Route::Unread(problems[0].to_string()),
    };
    if !entry["configMap"].is_null() {
        let named = policy.references().find_map(|reference| match reference {
            Reference::Object(object) => Some(format!("{}/{}", object.namespace, object.name)),
            _ => None,
        });
        let labelled = "labelled ConfigMaps".to_owned();
        return Route::View(named.map_or(labelled.clone(), |named| format!("{labelled}, {named}")));
    }
    if entry["apiCall"].is_null() {
        return Route::Given;
    }
    // What cannot be kept says why when it is declared to be.
    let mut declared = entry.clone();
    declared["apiCall"]["cache"] = true.into();
    let entries: Vec<_> = before.iter().cloned().chain([declared]).collect();
    match compile(&alone(&entries)) {
        Err(problems) => Route::Live(problems[0].message.clone()),
        Ok(declared) => {
            let kept = |reference: &Reference| reference.is_declared();
            let name = declared.references().find(kept).unwrap().name();
            let unchanged: Vec<_> = policy.references().map(|r| r.name()).collect();
            assert!(unchanged.contains(&name), "{name} of {unchanged:?}");
            Route::View(name)
        }
    }
}

/// Every context of a policy's rules, those of `foreach` after what stands around them.
fn contexts(policy: &Value) -> Vec<Vec<Value>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut contexts = Vec::new();
    for rule in list(&policy["spec"]["rules"]) {
        let own = list(&rule["context"]);
        for ways in ["validate", "mutate", "generate"] {
            for each in list(&rule[ways]["foreach"]) {
                let inner = list(&each["context"]);
                if !inner.is_empty() {
                    contexts.push(own.iter().cloned().chain(inner).collect());
                }
            }
            for target in list(&rule[ways]["targets"]) {
                contexts.push(
                    own.iter()
                        .cloned()
                        .chain(list(&target["context"]))
                        .collect(),
                );
            }
        }
        contexts.push(own);
    }
    contexts.retain(|context: &Vec<Value>| !context.is_empty());
    contexts
}

/// Calls that no view answers: policy, entry, and what the reason says.
const LIVE: &[(&str, &str, &str)] = &[
    // As published: the API server has no such resource either.
    ("unique-routes", "hosts", "no resource's plural"),
    ("check-subjectaccessreview", "subjectaccessreview", "a POST"),
    ("kubernetes-version-check", "minorversion", "no path of the"),
];

/// Entries that views answer, where the folder is whole.
const VIEWS_MIN: usize = 30;

/// Sources that this version does not read: image registries, YAML in a
/// Secret, and one policy that is malformed as published.
const UNREAD: &[&str] = &[
    "imageRegistry",
    "schedule-based-quotas",
    "config-syncer-secret-generation-from-rancher-capi",
];

/// An unchanged call is answered by a view wherever one can answer alike; what is
/// live, and why, is this list and no more.
#[test]
fn published_policies_read_from_views_wherever_views_can_answer() {
    let Some(folder) = folder() else {
        return;
    };
    let mut table: Vec<(String, String, Route)> = Vec::new();
    for (path, policy) in policies(&folder) {
        let path = path.strip_prefix(&folder).unwrap().display().to_string();
        if path.contains("/.") {
            continue;
        }
        for context in contexts(&policy) {
            for at in 0..context.len() {
                let name = context[at]["name"].as_str().unwrap_or_default().to_owned();
                let row = (path.clone(), name, route(&context[..=at]));
                if !table.contains(&row) {
                    table.push(row);
                }
            }
        }
    }
    let (mut views, mut live, mut problems) = (0, Vec::new(), Vec::new());
    for (path, name, road) in &table {
        println!("{path} {name}: {road:?}");
        match road {
            Route::Given => {}
            Route::View(_) => views += 1,
            Route::Live(reason) => live.push((path, name, reason)),
            Route::Unread(problem) => problems.push(format!("{path} {name}: {problem}")),
        }
    }
    println!("{views} of views, {} live", live.len());
    let is_known = |(path, name, reason): &(&String, &String, &String)| {
        LIVE.iter()
            .any(|(of, entry, says)| path.contains(of) && name == entry && reason.contains(says))
    };
    live.retain(|row| !is_known(row));
    assert!(live.is_empty(), "{live:#?}");
    problems.retain(|problem| !UNREAD.iter().any(|known| problem.contains(known)));
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(views >= VIEWS_MIN, "{views}");
}
