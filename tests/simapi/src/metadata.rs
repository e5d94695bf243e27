//! Fields that the server itself writes into an object: identity, generation, and which half (`spec` or
//! `status`) a request may change.

use jiff::Timestamp;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Map, Value, json};

use crate::{
    object::{metadata_mut, text},
    resource::ResourceType,
    status::Failure,
    store::{CRDS, NAMESPACES},
};

/// The longest name of an object.
const NAME_BYTES_MAX: usize = 253;

/// The source of UIDs and generated names: equal seeds give equal names.
#[derive(Debug)]
pub(crate) struct Identity(Mutex<StdRng>);

impl Identity {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    /// A version-4 UUID.
    pub(crate) fn uid(&self) -> String {
        let bits: u128 = self.0.lock().random();
        let bits = bits & !(0xf << 76) | (4 << 76);
        let bits = bits & !(0b11 << 62) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        parts.join("-")
    }

    fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut random = self.0.lock();
        (0..5)
            .map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())]))
            .collect()
    }
}

/// The object's name, made from `generateName` if it has none.
pub(crate) fn ensure_name(object: &mut Value, identity: &Identity) -> Result<String, Failure> {
    let metadata = metadata_mut(object);
    let mut name = text(metadata, "name");
    let prefix = text(metadata, "generateName");
    if name.is_empty() && !prefix.is_empty() {
        name = prefix + &identity.suffix();
        metadata.insert("name".into(), name.as_str().into());
    }
    if name.is_empty() {
        return Err(Failure::invalid(
            "metadata.name: Required value: name or generateName is required",
        ));
    }
    if name.len() > NAME_BYTES_MAX || name.contains(['/', '%']) || name == "." || name == ".." {
        return Err(Failure::invalid(format!(
            "metadata.name: Invalid value: {name:?}"
        )));
    }
    Ok(name)
}

/// Gives `object` the metadata of a new object.
pub(crate) fn prepare_create(resource: &ResourceType, object: &mut Value, identity: &Identity) {
    if resource.status
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    let metadata = metadata_mut(object);
    for given in ["resourceVersion", "deletionTimestamp", "selfLink"] {
        metadata.remove(given);
    }
    metadata.insert("uid".into(), identity.uid().into());
    metadata.insert("creationTimestamp".into(), now().into());
    metadata.remove("generation");
    if resource.generation {
        metadata.insert("generation".into(), 1.into());
    }
    if !resource.namespaced {
        metadata.remove("namespace");
    }
    complete(resource, object);
}

/// Makes `object` the successor of `old`: what a client cannot change is taken over, and so is the
/// half that this request is not for.
pub(crate) fn prepare_update(
    resource: &ResourceType,
    old: &Value,
    object: &mut Value,
    status_only: bool,
) -> Result<(), Failure> {
    let uid = text(metadata_mut(object), "uid");
    let same = old["metadata"]["uid"]
        .as_str()
        .is_none_or(|of| uid.is_empty() || uid == of);
    if !same {
        let name = text(metadata_mut(object), "name");
        return Err(Failure::conflict(
            resource,
            &name,
            "the uid is not that of the object",
        ));
    }
    if status_only {
        let status = object.get("status").cloned();
        *object = old.clone();
        set(object, "status", status);
        return Ok(());
    }
    if resource.status {
        set(object, "status", old.get("status").cloned());
    }
    let metadata = metadata_mut(object);
    for kept in ["uid", "creationTimestamp", "generation"] {
        set_field(metadata, kept, old["metadata"].get(kept).cloned());
    }
    complete(resource, object);
    if resource.generation && content(object) != content(old) {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or_default() + 1;
        metadata_mut(object).insert("generation".into(), generation.into());
    }
    Ok(())
}

/// Fills in missing metadata of an object that a test stores directly; present fields stay.
pub(crate) fn complete_put(
    resource: &ResourceType,
    old: Option<&Value>,
    object: &mut Value,
    identity: &Identity,
) {
    let before = |field: &str| Some(old?["metadata"].get(field)?.clone());
    let generation = before("generation")
        .and_then(|generation| generation.as_u64())
        .unwrap_or_default();
    let changed = old.is_none_or(|old| content(old) != content(object));
    let metadata = metadata_mut(object);
    let uid = || before("uid").unwrap_or_else(|| identity.uid().into());
    metadata.entry("uid").or_insert_with(uid);
    let created = || before("creationTimestamp").unwrap_or_else(|| now().into());
    metadata.entry("creationTimestamp").or_insert_with(created);
    if resource.generation {
        metadata.insert(
            "generation".into(),
            (generation + u64::from(changed)).into(),
        );
    }
    complete(resource, object);
}

/// Returns what a generation counts: everything but metadata and status.
fn content(object: &Value) -> Vec<(&String, &Value)> {
    let skipped = ["apiVersion", "kind", "metadata", "status"];
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| !skipped.contains(&name.as_str()))
        .collect()
}

/// Adds what controllers of a real cluster add at once, and clients wait for.
fn complete(resource: &ResourceType, object: &mut Value) {
    match resource.name().as_str() {
        NAMESPACES => {
            let metadata = metadata_mut(object);
            let name = text(metadata, "name");
            if !metadata.get("labels").is_some_and(Value::is_object) {
                metadata.insert("labels".into(), json!({}));
            }
            metadata["labels"]["kubernetes.io/metadata.name"] = name.into();
            object["status"] = json!({"phase": "Active"});
        }
        CRDS => {
            let stored = object
                .pointer("/spec/versions")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let stored = stored.filter(|version| version["storage"] == true);
            let stored: Vec<Value> = stored.map(|version| version["name"].clone()).collect();
            let since = object["metadata"]["creationTimestamp"].clone();
            let condition = |kind: &str| {
                json!({"type": kind, "status": "True", "reason": kind, "message": "",
                    "lastTransitionTime": since})
            };
            object["status"] = json!({
                "acceptedNames": object["spec"]["names"], "storedVersions": stored,
                "conditions": [condition("NamesAccepted"), condition("Established")],
            });
        }
        _ => {}
    }
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(fields) = object.as_object_mut() {
        set_field(fields, field, value);
    }
}

fn set_field(fields: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(field.into(), value),
        None => fields.remove(field),
    };
}

#[expect(
    clippy::disallowed_methods,
    reason = "an API server says when an object was made"
)]
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::built_in;

    fn resource(plural: &str) -> ResourceType {
        built_in()
            .find(|resource| resource.plural == plural)
            .unwrap()
    }

    #[test]
    fn a_generation_counts_changes_of_the_spec_alone() {
        let deployments = resource("deployments");
        let mut first =
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 1}, "status": {"x": 1}});
        prepare_create(&deployments, &mut first, &Identity::new(1));
        assert_eq!(first["metadata"]["generation"], 1);
        assert!(first.get("status").is_none(), "a new object has no status");
        let changed = |mut object: Value, status_only| {
            prepare_update(&deployments, &first, &mut object, status_only).unwrap();
            (object["metadata"]["generation"].clone(), object)
        };
        let mut labelled = first.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(changed(labelled, false).0, 1);
        let mut scaled = first.clone();
        scaled["spec"]["replicas"] = 2.into();
        scaled["status"] = json!({"ready": 1});
        let (generation, object) = changed(scaled.clone(), false);
        assert!(generation == 2 && object.get("status").is_none());
        let (generation, object) = changed(scaled, true);
        assert!(
            generation == 1 && object["spec"]["replicas"] == 1 && object["status"]["ready"] == 1
        );
    }

    #[test]
    fn uids_are_uuids_and_come_from_the_seed() {
        let (one, same, other) = (Identity::new(7), Identity::new(7), Identity::new(8));
        let uid = one.uid();
        assert!(uid == same.uid() && uid != other.uid() && uid != one.uid());
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"));
        assert!("89ab".contains(&uid[19..20]), "{uid}");
    }

    #[test]
    fn names_are_made_or_refused() {
        let identity = Identity::new(1);
        let mut generated = json!({"metadata": {"generateName": "x-"}});
        assert!(
            ensure_name(&mut generated, &identity)
                .unwrap()
                .starts_with("x-")
        );
        for bad in [
            json!({}),
            json!({"metadata": {"name": "a/b"}}),
            json!({"metadata": {"name": ".."}}),
        ] {
            assert_eq!(
                ensure_name(&mut bad.clone(), &identity).unwrap_err().code,
                422,
                "{bad}"
            );
        }
    }
}
