//! Decisions, and their messages, metrics and Events.

use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    client::{Http, ingress},
    cluster::{Cluster, taken, unique_host},
};

#[tokio::test]
async fn a_taken_host_is_denied_in_words_and_a_free_one_is_admitted() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;

    // All are unknown here but the last. What nobody knows is no reason to let anything by.
    for path in [
        "/validate/fail/7",
        "/validate/ignore",
        "/validate/3f2a/fail-10",
        "/validate",
    ] {
        let path = format!("{path}?timeout=10s");
        let denied = client
            .review(&path, &ingress("CREATE", "shop", "a.example"))
            .await;
        assert_eq!(denied["allowed"], false, "{path}");
        assert_eq!(denied["status"]["code"], 403);
        assert_eq!(
            denied["status"]["message"],
            "\n\nresource Ingress/shop/shop was blocked due to the following policies\n\n\
             hosts:\n  unique-host: The host a.example is taken.\n"
        );
        let admitted = client
            .review(&path, &ingress("CREATE", "shop", "b.example"))
            .await;
        assert_eq!(admitted["allowed"], true, "{path}");
        assert_eq!(admitted.get("status"), None);
    }
    let asked = replica.calls();
    assert!(
        asked >= 8,
        "each review needs the fact; a stall of this machine is hedged"
    );
    let metrics = cluster.service.metrics.encode();
    for line in [
        "anteroom_admission_decisions_total{decision=\"denied\",cause=\"policy\",phase=\"validate\"} 4",
        "anteroom_admission_rule_results_total{policy=\"hosts\",rule=\"unique-host\",result=\"fail\"} 4",
        "anteroom_policies{state=\"ready\"} 1",
        "anteroom_webhook_unknown_configurations_total 4",
        "anteroom_webhook_query_duration_seconds_count{outcome=\"ok\"} 8",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}

#[tokio::test]
async fn the_audit_log_says_from_what_it_was_decided() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client
        .review("/validate", &ingress("CREATE", "shop", "b.example"))
        .await;
    let record = answer["auditAnnotations"]["decision"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(record).unwrap(),
        json!({
            "allowed": true,
            "rules": [{
                "policy": "hosts", "rule": "unique-host", "result": "pass",
                "facts": [{
                    "entry": "ingresses", "from": "view",
                    "view": "ingresses.v1.networking.k8s.io",
                    "incarnation": "i", "revision": 42, "resourceVersion": "1042", "ageMs": 7,
                    "replica": "replica-0",
                }],
            }],
        })
    );
}

#[tokio::test]
async fn a_rule_that_a_precondition_stops_asks_no_replica() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client
        .review("/validate", &ingress("DELETE", "shop", "a.example"))
        .await;
    assert_eq!(answer["allowed"], true);
    assert_eq!(replica.calls(), 0);
}

#[tokio::test]
async fn audit_admits_and_warns_where_the_policy_says_so() {
    let audit = |warn: bool| {
        move |policy: &mut Value| {
            policy["spec"]["validationFailureAction"] = "Audit".into();
            policy["spec"]["emitWarning"] = warn.into();
        }
    };
    let cluster = Cluster::with(&[
        unique_host("loud", audit(true)),
        unique_host("quiet", audit(false)),
    ])
    .await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client
        .review("/validate", &ingress("CREATE", "shop", "a.example"))
        .await;
    assert_eq!(answer["allowed"], true);
    assert_eq!(
        answer["warnings"],
        json!(["policy loud.unique-host: The host a.example is taken."])
    );
    let record = answer["auditAnnotations"]["decision"].as_str().unwrap();
    assert_eq!(record.matches("\"result\":\"fail\"").count(), 2, "{record}");
}

#[tokio::test]
async fn several_policies_deny_in_order_of_name() {
    let cluster = Cluster::with(&[unique_host("b", |_| ()), unique_host("a", |_| ())]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client
        .review("/validate", &ingress("CREATE", "shop", "a.example"))
        .await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.find("\na:\n").unwrap() < message.find("\nb:\n").unwrap(),
        "{message}"
    );
}

#[tokio::test]
async fn http_1_and_http_2_are_both_served() {
    let cluster = Cluster::with(&[]).await;
    let (_webhook, client) = cluster.webhook().await;
    let body = ingress("CREATE", "shop", "a.example").to_string();
    for http in [Http::One, Http::Two] {
        let (status, answer) = client.post(http, "/validate", body.clone().into()).await;
        assert_eq!(status, StatusCode::OK, "{http:?}");
        assert_eq!(answer["response"]["allowed"], true);
    }
}

#[tokio::test]
async fn policies_come_and_go() {
    let cluster = Cluster::with(&[]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "a.example");
    let becomes = async |allowed: bool| {
        // Ends as soon as the change has come by the log: each request waits for an answer.
        while client.review("/validate", &review).await["allowed"] != allowed {}
    };
    becomes(true).await;
    cluster.policies(&[unique_host("hosts", |_| ())]).await;
    becomes(false).await;
    let audit = |policy: &mut Value| policy["spec"]["validationFailureAction"] = "Audit".into();
    cluster.policies(&[unique_host("hosts", audit)]).await;
    becomes(true).await;
    cluster.policies(&[unique_host("hosts", |_| ())]).await;
    becomes(false).await;
    cluster.remove_policy("hosts").await;
    becomes(true).await;
}

/// Each rule's host is asked about, in one request, and the record says once where the answers come from.
#[tokio::test]
async fn facts_read_in_one_request_are_recorded_once() {
    let each = unique_host("hosts", |policy| {
        policy["spec"]["rules"][0]["validate"] = json!({
            "foreach": [{
                "list": "request.object.spec.rules",
                "deny": { "conditions": [{
                    "key": ["{{ element.host }}"], "operator": "AnyIn", "value": "{{ hosts }}",
                }] },
            }],
        });
    });
    let cluster = Cluster::with(&[each]).await;
    let _replica = cluster.replica(taken(&["c.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let mut review = ingress("CREATE", "shop", "a.example");
    let rules = json!([{ "host": "a.example" }, { "host": "b.example" }]);
    review["request"]["object"]["spec"]["rules"] = rules;
    let answer = client.review("/validate", &review).await;
    assert_eq!(answer["allowed"], true);
    let record = answer["auditAnnotations"]["decision"].as_str().unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    let facts = record["rules"][0]["facts"].as_array().unwrap();
    assert_eq!(facts.len(), 1, "{record}");
}
