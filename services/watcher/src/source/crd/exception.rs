//! The definition of `PolicyException`, for clusters that do not have Kyverno's.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

/// The versions of the definition, all with the same schema. The first is stored.
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// Returns the definition. Its schema has every field, so that the API server refuses a misspelt one at once. The
/// content of a `match` and of conditions is checked when the exception is compiled.
pub(super) fn definition() -> CustomResourceDefinition {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let object = |required: &[&str], properties: &Value| json!({"type": "object", "required": required, "properties": properties});
    let exception = object(
        &["policyName", "ruleNames"],
        &json!({"policyName": text, "ruleNames": texts}),
    );
    let control = object(
        &["controlName"],
        &json!({"controlName": text, "images": texts, "restrictedField": text, "values": texts}),
    );
    let spec = object(
        &["exceptions", "match"],
        &json!({
            "background": {"type": "boolean"},
            "conditions": open,
            "exceptions": {"type": "array", "items": exception},
            "match": open,
            "podSecurity": {"type": "array", "items": control},
        }),
    );
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == VERSIONS[0],
            "schema": {"openAPIV3Schema": object(&["spec"], &json!({
                "apiVersion": text, "kind": text, "metadata": {"type": "object"}, "spec": spec,
            }))},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "policyexceptions.kyverno.io"},
        "spec": {
            "group": "kyverno.io",
            "names": {
                "kind": "PolicyException", "listKind": "PolicyExceptionList",
                "plural": "policyexceptions", "singular": "policyexception",
                "shortNames": ["polex"], "categories": ["kyverno"],
            },
            "scope": "Namespaced",
            "versions": VERSIONS.map(version),
        },
    });
    #[expect(clippy::expect_used, reason = "a constant, built by the unit test")]
    serde_json::from_value(definition).expect("a definition")
}
