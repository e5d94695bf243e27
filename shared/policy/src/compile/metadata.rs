//! The metadata of a policy that the compiler reads. A change of other metadata makes no other policy.

use serde_json::{Map, Value};

use super::autogen;

/// The fields that are read, and those that tell versions of a policy apart. Annotations have a list of their own.
const FIELDS: [&str; 6] = [
    "annotations",
    "creationTimestamp",
    "generation",
    "name",
    "namespace",
    "uid",
];

/// The annotation of a policy's category in reports.
pub(super) const CATEGORY: &str = "policies.kyverno.io/category";

/// The annotation of a policy's severity in reports.
pub(super) const SEVERITY: &str = "policies.kyverno.io/severity";

/// The annotation that says whether a violation counts as a failure.
pub(super) const SCORED: &str = "policies.kyverno.io/scored";

/// The annotations that are read.
const ANNOTATIONS: [&str; 4] = [autogen::ANNOTATION, CATEGORY, SEVERITY, SCORED];

/// Removes from a policy's `metadata` all that compiling does not read: labels, annotations for
/// people, owners. So whoever changes only these changes nothing that is left.
pub fn retain_compiled_metadata(metadata: &mut Map<String, Value>) {
    metadata.retain(|field, _| FIELDS.contains(&field.as_str()));
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|annotation, _| ANNOTATIONS.contains(&annotation.as_str()));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_metadata_that_compiling_reads_is_left() {
        let mut manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "Policy",
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"x": "1"}, "finalizers": ["f"], "ownerReferences": [],
                "annotations": {
                    "x": "1",
                    (autogen::ANNOTATION): "Deployment",
                    (CATEGORY): "c", (SEVERITY): "high", (SCORED): "false",
                },
            },
            "spec": {"rules": [{
                "name": "r",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"message": "no", "pattern": {"metadata": {"name": "?*"}}},
            }]},
        });
        let whole = crate::compile(&manifest).unwrap();
        retain_compiled_metadata(manifest["metadata"].as_object_mut().unwrap());
        let fields: Vec<_> = manifest["metadata"].as_object().unwrap().keys().collect();
        assert_eq!(fields, FIELDS);
        let annotations = manifest["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), ANNOTATIONS.len());
        let left = crate::compile(&manifest).unwrap();
        assert_eq!(whole.reporting(), left.reporting());
        assert!(whole.reporting().unscored);
        assert_eq!(whole.rules().len(), 2, "one is derived");
        assert_eq!(left.rules().len(), whole.rules().len());
    }

    #[test]
    fn annotations_for_people_alone_leave_none() {
        let mut metadata = Map::from_iter([
            ("name".to_owned(), json!("p")),
            ("annotations".to_owned(), json!({"x": "1"})),
        ]);
        retain_compiled_metadata(&mut metadata);
        assert_eq!(Value::Object(metadata), json!({"name": "p"}));
    }
}
