//! Evaluations that look through a list in turns with others.

use std::sync::Arc;

use anteroom_model::FactError;
use parking_lot::Mutex;
use tokio::{runtime::Handle, time::timeout};

use super::{Scans, unexpected};
use crate::{
    deadline::Deadline,
    fair_slots::{FairSlot, FairSlots},
};

/// The turns of an evaluation: it has a lane for the time of a slice.
#[derive(Debug)]
pub(crate) struct Turns {
    lanes: Arc<FairSlots>,
    /// The namespace of the policies that ask; empty: policies of the cluster.
    namespace: String,
    runtime: Handle,
    deadline: Deadline,
    /// The lane that it has now.
    lane: Mutex<Option<FairSlot>>,
}

impl Turns {
    /// Gives its lane to who waits for one, and waits for the next. Only for threads that may block. Returns false
    /// where no time is left.
    pub(crate) fn next(&self) -> bool {
        let mut lane = self.lane.lock();
        drop(lane.take());
        let turn = async { timeout(self.deadline.left(), self.lanes.take(&self.namespace)).await };
        *lane = self.runtime.block_on(turn).ok();
        lane.is_some()
    }
}

impl Scans {
    /// Runs an evaluation that takes [turns](Turns) with the running scans. It waits for a place before it has a thread:
    /// the threads of evaluations that wait would be missing for all other work.
    ///
    /// # Errors
    /// The deadline has passed before there was a place, or the evaluation ended unexpectedly.
    pub(crate) async fn in_turns<R: Send + 'static>(
        &self,
        namespace: &str,
        deadline: Deadline,
        evaluate: impl FnOnce(&Turns) -> R + Send + 'static,
    ) -> Result<R, FactError> {
        let places = match namespace.is_empty() {
            true => &self.cluster_places,
            false => &self.places,
        };
        let Ok(place) = timeout(deadline.left(), places.take(namespace)).await else {
            return Err(deadline.exceeded());
        };
        let turns = Turns {
            lanes: Arc::clone(&self.lanes),
            namespace: namespace.to_owned(),
            runtime: Handle::current(),
            deadline,
            lane: Mutex::new(None),
        };
        let span = tracing::Span::current();
        let evaluation = tokio::task::spawn_blocking(move || {
            let _place = place;
            span.in_scope(|| evaluate(&turns))
        });
        evaluation.await.map_err(|error| unexpected(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scan::PLACES_PER_CORE;

    #[tokio::test]
    async fn a_turn_comes_with_a_lane_and_none_without_time() {
        for (lanes, given, expected) in [
            (1, Duration::from_secs(60), true),
            (0, Duration::ZERO, false),
        ] {
            let scans = Scans::new(lanes);
            let turns = |turns: &Turns| [turns.next(), turns.next()];
            let had = scans.in_turns("", Deadline::after(given), turns).await;
            assert_eq!(had, Ok([expected; 2]));
            assert_eq!(scans.lanes.free(), lanes, "given back");
        }
    }

    #[test]
    fn scans_without_a_place_wait_without_a_thread_and_leave_places_to_the_cluster() {
        const SCANS: usize = 40;
        let places = PLACES_PER_CORE;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(places + 2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let scans = Arc::new(Scans::new(1));
            let lane = scans.lanes.take("").await;
            let deadline = Deadline::after(Duration::from_secs(30));
            let (begun, begins) = std::sync::mpsc::channel();
            let scan = |namespace: &'static str, deadline: Deadline| {
                let (scans, begun) = (Arc::clone(&scans), begun.clone());
                tokio::spawn(async move {
                    let evaluate = move |turns: &Turns| {
                        begun.send(namespace).unwrap();
                        turns.next()
                    };
                    scans.in_turns(namespace, deadline, evaluate).await
                })
            };
            // All wait for the only lane.
            let of_namespace: Vec<_> = (0..SCANS).map(|_| scan("a", deadline)).collect();
            tokio::time::sleep(Duration::from_millis(50)).await;
            let has_begun: Vec<_> = begins.try_iter().collect();
            assert_eq!(has_begun, vec!["a"; places]);

            let of_cluster = scan("", deadline);
            let other = tokio::task::spawn_blocking(|| "other work");
            assert_eq!(other.await.unwrap(), "other work");
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(begins.try_iter().collect::<Vec<_>>(), [""]);

            let late = Deadline::after(Duration::from_millis(10));
            let late = scan("b", late).await.unwrap();
            assert!(matches!(late, Err(FactError::DeadlineExceeded { .. })));

            drop(lane);
            assert_eq!(of_cluster.await.unwrap(), Ok(true));
            for scan in of_namespace {
                assert_eq!(scan.await.unwrap(), Ok(true));
            }
            assert_eq!(
                (scans.places.free(), scans.cluster_places.free()),
                (places, places)
            );
        });
    }
}
