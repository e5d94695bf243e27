//! Entries, policies and exceptions as the API server has them. Their readers are lenient, so that a malformed object
//! still gets a status that names the fault.

mod entry;
mod exception;
mod policy;

use anteroom_model::{ErrorCode, ObjectKey};
use anteroom_policy::Problem;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    coordinator::effect::Record,
    source::{
        prune::{self, PruneError},
        reflect::{RawObject, content_version},
    },
};

pub(crate) use entry::{EntryManifest, EntrySpec};
pub(crate) use exception::ExceptionManifest;
pub(crate) use policy::{EntryQuery, PolicyManifest};

/// The fields of any object that its status is written by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The generation of the spec.
    pub generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    #[serde(rename = "apiVersion")]
    api_version: String,
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    uid: String,
    generation: i64,
    #[serde(rename = "creationTimestamp")]
    created: Option<String>,
}

impl Identity {
    /// Reads the metadata, also of an object whose other parts cannot be read.
    fn read(object: &RawObject) -> Self {
        let Body { metadata, .. } = serde_json::from_slice(&object.json).unwrap_or_default();
        Self {
            namespace: object.key.namespace.to_string(),
            name: object.key.name.to_string(),
            uid: metadata.uid,
            generation: metadata.generation,
        }
    }
}

/// The time at which the API server created an object, as text that sorts by time; empty where there is none.
fn created(object: &RawObject) -> String {
    let Body { metadata, .. } = serde_json::from_slice(&object.json).unwrap_or_default();
    metadata.created.unwrap_or_default()
}

/// The API versions of policies and exceptions of policies.kyverno.io, the preferred one first: all say the same.
const CEL_API_VERSIONS: [&str; 3] = [
    "policies.kyverno.io/v1",
    "policies.kyverno.io/v1beta1",
    "policies.kyverno.io/v1alpha1",
];

fn cel_api_version(object: &RawObject) -> &'static str {
    let Body { api_version, .. } = serde_json::from_slice(&object.json).unwrap_or_default();
    let mut known = CEL_API_VERSIONS.into_iter();
    let found = known.find(|known| *known == api_version);
    found.unwrap_or(CEL_API_VERSIONS[0])
}

/// A manifest as readers get it, without its status and resource version, and its status: a change of the status alone
/// publishes nothing. `retain` leaves what readers need of its metadata.
fn published(
    object: &RawObject,
    key: ObjectKey,
    api_version: &str,
    kind: &str,
    retain: impl FnOnce(&mut Map<String, Value>),
) -> Result<(Value, Value, Record), PruneError> {
    let mut manifest = prune::prune(&object.json, api_version, kind)?;
    let status = manifest.remove("status").unwrap_or_default();
    if let Some(Value::Object(metadata)) = manifest.get_mut("metadata") {
        metadata.remove("resourceVersion");
        retain(metadata);
    }
    let manifest = Value::Object(manifest);
    let body = anteroom_wire::body::encode_json(&manifest)?;
    let version = content_version(&body);
    Ok((manifest, status, Record { key, version, body }))
}

fn unpublished(error: &PruneError) -> Problem {
    Problem {
        code: ErrorCode::POLICY_INVALID,
        path: String::new(),
        message: format!("the manifest cannot be published: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{EntryKind, ResourceVersion};
    use anteroom_policy::PolicyKind;
    use serde_json::json;

    use super::*;
    use crate::source::api::CachedContextEntryStatus;

    fn raw(object: &Value) -> RawObject {
        RawObject {
            key: ObjectKey::new("", "a"),
            version: ResourceVersion::new("1"),
            json: object.to_string().into_bytes().into(),
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_still_has_an_author() {
        let metadata = json!({"name": "a", "uid": "u", "generation": 3});
        for spec in [json!({"resource": 5}), json!({"resource": {}}), json!("x")] {
            let entry = EntryManifest::read(
                &raw(&json!({"metadata": metadata, "spec": spec})),
                EntryKind::Cached,
            );
            assert_eq!(
                (entry.identity.uid.as_str(), entry.identity.generation),
                ("u", 3)
            );
            assert_eq!(entry.spec.unwrap_err().reason, "InvalidSpec");
        }
        let odd = json!({"metadata": metadata, "status": {"objects": "x"}});
        let entry = EntryManifest::read(&raw(&odd), EntryKind::Cached);
        assert_eq!(entry.spec, Ok(EntrySpec::Cached(Box::default())));
        assert_eq!(entry.status, CachedContextEntryStatus::default());
    }

    #[test]
    fn a_change_of_status_alone_is_no_new_version_of_a_policy() {
        let policy = |version: &str, status: Value, background: bool| {
            let object = json!({
                "metadata": {"name": "a", "resourceVersion": version},
                "spec": {"background": background, "rules": []}, "status": status,
            });
            PolicyManifest::read(&raw(&object), PolicyKind::Cluster)
                .1
                .unwrap()
        };
        let first = policy("1", json!({}), false);
        let second = policy("2", json!({"conditions": []}), false);
        assert_eq!(
            (&first.version, &first.body),
            (&second.version, &second.body)
        );
        assert_ne!(first.version, policy("3", json!({}), true).version);
    }

    /// The version that was read first has another result of compiling, which shows if it is taken over.
    #[test]
    fn a_policy_is_compiled_again_only_if_compiling_reads_what_changed() {
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "generation": 1, "annotations": {"x": "1"}},
            "spec": {"rules": []}, "status": {},
        });
        let cluster = PolicyKind::Cluster;
        let (mut first, published) = PolicyManifest::read(&raw(&object), cluster);
        let published = published.unwrap();
        assert_ne!(
            first.problems,
            [],
            "it does not compile, which is remembered too"
        );
        first.entries = vec![(EntryKind::Cached, "of the first".to_owned())];
        let conditions = json!([{
            "type": "Ready", "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        for (pointer, value, is_same) in [
            ("/metadata", json!({"labels": {"a": "b"}}), true),
            ("/metadata", json!({"annotations": {"x": "2"}}), true),
            ("/metadata", json!({"resourceVersion": "9"}), true),
            ("/status", json!({"conditions": conditions}), true),
            ("/spec", json!({"rules": [{"name": "r"}]}), false),
            ("/metadata", json!({"uid": "v"}), false),
            ("/metadata", json!({"generation": 2}), false),
            (
                "/metadata",
                json!({"annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"}}),
                false,
            ),
            (
                "/metadata",
                json!({"annotations": {"policies.kyverno.io/severity": "high"}}),
                false,
            ),
        ] {
            let mut changed = object.clone();
            let target = changed.pointer_mut(pointer).unwrap();
            let fields = value.as_object().cloned().unwrap();
            target.as_object_mut().unwrap().extend(fields);
            let (read, record) =
                PolicyManifest::read_again(&raw(&changed), cluster, Some(first.clone()));
            assert_eq!(read.entries == first.entries, is_same, "{value}");
            let record = record.unwrap();
            assert_eq!(record.version == published.version, is_same, "{value}");
            assert_eq!(read.version, record.version);
            let metadata = &changed["metadata"];
            assert_eq!(read.identity.uid, metadata["uid"].as_str().unwrap());
            assert_eq!(read.conditions.is_empty(), pointer != "/status", "{value}");
        }
    }

    #[test]
    fn a_policy_that_cannot_be_published_is_its_authors_problem() {
        let deep = format!("{}1{}", "[".repeat(600), "]".repeat(600));
        let text =
            format!(r#"{{"metadata":{{"name":"a","uid":"u","generation":2}},"spec":{deep}}}"#);
        let object = RawObject {
            json: text.into_bytes().into(),
            ..raw(&json!({}))
        };
        let (read, published) = PolicyManifest::read(&object, PolicyKind::Namespaced);
        assert!(published.is_none());
        assert_eq!(
            (read.identity.uid.as_str(), read.identity.generation),
            ("u", 2)
        );
        assert_eq!(read.problems[0].code, ErrorCode::POLICY_INVALID);
    }
}
