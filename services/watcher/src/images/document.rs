//! What registries keep: manifests, indexes and configurations. Pure.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::calls::CallFault;

/// Values in one document, about: a parsed one takes a hundred times the bytes of the shortest ones. Of
/// images that are used, none has a tenth of that.
pub(super) const VALUES_MAX: usize = 10_000;

/// What a parsed value takes at most, beside its text.
const VALUE_BYTES: usize = 700;

/// What is taken of an index, as other tools do where nothing else is asked for; and what an entry is for
/// that does not say it.
const PLATFORM: (&str, &str) = ("linux", "amd64");

/// The manifests that an index names; `None` for a manifest. What could be read as either is neither: who
/// runs the image may read it otherwise.
pub(super) fn entries_of_index(manifest: &Value) -> Result<Option<&Vec<Value>>, CallFault> {
    let entries = manifest.get("manifests").and_then(Value::as_array);
    let has_layers = ["config", "layers"]
        .iter()
        .any(|name| manifest.get(name).is_some());
    let media_type = manifest["mediaType"].as_str().unwrap_or_default();
    let says_index = media_type.contains("image.index") || media_type.contains("manifest.list");
    let says_otherwise = match entries {
        Some(_) => has_layers || !(media_type.is_empty() || says_index),
        None => says_index,
    };
    match says_otherwise {
        true => Err(unusable("it is both an index and a manifest")),
        false => Ok(entries),
    }
}

/// The digest of the manifest that is taken.
pub(super) fn of_platform(entries: &[Value]) -> Result<&str, CallFault> {
    let (system, architecture) = PLATFORM;
    let is_chosen = |entry: &&Value| match &entry["platform"] {
        Value::Null => true,
        platform => platform["os"] == system && platform["architecture"] == architecture,
    };
    let chosen = entries.iter().find(is_chosen);
    let digest = chosen.and_then(|entry| entry["digest"].as_str());
    let none = || unusable(&format!("there is none for {system}/{architecture}"));
    checked_digest(digest.ok_or_else(none)?)
}

/// The digest of the configuration that a manifest names.
pub(super) fn config(manifest: &Value) -> Result<&str, CallFault> {
    let config = manifest.pointer("/config/digest").and_then(Value::as_str);
    let none = || match manifest {
        manifest if manifest["schemaVersion"] == 1 => "it is a manifest of schema version 1",
        manifest if manifest.get("manifests").is_some() => "an index names another index",
        _ => "the manifest names no configuration",
    };
    checked_digest(config.ok_or_else(|| unusable(none()))?)
}

/// As it may stand in a path.
pub(super) fn checked_digest(digest: &str) -> Result<&str, CallFault> {
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    let is_hex = hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit());
    is_hex
        .then_some(digest)
        .ok_or_else(|| unusable("it names a digest that is no sha256"))
}

pub(super) fn digest(body: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(body) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

pub(super) fn has_digest(body: &[u8], wanted: &str) -> Result<(), CallFault> {
    match digest(body) == wanted {
        true => Ok(()),
        false => Err(unusable(&format!(
            "what it gives has not the digest {wanted}"
        ))),
    }
}

/// Values in a document, or more.
fn values(body: &[u8]) -> usize {
    let begins_one = |byte: &&u8| matches!(byte, b'{' | b'[' | b',');
    body.iter().filter(begins_one).count()
}

/// What a document takes, parsed, or more.
pub(super) fn weight(body: &[u8]) -> usize {
    body.len() + values(body) * VALUE_BYTES
}

pub(super) fn parsed(body: &[u8]) -> Result<Value, CallFault> {
    if values(body) > VALUES_MAX {
        return Err(unusable(&format!(
            "a document with more than {VALUES_MAX} values"
        )));
    }
    let value: Value = crate::calls::parse(body)?;
    match value.is_object() {
        true => Ok(value),
        false => Err(unusable("it gives no object")),
    }
}

pub(super) fn unusable(problem: &str) -> CallFault {
    CallFault::Registry {
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The entry that is taken is the first for the platform; one that names none is for it.
    #[test]
    fn of_an_index_the_first_manifest_of_the_platform_is_taken() {
        let digest = |n: u32| format!("sha256:{n:064}");
        let entry = |n: u32, system: &str, architecture: &str| json!({"digest": digest(n), "platform": {"os": system, "architecture": architecture}});
        let attestation = entry(9, "unknown", "unknown");
        let bare = json!({"digest": digest(7)});
        for (entries, taken) in [
            (vec![entry(1, "linux", "amd64")], Some(1)),
            (
                vec![
                    attestation.clone(),
                    entry(1, "linux", "arm64"),
                    entry(2, "linux", "amd64"),
                    entry(3, "linux", "amd64"),
                ],
                Some(2),
            ),
            (vec![entry(1, "windows", "amd64"), bare.clone()], Some(7)),
            (vec![bare, entry(1, "linux", "amd64")], Some(7)),
            (vec![entry(1, "linux", "arm64")], None),
            (vec![attestation], None),
            (vec![json!({"digest": digest(1), "platform": {}})], None),
            (vec![json!({"digest": "sha256:1"})], None),
            (vec![json!("text")], None),
            (Vec::new(), None),
        ] {
            let taken = taken.map(digest);
            assert_eq!(of_platform(&entries).ok(), taken.as_deref(), "{entries:?}");
        }
    }

    #[test]
    fn a_document_has_so_many_values_and_no_more() {
        // The object, its list, and a comma before each value but the first.
        let of_values = |values: usize| format!(r#"{{"a": [0{}]}}"#, ",0".repeat(values - 2));
        assert!(parsed(of_values(VALUES_MAX).as_bytes()).is_ok());
        let fault = parsed(of_values(VALUES_MAX + 1).as_bytes()).unwrap_err();
        assert!(
            fault.to_string().contains("more than 10000 values"),
            "{fault}"
        );
    }

    #[test]
    fn what_names_no_configuration_is_told_apart() {
        for (manifest, says) in [
            (
                json!({"schemaVersion": 1, "fsLayers": []}),
                "schema version 1",
            ),
            (json!({"manifests": []}), "another index"),
            (json!({"layers": []}), "names no configuration"),
            (json!({"config": {"digest": "md5:1"}}), "no sha256"),
        ] {
            let told = config(&manifest).unwrap_err().to_string();
            assert!(told.contains(says), "{told}");
        }
        // Of an artifact without one it is the empty object, which has a digest too.
        let empty = digest(b"{}");
        let artifact = json!({"config": {"digest": empty, "size": 2}});
        assert_eq!(config(&artifact).unwrap(), empty);
    }
}
