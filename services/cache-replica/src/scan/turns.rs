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
    /// Runs an evaluation that takes [turns](Turns) with the running scans.
    ///
    /// # Errors
    /// The evaluation ended unexpectedly.
    pub(crate) async fn in_turns<R: Send + 'static>(
        &self,
        namespace: &str,
        deadline: Deadline,
        evaluate: impl FnOnce(&Turns) -> R + Send + 'static,
    ) -> Result<R, FactError> {
        let turns = Turns {
            lanes: Arc::clone(&self.lanes),
            namespace: namespace.to_owned(),
            runtime: Handle::current(),
            deadline,
            lane: Mutex::new(None),
        };
        let span = tracing::Span::current();
        let evaluation = tokio::task::spawn_blocking(move || span.in_scope(|| evaluate(&turns)));
        evaluation.await.map_err(|error| unexpected(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
}
