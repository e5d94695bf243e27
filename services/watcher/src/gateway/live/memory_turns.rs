//! Memory for large values, which the beneficiaries of reads get in turns.

use std::sync::Arc;

use anteroom_model::FactError;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota};
use anteroom_wire::beneficiary::Beneficiary;

use super::limits::{ReadClaim, busy};

/// A part of the memory, until its values are dropped.
pub(super) type MemoryPart = FairPermit<Beneficiary>;

/// A limit for the memory of large values.
///
/// A beneficiary that has a part may have twice what it leaves free. So the first large value of a beneficiary mostly
/// has its memory at once. Otherwise it waits until enough is given back, and for one turn of each other beneficiary that
/// waits, however many large values these have. Meanwhile its text is in memory, for which there is a second limit.
pub(super) struct MemoryTurns {
    memory: Arc<FairQuota<Beneficiary>>,
    /// The text of the values that wait for memory.
    waiting_bytes: Arc<FairQuota<Beneficiary>>,
    /// The values, in the plural.
    values: &'static str,
}

impl MemoryTurns {
    /// Memory of so many bytes, and so many bytes of text that wait for it. One beneficiary may have `beneficiary_bytes_max`
    /// of the memory, and half of the text.
    pub(super) fn new(
        bytes_max: u64,
        beneficiary_bytes_max: u64,
        waiting_bytes_max: u64,
        values: &'static str,
    ) -> Self {
        Self {
            memory: FairQuota::new(bytes_max, beneficiary_bytes_max),
            waiting_bytes: FairQuota::new(waiting_bytes_max, waiting_bytes_max / 2),
            values,
        }
    }

    /// Waits for memory for a value of so many bytes of text. A value that takes more than one beneficiary may have counts as
    /// that: so however large it is, others have the rest meanwhile.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there was no memory before the claim's deadline, or too much text waits.
    pub(super) async fn take(
        &self,
        text_bytes: usize,
        memory: u64,
        claim: &ReadClaim,
    ) -> Result<MemoryPart, FactError> {
        let beneficiary = || claim.beneficiary.clone();
        let memory = memory.min(self.memory.key_units_max());
        if let Ok(part) = self.memory.try_take(beneficiary(), memory) {
            return Ok(part);
        }
        let text_bytes = (text_bytes as u64).min(self.waiting_bytes.units_max());
        let waiting = self.waiting_bytes.try_take(beneficiary(), text_bytes);
        let _waiting = waiting.map_err(|full| {
            let message = format!("{} bytes of {} wait for memory", full.held_max, self.values);
            busy(&message, claim.is_over_part(full))
        })?;
        let part = self.memory.take(beneficiary(), memory, claim.deadline);
        part.await.map_err(|full| {
            let message = format!("other {} take all the memory that they may", self.values);
            busy(&message, claim.is_over_part(full))
        })
    }
}
