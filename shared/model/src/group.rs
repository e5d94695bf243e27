//! Groups of views: what the writers divide among themselves.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::Source;

/// A group of views with one writer. Each has a lease of its own, so that several watchers share the
/// work; a type's views are in one group, so that they can share a watch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Group(pub u16);

impl Group {
    /// The group of the system views and of API calls. Whoever writes it is the coordinator: it
    /// reads entries and policies, and says which views are desired.
    pub const COORDINATOR: Self = Self(0);

    /// No group of views. In a heartbeat: a watcher says that it stands for election, whether it
    /// leads a group or not, so that the others can divide the groups with it.
    pub const NONE: Self = Self(u16::MAX);

    /// Groups of collections and objects, after the coordinator's. Fixed, since two watchers that
    /// divide differently would write one view.
    pub const SHARDS: u16 = 8;

    /// All groups.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=Self::SHARDS).map(Self)
    }

    /// Returns the group of the views of this source.
    pub fn of(source: &Source) -> Self {
        let gvr = match source {
            Source::Collection(collection) => &collection.gvr,
            Source::Objects { gvr } => gvr,
            Source::ApiCall { .. } | Source::System { .. } => return Self::COORDINATOR,
        };
        // The version is left out: a change of the preferred one moves nothing.
        let of = format!("{}/{}", gvr.group, gvr.resource);
        let shard = xxh3_64(of.as_bytes()) % u64::from(Self::SHARDS);
        Self(1 + shard as u16)
    }
}

/// Its number.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Collection, GroupVersionResource, system};

    #[test]
    fn views_of_one_type_are_in_one_group() {
        let gvr = |version: &str| GroupVersionResource::new("g", version, "things");
        let whole = Group::of(&Source::Collection(Collection::all(gvr("v1"))));
        assert_ne!(whole, Group::COORDINATOR);
        for other in [
            Source::Collection(Collection::in_namespace(gvr("v1"), "a")),
            Source::Collection(Collection::all(gvr("v2"))),
            Source::Objects { gvr: gvr("v1") },
        ] {
            assert_eq!(Group::of(&other), whole, "{other}");
        }
        assert_eq!(Group::of(&system::entries_source()), Group::COORDINATOR);
        assert_eq!(Group::all().count(), 1 + usize::from(Group::SHARDS));
    }

    /// A view in any other group would have no writer.
    #[test]
    fn types_are_divided_among_all_groups_but_the_coordinators() {
        let gvr = |at: u32| GroupVersionResource::new("g", "v1", format!("things{at}"));
        let groups: BTreeSet<Group> = (0..200)
            .map(|at| Group::of(&Source::Objects { gvr: gvr(at) }))
            .collect();
        let shards: BTreeSet<Group> = Group::all().skip(1).collect();
        assert_eq!(groups, shards);
    }
}
