//! Batches as the broker saw them, for the simulation.

use anteroom_model::{Epoch, Incarnation, Revision};
use anteroom_wire::envelope::{Envelope, Record};

use crate::{Fence, Lease};

/// A batch that was appended, with what its writer could prove. [`super::Faults::watch_appends`] gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessedBatch {
    /// The log.
    pub incarnation: Incarnation,
    /// The client that appended it: no other client of the broker has its number.
    pub client: u64,
    /// The fence that the client named.
    pub fence: Fence,
    /// The lease of that group at the moment of the append, with its own fence; `None`: nobody ever took it.
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
