//! The custom resource definitions that the watcher needs.

mod cel_policy;
mod exception;
mod global;
mod policy;

use anteroom_policy::PolicyKind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::source::api::CachedContextEntry;

/// All definitions, for `deploy/chart/files/crds`. They are ours, and Kyverno's for clusters without its definitions:
/// its entries, the kinds of policies.kyverno.io with their whole schema, and the policies of kyverno.io with the
/// schema of the fields that read facts.
///
/// # Panics
/// Never: the unit test builds them all.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        CachedContextEntry::crd(),
        global::definition(),
        policy::definition("ClusterPolicy", "clusterpolicies", "cpol", "Cluster"),
        policy::definition("Policy", "policies", "pol", "Namespaced"),
        exception::definition(),
    ];
    crds.extend(PolicyKind::IN_CEL.map(cel_policy::policy));
    crds.push(cel_policy::exception());
    crds
}

#[cfg(test)]
mod tests {
    use anteroom_policy::{Driver, PolicyException};
    use serde_json::Value;

    use super::*;

    fn definition(name: &str) -> Value {
        let mut crds = crds().into_iter();
        let crd = crds.find(|crd| crd.metadata.name.as_deref() == Some(name));
        serde_json::to_value(crd.unwrap()).unwrap()
    }

    #[test]
    fn every_custom_resource_definition_is_complete_and_structural() {
        let crds = crds();
        let names: Vec<_> = crds
            .iter()
            .map(|crd| crd.metadata.name.clone().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "cachedcontextentries.kyverno.io",
                "globalcontextentries.kyverno.io",
                "clusterpolicies.kyverno.io",
                "policies.kyverno.io",
                "policyexceptions.kyverno.io",
                "validatingpolicies.policies.kyverno.io",
                "namespacedvalidatingpolicies.policies.kyverno.io",
                "mutatingpolicies.policies.kyverno.io",
                "namespacedmutatingpolicies.policies.kyverno.io",
                "policyexceptions.policies.kyverno.io"
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
        let text = definition("cachedcontextentries.kyverno.io").to_string();
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

    /// The versions that Kyverno serves, with one schema, and the second stored.
    #[test]
    fn a_global_entry_is_served_in_all_of_its_versions() {
        let crd = definition("globalcontextentries.kyverno.io");
        let versions = crd["spec"]["versions"].as_array().unwrap();
        let of = |field: &str| {
            versions
                .iter()
                .map(|v| v[field].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(of("name"), ["v2alpha1", "v2beta1", "v2"]);
        assert_eq!(of("served"), [true, true, true]);
        assert_eq!(of("storage"), [false, true, false]);
        assert_eq!(
            of("deprecated"),
            [Value::Bool(true), Value::Null, Value::Null]
        );
        assert!(
            versions
                .iter()
                .all(|v| v["schema"] == versions[0]["schema"])
        );
        let spec = &versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(
            spec["oneOf"],
            serde_json::json!([{"required": ["kubernetesResource"]}, {"required": ["apiCall"]}])
        );
        assert!(!crd.to_string().contains("nullable"), "{crd}");
    }

    #[test]
    fn a_policy_in_cel_is_served_in_all_of_kyvernos_versions_with_one_schema() {
        for (plural, short, scope, expected) in [
            (
                "validatingpolicies",
                "vpol",
                "Cluster",
                &["v1", "v1beta1", "v1alpha1"][..],
            ),
            (
                "namespacedvalidatingpolicies",
                "nvpol",
                "Namespaced",
                &["v1", "v1beta1"],
            ),
            (
                "mutatingpolicies",
                "mpol",
                "Cluster",
                &["v1", "v1beta1", "v1alpha1"],
            ),
            (
                "namespacedmutatingpolicies",
                "nmpol",
                "Namespaced",
                &["v1", "v1beta1"],
            ),
            (
                "policyexceptions",
                "polex",
                "Namespaced",
                &["v1", "v1beta1", "v1alpha1"],
            ),
        ] {
            let crd = definition(&format!("{plural}.policies.kyverno.io"));
            assert_eq!(
                crd["spec"]["names"]["shortNames"],
                serde_json::json!([short])
            );
            assert_eq!(crd["spec"]["scope"], scope);
            let versions = crd["spec"]["versions"].as_array().unwrap();
            let names: Vec<_> = versions
                .iter()
                .map(|v| v["name"].as_str().unwrap())
                .collect();
            assert_eq!(names, expected);
            for version in versions {
                assert_eq!(version["schema"], versions[0]["schema"]);
                assert_eq!(version["storage"], version["name"] == "v1");
                assert_eq!(version["deprecated"] == true, version["name"] == "v1alpha1");
            }
        }
    }

    /// The API server refuses values of a different type, and drops unknown fields.
    #[test]
    fn the_spec_of_a_cel_policy_has_no_untyped_field() {
        fn untyped(schema: &Value, at: &str, found: &mut Vec<String>) {
            if schema.get("type").is_none()
                || schema.get("x-kubernetes-preserve-unknown-fields").is_some()
            {
                found.push(at.to_owned());
            }
            let fields = schema.get("properties").and_then(Value::as_object);
            for (name, field) in fields.into_iter().flatten() {
                untyped(field, &format!("{at}.{name}"), found);
            }
            if let Some(items) = schema.get("items") {
                untyped(items, &format!("{at}[]"), found);
            }
        }
        for plural in ["validatingpolicies", "mutatingpolicies", "policyexceptions"] {
            let crd = definition(&format!("{plural}.policies.kyverno.io"));
            let spec =
                &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            let mut found = Vec::new();
            untyped(spec, "spec", &mut found);
            assert_eq!(found, [""; 0], "{plural}");
        }
    }

    /// An object with every field that a schema has.
    fn filled(schema: &Value) -> Value {
        match schema["type"].as_str().unwrap_or_default() {
            "object" => {
                let fields = schema["properties"].as_object().into_iter().flatten();
                let fields = fields.map(|(name, field)| (name.clone(), filled(field)));
                fields.collect::<serde_json::Map<_, _>>().into()
            }
            "array" => vec![filled(&schema["items"])].into(),
            "boolean" => true.into(),
            "integer" => 1.into(),
            _ => match &schema["enum"][0] {
                Value::Null => "x".into(),
                one => one.clone(),
            },
        }
    }

    #[test]
    fn a_policy_in_cel_has_no_field_that_is_not_compiled() {
        for plural in ["validatingpolicies", "mutatingpolicies", "policyexceptions"] {
            let crd = definition(&format!("{plural}.policies.kyverno.io"));
            let version = &crd["spec"]["versions"][0];
            let mut manifest = filled(&version["schema"]["openAPIV3Schema"]);
            manifest["apiVersion"] = "policies.kyverno.io/v1".into();
            manifest["kind"] = crd["spec"]["names"]["kind"].clone();
            manifest["metadata"] = serde_json::json!({"name": "a"});
            let problems = match plural {
                "policyexceptions" => {
                    PolicyException::compile(&manifest, Driver::IN_CLUSTER).map(|_| ())
                }
                _ => anteroom_policy::compile(&manifest).map(|_| ()),
            };
            let problems = problems.err().unwrap_or_default();
            let unknown: Vec<_> = problems
                .iter()
                .filter(|problem| problem.message.starts_with("unknown field"))
                .collect();
            assert!(unknown.is_empty(), "{plural}: {unknown:#?}");
        }
    }

    /// The API server itself says which name is required.
    #[test]
    fn a_policys_context_is_typed_wherever_it_may_stand() {
        let crd = definition("policies.kyverno.io");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let rule = "/properties/spec/properties/rules/items/properties";
        for place in [
            "",
            "/validate/properties/foreach/items/properties",
            "/mutate/properties/foreach/items/properties",
            "/mutate/properties/targets/items/properties",
        ] {
            let at = format!("{rule}{place}/context/items/properties/globalReference/required");
            let required = schema.pointer(&at);
            assert_eq!(required, Some(&serde_json::json!(["name"])), "{at}");
        }
    }
}
