//! What was read last of each view, so that no decision goes back in time.
//!
//! Replicas that are whole and fresh are still not at the same position: one that was frozen, or has
//! just come back to the bus, answers from what it knew before. An owner that one decision saw must
//! not be missing in the next, so each query asks for at least what the last answer was read from,
//! and a replica that is behind waits or is passed over.

use std::{collections::HashMap, time::Duration};

use anteroom_model::{Incarnation, Revision, ViewId};
use anteroom_wire::query::QueryReply;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Views beyond which those that nobody reads are forgotten.
const FLOORS_MIN: usize = 1_024;

/// How long a view must not have been read to be forgotten. No replica that is so far behind answers.
const IDLE_MIN: Duration = Duration::from_secs(60 * 60);

/// The furthest position of each view that an answer came from: about as many as are read.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<Positions>);

#[derive(Debug, Default)]
struct Positions {
    by_view: HashMap<ViewId, (Floor, Instant)>,
    /// With so many, the idle ones are looked for.
    sweep_at: usize,
}

/// A position of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    pub(super) incarnation: Incarnation,
    pub(super) revision: Revision,
}

impl Floors {
    /// The least that is to be read of a view now; `None` where nothing was read yet.
    pub(super) fn of(&self, view: &ViewId) -> Option<Floor> {
        let positions = self.0.lock();
        positions.by_view.get(view).map(|(floor, _)| floor.clone())
    }

    /// An answer came. Positions of two logs are not compared: whichever log answers is the one.
    pub(super) fn raise(&self, view: &ViewId, reply: &QueryReply) {
        self.raise_to(view, &reply.incarnation, reply.revision);
    }

    /// The view is known to have got so far: what was read before that is too old.
    pub(super) fn raise_to(&self, view: &ViewId, incarnation: &Incarnation, revision: Revision) {
        let now = Instant::now();
        let mut positions = self.0.lock();
        if let Some((floor, read_at)) = positions.by_view.get_mut(view) {
            if floor.incarnation != *incarnation {
                floor.incarnation = incarnation.clone();
                floor.revision = revision;
            }
            floor.revision = floor.revision.max(revision);
            *read_at = now;
            return;
        }
        positions.forget_idle(now);
        let floor = Floor {
            incarnation: incarnation.clone(),
            revision,
        };
        positions.by_view.insert(view.clone(), (floor, now));
    }
}

impl Positions {
    /// Costs little for each view that is added: it looks only where there are twice as many as were
    /// left the last time.
    fn forget_idle(&mut self, now: Instant) {
        if self.by_view.len() < self.sweep_at.max(FLOORS_MIN) {
            return;
        }
        self.by_view
            .retain(|_, (_, read_at)| now.duration_since(*read_at) < IDLE_MIN);
        self.sweep_at = self.by_view.len() * 2;
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

    #[tokio::test(start_paused = true)]
    async fn views_that_nobody_reads_any_more_are_forgotten() {
        let floors = Floors::default();
        let view = |n: usize| ViewId::new(n.to_string());
        (0..FLOORS_MIN).for_each(|n| floors.raise(&view(n), &reply("one", 1)));
        tokio::time::advance(IDLE_MIN).await;
        floors.raise(&view(0), &reply("one", 2));
        floors.raise(&view(FLOORS_MIN), &reply("one", 1));
        assert!(floors.of(&view(0)).is_some() && floors.of(&view(FLOORS_MIN)).is_some());
        assert_eq!(floors.of(&view(1)), None);
        assert_eq!(floors.0.lock().by_view.len(), 2);
    }
}
