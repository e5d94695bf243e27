//! What was read last of each view, so that no decision goes back in time.
//!
//! Replicas that are whole and fresh are still not at the same position: one that was frozen, or has
//! just come back to the bus, answers from what it knew before. An owner that one decision saw must
//! not be missing in the next, so each query asks for at least what the last answer was read from,
//! and a replica that is behind waits or is passed over.

use std::collections::{HashMap, HashSet};

use anteroom_model::{Incarnation, Revision, ViewId};
use anteroom_wire::query::QueryReply;
use parking_lot::Mutex;

use crate::catalog::Catalog;

/// The furthest position of each view that an answer came from: about as many as there are entries.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<HashMap<ViewId, Floor>>);

/// A position of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    pub(super) incarnation: Incarnation,
    pub(super) revision: Revision,
}

impl Floors {
    /// The least that is to be read of a view now; `None` where nothing was read yet.
    pub(super) fn of(&self, view: &ViewId) -> Option<Floor> {
        self.0.lock().get(view).cloned()
    }

    /// An answer came. Positions of two logs are not compared: whichever log answers is the one.
    pub(super) fn raise(&self, view: &ViewId, reply: &QueryReply) {
        let mut floors = self.0.lock();
        let floor = floors.entry(view.clone()).or_insert_with(|| Floor {
            incarnation: reply.incarnation.clone(),
            revision: reply.revision,
        });
        if floor.incarnation != reply.incarnation {
            floor.incarnation = reply.incarnation.clone();
            floor.revision = reply.revision;
        }
        floor.revision = floor.revision.max(reply.revision);
    }

    /// Forgets the views that no entry points at any more, once there are more than entries.
    pub(super) fn forget_others(&self, catalog: &Catalog) {
        let mut floors = self.0.lock();
        if floors.len() > catalog.entries.len() {
            let entries = catalog.entries.values();
            let live: HashSet<_> = entries
                .filter_map(|entry| entry.binding().ok().map(|binding| &binding.view))
                .collect();
            floors.retain(|view, _| live.contains(view));
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::ResourceVersion;

    use super::*;

    fn reply(incarnation: &str, revision: u64) -> QueryReply {
        QueryReply {
            replica: "r".into(),
            incarnation: Incarnation(incarnation.into()),
            revision: Revision(revision),
            version: ResourceVersion("1".into()),
            age_ms: 0,
            objects: 0,
            results: Vec::new(),
            sealed: false,
        }
    }

    #[test]
    fn a_floor_rises_and_never_falls_within_one_log() {
        let floors = Floors::default();
        let (view, other) = (ViewId::new("a"), ViewId::new("b"));
        assert_eq!(floors.of(&view), None);
        for (log, revision, floor) in [
            ("one", 7, 7),
            ("one", 5, 7),
            ("one", 9, 9),
            ("two", 3, 3),
            ("two", 2, 3),
        ] {
            floors.raise(&view, &reply(log, revision));
            let found = floors.of(&view).unwrap();
            assert_eq!(found.incarnation.0, log);
            assert_eq!(found.revision.0, floor);
        }
        assert_eq!(floors.of(&other), None, "views have nothing in common");
    }

    #[test]
    fn views_that_no_entry_names_are_forgotten() {
        let (floors, catalog) = (Floors::default(), Catalog::default());
        floors.raise(&ViewId::new("a"), &reply("one", 1));
        floors.forget_others(&catalog);
        assert_eq!(floors.of(&ViewId::new("a")), None);
    }
}
