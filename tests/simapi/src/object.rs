//! Objects as they are kept: serialized once, when written.

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};

use crate::resource::ResourceType;

/// A version of an object.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    /// Its `metadata.resourceVersion`.
    pub(crate) version: u64,
    /// JSON without `apiVersion` and `kind`, which depend on the version that is asked for, and are
    /// left out of a built-in resource's lists. Anything at all if `malformed`.
    pub(crate) body: Bytes,
    /// A fault put it here: served byte by byte as it is.
    pub(crate) malformed: bool,
}

impl Stored {
    pub(crate) fn new(namespace: &str, name: &str, version: u64, body: Bytes) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            version,
            body,
            malformed: false,
        }
    }

    /// Serializes `object` as of `version`. Both parts of the key must be in its metadata.
    pub(crate) fn serialize(mut object: Value, version: u64) -> Self {
        if let Some(fields) = object.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        let metadata = metadata_mut(&mut object);
        metadata.insert("resourceVersion".into(), version.to_string().into());
        let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
        Self::new(&namespace, &name, version, object.to_string().into())
    }

    /// The same object, as of another version: a deletion is told with the version of its event.
    pub(crate) fn at_version(&self, version: u64) -> Self {
        match self.parse() {
            Some(object) if !self.malformed => Self::serialize(object, version),
            _ => Self {
                version,
                ..self.clone()
            },
        }
    }

    /// The body, without `apiVersion` and `kind`; `None` if it is malformed.
    pub(crate) fn parse(&self) -> Option<Value> {
        let value: Value = serde_json::from_slice(&self.body).ok()?;
        value.is_object().then_some(value)
    }

    /// The whole object in `version` of its API; `None` if it is malformed.
    pub(crate) fn to_value(&self, resource: &ResourceType, version: &str) -> Option<Value> {
        let mut object = self.parse()?;
        object["apiVersion"] = resource.api_version(version).into();
        object["kind"] = resource.kind.as_str().into();
        Some(object)
    }

    /// Returns the most bytes that [`Stored::write`] appends.
    pub(crate) fn written_bytes_max(&self, head: &str) -> usize {
        head.len() + self.body.len()
    }

    /// Appends the object to `out`, with `head` (see [`head`]) in front of its fields.
    pub(crate) fn write(&self, head: &str, out: &mut BytesMut) {
        match self.body.strip_prefix(b"{") {
            Some(fields) if !self.malformed => {
                out.extend_from_slice(head.as_bytes());
                out.extend_from_slice(fields);
            }
            _ => out.extend_from_slice(&self.body),
        }
    }
}

/// The opening of a serialized object. `Stored::body` always has a field, `metadata`, to follow.
pub(crate) fn head(resource: &ResourceType, version: &str) -> String {
    let api_version = resource.api_version(version);
    format!(
        "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{}\",",
        resource.kind
    )
}

/// The object's metadata, made if it has none.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// A text of the metadata; empty if absent.
pub(crate) fn text(metadata: &Map<String, Value>, name: &str) -> String {
    metadata
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
