//! The labels of an object, which say to which views of a wider watch it belongs.

use std::collections::HashMap;

use serde::Deserialize;

/// The labels of an object; none where they cannot be read, as of a malformed object.
pub(super) fn labels_of(json: &[u8]) -> HashMap<String, String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        labels: Option<HashMap<String, String>>,
    }
    let object = serde_json::from_slice::<Object>(json).ok();
    object
        .and_then(|object| object.metadata.labels)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_an_object_without_any_are_none() {
        assert!(labels_of(br#"{"metadata":{"labels":null}}"#).is_empty());
        assert!(labels_of(b"17").is_empty());
        let labels = labels_of(br#"{"metadata":{"labels":{"a":"b"}}}"#);
        assert_eq!(labels, HashMap::from([("a".into(), "b".into())]));
    }
}
