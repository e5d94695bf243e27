//! The position that each view was read at last, so that no decision goes back in time.
//!
//! Replicas that are complete and fresh may still be at different positions. A replica that was frozen, or that has
//! just come back to the bus, answers from an older state. An object that one decision saw must not be missing in the
//! next. So each query asks for at least the position of the last answer, and a replica behind that position waits or
//! is passed over.
//!
//! A floor that the log has not reached after a while came from a false answer. It falls to the log's end, or nobody
//! could answer any more.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use anteroom_bus::{EarlierEnd, LogHead};
use anteroom_model::{FactError, Incarnation, Revision, ViewId};
use anteroom_wire::query::QueryReply;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of views from which unread views are forgotten.
const FLOORS_MIN: usize = 1_024;

/// A view that was not read for this long is forgotten. No replica that is so far behind answers.
const IDLE_MIN: Duration = Duration::from_secs(60 * 60);

/// The time for which answers of a log that was left are refused. A replica that has not noticed the new log serves
/// the old one no longer than this. If the old log is the valid one after all, restored from a backup, it is accepted
/// again after this time.
const LEFT_MIN: Duration = Duration::from_secs(5 * 60);

/// The number of left logs that are remembered of each view.
const LEFT_MAX: usize = 4;

/// The time that the log has to reach a floor, before its end is asked for.
const REACHED_MAX: Duration = Duration::from_secs(5);

/// The shortest time between two questions for the log's end.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The furthest position of each view that an answer came from: about as many as are read.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<Positions>);

#[derive(Debug, Default)]
struct Positions {
    by_view: HashMap<ViewId, Position>,
    /// The number of views at which idle views are looked for.
    sweep_at: usize,
    /// The log's end as last heard.
    end: Option<LogHead>,
    /// The time of the last question for the end.
    checked_at: Option<Instant>,
}

#[derive(Debug)]
struct Position {
    floor: Floor,
    read_at: Instant,
    /// When the floor rose to where it is.
    raised_at: Instant,
    /// The log seems to end before the floor.
    earlier_end: EarlierEnd,
    /// The logs before the floor's, the latest last, and when the first answer of another one came. Logs can change more
    /// than once before a replica notices.
    left: VecDeque<(Incarnation, Instant)>,
}

/// A position in the log of one incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Floor {
    pub(super) incarnation: Incarnation,
    pub(super) revision: Revision,
}

impl Floors {
    /// Returns the least position that an answer of the view may have now; `None`: nothing was read yet.
    pub(super) fn get(&self, view: &ViewId) -> Option<Floor> {
        let positions = self.0.lock();
        positions.by_view.get(view).map(|known| known.floor.clone())
    }

    /// Returns true if the log's end is to be asked for, since the log should have reached the view's floor by now and
    /// nobody knows whether it did. The answer is for [`Floors::end_is`].
    pub(super) fn is_check_due(&self, view: &ViewId) -> bool {
        let now = Instant::now();
        let mut positions = self.0.lock();
        let is_beyond = |known: &Position| {
            now.duration_since(known.raised_at) >= REACHED_MAX
                && positions.end.as_ref().is_none_or(|end| {
                    end.incarnation != known.floor.incarnation || end.last < known.floor.revision
                })
        };
        let is_due = positions.by_view.get(view).is_some_and(is_beyond)
            && positions
                .checked_at
                .is_none_or(|at| now.duration_since(at) >= CHECK_INTERVAL);
        if is_due {
            positions.checked_at = Some(now);
        }
        is_due
    }

    /// Takes in the log's end, as it was after `asked`. Floors that stay beyond it fall to it: where servers elect a leader,
    /// the end may seem earlier for a moment.
    pub(super) fn end_is(&self, end: LogHead, asked: Instant) {
        let mut positions = self.0.lock();
        for (view, known) in &mut positions.by_view {
            let floor = &mut known.floor;
            if floor.incarnation != end.incarnation {
                known.earlier_end = EarlierEnd::default();
                continue;
            }
            if known
                .earlier_end
                .is_lasting(end.last, floor.revision, asked)
            {
                tracing::warn!(
                    %view,
                    revision = %floor.revision,
                    end = %end.last,
                    "answer of a replica named a position that the log does not have: it demands nothing of other replicas any more; \
                     NATS has lost records, or somebody else has the replicas' login"
                );
                floor.revision = end.last;
                known.earlier_end = EarlierEnd::default();
            }
        }
        positions.end = Some(end);
    }

    /// Forgets the log's end: a query that demanded a floor found nobody who has reached it. A log that lost its last
    /// records ends before positions that it had reached.
    pub(super) fn forget_end(&self) {
        self.0.lock().end = None;
    }

    /// Notes the position of an answer. Positions of two logs are not compared: the log of the later answer counts.
    ///
    /// # Errors
    /// [`FactError::RevisionNotReached`] if it is of a log that was left.
    pub(super) fn raise(&self, view: &ViewId, reply: &QueryReply) -> Result<(), FactError> {
        self.raise_to(view, &reply.incarnation, reply.revision)
            .map_err(|want| FactError::RevisionNotReached {
                view: view.as_str().to_owned(),
                have: reply.revision,
                want,
            })
    }

    /// Notes that the view has reached this position: an answer from before it is too old.
    ///
    /// # Errors
    /// The floor that stays, since this is of a log that was left.
    pub(super) fn raise_to(
        &self,
        view: &ViewId,
        incarnation: &Incarnation,
        revision: Revision,
    ) -> Result<(), Revision> {
        let now = Instant::now();
        let mut positions = self.0.lock();
        if let Some(known) = positions.by_view.get_mut(view) {
            return known.raise_to(incarnation, revision, now);
        }
        positions.forget_idle(now);
        let floor = Floor {
            incarnation: incarnation.clone(),
            revision,
        };
        let position = Position {
            floor,
            read_at: now,
            raised_at: now,
            earlier_end: EarlierEnd::default(),
            left: VecDeque::new(),
        };
        positions.by_view.insert(view.clone(), position);
        Ok(())
    }
}

impl Position {
    fn raise_to(
        &mut self,
        incarnation: &Incarnation,
        revision: Revision,
        now: Instant,
    ) -> Result<(), Revision> {
        let floor = &mut self.floor;
        if floor.incarnation != *incarnation {
            self.left
                .retain(|(_, at)| now.duration_since(*at) < LEFT_MIN);
            if self.left.iter().any(|(log, _)| log == incarnation) {
                return Err(floor.revision);
            }
            let earlier = std::mem::replace(&mut floor.incarnation, incarnation.clone());
            self.left.push_back((earlier, now));
            if self.left.len() > LEFT_MAX {
                self.left.pop_front();
            }
            floor.revision = revision;
            self.raised_at = now;
            self.earlier_end = EarlierEnd::default();
        }
        if revision > floor.revision {
            floor.revision = revision;
            self.raised_at = now;
        }
        self.read_at = now;
        Ok(())
    }
}

impl Positions {
    /// Removes idle views. This costs little for each view that is added: it runs only once there are twice as many
    /// views as it left the last time.
    fn forget_idle(&mut self, now: Instant) {
        if self.by_view.len() < self.sweep_at.max(FLOORS_MIN) {
            return;
        }
        self.by_view
            .retain(|_, known| now.duration_since(known.read_at) < IDLE_MIN);
        self.sweep_at = self.by_view.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::ResourceVersion;

    use super::*;

    /// Longer than a server is late.
    const LASTS: Duration = Duration::from_secs(16);

    fn reply(incarnation: &str, revision: u64) -> QueryReply {
        QueryReply {
            replica: "r".into(),
            incarnation: Incarnation(incarnation.into()),
            revision: Revision(revision),
            version: ResourceVersion("1".into()),
            age_ms: 0,
            objects: 0,
            examined: 0,
            results: Vec::new(),
        }
    }

    #[test]
    fn a_floor_rises_and_never_falls_within_one_log() {
        let floors = Floors::default();
        let (view, other) = (ViewId::new("a"), ViewId::new("b"));
        assert_eq!(floors.get(&view), None);
        for (log, revision, floor) in [
            ("one", 7, 7),
            ("one", 5, 7),
            ("one", 9, 9),
            ("two", 3, 3),
            ("two", 2, 3),
        ] {
            floors.raise(&view, &reply(log, revision)).unwrap();
            let found = floors.get(&view).unwrap();
            assert_eq!(found.incarnation.0, log);
            assert_eq!(found.revision.0, floor);
        }
        assert_eq!(floors.get(&other), None, "views have nothing in common");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_a_log_that_was_left_is_refused_for_a_while() {
        let floors = Floors::default();
        let view = ViewId::new("a");
        for (log, revision) in [("one", 900), ("two", 3)] {
            floors.raise(&view, &reply(log, revision)).unwrap();
        }
        let refused = floors.raise(&view, &reply("one", 901)).unwrap_err();
        assert!(
            refused.class().retry.another_replica_may_answer(),
            "{refused}"
        );
        let log = Incarnation("one".into());
        assert_eq!(
            floors.raise_to(&view, &log, Revision(902)),
            Err(Revision(3))
        );
        assert_eq!(floors.get(&view).unwrap().incarnation.0, "two");
        floors.raise(&view, &reply("three", 1)).unwrap();
        floors.raise(&view, &reply("two", 4)).unwrap_err();
        // What was the log for so long is no replica's memory.
        tokio::time::advance(LEFT_MIN).await;
        floors.raise(&view, &reply("two", 5)).unwrap();
        assert_eq!(floors.get(&view).unwrap().revision.0, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_of_each_log_that_was_left_are_refused_and_true_answers_stay_accepted() {
        let floors = Floors::default();
        let view = ViewId::new("a");
        let logs = ["one", "two", "three", "four", "five", "six"];
        for log in logs {
            floors.raise(&view, &reply(log, 3)).unwrap();
        }
        // A replica that has noticed no change serves an old log on.
        for log in &logs[1..5] {
            floors.raise(&view, &reply(log, 900)).unwrap_err();
            floors.raise(&view, &reply("six", 4)).unwrap();
        }
        assert_eq!(floors.0.lock().by_view[&view].left.len(), LEFT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_floor_that_the_log_does_not_reach_falls_to_its_end() {
        let floors = Floors::default();
        let (view, other) = (ViewId::new("a"), ViewId::new("b"));
        let check = |last| {
            let due = floors.is_check_due(&view);
            let incarnation = Incarnation("one".into());
            let last = Revision(last);
            floors.end_is(LogHead { incarnation, last }, Instant::now());
            due
        };
        let at = |view| floors.get(view).unwrap().revision.0;
        floors.raise(&view, &reply("one", u64::MAX)).unwrap();
        assert!(!check(9), "the log may still reach it");
        tokio::time::advance(REACHED_MAX).await;
        assert!(check(9));
        assert_eq!(at(&view), u64::MAX, "a server may only be late");
        tokio::time::advance(LASTS).await;
        // True answers do not make it newer.
        floors.raise(&view, &reply("one", 10)).unwrap();
        floors.raise(&other, &reply("one", 12)).unwrap();
        assert!(check(11));
        assert_eq!((at(&view), at(&other)), (11, 12));
        tokio::time::advance(REACHED_MAX).await;
        assert!(!floors.is_check_due(&view), "the log is known to reach it");
        assert!(floors.is_check_due(&other));
        assert!(!floors.is_check_due(&other), "it was asked just now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_floor_of_a_log_that_was_shortened_falls_once_a_query_has_failed() {
        let floors = Floors::default();
        let view = ViewId::new("a");
        let end_is = |last| {
            let incarnation = Incarnation("one".into());
            let last = Revision(last);
            floors.end_is(LogHead { incarnation, last }, Instant::now());
        };
        floors.raise(&view, &reply("one", 1_000)).unwrap();
        tokio::time::advance(REACHED_MAX).await;
        assert!(floors.is_check_due(&view));
        end_is(1_200);
        tokio::time::advance(REACHED_MAX).await;
        assert!(!floors.is_check_due(&view), "the log had reached it");
        floors.forget_end();
        assert!(floors.is_check_due(&view));
        floors.forget_end();
        assert!(!floors.is_check_due(&view), "it was asked just now");
        let floor = || floors.get(&view).unwrap().revision;
        end_is(900);
        assert_eq!(floor(), Revision(1_000), "a server may only be late");
        tokio::time::advance(LASTS).await;
        assert!(floors.is_check_due(&view));
        end_is(1_001);
        floors.forget_end();
        end_is(900);
        assert_eq!(floor(), Revision(1_000), "the log had it meanwhile");
        tokio::time::advance(LASTS).await;
        end_is(900);
        assert_eq!(floor(), Revision(900));
    }

    #[tokio::test(start_paused = true)]
    async fn floors_of_idle_views_are_forgotten() {
        let floors = Floors::default();
        let view = |n: usize| ViewId::new(n.to_string());
        let raise = |n, revision| floors.raise(&view(n), &reply("one", revision)).unwrap();
        (0..FLOORS_MIN).for_each(|n| raise(n, 1));
        tokio::time::advance(IDLE_MIN).await;
        raise(0, 2);
        raise(FLOORS_MIN, 1);
        assert!(floors.get(&view(0)).is_some() && floors.get(&view(FLOORS_MIN)).is_some());
        assert_eq!(floors.get(&view(1)), None);
        assert_eq!(floors.0.lock().by_view.len(), 2);
    }
}
