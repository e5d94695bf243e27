//! The pruning of objects: all fields are published except those that no policy reads.

use std::{fmt::Display, marker::PhantomData};

use anteroom_functions::json::{self, JsonError};
use anteroom_model::RetainedFields;
use anteroom_wire::unreadable::Labels;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

/// Written by `kubectl apply`: the object once more, as text.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The reason why an object cannot be published.
#[derive(Debug, Error)]
pub(crate) enum PruneError {
    /// The object's text is no JSON object, or nests too deep.
    #[error("it cannot be read: {0}")]
    Json(#[from] JsonError),
    /// The object is over a limit.
    #[error(transparent)]
    Body(#[from] anteroom_wire::WireError),
}

/// The object without `metadata.managedFields` and the last-applied annotation, and with its
/// `apiVersion` and `kind`, which the items of a list lack and the events of a watch have.
///
/// # Errors
/// [`PruneError::Json`], also for JSON that nests deeper than 128 levels, the limit of `serde_json`. That limit
/// protects the recursion here.
pub(crate) fn prune(
    json: &[u8],
    api_version: &str,
    kind: &str,
) -> Result<Map<String, Value>, PruneError> {
    let object = serde_json::from_slice(json).map_err(JsonError::from)?;
    Ok(pruned(object, api_version, kind))
}

fn pruned(mut object: Map<String, Value>, api_version: &str, kind: &str) -> Map<String, Value> {
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
    object
}

/// The reason why an object cannot be carried, and the data that are known of it nevertheless.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    /// The reason, for people.
    pub problem: String,
    /// The object's labels; `None`: they are not known.
    pub labels: Option<Labels>,
}

impl Unreadable {
    /// An object of which nothing is known but this error.
    pub(crate) fn of(error: impl Display) -> Self {
        Self {
            problem: error.to_string(),
            labels: None,
        }
    }

    fn new(json: &[u8], problem: &PruneError) -> Self {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            labels: Option<Labels>,
        }
        let object = serde_json::from_slice(json).ok();
        Self {
            problem: problem.to_string(),
            labels: object.map(|object: Object| object.metadata.labels.unwrap_or_default()),
        }
    }
}

/// A pruned object, read once for all views that it goes to.
pub(crate) struct Pruned<'j> {
    json: &'j [u8],
    object: Result<Value, Unreadable>,
    /// The whole body, once somebody asked for it.
    whole: Option<Result<Bytes, Unreadable>>,
}

impl<'j> Pruned<'j> {
    pub(crate) fn new(json: &'j [u8], api_version: &str, kind: &str) -> Self {
        let of_any_depth = PhantomData::<Map<String, Value>>;
        let object = json::read(json, of_any_depth, || serde_json::from_slice(json));
        Self {
            json,
            object: match object {
                Ok(object) => Ok(Value::Object(pruned(object, api_version, kind))),
                Err(error) => Err(Unreadable::new(json, &error.into())),
            },
            whole: None,
        }
    }

    /// Returns the body with these fields; `None`: with all fields.
    ///
    /// # Errors
    /// The object cannot be carried.
    pub(crate) fn body(&mut self, retained: Option<&RetainedFields>) -> Result<Bytes, Unreadable> {
        let json = self.json;
        let encode = |object: &Value| {
            let body = anteroom_wire::body::encode_json(object);
            body.map_err(|error| Unreadable::new(json, &error.into()))
        };
        let object = self.object.as_ref().map_err(Unreadable::clone)?;
        match retained {
            Some(retained) => encode(&anteroom_plan::pruned(object, retained)),
            None => self.whole.get_or_insert_with(|| encode(object)).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::limits::OBJECT_DEPTH_MAX;
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

    fn nested(depth: usize) -> String {
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        let metadata = r#"{"name":"a","labels":{"app":"web"}}"#;
        format!(r#"{{"metadata":{metadata},"x":{open}{close}}}"#)
    }

    #[test]
    fn an_object_is_carried_up_to_its_greatest_depth() {
        for depth in [100, 127, 128, 129, 400, OBJECT_DEPTH_MAX] {
            let json = nested(depth);
            let body = Pruned::new(json.as_bytes(), "v1", "Widget").body(None);
            anteroom_wire::body::validate(&body.unwrap()).unwrap();
        }
        let json = nested(OBJECT_DEPTH_MAX + 1);
        let refused = Pruned::new(json.as_bytes(), "v1", "Widget").body(None);
        let refused = refused.unwrap_err();
        assert!(refused.problem.contains("512"), "{refused:?}");
        let labels = refused.labels.unwrap();
        assert_eq!(labels.get("app").map(String::as_str), Some("web"));
    }

    #[test]
    fn labels_that_cannot_be_read_are_not_known() {
        for bad in ["{", r#"{"metadata":{"labels":{"a":1}}}"#, "{}"] {
            let json = format!("{bad}{}", "[".repeat(600));
            let refused = Pruned::new(json.as_bytes(), "v1", "Widget").body(None);
            assert_eq!(refused.unwrap_err().labels, None, "{bad}");
        }
    }

    #[test]
    fn pruning_a_non_object_or_a_too_deep_one_is_an_error() {
        let deep = format!("{}{}", "{\"a\":".repeat(1_000), "1") + &"}".repeat(1_000);
        for bad in ["[]", "17", "{", deep.as_str()] {
            assert!(prune(bad.as_bytes(), "v1", "Pod").is_err());
        }
    }
}
