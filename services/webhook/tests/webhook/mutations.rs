//! Rules that change objects: their order, the response, and the annotations.

use anteroom_model::{FactError, Failure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    client::Client,
    cluster::{Cluster, taken},
};

/// A policy of these rules on ConfigMaps.
pub(crate) fn policy(name: &str, failure: &str, rules: &[Value]) -> Value {
    let rule = |(at, rule): (usize, &Value)| {
        let mut rule = rule.clone();
        if rule.get("name").is_none() {
            rule["name"] = format!("r{at}").into();
        }
        if rule.get("match").is_none() {
            rule["match"] = json!({ "any": [{ "resources": { "kinds": ["ConfigMap"] } }] });
        }
        rule
    };
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": { "name": name, "uid": name },
        "spec": { "failurePolicy": failure,
            "rules": rules.iter().enumerate().map(rule).collect::<Vec<_>>() },
    })
}

/// A rule that sets these fields of `data`.
fn sets(data: &Value) -> Value {
    json!({ "mutate": { "patchStrategicMerge": { "data": data } } })
}

/// A rule that sets a field to how many hosts there are, in words.
fn reads() -> Value {
    let mut rule = sets(&json!({ "hosts": "{{ hosts }}" }));
    rule["context"] = json!([{ "name": "hosts", "cachedContextEntry": {
        "name": "ingresses", "jmesPath": "items[].spec.rules[].host" } }]);
    rule
}

/// The review of a ConfigMap.
pub(crate) fn review(operation: &str, object: &Value, old: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
            "name": "c", "namespace": "shop", "operation": operation,
            "userInfo": { "username": "alice" }, "object": object, "oldObject": old,
        },
    })
}

pub(crate) fn config(data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "c", "namespace": "shop", "uid": "u" }, "data": data })
}

fn created(data: &Value) -> Value {
    review("CREATE", &config(data), &Value::Null)
}

/// Applies the answered patch to the object, with an independent implementation of RFC 6902.
pub(crate) fn patched(answer: &Value, mut object: Value) -> Value {
    assert_eq!(answer["allowed"], true, "{answer}");
    if let Some(patch) = answer.get("patch") {
        assert_eq!(answer["patchType"], "JSONPatch");
        let patch = BASE64_STANDARD.decode(patch.as_str().unwrap()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

async fn data(client: &Client, path: &str, sent: &Value) -> Value {
    let answer = client.review(path, &created(sent)).await;
    patched(&answer, config(sent))["data"].clone()
}

#[tokio::test]
async fn policies_change_an_object_in_order_of_name_and_rules_in_theirs() {
    let of = "{{ request.object.data.order }}";
    let appends = |name: &str| sets(&json!({ "order": format!("{of}{name}") }));
    let cluster = Cluster::with(&[
        policy("b", "Fail", &[appends("b1"), appends("b2")]),
        policy("a", "Fail", &[appends("a1"), reads(), appends("a3")]),
        policy("c", "Ignore", &[appends("c1")]),
    ])
    .await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let sent = json!({ "order": "-" });
    let hosts = json!(["a.example"]);
    for (path, expected) in [
        ("/mutate", json!({ "order": "-a1a3b1b2c1", "hosts": hosts })),
        (
            "/mutate/unknown/ignore-10",
            json!({ "order": "-a1a3b1b2c1", "hosts": hosts }),
        ),
        // Nothing is judged here.
        ("/validate", sent.clone()),
    ] {
        assert_eq!(data(&client, path, &sent).await, expected, "{path}");
    }
    let metrics = cluster.service.metrics.encode();
    for line in [
        "anteroom_admission_rule_results_total{policy=\"a\",rule=\"r1\",result=\"pass\"} 2",
        "anteroom_admission_rule_results_total{policy=\"c\",rule=\"r0\",result=\"pass\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_rule_sees_the_object_as_earlier_rules_patched_it() {
    let mut only = sets(&json!({ "seen": "{{ value }}", "was": "{{ request.oldObject.data.a }}" }));
    only["match"] = json!({ "any": [{ "resources": { "kinds": ["ConfigMap"],
        "selector": { "matchLabels": { "made": "here" } } } }] });
    only["preconditions"] = json!({ "all": [{ "key": "{{ request.object.data.a }}", "operator": "Equals", "value": "2" }] });
    only["context"] = json!([{ "name": "value", "variable": {
        "jmesPath": "join('', [request.object.data.a, request.operation])" } }]);
    let first = json!({ "mutate": { "patchStrategicMerge": {
        "metadata": { "labels": { "made": "here" } }, "data": { "a": "2" } } } });
    let none = sets(&json!({ "a": "2" }));
    let cluster = Cluster::with(&[policy("p", "Fail", &[first, only, none])]).await;
    let (_webhook, client) = cluster.webhook().await;
    let sent = config(&json!({ "a": "1" }));
    let old = config(&json!({ "a": "0" }));
    let answer = client
        .review("/mutate", &review("UPDATE", &sent, &old))
        .await;
    let made = patched(&answer, sent);
    assert_eq!(
        made["data"],
        json!({ "a": "2", "seen": "2UPDATE", "was": "0" })
    );
    assert_eq!(made["metadata"]["labels"], json!({ "made": "here" }));
    let record = answer["auditAnnotations"]["decision"].as_str().unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    let rule = |name: &str, rest: &Value| {
        let mut rule = json!({ "policy": "p", "rule": name });
        json_patch::merge(&mut rule, rest);
        rule
    };
    assert_eq!(
        record["rules"],
        json!([
            rule(
                "r0",
                &json!({ "result": "pass", "changed": ["/data/a", "/metadata/labels"] })
            ),
            rule(
                "r1",
                &json!({ "result": "pass", "changed": ["/data/seen", "/data/was"] })
            ),
            rule("r2", &json!({ "result": "skip" })),
        ])
    );
}

#[tokio::test]
async fn a_delete_and_an_unchanged_object_get_no_patch() {
    let mut everything = sets(&json!({ "a": "1" }));
    everything["match"] = json!({ "any": [{ "resources": { "kinds": ["ConfigMap"],
        "operations": ["CREATE", "UPDATE", "DELETE"] } }] });
    let cluster = Cluster::with(&[policy("p", "Fail", &[everything])]).await;
    let (_webhook, client) = cluster.webhook().await;
    let object = config(&json!({ "a": "1" }));
    for review in [
        review("DELETE", &Value::Null, &config(&json!({}))),
        review("CREATE", &object, &Value::Null),
    ] {
        let answer = client.review("/mutate", &review).await;
        assert_eq!(answer["allowed"], true);
        assert!(answer.get("patch").is_none() && answer.get("patchType").is_none());
    }
}

#[tokio::test]
async fn the_failure_policy_says_what_an_error_does() {
    let policies = [
        policy("a", "Ignore", &[sets(&json!({ "a": "1" })), reads()]),
        policy(
            "b",
            "Ignore",
            &[sets(&json!({ "b": "{{ request.object.data.a || 'no' }}" }))],
        ),
        policy("c", "Fail", &[sets(&json!({ "c": "1" })), reads()]),
    ];
    let gone = |_: &_| {
        Err(FactError::Failed {
            view: "v".into(),
            failure: Failure::new("Gone", "gone"),
        })
    };
    let cluster = Cluster::with(&policies[..2]).await;
    let _replica = cluster.replica(gone).await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client.review("/mutate", &created(&json!({}))).await;
    // The first policy changes nothing, and the second sees that.
    assert_eq!(
        patched(&answer, config(&json!({})))["data"],
        json!({ "b": "no" })
    );
    let warnings = answer["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].as_str().unwrap().starts_with("policy a.r1: AR"),
        "{warnings:?}"
    );

    let cluster = Cluster::with(&policies).await;
    let _replica = cluster.replica(gone).await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client.review("/mutate", &created(&json!({}))).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"]["code"], 500);
    assert!(answer.get("patch").is_none());
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("c:\n  r1: AR") && message.contains("gone"),
        "{message}"
    );
}

#[tokio::test]
async fn a_policy_that_judges_and_changes_is_asked_twice() {
    let judges = json!({ "name": "judges", "validate": { "failureAction": "Enforce", "message": "no a",
        "deny": { "conditions": { "all": [{ "key": "{{ request.object.data.a || '' }}",
            "operator": "Equals", "value": "" }] } } } });
    let cluster =
        Cluster::with(&[policy("p", "Fail", &[judges, sets(&json!({ "a": "1" }))])]).await;
    let (_webhook, client) = cluster.webhook().await;
    let sent = created(&json!({}));
    assert_eq!(client.review("/validate", &sent).await["allowed"], false);
    let made = patched(&client.review("/mutate", &sent).await, config(&json!({})));
    let judged = client
        .review("/validate", &review("CREATE", &made, &Value::Null))
        .await;
    assert_eq!(judged["allowed"], true);
}
