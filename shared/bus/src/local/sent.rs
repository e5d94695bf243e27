//! Batches on their way to the log.

use std::sync::Arc;

use anteroom_model::{Incarnation, Revision};
use anteroom_wire::envelope::Envelope;
use tokio::time::Instant;

use super::{
    WitnessedBatch,
    hub::{Hub, HubState},
    log::NotAppended,
};
use crate::{AppendError, BusError, Fence, LogSize};

/// A batch that a client has sent.
#[derive(Debug)]
pub(super) struct SentBatch {
    /// The number of the client.
    pub(super) client: u64,
    pub(super) fence: Fence,
    /// The log in which the client took the fence; `None`: the client did not take it.
    pub(super) log: Option<Incarnation>,
    pub(super) records: Vec<Envelope>,
}

impl SentBatch {
    /// Appends the batch, if its fence holds.
    pub(super) fn arrive(self, state: &mut HubState) -> Result<Revision, AppendError> {
        let Self {
            client,
            fence,
            log: of,
            records,
        } = self;
        let log = state.log.as_mut().ok_or(BusError::NoLog)?;
        let incarnation = log.head().incarnation;
        if of.is_some_and(|of| of != incarnation) {
            return Err(AppendError::Fenced);
        }
        let is_watched = state.witness.is_some();
        let seen = is_watched.then(|| WitnessedBatch {
            incarnation,
            lease: log.lease(fence.group),
            ..WitnessedBatch::new(client, fence, &records)
        });
        let appended = log.append(fence, records, Instant::now());
        let last = appended.map_err(|why| match why {
            NotAppended::Fenced => AppendError::Fenced,
            NotAppended::Full(size) => AppendError::Bus(full(size)),
        })?;
        if let Some(seen) = seen {
            state.bear_witness(WitnessedBatch { last, ..seen });
        }
        Ok(last)
    }

    /// Lets the batch arrive when its sender has long stopped to wait. The batch is lost if the log has another history
    /// by then, or the broker does not run.
    pub(super) fn hold_up(self, hub: &Arc<Hub>) {
        let (late, history) = (hub.lateness(), hub.with(|state| state.history()));
        let hub = Arc::clone(hub);
        tokio::spawn(async move {
            tokio::time::sleep(late).await;
            let arrived = hub.with(|state| {
                let is_there = state.up && state.history() == history;
                is_there.then(|| self.arrive(state))
            });
            if matches!(arrived, Some(Ok(_))) {
                hub.notify();
            }
        });
    }
}

fn full(LogSize { bytes, bytes_max }: LogSize) -> BusError {
    let message = format!("{bytes} of {} bytes are taken", bytes_max.unwrap_or(bytes));
    BusError::Full { message }
}
