//! Exceptions from policies.

use serde_json::{Value, json};

use crate::{
    client::ingress,
    cluster::{Cluster, taken, unique_host},
};

/// An exception for Ingresses of this name from the rule of the policy `hosts`.
fn exception(name: &str) -> Value {
    json!({
        "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "exceptions"},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["Ingress"], "names": [name]}}]},
            "exceptions": [{"policyName": "hosts", "ruleNames": ["unique-*"]}],
        },
    })
}

#[tokio::test]
async fn an_exception_holds_as_long_as_it_is_there() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "a.example");
    let denied = client.review("/validate", &review).await;
    assert_eq!(denied["allowed"], false);
    let asked = replica.calls();

    cluster.exceptions(&[exception("shop")]).await;
    let excepted = client.until("/validate", &review, true).await;
    let record = excepted["auditAnnotations"]["decision"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(record).unwrap()["rules"],
        json!([{
            "policy": "hosts", "rule": "unique-host", "result": "skip",
            "exceptions": ["exceptions/e"],
        }])
    );
    let after = replica.calls();
    client.review("/validate", &review).await;
    assert_eq!(
        replica.calls(),
        after,
        "an excepted rule reads nothing: {asked}"
    );
    let metrics = cluster.service.metrics.encode();
    let line = "rule_results_total{policy=\"hosts\",rule=\"unique-host\",result=\"skip\"}";
    assert!(metrics.contains(line), "{metrics}");

    // Another name; nothing is left of the first.
    cluster.exceptions(&[exception("other")]).await;
    client.until("/validate", &review, false).await;
    cluster.exceptions(&[exception("sh?p")]).await;
    client.until("/validate", &review, true).await;
    // What does not compile excepts nothing.
    let mut broken = exception("shop");
    broken["spec"]["mach"] = json!({});
    cluster.exceptions(&[broken]).await;
    client.until("/validate", &review, false).await;
    cluster.exceptions(&[exception("shop")]).await;
    client.until("/validate", &review, true).await;
    cluster.remove_exception("exceptions", "e").await;
    client.until("/validate", &review, false).await;
}
