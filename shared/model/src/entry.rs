//! Records by which the watcher tells the other services of entries, views and kinds.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Digest, Epoch, FactError, GroupVersionResource, ObjectKey, ResourceVersion, Source, ViewId,
};

/// An object that needs a view, by UID. A view lives as long as at least one object needs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dependent(pub String);

/// Why something cannot be served, for people and for machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// In CamelCase, as in `Forbidden` or `ResourceNotFound`: also the reason of the entry's
    /// `Ready` condition.
    pub reason: String,
    /// The event, its cause, and what to do, for people.
    pub message: String,
}

/// Reasons of failures of a source that other parts recognize: they decide who gives up, who falls back, and what is
/// tried again.
pub mod source_reason {
    /// The API server, an endpoint or Anteroom's own rules forbid a read.
    pub const FORBIDDEN: &str = "Forbidden";
    /// The API server serves no such resource.
    pub const RESOURCE_NOT_FOUND: &str = "ResourceNotFound";
    /// The API server serves a resource, but neither lists nor watches it.
    pub const NOT_WATCHABLE: &str = "NotWatchable";
    /// An API group that may serve a resource does not answer.
    pub const GROUP_UNAVAILABLE: &str = "GroupUnavailable";
    /// More than one API group serves a resource of the name.
    pub const AMBIGUOUS_RESOURCE: &str = "AmbiguousResource";
}

/// Reasons of failures for which the source is not to blame: Anteroom itself does not hold the data.
pub mod own_reason {
    /// The log has no room for a view.
    pub const LOG_FULL: &str = "LogFull";
    /// The quota of a namespace does not hold a view.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// The watcher's memory limit does not hold a view.
    pub const MEMORY_LIMIT: &str = "MemoryLimit";
    /// The type of a view has as many watches as one type may have.
    pub const TOO_MANY_WATCHES: &str = "TooManyWatches";
    /// An object cannot be carried in the log.
    pub const OBJECT_UNREADABLE: &str = "ObjectUnreadable";
    /// A replica has no key that opens the objects of a view.
    pub const SEALED_UNREADABLE: &str = "SealedUnreadable";

    pub(super) const ALL: [&str; 6] = [
        LOG_FULL,
        QUOTA_EXCEEDED,
        MEMORY_LIMIT,
        TOO_MANY_WATCHES,
        OBJECT_UNREADABLE,
        SEALED_UNREADABLE,
    ];
}

impl Failure {
    /// Returns true if Anteroom itself does not hold the data, whatever their source says: see [`own_reason`].
    pub fn is_own(&self) -> bool {
        own_reason::ALL.contains(&&*self.reason)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// The kind that declared an entry. Names are unique within a kind.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum EntryKind {
    /// A `CachedContextEntry`.
    #[default]
    Cached,
    /// A `GlobalContextEntry`.
    Global,
    /// A policy, by what it reads: see `anteroom_policy::Reference`. Its name is the reference's
    /// canonical text.
    Implicit,
}

impl EntryKind {
    /// The plural, which is the namespace of its keys in the `entries` system view.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Cached => "cachedcontextentries",
            Self::Global => "globalcontextentries",
            Self::Implicit => "references",
        }
    }

    /// Returns the kind as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cached => "CachedContextEntry",
            Self::Global => "GlobalContextEntry",
            Self::Implicit => "reference",
        }
    }

    /// The key of the entry of this name in the `entries` system view.
    pub fn key(self, name: &str) -> ObjectKey {
        ObjectKey::new(self.plural(), name)
    }
}

/// The form in which a view's data are presented to a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shape {
    /// A list with `apiVersion`, `kind` and `items`, and once more under its plural: what a
    /// `CachedContextEntry` on a collection offers.
    #[default]
    Document,
    /// A list as the API server answers it: `apiVersion`, `kind`, `metadata.resourceVersion`,
    /// `items`.
    List,
    /// The objects alone, as an array: what a `GlobalContextEntry` on a collection offers.
    Array,
    /// One object, as it is.
    Object,
    /// The response of an API call, as it is.
    Response,
}

/// A part of an entry's data under a name of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Projection {
    /// Unique within the entry.
    pub name: String,
    /// JMESPath over the entry's data.
    pub expression: String,
}

/// An entry as the watcher resolved it: an object of the `entries` system view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// The kind that declared it.
    #[serde(default)]
    pub kind: EntryKind,
    /// The entry's name.
    pub name: String,
    /// The entry's UID; empty for an implicit one, which may have several dependents.
    pub uid: String,
    /// The generation of the spec that was resolved.
    pub generation: i64,
    /// The binding or the error that it resolved to.
    pub state: EntryState,
    /// Parts of its data under names of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projections: Vec<Projection>,
}

/// The view to ask for an entry's data, and how they are presented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The view's name.
    pub view: ViewId,
    /// The form in which the data are presented.
    #[serde(default)]
    pub shape: Shape,
    /// The one namespace that its data are confined to; empty: they may hold more.
    #[serde(default)]
    pub namespace: String,
    /// The one object of the view that is meant; `None`: the view whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKey>,
    /// True where it holds Secrets: their bodies are sealed in the log, and only those may read them
    /// that an administrator has allowed to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

impl Binding {
    /// A view whole, as a document.
    pub fn whole(view: ViewId) -> Self {
        Self {
            view,
            shape: Shape::Document,
            namespace: String::new(),
            object: None,
            secret: false,
        }
    }
}

impl EntryRecord {
    /// Returns the view to ask, or the error that a reader of this entry gets.
    pub fn binding(&self) -> Result<&Binding, FactError> {
        match &self.state {
            EntryState::Bound(binding) => Ok(binding),
            EntryState::Invalid { failure } => Err(FactError::EntryInvalid {
                entry: self.name.clone(),
                failure: failure.clone(),
            }),
        }
    }

    /// Returns [`EntryRecord::binding`] for a reader that is confined to a namespace, as a `Policy` is:
    /// it reads nothing outside its own, so the entry must be confined to the same one. `None` is a
    /// reader that is not confined.
    pub fn binding_within(&self, namespace: Option<&str>) -> Result<&Binding, FactError> {
        let binding = self.binding()?;
        match namespace {
            Some(own) if own != binding.namespace => Err(FactError::OutsideNamespace {
                entry: self.name.clone(),
                namespace: own.to_owned(),
            }),
            _ => Ok(binding),
        }
    }
}

/// The binding of an entry, or its error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum EntryState {
    /// The entry can be asked for.
    Bound(Binding),
    /// The entry cannot be served: the *invalid entry*, which holds its error.
    Invalid {
        /// The error that every reader gets.
        failure: Failure,
    },
}

/// Options of a view beside its source, from all of its dependents together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewOptions {
    /// The view is never evicted to save memory.
    #[serde(default)]
    pub pinned: bool,
    /// The largest size, in bytes as the replica accounts them, before it is evicted on its own;
    /// `None`: the replica's limit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Its bodies are sealed in the log.
    #[serde(default)]
    pub sealed: bool,
    /// The watcher does not retry a forbidden source, since every dependent asks for `onForbidden: Stop`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops_when_forbidden: bool,
    /// Its bytes in the log count against the quota of its namespace: only policies of that namespace need it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_quota: bool,
    /// The objects of each namespace take at most its quota of bytes in the log, where the view has objects of many
    /// namespaces: neither a policy of the cluster nor an entry needs the view whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub namespaces_limited: bool,
}

/// A view that somebody needs: an object of the `wanted` system view, by the view's name. The
/// coordinator writes it; the leader of the view's [`Group`](crate::Group) runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredView {
    /// The source, and its kind.
    pub info: SourceInfo,
    /// The options that its entries ask for.
    #[serde(default)]
    pub options: ViewOptions,
}

/// One object that is referenced by itself: an object of the `references` system view. The key's
/// namespace is the view ([`Source::Objects`]), its name is `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectReference {
    /// Its type.
    pub gvr: GroupVersionResource,
    /// The key of the object.
    pub object: ObjectKey,
    /// Only policies of namespaces refer to the object, so that it counts against the quota of its namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_quota: bool,
}

impl ObjectReference {
    /// The view that holds it.
    pub fn view(&self) -> ViewId {
        let gvr = self.gvr.clone();
        Source::Objects { gvr }.view_id()
    }

    /// Its key in the `references` system view.
    pub fn key(&self) -> ObjectKey {
        let ObjectKey { namespace, name } = &self.object;
        ObjectKey::new(self.view().as_str(), format!("{namespace}/{name}"))
    }
}

/// A source with its kind, which says how its data are presented to a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceInfo {
    /// The source itself.
    pub source: Source,
    /// The kind, as in `Ingress`; empty for a system view.
    #[serde(default)]
    pub kind: String,
    /// True where its objects live in namespaces.
    #[serde(default)]
    pub namespaced: bool,
}

impl SourceInfo {
    /// The resource type, for a collection.
    pub fn gvr(&self) -> Option<&GroupVersionResource> {
        self.source.gvr()
    }
}

/// The control record of a view: in the log after the deltas that it speaks of, so that a reader
/// that has applied everything before it can compare count and digest with its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewRecord {
    /// The view.
    pub view: ViewId,
    /// The source, and its kind.
    pub info: SourceInfo,
    /// The epoch that wrote this.
    pub epoch: Epoch,
    /// The state of the view at its source.
    pub state: ViewState,
    /// The collection's resource version, from a list, an event or a bookmark.
    pub version: ResourceVersion,
    /// Objects in the view.
    pub objects: u64,
    /// Over every object's key and version.
    pub digest: Digest,
    /// Objects of an earlier epoch than this are void: the view was dropped, or begun anew, since.
    /// A reader that was away when it was purged frees what it holds of them.
    #[serde(default)]
    pub origin: Epoch,
    /// For news that comes at intervals, as from a poll: the age at which the view stops
    /// answering to readers that name none. `None`: the replica's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_max_ms: Option<u64>,
}

/// The state of a view at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ViewState {
    /// The first list of this epoch is not wholly in the log yet.
    Syncing,
    /// Everything that the source had at `version` is in the log.
    Synced,
    /// The source cannot be read: the resource does not exist, or reading is forbidden.
    Failed {
        /// The error that every reader gets.
        failure: Failure,
    },
    /// No dependent needs the view any more, so readers free it.
    Dropped,
}

/// One kind that the API server serves: an object of the `kinds` system view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindRecord {
    /// Group, version and plural.
    pub gvr: GroupVersionResource,
    /// The kind, as in `Ingress`.
    pub kind: String,
    /// True where its objects live in namespaces.
    pub namespaced: bool,
    /// Its subresources, as in `status` or `scale`, sorted.
    #[serde(default)]
    pub subresources: Vec<String>,
    /// True where `gvr.version` is the group's preferred one for this kind.
    #[serde(default)]
    pub preferred: bool,
    /// True if the type can be listed and watched, so that views can hold its objects.
    pub watchable: bool,
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
            kind: EntryKind::Cached,
            name: "e".into(),
            uid: "u".into(),
            generation: 1,
            state: EntryState::Bound(Binding {
                namespace: namespace.into(),
                ..Binding::whole(ViewId::new("v"))
            }),
            projections: Vec::new(),
        };
        assert!(entry("").binding_within(None).is_ok());
        assert!(entry("apps").binding_within(None).is_ok());
        assert!(entry("apps").binding_within(Some("apps")).is_ok());
        for other in ["", "shop"] {
            let error = entry(other).binding_within(Some("apps")).unwrap_err();
            assert_eq!(error.code(), ErrorCode::POLICY_FORBIDDEN);
        }
    }
}
