//! The definition of `GlobalContextEntry`: as Kyverno has it, with rules in the place of its webhook.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::source::api::GlobalContextEntry;

/// The versions of the API, oldest first.
const VERSIONS: [&str; 3] = ["v2alpha1", "v2beta1", "v2"];

/// Returns the definition, made from its Rust types. The derive knows only one version, and no "one of" in the API
/// server's own words, so both are added here.
pub(super) fn definition() -> CustomResourceDefinition {
    #[expect(clippy::expect_used, reason = "built from types by the unit test")]
    let mut crd = serde_json::to_value(GlobalContextEntry::crd()).expect("a definition");
    let mut version = crd["spec"]["versions"][0].take();
    let schema = &mut version["schema"]["openAPIV3Schema"];
    without_null(schema);
    schema["x-kubernetes-validations"] = json!([{
        "rule": "!has(self.spec.projections) || self.spec.projections.all(p, p.name != self.metadata.name)",
        "message": "A projection entry requires a name different from the global context entry name",
    }]);
    let spec = &mut schema["properties"]["spec"];
    spec["oneOf"] = json!([{"required": ["kubernetesResource"]}, {"required": ["apiCall"]}]);
    let versions = VERSIONS.map(|name| {
        let mut version = version.clone();
        version["name"] = name.into();
        version["storage"] = (name == "v2beta1").into();
        if name == "v2alpha1" {
            version["deprecated"] = true.into();
        }
        version
    });
    crd["spec"]["versions"] = json!(versions);
    #[expect(clippy::expect_used, reason = "built from types by the unit test")]
    serde_json::from_value(crd).expect("a definition")
}

/// Forbids null for fields, as Kyverno does: null would count as given where one of two fields must be.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            fields.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}
