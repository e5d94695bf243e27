//! Makes a policy judge everything anew after its facts changed: a moment after the change, and never for more than a
//! part of the time. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anteroom_model::{Incarnation, ObjectKey, Revision, ViewId};
use tokio::time::Instant;

/// The wait for other changes after one. So one scan takes in changes of several objects, and replicas have them by
/// then.
const SETTLES: Duration = Duration::from_secs(2);

/// The least time between the end of one scan for changed facts and the beginning of the next one.
const REST_MIN: Duration = Duration::from_secs(10);

/// The rest of a policy whose facts change all the time, as a multiple of its scan's duration.
const REST_FACTOR: u32 = 9;

/// The position of the last change of each of a policy's facts; none for those that never changed.
pub(super) type Mark = BTreeMap<ViewId, (Incarnation, Revision)>;

/// The views that a policy reads, and the changes of them that its results include.
#[derive(Debug)]
struct PolicyReads {
    reads: BTreeSet<ViewId>,
    taken_in: Mark,
    /// The time at which a change is taken in.
    due: Option<Instant>,
    /// The time at which the rescan began, until its end.
    begun: Option<Instant>,
    /// The time before which the policy does not judge everything anew.
    rests_until: Instant,
}

/// The views that the policies read.
#[derive(Debug)]
pub(super) struct RescanTrigger {
    by_policy: BTreeMap<ObjectKey, PolicyReads>,
    /// No rest is longer: after that everything is judged anew in any case.
    rest_max: Duration,
}

impl RescanTrigger {
    pub(super) fn new(rest_max: Duration) -> Self {
        Self {
            by_policy: BTreeMap::new(),
            rest_max,
        }
    }

    /// Sets all policies, with the views that they read.
    pub(super) fn set(&mut self, policies: BTreeMap<ObjectKey, BTreeSet<ViewId>>, now: Instant) {
        self.by_policy
            .retain(|policy, _| policies.contains_key(policy));
        for (policy, reads) in policies {
            match self.by_policy.get_mut(&policy) {
                // A view that is read from now on may say something else.
                Some(known) => known.reads = reads,
                None => {
                    let new = PolicyReads {
                        taken_in: Mark::new(),
                        reads,
                        due: None,
                        begun: None,
                        rests_until: now,
                    };
                    self.by_policy.insert(policy, new);
                }
            }
        }
    }

    /// Notes that the policies concerned judge everything anew from now on, by facts that are no older than the
    /// returned mark. Changes until now do not trigger them again.
    pub(super) fn judge(
        &mut self,
        is_concerned: impl Fn(&ObjectKey) -> bool,
        mark: impl Fn(&BTreeSet<ViewId>) -> Mark,
    ) -> Mark {
        let mut all = Mark::new();
        let concerned = self
            .by_policy
            .iter_mut()
            .filter(|(key, _)| is_concerned(key));
        for (_, known) in concerned {
            known.taken_in = mark(&known.reads);
            known.due = None;
            all.extend(known.taken_in.clone());
        }
        all
    }

    /// Returns the policies that have to [judge](Self::judge) everything anew now. `is_behind` returns whether a
    /// policy's last scan is still under way.
    pub(super) fn due(
        &mut self,
        now: Instant,
        mark: impl Fn(&BTreeSet<ViewId>) -> Mark,
        is_behind: impl Fn(&ObjectKey) -> bool,
    ) -> BTreeSet<ObjectKey> {
        let mut due = BTreeSet::new();
        for (policy, known) in &mut self.by_policy {
            if let Some(begun) = known.begun.filter(|_| !is_behind(policy)) {
                let took = now.duration_since(begun);
                let rest = (took * REST_FACTOR).max(REST_MIN).min(self.rest_max);
                known.begun = None;
                known.rests_until = now + rest;
            }
            if known.due.is_none() && mark(&known.reads) != known.taken_in {
                known.due = Some(now + SETTLES);
            }
            let is_due = known.due.is_some_and(|at| at.max(known.rests_until) <= now);
            if is_due && known.begun.is_none() {
                known.begun = Some(now);
                due.insert(policy.clone());
            }
        }
        due
    }

    /// The number of policies that wait for their turn.
    pub(super) fn waiting(&self) -> usize {
        self.by_policy
            .values()
            .filter(|known| known.due.is_some())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments in seconds since the beginning.
    struct World {
        rescans: RescanTrigger,
        begin: Instant,
        /// The revision of the one view.
        revision: u64,
    }

    fn view() -> ViewId {
        ViewId::new("configmaps.v1")
    }

    fn policy() -> ObjectKey {
        ObjectKey::new("", "p")
    }

    fn mark_at(revision: u64) -> impl Fn(&BTreeSet<ViewId>) -> Mark {
        move |reads| {
            let at = (Incarnation("log".into()), Revision(revision));
            reads
                .iter()
                .map(|view| (view.clone(), at.clone()))
                .collect()
        }
    }

    impl World {
        fn new() -> Self {
            let mut world = Self {
                rescans: RescanTrigger::new(Duration::from_secs(3_600)),
                begin: Instant::now(),
                revision: 1,
            };
            world.set();
            world.judge();
            world
        }

        /// Everybody judges anew; the revision that they have to have.
        fn judge(&mut self) -> u64 {
            let expected = self.rescans.judge(|_| true, mark_at(self.revision));
            expected[&view()].1.0
        }

        fn set(&mut self) {
            let policies = BTreeMap::from([
                (policy(), BTreeSet::from([view()])),
                (ObjectKey::new("", "reads nothing"), BTreeSet::new()),
            ]);
            self.rescans.set(policies, self.begin);
        }

        fn is_due(&mut self, at_s: u64, is_behind: bool) -> bool {
            let now = self.begin + Duration::from_secs(at_s);
            let due = self.rescans.due(now, mark_at(self.revision), |_| is_behind);
            assert!(due.iter().all(|found| *found == policy()), "{due:?}");
            self.rescans
                .judge(|policy| due.contains(policy), mark_at(self.revision));
            !due.is_empty()
        }
    }

    #[test]
    fn a_changed_fact_triggers_one_rescan_after_a_short_wait() {
        let mut world = World::new();
        assert!(!world.is_due(100, false), "nothing changed");
        world.revision = 2;
        assert!(!world.is_due(101, false));
        assert_eq!(world.rescans.waiting(), 1);
        world.revision = 3;
        assert!(!world.is_due(102, false));
        assert!(world.is_due(103, false));
        assert!(!world.is_due(104, true));
        assert!(!world.is_due(200, false));
        assert_eq!(world.rescans.waiting(), 0);
    }

    #[test]
    fn facts_that_change_all_the_time_take_a_bounded_part_in_rescans() {
        let mut world = World::new();
        let mut begun = Vec::new();
        let mut ends_at = 0;
        for second in 0..400 {
            world.revision += 1;
            if world.is_due(second, second < ends_at) {
                begun.push(second);
                ends_at = second + 10;
            }
        }
        // The interval: 2 s, plus 9 times the 10 s of a rescan.
        assert_eq!(begun, [2, 102, 202, 302]);
    }

    #[test]
    fn a_quick_scan_rests_too_and_a_slow_one_not_for_ever() {
        for (took_s, rest_s) in [(0, 10), (1, 10), (2, 18), (1_000, 3_600)] {
            let mut world = World::new();
            world.revision = 2;
            world.is_due(0, false);
            assert!(world.is_due(2, false));
            world.revision = 3;
            assert!(!world.is_due(2 + took_s, false));
            let again = 2 + took_s + rest_s;
            assert!(!world.is_due(again - 1, false), "{took_s}");
            assert!(world.is_due(again, false), "{took_s}");
        }
    }

    #[test]
    fn facts_that_were_there_before_trigger_no_rescan() {
        let mut world = World::new();
        world.revision = 5;
        assert_eq!(world.judge(), 5, "it judges by what is there");
        assert!(!world.is_due(10, false));
        world.revision = 6;
        // It is known already, and goes on as it is.
        world.set();
        assert!(!world.is_due(11, false));
        assert!(world.is_due(13, false));
    }

    #[test]
    fn a_rescan_for_another_reason_takes_in_changed_facts() {
        let mut world = World::new();
        world.revision = 2;
        assert!(!world.is_due(1, false));
        assert_eq!(world.rescans.waiting(), 1);
        assert_eq!(world.judge(), 2);
        assert_eq!(world.rescans.waiting(), 0);
        assert!(!world.is_due(9, false));
        world.rescans.by_policy.get_mut(&policy()).unwrap().reads = BTreeSet::new();
        let nothing = world.rescans.judge(|_| true, mark_at(2));
        assert_eq!(nothing, Mark::new());
        world.set();
        assert!(!world.is_due(10, false));
        assert!(world.is_due(12, false), "another view is read from now on");
    }
}
