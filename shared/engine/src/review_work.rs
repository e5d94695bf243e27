//! The work that one review may cause, and the threads that do it.
//!
//! The sender of a request chooses its size, and policies compare its parts with each other and with facts. So all
//! rules of a review share one meter of steps. A rule that finds the meter used up fails, and its error refuses the
//! request even if the failure policy is `Ignore`: otherwise a large object would get past every such policy.
//!
//! Most reviews take some microseconds and are decided where they arrive. A review that may take long, because of its
//! size or because of its rules' earlier evaluations, is decided in the *long lane*. That lane takes as many reviews
//! at once as half of the processors, on threads that serve no other task meanwhile. The owners of reviews share its
//! places fairly. A review that its own owner's reviews keep out is refused whatever the failure policy, for the same
//! reason as above.

use std::sync::Arc;

use anteroom_functions::meter;
#[cfg(test)]
use anteroom_runtime::fair_quota::FairPermit;
use anteroom_runtime::fair_quota::FairQuota;

use crate::{
    facts::{Deadline, RuleRequests},
    incoming::ReviewOwner,
    off_thread::off_thread,
    rule_run::RuleRun,
};

/// The most steps of one review in all its rules, about half a second of work.
pub const REVIEW_STEPS_MAX: u64 = 10_000_000;

/// Bytes of a request above which it is decided in the long lane.
pub(crate) const SHORT_BYTES_MAX: usize = 64 * 1024;

/// Steps of a rule, about a millisecond of work, above which its next step is taken in the long lane.
pub(crate) const SHORT_STEPS_MAX: u64 = 20_000;

/// Places for evaluations that may take long. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LongLane(Arc<FairQuota<ReviewOwner>>);

/// The reason why a review got no place in the long lane before its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// Other reviews of the same owner hold places or wait for some.
    OwnReviews,
    /// Reviews of other owners hold them.
    OtherReviews,
}

impl LongLane {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of(processors / 2)
    }

    fn of(places: usize) -> Self {
        Self(FairQuota::new(places as u64, places as u64))
    }

    /// Takes all places for an owner.
    #[cfg(test)]
    pub(crate) fn hold_all(&self, owner: ReviewOwner) -> FairPermit<ReviewOwner> {
        self.0.try_take(owner, self.0.units_max()).unwrap()
    }

    /// Waits for a place and does the work there.
    ///
    /// # Errors
    /// There was no place before the deadline.
    pub(crate) async fn run<T>(
        &self,
        owner: ReviewOwner,
        deadline: Deadline,
        work: impl FnOnce() -> T,
    ) -> Result<T, NoPlace> {
        let place = self.0.take(owner, 1, deadline).await;
        match place {
            Ok(_place) => Ok(off_thread(work)),
            Err(_) if self.0.would_exceed_part(&owner, 1) => Err(NoPlace::OwnReviews),
            Err(_) => Err(NoPlace::OtherReviews),
        }
    }
}

/// The work of one review.
pub(crate) struct ReviewWork<'l> {
    steps_left: u64,
    /// The lane for long work; `None`: all work is done on the spot.
    lane: Option<&'l LongLane>,
    /// The review's request is large.
    is_large: bool,
    owner: ReviewOwner,
    /// Other reviews of the same owner kept it out of the long lane until its deadline.
    is_crowded_out: bool,
    deadline: Deadline,
}

impl<'l> ReviewWork<'l> {
    /// The work of a review of this owner, whose request has so many bytes.
    pub(crate) fn new(
        lane: &'l LongLane,
        owner: ReviewOwner,
        bytes: usize,
        deadline: Deadline,
    ) -> Self {
        Self {
            lane: Some(lane),
            is_large: bytes > SHORT_BYTES_MAX,
            owner,
            ..Self::at_once(deadline)
        }
    }

    /// Work that waits for nothing, and needs no runtime.
    pub(crate) fn at_once(deadline: Deadline) -> Self {
        Self {
            steps_left: REVIEW_STEPS_MAX,
            lane: None,
            is_large: false,
            owner: ReviewOwner::default(),
            is_crowded_out: false,
            deadline,
        }
    }

    /// Does work that concerns the request and no single rule. `None`: there was no place for it in time. If
    /// [`nothing is left`](Self::is_over) afterwards, the result is meaningless.
    pub(crate) async fn run<T>(&mut self, work: impl FnOnce() -> T) -> Option<T> {
        let steps = self.steps_left;
        let metered = || meter::within(steps, work);
        let (value, left) = match self.lane.filter(|_| self.is_large) {
            // In a box, so that the future of a short review stays small.
            Some(lane) => {
                let done = Box::pin(lane.run(self.owner, self.deadline, metered)).await;
                self.place(done)?
            }
            None => metered(),
        };
        self.steps_left = left;
        Some(value)
    }

    /// Does work on the object that rules have changed, without waiting for a place. If [`nothing is left`](Self::is_over)
    /// afterwards, the meter has ended the work early.
    pub(crate) fn run_here<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let steps = self.steps_left;
        let metered = || meter::within(steps, work);
        let (value, left) = match self.is_large && self.lane.is_some() {
            true => off_thread(metered),
            false => metered(),
        };
        self.steps_left = left;
        value
    }

    /// Returns what was done in the long lane, and keeps in mind why there was no place.
    fn place<T>(&mut self, done: Result<T, NoPlace>) -> Option<T> {
        self.is_crowded_out |= matches!(done, Err(NoPlace::OwnReviews));
        done.ok()
    }

    /// Returns whether other reviews of the same owner kept this one out of the long lane.
    pub(crate) fn is_crowded_out(&self) -> bool {
        self.is_crowded_out
    }

    /// Ends a rule for which no time is left.
    pub(crate) fn end_late(&self, rule: &mut RuleRun<'_>) {
        match self.is_crowded_out {
            true => rule.end_crowded_out(),
            false => rule.end_out_of_time(),
        }
    }

    /// Returns whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.steps_left == 0
    }

    /// Evaluates the next step of a rule. A rule for which there is no time, or that takes too many steps, is ended.
    pub(crate) async fn step<'r>(
        &mut self,
        rule: &mut RuleRun<'r>,
        asker: usize,
    ) -> Option<RuleRequests<'r>> {
        if !rule.goes_on() {
            return None;
        }
        if self.is_over() {
            rule.end_too_costly();
            return None;
        }
        if self.is_crowded_out {
            rule.end_crowded_out();
            return None;
        }
        let before = self.steps_left;
        let is_long = self.is_large || rule.name().work.last_steps() > SHORT_STEPS_MAX;
        let mut metered = || meter::within(before, || rule.step(asker));
        let (asked, left) = match self.lane.filter(|_| is_long) {
            None => metered(),
            Some(lane) => {
                let done = Box::pin(lane.run(self.owner, self.deadline, metered)).await;
                let Some(done) = self.place(done) else {
                    self.end_late(rule);
                    return None;
                };
                done
            }
        };
        self.steps_left = left;
        if !self.is_large {
            // The cost of a large request is no estimate for small requests, which would wait because of a high
            // estimate.
            rule.name().work.took(before - left);
        }
        if self.is_over() {
            rule.end_too_costly();
            return None;
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_waits_for_a_place_in_the_long_lane_until_its_deadline() {
        let lane = LongLane::of(1);
        let [one, other] = ["one", "other"].map(|namespace| ReviewOwner::of(namespace, ""));
        let soon = Instant::now() + Duration::from_millis(50);
        let later = Instant::now() + Duration::from_secs(60);
        let held = lane.hold_all(one);
        for (owner, reason) in [(one, NoPlace::OwnReviews), (other, NoPlace::OtherReviews)] {
            assert_eq!(lane.run(owner, soon, || 1).await, Err(reason));
        }
        let waiting = tokio::spawn({
            let lane = lane.clone();
            async move { lane.run(one, later, || 2).await }
        });
        drop(held);
        assert_eq!(waiting.await.unwrap(), Ok(2));
    }

    /// A policy that is admitted is compiled there: a server's own tasks go on meanwhile.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_work_holds_up_no_other_task() {
        let lane = LongLane::of(1);
        let (done, waiting) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            done.send(()).unwrap();
        });
        let later = Instant::now() + Duration::from_secs(60);
        // On the runtime's only thread.
        let long = tokio::spawn(async move {
            let work = move || waiting.recv_timeout(Duration::from_secs(30));
            lane.run(ReviewOwner::default(), later, work).await
        });
        assert_eq!(long.await.unwrap(), Ok(Ok(())));
        other.await.unwrap();
    }

    #[tokio::test]
    async fn all_work_of_a_review_shares_its_steps() {
        let lane = LongLane::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        for bytes in [0, SHORT_BYTES_MAX + 1] {
            let mut work = ReviewWork::new(&lane, ReviewOwner::default(), bytes, deadline);
            let half = || meter::charge(REVIEW_STEPS_MAX / 2);
            assert_eq!(work.run(half).await, Some(true));
            assert!(!work.is_over());
            assert_eq!(work.run(half).await, Some(false));
            assert!(work.is_over());
            let mut work = ReviewWork::new(&lane, ReviewOwner::default(), bytes, deadline);
            assert!(work.run_here(half));
            assert!(!work.run_here(half));
            assert!(work.is_over());
        }
    }
}
