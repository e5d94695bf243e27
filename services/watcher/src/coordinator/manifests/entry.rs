//! The manifest of an entry, as the coordinator reads it.

use anteroom_model::{EntryKind, Failure};
use serde_json::{Map, Value};

use super::Identity;
use crate::source::{
    api::{
        CachedContextEntrySpec, CachedContextEntryStatus, GlobalContextEntrySpec,
        GlobalContextEntryStatus,
    },
    discovery::spec_invalid,
    reflect::RawObject,
};

/// The spec of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EntrySpec {
    /// A `CachedContextEntry`.
    Cached(Box<CachedContextEntrySpec>),
    /// A `GlobalContextEntry`, of any version: they have one schema.
    Global(Box<GlobalContextEntrySpec>),
}

/// A `CachedContextEntry` or a `GlobalContextEntry`.
#[derive(Clone, Debug)]
pub(crate) struct EntryManifest {
    /// The kind that declares it.
    pub kind: EntryKind,
    /// The object's identity.
    pub identity: Identity,
    /// The entry's spec, or the reason why it cannot be read.
    pub spec: Result<EntrySpec, Failure>,
    /// The entry's status. For a `GlobalContextEntry`, `last_heard_time` holds its `lastRefreshTime`, and there are
    /// no figures.
    pub status: CachedContextEntryStatus,
}

impl EntryManifest {
    /// Reads one of this kind.
    pub(crate) fn read(object: &RawObject, kind: EntryKind) -> Self {
        let identity = Identity::read(object);
        let mut value: Value = match serde_json::from_slice(&object.json) {
            Ok(value) => value,
            Err(error) => {
                let spec = Err(unreadable_spec(&error));
                return Self {
                    kind,
                    identity,
                    spec,
                    status: CachedContextEntryStatus::default(),
                };
            }
        };
        let mut take = |field| value.get_mut(field).map(Value::take);
        let spec = take("spec").unwrap_or(Value::Object(Map::new()));
        let spec = EntrySpec::read(spec, kind).map_err(|error| unreadable_spec(&error));
        Self {
            status: read_status(take("status").unwrap_or_default(), kind),
            kind,
            identity,
            spec,
        }
    }
}

impl EntrySpec {
    fn read(spec: Value, kind: EntryKind) -> serde_json::Result<Self> {
        Ok(match kind {
            EntryKind::Global => Self::Global(serde_json::from_value(spec)?),
            EntryKind::Cached | EntryKind::Implicit => Self::Cached(serde_json::from_value(spec)?),
        })
    }
}

/// Reads a status. A status that cannot be read is written anew.
fn read_status(status: Value, kind: EntryKind) -> CachedContextEntryStatus {
    if kind != EntryKind::Global {
        return serde_json::from_value(status).unwrap_or_default();
    }
    let status: GlobalContextEntryStatus = serde_json::from_value(status).unwrap_or_default();
    CachedContextEntryStatus {
        conditions: status.conditions,
        last_heard_time: status.last_refresh_time,
        ..CachedContextEntryStatus::default()
    }
}

fn unreadable_spec(error: &serde_json::Error) -> Failure {
    spec_invalid(format!("the spec cannot be read: {error}"))
}
