//! What the watcher tells the other services about entries, views and kinds.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Digest, Epoch, FactError, GroupVersionResource, ResourceVersion, Source, ViewId};

/// Whoever needs a view, by UID. A view lives as long as it has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dependent(pub String);

/// Why something cannot be served, for people and for machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In CamelCase, as in `Forbidden` or `ResourceNotFound`: also the reason of the entry's
    /// `Ready` condition.
    pub reason: String,
    /// What happened, why, and what to do.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// A `CachedContextEntry` as the watcher resolved it: an object of the `entries` system view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// The entry's name.
    pub name: String,
    /// The entry's UID.
    pub uid: String,
    /// The generation of the spec that was resolved.
    pub generation: i64,
    /// What it resolved to.
    pub state: EntryState,
}

impl EntryRecord {
    /// The view to ask, or the error that a reader of this entry gets.
    pub fn view(&self) -> Result<&ViewId, FactError> {
        match &self.state {
            EntryState::Bound { view, .. } => Ok(view),
            EntryState::Invalid { failure } => Err(FactError::EntryInvalid {
                entry: self.name.clone(),
                failure: failure.clone(),
            }),
        }
    }

    /// As [`EntryRecord::view`], for a reader that is confined to a namespace, as a `Policy` is: it
    /// reads nothing outside its own, so the entry must be confined to the same one. `None` is a
    /// reader that is not confined.
    pub fn view_within(&self, namespace: Option<&str>) -> Result<&ViewId, FactError> {
        let view = self.view()?;
        let confined = match &self.state {
            EntryState::Bound { namespace, .. } => namespace.as_str(),
            EntryState::Invalid { .. } => "",
        };
        match namespace {
            Some(own) if own != confined => Err(FactError::OutsideNamespace {
                entry: self.name.clone(),
                namespace: own.to_owned(),
            }),
            _ => Ok(view),
        }
    }
}

/// What an entry resolved to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum EntryState {
    /// It points at this view.
    Bound {
        /// The view's name.
        view: ViewId,
        /// The one namespace that the view is confined to; empty: it may hold more.
        #[serde(default)]
        namespace: String,
    },
    /// It cannot be served: the *invalid entry*, which holds its error.
    Invalid {
        /// The error that every reader gets.
        failure: Failure,
    },
}

/// What a source turned out to be: how its data is presented to a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// The source itself.
    pub source: Source,
    /// As in `Ingress`; empty for a system view.
    #[serde(default)]
    pub kind: String,
    /// Whether its objects live in namespaces.
    #[serde(default)]
    pub namespaced: bool,
}

impl SourceInfo {
    /// The resource type, for a collection.
    pub fn gvr(&self) -> Option<&GroupVersionResource> {
        match &self.source {
            Source::Collection(collection) => Some(&collection.gvr),
            Source::System { .. } => None,
        }
    }
}

/// The control record of a view: in the log after the deltas that it speaks of, so that a reader
/// that has applied everything before it can compare count and digest with its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewRecord {
    /// The view.
    pub view: ViewId,
    /// What it holds.
    pub info: SourceInfo,
    /// The tenure that wrote this.
    pub epoch: Epoch,
    /// Where the view stands at its source.
    pub state: ViewState,
    /// The collection's resource version, from a list, an event or a bookmark.
    pub version: ResourceVersion,
    /// Objects in the view.
    pub objects: u64,
    /// Over every object's key and version.
    pub digest: Digest,
}

/// Where a view stands at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ViewState {
    /// The first list of this epoch is not wholly in the log yet.
    Syncing,
    /// Everything that the source had at `version` is in the log.
    Synced,
    /// The source says that it cannot be read: no such resource, or forbidden.
    Failed {
        /// The error that every reader gets.
        failure: Failure,
    },
    /// Nobody depends on it any more: readers free it.
    Dropped,
}

/// One kind that the API server serves: an object of the `kinds` system view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindRecord {
    /// Group, version and plural.
    pub gvr: GroupVersionResource,
    /// As in `Ingress`.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// As in `status` or `scale`, sorted.
    #[serde(default)]
    pub subresources: Vec<String>,
    /// Whether `gvr.version` is the group's preferred one for this kind.
    #[serde(default)]
    pub preferred: bool,
}

impl Failure {
    /// A failure with its reason (CamelCase) and message.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    #[test]
    fn a_confined_reader_reads_entries_of_its_own_namespace_alone() {
        let entry = |namespace: &str| EntryRecord {
            name: "e".into(),
            uid: "u".into(),
            generation: 1,
            state: EntryState::Bound {
                view: ViewId::new("v"),
                namespace: namespace.into(),
            },
        };
        assert!(entry("").view_within(None).is_ok());
        assert!(entry("apps").view_within(None).is_ok());
        assert!(entry("apps").view_within(Some("apps")).is_ok());
        for other in ["", "shop"] {
            let error = entry(other).view_within(Some("apps")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::POLICY_FORBIDDEN);
        }
    }
}
