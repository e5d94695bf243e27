//! The work that one review may cause, and the threads that do it.
//!
//! The sender of a request chooses its size, and policies compare its parts with each other and with facts. So all
//! rules of a review share one meter of steps. A rule that finds the meter used up fails, and its error refuses the
//! request even if the failure policy is `Ignore`: otherwise a large object would get past every such policy.
//!
//! Most reviews take some microseconds and are decided where they arrive. A review that may take long, because of its
//! size or because of its rules' earlier evaluations, is decided in the *long lane*. That lane takes as many reviews
//! at once as half of the processors, on threads that serve no other task meanwhile.

use std::sync::Arc;

use anteroom_functions::meter;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::Semaphore,
    time::timeout_at,
};

use crate::{
    facts::{Deadline, RuleRequests},
    rule_run::RuleRun,
};

/// The most steps of one review in all its rules, about half a second of work.
pub const REVIEW_STEPS_MAX: u64 = 10_000_000;

/// Bytes of a request above which it is decided in the long lane.
pub(crate) const SHORT_BYTES_MAX: usize = 64 * 1024;

/// Steps of a rule, about a millisecond of work, above which its next step is taken in the long lane.
const SHORT_STEPS_MAX: u64 = 20_000;

/// Places for evaluations that may take long. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LongLane(Arc<Semaphore>);

impl LongLane {
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((processors / 2).max(1))))
    }

    /// Waits for a place and does the work there; `None`: not before the deadline.
    pub(crate) async fn run<T>(&self, deadline: Deadline, work: impl FnOnce() -> T) -> Option<T> {
        let place = timeout_at(deadline, self.0.acquire()).await.ok()?;
        let done = off_thread(work);
        drop(place);
        Some(done)
    }
}

/// Does work that may take long, on a thread that serves no other task meanwhile. In a single-threaded runtime, as of
/// tests, the work runs on the only thread.
pub(crate) fn off_thread<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// The work of one review.
pub(crate) struct ReviewWork<'l> {
    steps_left: u64,
    /// The lane for long work; `None`: all work is done on the spot.
    lane: Option<&'l LongLane>,
    /// The review's request is large.
    is_large: bool,
    deadline: Deadline,
}

impl<'l> ReviewWork<'l> {
    /// `bytes`: of the request.
    pub(crate) fn new(lane: &'l LongLane, bytes: usize, deadline: Deadline) -> Self {
        Self {
            lane: Some(lane),
            is_large: bytes > SHORT_BYTES_MAX,
            ..Self::at_once(deadline)
        }
    }

    /// Work that waits for nothing, and needs no runtime.
    pub(crate) fn at_once(deadline: Deadline) -> Self {
        Self {
            steps_left: REVIEW_STEPS_MAX,
            lane: None,
            is_large: false,
            deadline,
        }
    }

    /// Does work that concerns the request and no single rule. `None`: the deadline came first. If
    /// [`nothing is left`](Self::is_over) afterwards, the result is meaningless.
    pub(crate) async fn run<T>(&mut self, work: impl FnOnce() -> T) -> Option<T> {
        let steps = self.steps_left;
        let metered = || meter::within(steps, work);
        let (value, left) = match self.lane.filter(|_| self.is_large) {
            // In a box, so that the future of a short review stays small.
            Some(lane) => Box::pin(lane.run(self.deadline, metered)).await?,
            None => metered(),
        };
        self.steps_left = left;
        Some(value)
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
        let before = self.steps_left;
        let is_long = self.is_large || rule.name().work.last_steps() > SHORT_STEPS_MAX;
        let mut metered = || meter::within(before, || rule.step(asker));
        let (asked, left) = match self.lane.filter(|_| is_long) {
            None => metered(),
            Some(lane) => match Box::pin(lane.run(self.deadline, metered)).await {
                Some(done) => done,
                None => {
                    rule.end_out_of_time();
                    return None;
                }
            },
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
        let lane = LongLane(Arc::new(Semaphore::new(1)));
        let soon = Instant::now() + Duration::from_millis(50);
        let later = Instant::now() + Duration::from_secs(60);
        let held = Arc::clone(&lane.0).acquire_owned().await.unwrap();
        assert_eq!(lane.run(soon, || 1).await, None);
        let waiting = tokio::spawn({
            let lane = lane.clone();
            async move { lane.run(later, || 2).await }
        });
        drop(held);
        assert_eq!(waiting.await.unwrap(), Some(2));
    }

    #[tokio::test]
    async fn all_work_of_a_review_shares_its_steps() {
        let lane = LongLane::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        for bytes in [0, SHORT_BYTES_MAX + 1] {
            let mut work = ReviewWork::new(&lane, bytes, deadline);
            let half = || meter::charge(REVIEW_STEPS_MAX / 2);
            assert_eq!(work.run(half).await, Some(true));
            assert!(!work.is_over());
            assert_eq!(work.run(half).await, Some(false));
            assert!(work.is_over());
        }
    }
}
