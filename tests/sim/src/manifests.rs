//! The objects and reviews of a schedule.

use anteroom_load::review;
use serde_json::{Value, json};

/// The policy that reads a view.
pub(crate) const UNIQUE_HOST: &str = "unique-ingress-host";

/// The policy that reads nothing.
pub(crate) const NO_BAD: &str = "no-bad-config-maps";

pub(crate) fn name_of(name: u8) -> String {
    format!("ingress-{name}")
}

pub(crate) fn host_of(host: u8) -> String {
    format!("host-{host}.example")
}

pub(crate) fn config_map(bad: bool) -> Value {
    let labels = if bad {
        json!({"bad": "yes"})
    } else {
        json!({})
    };
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "any", "labels": labels},
    })
}

pub(crate) fn review_of(uid: &str, object: &Value) -> bytes::Bytes {
    let body = review(uid, object);
    if object["kind"] != "ConfigMap" {
        return body;
    }
    let mut parsed: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = &mut parsed["request"];
    for (field, value) in [
        (
            "kind",
            json!({"group": "", "version": "v1", "kind": "ConfigMap"}),
        ),
        (
            "resource",
            json!({"group": "", "version": "v1", "resource": "configmaps"}),
        ),
    ] {
        request[field] = value.clone();
        request[&format!("request{}{}", field[..1].to_uppercase(), &field[1..])] = value;
    }
    parsed.to_string().into()
}

/// A host has one owner. The message names the generation.
pub(crate) fn unique_host(generation: u64) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": UNIQUE_HOST},
        "spec": {"failurePolicy": "Fail", "background": false, "rules": [{
            "name": "host-is-free",
            "match": {"any": [{"resources": {
                "kinds": ["networking.k8s.io/v1/Ingress"], "operations": ["CREATE", "UPDATE"],
            }}]},
            "context": [{"name": "hosts", "cachedContextEntry": {
                "name": "ingresses",
                "jmespath": "items[?metadata.name != '{{ request.name }}'].spec.rules[].host",
            }}],
            "validate": {
                "failureAction": "Enforce",
                "message": format!("taken, says generation {generation}"),
                "deny": {"conditions": {"any": [{
                    "key": "{{ request.object.spec.rules[].host }}",
                    "operator": "AnyIn",
                    "value": "{{ hosts }}",
                }]}},
            },
        }]},
    })
}

pub(crate) fn no_bad() -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": NO_BAD},
        "spec": {"failurePolicy": "Fail", "background": false, "rules": [{
            "name": "not-bad",
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "validate": {
                "failureAction": "Enforce",
                "message": "bad",
                "pattern": {"metadata": {"=(labels)": {"=(bad)": "!yes"}}},
            },
        }]},
    })
}
