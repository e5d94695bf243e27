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
//! The long lane takes as many reviews at once as half of the processors, two at most, on threads that serve no other task
//! meanwhile. The owners of reviews share its places fairly. A review that its own owner's reviews keep out is refused
//! whatever the failure policy, for the same reason as above. Work that would outlast the deadline, at the pace of a busy
//! processor, is ended before as too costly.
//!
//! The author of a namespaced policy must not get a request past the policies of the cluster. So policies of namespaces
//! have steps in place of their own, wait for the lane and work in it no longer than half of the time, and go there after the
//! others. A rule of the cluster that they left too little time for its facts is an error of the review, which refuses the
//! request whatever the failure policy.
//!
//! Only pure work is done anew: it is a function of the request, the policies and the facts that have arrived, and what
//! its first attempt left behind is dropped.

mod long_lane;

use std::time::Duration;

use anteroom_functions::meter;
use anteroom_policy::RuleError;
use futures::FutureExt as _;
use tokio::time::Instant;

use crate::{
    facts::{Deadline, FactHolder, ReviewWaiting, RuleRequests, WaitingMemory},
    incoming::ReviewOwner,
    off_thread::{SHORT_BYTES_MAX, off_thread, off_thread_if},
    rule::PolicyScope,
    rule_run::RuleRun,
};
pub use long_lane::NoPlace;
pub(crate) use long_lane::{LanePlace, LaneWait, LongLane};

/// The most steps of one review in all its rules, about half a second of work.
pub const REVIEW_STEPS_MAX: u64 = 10_000_000;

/// Steps of one piece of work in place, about a millisecond. Work that takes more is done in the long lane, and so is the
/// next step of a rule that took more.
pub(crate) const SHORT_STEPS_MAX: u64 = 20_000;

/// Steps of all work of one review in place, about five milliseconds. Beyond that, all of it is done in the long lane:
/// otherwise hundreds of rules, each short by itself, would hold a thread for long.
const SHORT_STEPS_IN_ALL_MAX: u64 = 5 * SHORT_STEPS_MAX;

/// The steps of long work for each millisecond that is left: a processor takes twice as many, where it is free. Work that
/// would outlast the time of its policy is too costly for the review, instead of late.
const STEPS_PER_MS: u64 = SHORT_STEPS_MAX / 2;

/// The steps of long work whatever time is left, about 50 milliseconds: a rule whose facts come at the deadline says so.
const LATE_STEPS_MAX: u64 = 50 * SHORT_STEPS_MAX;

/// Steps in place of all policies of namespaces. They take none of the others', so that what a tenant writes sends no rule
/// of the cluster to the long lane.
const SHORT_STEPS_OF_NAMESPACES_MAX: u64 = SHORT_STEPS_IN_ALL_MAX / 2;

/// The time that policies of namespaces may have taken for each time that a rule of the cluster has left. If they took more,
/// they are to blame where its facts come too late.
const HELD_UP_PER_LEFT_MAX: u32 = 2;

/// The outcome of a rule's turn in place.
pub(crate) enum StepHere<'r> {
    /// The rule asks for facts.
    Asks(RuleRequests<'r>),
    /// The step may take long: the rule waits for a place in the long lane.
    WaitsForLane,
    /// The rule has ended, or waits for facts.
    Rests,
}

/// The work of one review.
pub(crate) struct ReviewWork<'l> {
    steps_left: u64,
    /// The part of the steps that the review may take in place.
    steps_left_here: u64,
    /// The same for policies of namespaces.
    steps_left_here_of_namespaces: u64,
    /// The lane for long work; `None`: all work is done on the spot.
    lane: Option<&'l LongLane>,
    /// The review's request is large.
    is_large: bool,
    /// Some work was too long to be done in place, so what it made may be large.
    was_long: bool,
    /// The holder of the review's facts, with the owner of its work.
    holder: FactHolder,
    /// The memory of its rules that wait for facts; `None`: it is not counted.
    waiting: Option<ReviewWaiting<'l>>,
    /// Other reviews of the same owner kept it out of the long lane until its deadline.
    is_crowded_out: bool,
    deadline: Deadline,
    /// The time until which work for policies of namespaces waits for a place.
    deadline_of_namespaces: Deadline,
    /// The time for which work for policies of namespaces kept all other rules from going on.
    held_up: Duration,
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
            ..Self::of(owner, deadline)
        }
    }

    /// Work that waits for nothing, and needs no runtime.
    pub(crate) fn at_once(deadline: Deadline) -> Self {
        Self::of(ReviewOwner::default(), deadline)
    }

    fn of(owner: ReviewOwner, deadline: Deadline) -> Self {
        Self {
            steps_left: REVIEW_STEPS_MAX,
            steps_left_here: SHORT_STEPS_IN_ALL_MAX,
            steps_left_here_of_namespaces: SHORT_STEPS_OF_NAMESPACES_MAX,
            lane: None,
            is_large: false,
            was_long: false,
            holder: FactHolder::review(owner),
            waiting: None,
            is_crowded_out: false,
            deadline,
            deadline_of_namespaces: deadline,
            held_up: Duration::ZERO,
        }
    }

    /// Has rules that wait for facts take this memory for what they hold meanwhile.
    pub(crate) fn with_memory(mut self, memory: &'l WaitingMemory) -> Self {
        self.waiting = Some(memory.of(self.holder.owner()));
        self
    }

    /// The holder of the review's facts.
    pub(crate) fn holder(&self) -> &FactHolder {
        &self.holder
    }

    /// Sets the time of policies of namespaces: half of what is left if policies of the cluster need time too
    /// (`is_shared`), and otherwise all.
    pub(crate) fn share_time(&mut self, is_shared: bool) {
        self.deadline_of_namespaces = match is_shared {
            true => half_way(self.deadline),
            false => self.deadline,
        };
    }

    /// Returns the time until which work for policies of this scope waits for a place.
    pub(crate) fn deadline_of(&self, scope: PolicyScope) -> Deadline {
        match scope {
            PolicyScope::Namespace => self.deadline_of_namespaces,
            PolicyScope::Cluster => self.deadline,
        }
    }

    /// Does work that concerns the request and no single policy. The work is pure, and is done twice where its first
    /// attempt takes too long. `None`: there was no place for it in time. If [`nothing is left`](Self::is_over) afterwards,
    /// the result is meaningless.
    pub(crate) fn run<T>(&mut self, work: impl Fn() -> T) -> impl Future<Output = Option<T>> {
        self.run_for(PolicyScope::Cluster, work)
    }

    /// Does [such work](Self::run) for a policy of this scope.
    pub(crate) async fn run_for<T>(
        &mut self,
        scope: PolicyScope,
        work: impl Fn() -> T,
    ) -> Option<T> {
        let steps = self.steps_here(scope, false);
        if let Some(value) = steps.and_then(|steps| self.attempt(scope, steps, &work)) {
            return Some(value);
        }
        self.in_lane(scope, work).await
    }

    /// Returns the steps that the next work may take in place; `None`: none.
    fn steps_here(&self, scope: PolicyScope, is_long: bool) -> Option<u64> {
        if self.lane.is_none() {
            return Some(self.steps_left);
        }
        let steps = SHORT_STEPS_MAX.min(match scope {
            PolicyScope::Namespace => self.steps_left_here_of_namespaces,
            PolicyScope::Cluster => self.steps_left_here,
        });
        // Where nothing is left, no work takes long.
        let is_here = !self.is_large && (self.is_over() || steps > 0 && !is_long);
        is_here.then(|| steps.min(self.steps_left))
    }

    /// Does work in place, within these steps. `None`: the work took all of them, so its result means nothing, and the
    /// review has more steps for another attempt.
    fn attempt<T>(
        &mut self,
        scope: PolicyScope,
        steps: u64,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let (value, unused) = meter::within(steps, work);
        let taken = steps - unused;
        self.steps_left -= taken;
        let left_here = match scope {
            PolicyScope::Namespace => &mut self.steps_left_here_of_namespaces,
            PolicyScope::Cluster => &mut self.steps_left_here,
        };
        *left_here = left_here.saturating_sub(taken);
        (unused > 0 || self.is_over()).then_some(value)
    }

    /// Does work in the long lane, with all steps that are left. `None`: there was no place for it in time.
    async fn in_lane<T>(&mut self, scope: PolicyScope, work: impl FnOnce() -> T) -> Option<T> {
        let lane = self.lane?;
        self.was_long = true;
        let (begun, until) = (Instant::now(), self.deadline_of(scope));
        let steps_left = self.steps_left;
        let metered = || {
            let steps = steps_until(until, steps_left);
            let (value, unused) = meter::within(steps, work);
            (value, steps, unused)
        };
        // In a box, so that the future of a short review stays small.
        let done = Box::pin(lane.run(self.holder.owner(), until, metered)).await;
        self.note_time(scope, begun);
        let (value, steps, unused) = self.place(done)?;
        self.take_steps(steps, unused);
        Some(value)
    }

    /// Takes in that work in the long lane had so many steps, and left some of them. Work that left none would have outlasted
    /// its time, so nothing is left for the review.
    fn take_steps(&mut self, steps: u64, unused: u64) {
        self.steps_left = match unused {
            0 => 0,
            unused => self.steps_left - (steps - unused),
        };
    }

    /// Does work on the objects of the request, and on those that rules made, that is neither pure nor charged, such as
    /// copying or dropping them, and that waits for no place.
    pub(crate) fn run_here<T>(&self, work: impl FnOnce() -> T) -> T {
        let is_long = self.is_large || self.was_long;
        off_thread_if(is_long && self.lane.is_some(), work)
    }

    /// Notes the time since `begun`, in which no other rule could go on.
    fn note_time(&mut self, scope: PolicyScope, begun: Instant) {
        if scope == PolicyScope::Namespace {
            self.held_up += begun.elapsed();
        }
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

    /// Evaluates the next step of a rule in place, if it may be short. A rule for which nothing is left is ended.
    pub(crate) fn step_here<'r>(&mut self, rule: &mut RuleRun<'r>, asker: usize) -> StepHere<'r> {
        if !rule.goes_on() && !rule.waits_for_lane() {
            return StepHere::Rests;
        }
        if self.is_over() {
            rule.end_too_costly();
            return StepHere::Rests;
        }
        if self.is_crowded_out {
            rule.end_crowded_out();
            return StepHere::Rests;
        }
        if rule.waits_for_lane() {
            return StepHere::WaitsForLane;
        }
        let scope = rule.scope();
        let is_long = rule.name().work.last_steps() > SHORT_STEPS_MAX || !rule.can_begin_anew();
        let (before, steps) = (self.steps_left, self.steps_here(scope, is_long));
        let attempted = steps.and_then(|steps| self.attempt(scope, steps, || rule.step(asker)));
        let Some(asked) = attempted else {
            rule.wait_for_lane(steps.is_some());
            self.note_hold_up(rule);
            return StepHere::WaitsForLane;
        };
        match self.stepped(rule, asked, before - self.steps_left) {
            Some(requests) => StepHere::Asks(requests),
            None => StepHere::Rests,
        }
    }

    /// Returns a wait for a place in the long lane, for the next step of a rule there.
    pub(crate) fn lane_wait(&self) -> LaneWait {
        match self.lane {
            Some(lane) => lane.wait(self.holder.owner(), self.deadline),
            None => std::future::ready(None).boxed(),
        }
    }

    /// Evaluates the next step of a rule in this place of the long lane. A rule that has no facts when the time is over is
    /// not begun there.
    pub(crate) fn step_in_lane<'r>(
        &mut self,
        rule: &mut RuleRun<'r>,
        asker: usize,
        place: LanePlace,
    ) -> Option<RuleRequests<'r>> {
        self.was_long = true;
        let begun = Instant::now();
        if begun >= self.deadline && !rule.has_facts() {
            self.end_late(rule);
            return None;
        }
        let steps = steps_until(self.deadline_of(rule.scope()), self.steps_left);
        let (asked, unused) = off_thread(|| meter::within(steps, || rule.step_in_lane(asker)));
        drop(place);
        self.take_steps(steps, unused);
        self.note_time(rule.scope(), begun);
        self.stepped(rule, asked, steps - unused)
    }

    /// Ends the rules that wait for a place in the long lane, since there was none in the time of policies of this scope. It
    /// is the widest of these rules' scopes.
    pub(crate) fn end_without_place(&mut self, rules: &mut [RuleRun<'_>], scope: PolicyScope) {
        self.was_long = true;
        let reason = self.lane.map(|lane| lane.reason(self.holder.owner()));
        let is_own = reason == Some(NoPlace::OwnReviews);
        // The rules of the cluster have the other half of the time.
        self.is_crowded_out |= is_own && scope == PolicyScope::Cluster;
        for rule in rules.iter_mut().filter(|rule| rule.waits_for_lane()) {
            if rule.was_tried_in_place() {
                // The next review does not try it in place.
                rule.name().work.took(SHORT_STEPS_MAX + 1);
            }
            match is_own {
                true => rule.end_crowded_out(),
                false => rule.end_out_of_time(),
            }
        }
    }

    /// Takes in a step of a rule that took so many steps of the meter. Returns the facts that the rule asks for, if there is
    /// memory for what it holds while it waits for them.
    fn stepped<'r>(
        &mut self,
        rule: &mut RuleRun<'r>,
        asked: Option<RuleRequests<'r>>,
        taken: u64,
    ) -> Option<RuleRequests<'r>> {
        if !self.is_large {
            // The cost of a large request is no estimate for small requests, which would wait because of a high
            // estimate.
            rule.name().work.took(taken);
        }
        if self.is_over() {
            rule.end_too_costly();
            return None;
        }
        rule.let_go();
        let asked = asked?;
        self.note_hold_up(rule);
        if let Some(waiting) = &mut self.waiting
            && let Err(full) = rule.hold(waiting)
        {
            rule.end_without_memory(asked, full);
            return None;
        }
        Some(asked)
    }

    /// Notes in a rule of the cluster that policies of namespaces left it little time for what it begins to wait for.
    fn note_hold_up(&self, rule: &mut RuleRun<'_>) {
        if self.held_up.is_zero() || rule.scope() == PolicyScope::Namespace {
            return;
        }
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if self.held_up > remaining.saturating_mul(HELD_UP_PER_LEFT_MAX) {
            rule.hold_up();
        }
    }

    /// Notes in all rules of the cluster that wait how little time they have, after a long step for a policy of a namespace. Their
    /// facts were not looked at meanwhile.
    pub(crate) fn note_hold_ups(&self, rules: &mut [RuleRun<'_>]) {
        let waiting = rules.iter_mut().filter(|rule| rule.report().is_none());
        waiting.for_each(|rule| self.note_hold_up(rule));
    }

    /// Makes an error of the review of each rule that is out of time because it was held up. To be called at the end.
    pub(crate) fn settle(&self, rules: &mut [RuleRun<'_>]) {
        if !self.held_up.is_zero() {
            rules.iter_mut().for_each(RuleRun::settle);
        }
    }
}

/// Returns the steps of those left that long work may take which has time until `deadline`.
fn steps_until(deadline: Deadline, steps_left: u64) -> u64 {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let left_ms = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
    let in_time = left_ms.saturating_mul(STEPS_PER_MS).max(LATE_STEPS_MAX);
    steps_left.min(in_time)
}

/// Returns the time at which half of the time until `deadline` is over.
fn half_way(deadline: Deadline) -> Deadline {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

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

    #[tokio::test(start_paused = true)]
    async fn policies_of_namespaces_take_no_steps_in_place_from_those_of_the_cluster() {
        let lane = LongLane::new();
        let _places = lane.hold_all(ReviewOwner::of("other", ""));
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut work = ReviewWork::new(&lane, ReviewOwner::default(), 0, deadline);
        let each = SHORT_STEPS_MAX - 1_000;
        for (scope, steps_max) in [
            (PolicyScope::Namespace, SHORT_STEPS_OF_NAMESPACES_MAX),
            (PolicyScope::Cluster, SHORT_STEPS_IN_ALL_MAX),
        ] {
            let mut done = 0;
            while work.run_for(scope, || meter::charge(each)).await.is_some() {
                done += 1;
            }
            assert_eq!(done, steps_max / each, "{scope:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_for_policies_of_namespaces_waits_for_half_of_the_time_where_the_cluster_has_some()
    {
        let lane = LongLane::new();
        let _places = lane.hold_all(ReviewOwner::of("other", ""));
        for (is_shared, scope, waited_ms) in [
            (true, PolicyScope::Namespace, 500),
            (true, PolicyScope::Cluster, 1_000),
            (false, PolicyScope::Namespace, 1_000),
        ] {
            let begun = Instant::now();
            let deadline = begun + Duration::from_secs(1);
            let mut work = ReviewWork::new(&lane, ReviewOwner::default(), 0, deadline);
            work.share_time(is_shared);
            let long = || meter::charge(SHORT_STEPS_MAX);
            assert_eq!(work.run_for(scope, long).await, None);
            assert_eq!(begun.elapsed().as_millis(), waited_ms, "{scope:?}");
        }
    }

    /// Also for a policy of a namespace, which has half of the time beside those of the cluster.
    #[tokio::test(start_paused = true)]
    async fn work_that_would_outlast_its_time_is_too_costly_for_the_review() {
        let lane = LongLane::new();
        for (scope, in_time) in [
            (PolicyScope::Cluster, 600 * STEPS_PER_MS),
            (PolicyScope::Namespace, 300 * STEPS_PER_MS),
        ] {
            for (steps, is_over) in [(in_time - 1, false), (in_time, true)] {
                let deadline = Instant::now() + Duration::from_millis(600);
                let mut work = ReviewWork::new(&lane, ReviewOwner::default(), 0, deadline);
                work.share_time(true);
                let done = work.run_for(scope, || meter::charge(steps)).await;
                assert_eq!((done, work.is_over()), (Some(!is_over), is_over));
            }
        }
    }

    /// What it made may be large, and is dropped there.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_follows_long_work_holds_up_no_other_task() {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (done, waiting) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move {
            begun.await.unwrap();
            done.send(()).unwrap();
        });
        // On the runtime's only thread.
        let long = tokio::spawn(async move {
            let lane = LongLane::new();
            let deadline = Instant::now() + Duration::from_secs(60);
            let mut work = ReviewWork::new(&lane, ReviewOwner::default(), 0, deadline);
            work.run(|| meter::charge(SHORT_STEPS_MAX)).await;
            // Back to the runtime's thread, which long work leaves.
            tokio::task::yield_now().await;
            begin.send(()).unwrap();
            work.run_here(move || waiting.recv_timeout(Duration::from_secs(30)))
        });
        assert_eq!(long.await.unwrap(), Ok(()));
        other.await.unwrap();
    }
}
