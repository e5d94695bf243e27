//! The pruning of objects: all fields are published except those that no policy reads.

use anteroom_model::RetainedFields;
use bytes::Bytes;
use serde_json::{Map, Value};
use thiserror::Error;

/// Written by `kubectl apply`: the object once more, as text.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Why an object cannot be published.
#[derive(Debug, Error)]
pub(crate) enum PruneError {
    /// It is no JSON object, or nests deeper than is read.
    #[error("it cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// It is over a limit.
    #[error(transparent)]
    Body(#[from] anteroom_wire::WireError),
}

/// The object without `metadata.managedFields` and the last-applied annotation, and with its
/// `apiVersion` and `kind`, which the items of a list lack and the events of a watch have.
pub(crate) fn prune(
    json: &[u8],
    api_version: &str,
    kind: &str,
) -> Result<Map<String, Value>, PruneError> {
    let mut object: Map<String, Value> = serde_json::from_slice(json)?;
    for (field, value) in [("apiVersion", api_version), ("kind", kind)] {
        if !object.contains_key(field) && !value.is_empty() {
            object.insert(field.into(), Value::from(value));
        }
    }
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    Ok(object)
}

/// A pruned object, read once for all views that it goes to.
pub(crate) struct Pruned {
    object: Result<Value, String>,
    /// The body of all of it, once somebody wanted it.
    whole: Option<Result<Bytes, String>>,
}

impl Pruned {
    pub(crate) fn new(json: &[u8], api_version: &str, kind: &str) -> Self {
        let object = prune(json, api_version, kind);
        Self {
            object: object.map(Value::Object).map_err(|error| error.to_string()),
            whole: None,
        }
    }

    /// Returns the body with these fields; `None`: with all of them.
    ///
    /// # Errors
    /// Why the object cannot be published, for people.
    pub(crate) fn body(&mut self, kept: Option<&RetainedFields>) -> Result<Bytes, String> {
        let encode = |object: &Value| {
            anteroom_wire::body::encode_json(object).map_err(|error| error.to_string())
        };
        let object = self.object.as_ref().map_err(String::clone)?;
        match kept {
            Some(kept) => encode(&anteroom_plan::pruned(object, kept)),
            None => self.whole.get_or_insert_with(|| encode(object)).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pruned(object: &Value) -> Value {
        Value::Object(prune(object.to_string().as_bytes(), "v1", "Pod").unwrap())
    }

    #[test]
    fn managed_fields_and_last_applied_are_pruned_and_the_rest_stays() {
        let object = json!({
            "metadata": {"name": "a", "managedFields": [{}], "annotations": {LAST_APPLIED: "{}", "b": "c"}},
            "spec": {"metadata": {"managedFields": 1}, "n": 18_446_744_073_709_551_615_u64},
        });
        assert_eq!(
            pruned(&object),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a", "annotations": {"b": "c"}},
                "spec": {"metadata": {"managedFields": 1}, "n": 18_446_744_073_709_551_615_u64},
            })
        );
    }

    #[test]
    fn an_item_of_a_list_and_an_event_of_a_watch_are_published_alike() {
        let event = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let item = json!({"metadata": {"name": "a", "annotations": {LAST_APPLIED: "{}"}}});
        assert_eq!(pruned(&event), pruned(&item));
    }

    #[test]
    fn pruning_a_non_object_or_a_too_deep_one_is_an_error() {
        let deep = format!("{}{}", "{\"a\":".repeat(1_000), "1") + &"}".repeat(1_000);
        for bad in ["[]", "17", "{", deep.as_str()] {
            assert!(prune(bad.as_bytes(), "v1", "Pod").is_err());
        }
    }
}
