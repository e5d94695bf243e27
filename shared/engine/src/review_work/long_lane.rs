//! The places for work that may take long, and the waits for them.

use std::sync::Arc;

use anteroom_runtime::fair_quota::{FairPermit, FairQuota};
use futures::{FutureExt as _, future::BoxFuture};

use crate::{facts::Deadline, incoming::ReviewOwner, off_thread::off_thread};

/// The most places, whatever the number of processors: what is evaluated in one makes up to 64 MiB of values, beside
/// the memory that is counted for reviews.
const PLACES_MAX: usize = 2;

/// Places for evaluations that may take long. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LongLane(Arc<FairQuota<ReviewOwner>>);

/// A place in the long lane, until it is dropped.
pub(crate) type LanePlace = FairPermit<ReviewOwner>;

/// A wait for a place in the long lane. `None`: there was none before the deadline. To drop it is to wait no more.
pub(crate) type LaneWait = BoxFuture<'static, Option<LanePlace>>;

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
        Self::of((processors / 2).min(PLACES_MAX))
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
            Err(_) => Err(self.reason(owner)),
        }
    }

    /// Returns a wait for a place.
    pub(super) fn wait(&self, owner: ReviewOwner, deadline: Deadline) -> LaneWait {
        let places = Arc::clone(&self.0);
        async move { places.take(owner, 1, deadline).await.ok() }.boxed()
    }

    /// Returns the reason why a review that waits no more got no place.
    pub(super) fn reason(&self, owner: ReviewOwner) -> NoPlace {
        match self.0.would_exceed_part(&owner, 1) {
            true => NoPlace::OwnReviews,
            false => NoPlace::OtherReviews,
        }
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
}
