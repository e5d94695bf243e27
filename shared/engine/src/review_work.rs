//! The work that one review may cause, and the threads that do it.
//!
//! The sender of a request chooses its size, and policies compare its parts with each other and with facts. So all
//! rules of a review share one meter of steps. A rule that finds the meter used up fails, and its error refuses the
//! request even if the failure policy is `Ignore`: otherwise a large object would get past every such policy.
//!
//! Most reviews take some microseconds and are decided where they arrive. Nobody knows beforehand which ones take long:
//! a policy may be cheap for all objects but one. So work of a small review begins in place, within a short budget of
//! steps. Work that uses the budget up is done anew in the *long lane*, with all the steps that the review has left. A
//! rule whose earlier evaluations took long, and a review that is large, go there at once.
//!
//! The long lane takes as many reviews at once as half of the processors, on threads that serve no other task meanwhile.
//! The owners of reviews share its places fairly. A review that its own owner's reviews keep out is refused whatever the
//! failure policy, for the same reason as above.
//!
//! Only pure work is done anew: it is a function of the request, the policies and the facts that have arrived, and what
//! its first attempt left behind is dropped.

use std::sync::Arc;

use anteroom_functions::meter;
use anteroom_policy::RuleError;
#[cfg(test)]
use anteroom_runtime::fair_quota::FairPermit;
use anteroom_runtime::fair_quota::FairQuota;

use crate::{
    facts::{Deadline, RuleRequests},
    incoming::ReviewOwner,
    off_thread::{SHORT_BYTES_MAX, off_thread, off_thread_if},
    rule_run::RuleRun,
};

/// The most steps of one review in all its rules, about half a second of work.
pub const REVIEW_STEPS_MAX: u64 = 10_000_000;

/// Steps of one piece of work in place, about a millisecond. Work that takes more is done in the long lane, and so is the
/// next step of a rule that took more.
pub(crate) const SHORT_STEPS_MAX: u64 = 20_000;

/// Steps of all work of one review in place, about five milliseconds. Beyond that, all of it is done in the long lane:
/// otherwise hundreds of rules, each short by itself, would hold a thread for long.
const SHORT_STEPS_IN_ALL_MAX: u64 = 5 * SHORT_STEPS_MAX;

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
    /// The part of the steps that the review may take in place.
    steps_left_here: u64,
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
            steps_left_here: SHORT_STEPS_IN_ALL_MAX,
            lane: None,
            is_large: false,
            owner: ReviewOwner::default(),
            is_crowded_out: false,
            deadline,
        }
    }

    /// Sets the time until which further work waits for a place.
    pub(crate) fn wait_until(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Does work that concerns the request and no single rule. The work is pure, and is done twice where its first attempt
    /// takes too long. `None`: there was no place for it in time. If [`nothing is left`](Self::is_over) afterwards, the
    /// result is meaningless.
    pub(crate) async fn run<T>(&mut self, work: impl Fn() -> T) -> Option<T> {
        let steps = self.steps_here(false);
        if let Some(value) = steps.and_then(|steps| self.attempt(steps, &work)) {
            return Some(value);
        }
        self.in_lane(work).await
    }

    /// Returns the steps that the next work may take in place; `None`: none.
    fn steps_here(&self, is_long: bool) -> Option<u64> {
        if self.lane.is_none() {
            return Some(self.steps_left);
        }
        let steps = SHORT_STEPS_MAX.min(self.steps_left_here);
        // Where nothing is left, no work takes long.
        let is_here = !self.is_large && (self.is_over() || steps > 0 && !is_long);
        is_here.then(|| steps.min(self.steps_left))
    }

    /// Does work in place, within these steps. `None`: the work took all of them, so its result means nothing, and the
    /// review has more steps for another attempt.
    fn attempt<T>(&mut self, steps: u64, work: impl FnOnce() -> T) -> Option<T> {
        let (value, left) = meter::within(steps, work);
        let taken = steps - left;
        self.steps_left -= taken;
        self.steps_left_here = self.steps_left_here.saturating_sub(taken);
        (left > 0 || self.is_over()).then_some(value)
    }

    /// Does work in the long lane, with all steps that are left. `None`: there was no place for it in time.
    async fn in_lane<T>(&mut self, work: impl FnOnce() -> T) -> Option<T> {
        let lane = self.lane?;
        let steps = self.steps_left;
        let metered = || meter::within(steps, work);
        // In a box, so that the future of a short review stays small.
        let done = Box::pin(lane.run(self.owner, self.deadline, metered)).await;
        let (value, left) = self.place(done)?;
        self.steps_left = left;
        Some(value)
    }

    /// Does work on the objects of the request that is neither pure nor charged, such as copying or dropping them, and
    /// that waits for no place.
    pub(crate) fn run_here<T>(&self, work: impl FnOnce() -> T) -> T {
        off_thread_if(self.is_large && self.lane.is_some(), work)
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

    /// Returns the error of work for which there was no place in time.
    pub(crate) fn late(&self) -> RuleError {
        match self.is_crowded_out {
            true => RuleError::ReviewsOverPart,
            false => RuleError::OutOfTime,
        }
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
        let is_long = rule.name().work.last_steps() > SHORT_STEPS_MAX || !rule.can_begin_anew();
        let mut before = self.steps_left;
        let steps = self.steps_here(is_long);
        let asked = match steps.and_then(|steps| self.attempt(steps, || rule.step(asker))) {
            Some(asked) => asked,
            None => {
                if steps.is_some() {
                    rule.begin_anew();
                }
                before = self.steps_left;
                let Some(asked) = self.in_lane(|| rule.step(asker)).await else {
                    if steps.is_some() {
                        // The next review does not try it in place.
                        rule.name().work.took(SHORT_STEPS_MAX + 1);
                    }
                    self.end_late(rule);
                    return None;
                };
                asked
            }
        };
        if !self.is_large {
            // The cost of a large request is no estimate for small requests, which would wait because of a high
            // estimate.
            rule.name().work.took(before - self.steps_left);
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
    use std::{cell::Cell, time::Duration};

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
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_beyond_a_short_budget_is_done_anew_in_the_long_lane() {
        let lane = LongLane::new();
        let (owner, other) = (ReviewOwner::default(), ReviewOwner::of("other", ""));
        for (steps, is_long) in [(SHORT_STEPS_MAX - 1, false), (SHORT_STEPS_MAX, true)] {
            let begun = Cell::new(0);
            let charged = || {
                begun.set(begun.get() + 1);
                meter::charge(steps)
            };
            let deadline = Instant::now() + Duration::from_secs(1);
            let mut work = ReviewWork::new(&lane, owner, 0, deadline);
            assert_eq!(work.run(charged).await, Some(true));
            let (attempts, spent) = match is_long {
                true => (2, SHORT_STEPS_MAX + steps),
                false => (1, steps),
            };
            assert_eq!(begun.get(), attempts);
            assert_eq!(work.steps_left, REVIEW_STEPS_MAX - spent);
            let _places = lane.hold_all(other);
            let mut work = ReviewWork::new(&lane, owner, 0, deadline);
            assert_eq!(work.run(charged).await.is_none(), is_long);
        }
    }

    /// Hundreds of rules that each take a little less than a short budget do not hold a thread for half a second.
    #[tokio::test(start_paused = true)]
    async fn all_work_of_a_review_in_place_has_a_limit_of_steps() {
        let lane = LongLane::new();
        let _places = lane.hold_all(ReviewOwner::of("other", ""));
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut work = ReviewWork::new(&lane, ReviewOwner::default(), 0, deadline);
        let each = SHORT_STEPS_MAX - 1_000;
        let mut done = 0;
        while work.run(|| meter::charge(each)).await.is_some() {
            done += 1;
        }
        assert_eq!(done, SHORT_STEPS_IN_ALL_MAX / each);
        assert!(!work.is_over());
    }
}
