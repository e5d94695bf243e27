//! Batches as the broker saw them, for the simulation.

use anteroom_model::{Epoch, Incarnation, Revision};
use anteroom_wire::envelope::{Envelope, Record};

use crate::{Fence, Lease};

/// An appended batch, with the proof of its writer. [`super::Faults::watch_appends`] returns the batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessedBatch {
    /// The log.
    pub incarnation: Incarnation,
    /// The number of the client that appended the batch. No two clients of a broker share a number.
    pub client: u64,
    /// The fence that the client named.
    pub fence: Fence,
    /// The lease of the group at the moment of the append, with its own fence; `None`: nobody ever took it.
    pub lease: Option<(Lease, Fence)>,
    /// The epoch of each record, in order.
    pub epochs: Vec<Epoch>,
    /// The position of the last record.
    pub last: Revision,
}

impl WitnessedBatch {
    /// A batch on its way into the log, which fills in the rest.
    pub(super) fn new(client: u64, fence: Fence, batch: &[Envelope]) -> Self {
        let epochs = batch.iter().map(|envelope| match &envelope.record {
            Record::Delta { delta, .. } => delta.epoch,
            Record::Control(record) => record.epoch,
        });
        Self {
            incarnation: Incarnation::default(),
            client,
            fence,
            lease: None,
            epochs: epochs.collect(),
            last: Revision(0),
        }
    }
}
