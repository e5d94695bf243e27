//! The views that the watcher derives for the other services. Policies and entries reach the services like any other
//! fact.
//!
//! | view | key | body |
//! |---|---|---|
//! | [`entries`] | [`EntryKind::key`](crate::EntryKind::key) | [`EntryRecord`](crate::EntryRecord) |
//! | [`policies`] | namespace (empty for a cluster-wide policy) and name; of policies.kyverno.io, `KIND/NAME` | the manifest, `kind` included |
//! | [`exceptions`] | namespace and name | the manifest, `kind` included |
//! | [`kinds`] | `Kind.version.group` | [`KindRecord`](crate::KindRecord) |
//! | [`desired_views`] | the view's name | [`DesiredView`](crate::DesiredView) |
//! | [`references`] | the view's name, and `namespace/name` | [`ObjectReference`](crate::ObjectReference) |

use crate::{Source, ViewId};

fn system(name: &str) -> Source {
    Source::System { name: name.into() }
}

/// The source of all resolved entries.
pub fn entries_source() -> Source {
    system("entries")
}

/// The source of all policies.
pub fn policies_source() -> Source {
    system("policies")
}

/// The source of all exceptions from policies that are taken into account.
pub fn exceptions_source() -> Source {
    system("exceptions")
}

/// The source of all kinds that the API server serves.
pub fn kinds_source() -> Source {
    system("kinds")
}

/// Returns the id of the view of every entry's binding or error.
pub fn entries() -> ViewId {
    entries_source().view_id()
}

/// Returns the id of the view of every policy's manifest.
pub fn policies() -> ViewId {
    policies_source().view_id()
}

/// Returns the id of the view of every manifest of an exception that is taken into account.
pub fn exceptions() -> ViewId {
    exceptions_source().view_id()
}

/// Returns the id of the view of the API server's kinds: resource, scope and subresources of each.
pub fn kinds() -> ViewId {
    kinds_source().view_id()
}

/// The source of all desired views. In the log it is named `wanted`.
pub fn desired_views_source() -> Source {
    system("wanted")
}

/// The source of all objects that are referenced by name.
pub fn references_source() -> Source {
    system("references")
}

/// Returns the id of the view of all desired views.
pub fn desired_views() -> ViewId {
    desired_views_source().view_id()
}

/// Returns the id of the view of every object that is referenced by name.
pub fn references() -> ViewId {
    references_source().view_id()
}
