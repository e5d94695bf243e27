//! The custom resource definitions that the watcher needs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::api::CachedContextEntry;

/// All of them, for `deploy/crds`: ours, and a minimal form of Kyverno's policies for clusters where
/// Kyverno's own definitions are not installed.
///
/// # Panics
/// Never: the unit test builds them all.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        CachedContextEntry::crd(),
        policy_crd("ClusterPolicy", "clusterpolicies", "cpol", "Cluster"),
        policy_crd("Policy", "policies", "pol", "Namespaced"),
    ]
}

/// The spec is Kyverno's and is checked when it is compiled, so the schema keeps all of it.
fn policy_crd(kind: &str, plural: &str, short: &str, scope: &str) -> CustomResourceDefinition {
    let singular = kind.to_lowercase();
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
            "versions": [{
                "name": "v1", "served": true, "storage": true,
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
                        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    });
    #[expect(clippy::expect_used, reason = "a constant, built by the unit test")]
    serde_json::from_value(definition).expect("a definition")
}

fn column(name: &str, kind: &str, path: &str, priority: u8) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": priority})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_there_and_structural() {
        let crds = crds();
        let names: Vec<_> = crds
            .iter()
            .map(|crd| crd.metadata.name.clone().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "cachedcontextentries.kyverno.io",
                "clusterpolicies.kyverno.io",
                "policies.kyverno.io"
            ]
        );
        for crd in &crds {
            let text = serde_json::to_string(crd).unwrap();
            assert!(
                !text.contains("$ref"),
                "structural schemas have no references: {text}"
            );
        }
    }

    #[test]
    fn the_entry_says_exactly_one_of() {
        let text = serde_json::to_string(&crds()[0]).unwrap();
        assert!(
            text.contains("has(self.resource) != has(self.apiCall)"),
            "{text}"
        );
        assert!(
            text.contains(r#""x-kubernetes-list-map-keys":["type"]"#),
            "{text}"
        );
        assert!(text.contains(r#""shortNames":["cce"]"#), "{text}");
    }
}
