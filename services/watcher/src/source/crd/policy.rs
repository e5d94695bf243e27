//! The definitions of `ClusterPolicy` and `Policy`, for clusters without Kyverno's. Most of a spec is checked when
//! the policy is compiled, so the schema keeps unknown fields. The fields that read facts are typed, so that the API
//! server refuses at once a read that can never work.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// The definition of one kind.
pub(super) fn definition(
    kind: &str,
    plural: &str,
    short: &str,
    scope: &str,
) -> CustomResourceDefinition {
    let singular = kind.to_lowercase();
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == "v1",
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                column("READY", "string", r#".status.conditions[?(@.type=="Ready")].status"#, 0),
                column("REASON", "string", r#".status.conditions[?(@.type=="Ready")].reason"#, 1),
                column("MESSAGE", "string", r#".status.conditions[?(@.type=="Ready")].message"#, 1),
                column("AGE", "date", ".metadata.creationTimestamp", 0),
            ],
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": spec(),
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
            }},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.kyverno.io")},
        "spec": {
            "group": "kyverno.io",
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural,
                "singular": singular, "shortNames": [short], "categories": ["kyverno"],
            },
            "scope": scope,
            // Published policies are written in both.
            "versions": [version("v1"), version("v2beta1")],
        },
    });
    #[expect(clippy::expect_used, reason = "a constant, built by the unit test")]
    serde_json::from_value(definition).expect("a definition")
}

fn column(name: &str, kind: &str, path: &str, priority: u8) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": priority})
}

/// Returns the schema of an object with these known fields, and any others.
fn open(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": properties, "required": required,
    })
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn spec() -> Value {
    let with_context = open(&json!({"context": context()}), &[]);
    let inner = list(&with_context);
    let validate = open(&json!({"foreach": inner}), &[]);
    let mutate = open(&json!({"foreach": inner, "targets": inner}), &[]);
    let rule = json!({"context": context(), "validate": validate, "mutate": mutate});
    open(&json!({"rules": list(&open(&rule, &[]))}), &[])
}

/// `context`: each kind of entry with its required fields.
fn context() -> Value {
    let text = json!({"type": "string"});
    let anything = json!({"x-kubernetes-preserve-unknown-fields": true});
    let datum = open(&json!({"key": text, "value": anything}), &["key", "value"]);
    let service = open(&json!({"url": text, "caBundle": text}), &["url"]);
    let api_call = json!({
        "urlPath": text, "jmesPath": text, "service": service, "data": list(&datum),
        "method": {"type": "string", "enum": ["GET", "POST"]}, "cache": {"type": "boolean"},
    });
    let named = |required: &[&str]| open(&json!({"name": text, "jmesPath": text}), required);
    let config_map = open(&json!({"name": text, "namespace": text}), &["name"]);
    let resource_cache = json!({
        "group": text, "version": text, "kind": text, "resource": text, "namespace": text,
        "jmesPath": text,
    });
    let variable = open(&json!({"jmesPath": text}), &[]);
    let registry = open(
        &json!({"reference": text, "jmesPath": text}),
        &["reference"],
    );
    list(&open(
        &json!({
            "name": text,
            "apiCall": open(&api_call, &[]),
            "cachedContextEntry": named(&["name"]),
            "configMap": config_map,
            "globalReference": named(&["name"]),
            "imageRegistry": registry,
            "resourceCache": open(&resource_cache, &[]),
            "variable": variable,
        }),
        &["name"],
    ))
}
