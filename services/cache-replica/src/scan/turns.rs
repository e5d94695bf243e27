//! Evaluations that look through a list in turns with others.

use std::sync::Arc;

use anteroom_model::FactError;
use anteroom_wire::beneficiary::Beneficiary;
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
    beneficiary: Beneficiary,
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
        let turn = async {
            let turn = self.lanes.take(self.beneficiary.clone());
            timeout(self.deadline.left(), turn).await
        };
        *lane = self.runtime.block_on(turn).ok();
        lane.is_some()
    }
}

impl Scans {
    /// Runs an evaluation that takes [turns](Turns) with the running scans. It waits for a place before it has a thread:
    /// the threads of evaluations that wait would be missing for all other work. However many evaluations of one
    /// namespace run, and however long they take, the first one of any other namespace has a place at once.
    ///
    /// # Errors
    /// The deadline has passed before there was a place, or the evaluation ended unexpectedly.
    pub(crate) async fn in_turns<R: Send + 'static>(
        &self,
        beneficiary: &Beneficiary,
        deadline: Deadline,
        evaluate: impl FnOnce(&Turns) -> R + Send + 'static,
    ) -> Result<R, FactError> {
        let places = match beneficiary {
            Beneficiary::Policies(_) => &self.places,
            Beneficiary::Requests(_) | Beneficiary::Scans => &self.cluster_places,
        };
        let Ok(permit) = timeout(deadline.left(), places.take(beneficiary.clone())).await else {
            return Err(deadline.exceeded());
        };
        let turns = Turns {
            lanes: Arc::clone(&self.lanes),
            beneficiary: beneficiary.clone(),
            runtime: Handle::current(),
            deadline,
            lane: Mutex::new(None),
        };
        let span = tracing::Span::current();
        let evaluation = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            span.in_scope(|| evaluate(&turns))
        });
        evaluation.await.map_err(|error| unexpected(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{FutureExt as _, future::join_all};
    use tokio::sync::mpsc;

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
            let had = scans
                .in_turns(
                    &Beneficiary::of("", "", false),
                    Deadline::after(given),
                    turns,
                )
                .await;
            assert_eq!(had, Ok([expected; 2]));
            assert_eq!(scans.lanes.free(), lanes, "given back");
        }
    }

    /// Two places on one core: the policies of one namespace have one of them, for as long as their scan takes.
    #[test]
    fn scans_of_one_namespace_leave_places_and_threads_to_the_others() {
        const SCANS: usize = 40;
        let places = PLACES_PER_CORE;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(places + 2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let scans = &Scans::new(1);
            let lane = scans.lanes.take(Beneficiary::of("", "", false)).await;
            let deadline = Deadline::after(Duration::from_secs(30));
            let (begun, mut begins) = mpsc::unbounded_channel();
            let scan = |namespace: &'static str, deadline: Deadline| {
                let begun = begun.clone();
                let evaluate = move |turns: &Turns| {
                    begun.send(namespace).unwrap();
                    turns.next()
                };
                let beneficiary = Beneficiary::of(namespace, "", false);
                Box::pin(async move { scans.in_turns(&beneficiary, deadline, evaluate).await })
            };
            // None ends, since each that begins waits for the only lane. A scan that has a place begins when it is
            // polled, and no other does.
            let mut running = Vec::new();
            for namespace in std::iter::repeat_n("a", SCANS).chain(["b", ""]) {
                let mut scan = scan(namespace, deadline);
                assert!((&mut scan).now_or_never().is_none());
                running.push(scan);
                let of_b = usize::from(namespace != "a");
                assert_eq!(scans.places.free(), places - 1 - of_b, "{namespace}");
            }
            let mut has_begun = Vec::new();
            for _ in 0..3 {
                has_begun.push(begins.recv().await.unwrap());
            }
            has_begun.sort_unstable();
            assert_eq!(has_begun, ["", "a", "b"]);
            let other = tokio::task::spawn_blocking(|| "other work");
            assert_eq!(other.await.unwrap(), "other work");
            assert!(begins.try_recv().is_err(), "no other has a place");

            let late = scan("c", Deadline::after(Duration::ZERO)).await;
            assert!(matches!(late, Err(FactError::DeadlineExceeded { .. })));

            drop(lane);
            let ended = join_all(running).await;
            assert!(ended.iter().all(|had_turn| *had_turn == Ok(true)));
            assert_eq!(
                (scans.places.free(), scans.cluster_places.free()),
                (places, places)
            );
        });
    }
}
