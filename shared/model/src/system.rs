//! The views that the watcher derives for the other services, so that policies and entries reach
//! them the same way as any other fact.
//!
//! | view | key | body |
//! |---|---|---|
//! | [`entries`] | the entry's name | [`EntryRecord`](crate::EntryRecord) |
//! | [`policies`] | namespace (empty for a `ClusterPolicy`) and name | the manifest, `kind` included |
//! | [`kinds`] | `Kind.version.group` | [`KindRecord`](crate::KindRecord) |

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

/// The source of all kinds that the API server serves.
pub fn kinds_source() -> Source {
    system("kinds")
}

/// What every entry resolved to.
pub fn entries() -> ViewId {
    entries_source().view_id()
}

/// Every policy's manifest.
pub fn policies() -> ViewId {
    policies_source().view_id()
}

/// The API server's kinds: resource, scope and subresources of each.
pub fn kinds() -> ViewId {
    kinds_source().view_id()
}
