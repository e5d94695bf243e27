//! Documents of a registry: manifests, indexes and configurations. Pure.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::gateway::calls::CallFault;

/// Values in one document, about: a parsed one takes a hundred times the bytes of the shortest ones. Of
/// images that are used, none has a tenth of that.
pub(super) const VALUES_MAX: usize = 10_000;

/// The most memory that a parsed value takes, beside its text.
const VALUE_BYTES: usize = 700;

/// The platform that is taken from an index, as other tools do by default. An entry without a
/// platform counts as one.
const PLATFORM: (&str, &str) = ("linux", "amd64");

/// Returns the manifests that an index names; `None`: the document is a manifest. A document that could be read as
/// either is an error, since the program that runs the image may read it as the other one.
pub(super) fn entries_of_index(manifest: &Value) -> Result<Option<&Vec<Value>>, CallFault> {
    let entries = manifest.get("manifests").and_then(Value::as_array);
    let has_layers = ["config", "layers"]
        .iter()
        .any(|name| manifest.get(name).is_some());
    let media_type = manifest["mediaType"].as_str().unwrap_or_default();
    let says_otherwise = match entries {
        Some(_) => has_layers || !(media_type.is_empty() || is_of_index(media_type)),
        None => is_of_index(media_type),
    };
    match says_otherwise {
        true => Err(unusable("it is both an index and a manifest")),
        false => Ok(entries),
    }
}

fn is_of_index(media_type: &str) -> bool {
    media_type.contains("image.index") || media_type.contains("manifest.list")
}

/// Checks that a manifest is an index exactly if its entry says so: container runtimes may rely on it.
pub(super) fn is_as_said(entry: &Value, manifest: &Value) -> Result<(), CallFault> {
    let media_type = entry["mediaType"].as_str().unwrap_or_default();
    let is_index = entries_of_index(manifest)?.is_some();
    match media_type.is_empty() || is_of_index(media_type) == is_index {
        true => Ok(()),
        false => Err(unusable("an index says of it that it is something else")),
    }
}

/// The entry that is taken, of a manifest or of another index.
pub(super) fn of_platform(entries: &[Value]) -> Result<&Value, CallFault> {
    let (system, architecture) = PLATFORM;
    let is_chosen = |entry: &&Value| match &entry["platform"] {
        Value::Null => true,
        platform => platform["os"] == system && platform["architecture"] == architecture,
    };
    let none = || unusable(&format!("there is none for {system}/{architecture}"));
    entries.iter().find(is_chosen).ok_or_else(none)
}

/// Returns the digest of the document that an entry of an index names.
pub(super) fn of_entry(entry: &Value) -> Result<&str, CallFault> {
    let digest = entry["digest"].as_str();
    checked_digest(digest.ok_or_else(|| unusable("an index has an entry without a digest"))?)
}

/// The digest of the configuration that a manifest names.
pub(super) fn config(manifest: &Value) -> Result<&str, CallFault> {
    let config = manifest.pointer("/config/digest").and_then(Value::as_str);
    let none = || match manifest {
        manifest if manifest["schemaVersion"] == 1 => "it is a manifest of schema version 1",
        _ => "the manifest names no configuration",
    };
    checked_digest(config.ok_or_else(|| unusable(none()))?)
}

/// Checks a configuration against the size that its manifest gives: container runtimes read no
/// more.
pub(super) fn has_size(body: &[u8], manifest: &Value) -> Result<(), CallFault> {
    let size = manifest.pointer("/config/size").and_then(Value::as_u64);
    match size.is_none_or(|size| size == body.len() as u64) {
        true => Ok(()),
        false => Err(unusable(
            "the configuration has another size than the manifest says",
        )),
    }
}

/// Returns the digest if it is safe within a path.
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

pub(super) fn has_digest(body: &[u8], request: &str) -> Result<(), CallFault> {
    match digest(body) == request {
        true => Ok(()),
        false => Err(unusable(&format!(
            "what it gives has not the digest {request}"
        ))),
    }
}

/// Returns the number of values in a document, or more. Values within texts do not count: labels of images have whole
/// documents in them.
fn values(body: &[u8]) -> usize {
    let (mut count, mut in_text, mut escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' | b',' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Returns an upper bound for the memory of a parsed document.
pub(super) fn weight(body: &[u8]) -> usize {
    body.len() + values(body) * VALUE_BYTES
}

pub(super) fn parsed(body: &[u8]) -> Result<Value, CallFault> {
    if values(body) > VALUES_MAX {
        return Err(unusable(&format!(
            "a document with more than {VALUES_MAX} values"
        )));
    }
    let value: Value = crate::gateway::calls::parse(body)?;
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

    /// The first entry for the platform is taken; an entry without a platform is for every platform.
    #[test]
    fn the_first_manifest_of_the_platform_in_an_index_is_taken() {
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
            (vec![json!({"platform": null})], None),
            (vec![json!({"digest": "sha256:1"})], None),
            (vec![json!("text")], None),
            (Vec::new(), None),
        ] {
            let taken = taken.map(digest);
            let found = of_platform(&entries).and_then(of_entry).ok();
            assert_eq!(found, taken.as_deref(), "{entries:?}");
        }
    }

    #[test]
    fn a_document_has_so_many_values_and_no_more() {
        // The object, its list, and a comma before each value but the first.
        let of_values = |values: usize| format!(r#"{{"a": [0{}]}}"#, ",0".repeat(values - 2));
        assert!(parsed(of_values(VALUES_MAX).as_bytes()).is_ok());
        let assert_too_many = |text: &str| {
            let fault = parsed(text.as_bytes()).unwrap_err();
            assert!(
                fault.to_string().contains("more than 10000 values"),
                "{fault}"
            );
        };
        assert_too_many(&of_values(VALUES_MAX + 1));
        // What looks like values within a text is none, and what stands after it is.
        let label = r#"[{\"a\": 1}, ],"#.repeat(VALUES_MAX);
        assert!(parsed(format!(r#"{{"a": "{label}\\"}}"#).as_bytes()).is_ok());
        let after = format!(r#"{{"a\"": "\\", "b": {}}}"#, of_values(VALUES_MAX - 1));
        assert_too_many(&after);
        assert!(parsed(after.replacen(",0", "", 1).as_bytes()).is_ok());
    }

    #[test]
    fn a_manifest_without_a_configuration_says_what_it_is() {
        for (manifest, says) in [
            (
                json!({"schemaVersion": 1, "fsLayers": []}),
                "schema version 1",
            ),
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
