//! The memory that large requests for live reads take, from before they are decoded until they are answered.

use anteroom_model::{FactError, limits::REQUEST_MEMORY_BYTES_MAX};
use anteroom_wire::{live::LiveRequest, query::Query};

use super::{
    limits::ReadClaim,
    memory_turns::{MemoryPart, MemoryTurns},
};

/// Requests that take so much memory are large. Of smaller ones as many are in memory as may wait.
const LARGE_BYTES_MIN: u64 = 32 * 1024;

/// The most memory of all large requests: the largest that only reads, and some others. A write that takes more counts as the
/// largest that only reads, so that others go on beside it. So the values in memory take 160 MiB at most.
const ALL_BYTES_MAX: u64 = REQUEST_MEMORY_BYTES_MAX as u64 + 16 * 1024 * 1024;

/// The most text of large requests that wait for memory.
const WAITING_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The texts of a request that are in memory with its values: as it came, opened, and written again for a server.
const TEXTS: u64 = 3;

/// The memory of large requests.
pub(super) struct LargeRequests(MemoryTurns);

/// A request, with the memory that it takes.
pub(super) struct HeldRequest {
    pub(super) request: LiveRequest,
    /// `None`: it is small.
    memory: Option<MemoryPart>,
}

impl HeldRequest {
    pub(super) fn new(request: LiveRequest, memory: Option<MemoryPart>) -> Self {
        Self { request, memory }
    }

    /// Returns true if work on all of its values takes long.
    pub(super) fn is_large(&self) -> bool {
        self.memory.is_some()
    }

    pub(super) fn query(&self) -> &Query {
        &self.request.query
    }
}

impl Default for LargeRequests {
    fn default() -> Self {
        let beneficiary_bytes_max = REQUEST_MEMORY_BYTES_MAX as u64;
        Self(MemoryTurns::new(
            ALL_BYTES_MAX,
            beneficiary_bytes_max,
            WAITING_BYTES_MAX,
            "large requests for live reads",
        ))
    }
}

impl LargeRequests {
    /// Waits for memory for a request of so many bytes, whose values take `memory` once they are decoded. A small request
    /// needs none.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there was no memory before the claim's deadline, or too much waits.
    pub(super) async fn memory_for(
        &self,
        text_bytes: usize,
        memory: u64,
        claim: &ReadClaim,
    ) -> Result<Option<MemoryPart>, FactError> {
        let memory = memory.saturating_add(TEXTS * text_bytes as u64);
        if memory < LARGE_BYTES_MIN {
            return Ok(None);
        }
        self.0.take(text_bytes, memory, claim).await.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::limits::RESULT_MEMORY_BYTES_MAX;
    use anteroom_wire::beneficiary::Beneficiary;
    use tokio::time::Instant;

    use super::*;

    fn claim(namespace: &str) -> ReadClaim {
        ReadClaim {
            beneficiary: Beneficiary::Policies(namespace.to_owned()),
            deadline: Instant::now(),
        }
    }

    /// Takes memory for as many requests as get it now. Returns it, with the error of the next request.
    async fn take_all(
        requests: &LargeRequests,
        memory: u64,
        of: &ReadClaim,
    ) -> (Vec<Option<MemoryPart>>, FactError) {
        let mut held = Vec::new();
        loop {
            match requests.memory_for(0, memory, of).await {
                Ok(part) => held.push(part),
                Err(error) => return (held, error),
            }
        }
    }

    /// A list of 38,000 objects with one field takes some 30 MiB.
    #[tokio::test(start_paused = true)]
    async fn large_requests_of_one_namespace_have_so_much_memory_and_leave_some_to_others() {
        const MIB: u64 = 1024 * 1024;
        for (memory, of_a, of_b) in [(30 * MIB, 1, 1), (10 * MIB, 5, 2), (MIB, 53, 18)] {
            let requests = LargeRequests::default();
            let (held_by_a, error) = take_all(&requests, memory, &claim("a")).await;
            assert!(matches!(error, FactError::LiveReadBusy { .. }), "{error}");
            assert!(error.is_over_part(), "{memory}");
            let (held_by_b, _) = take_all(&requests, memory, &claim("b")).await;
            assert_eq!((held_by_a.len(), held_by_b.len()), (of_a, of_b), "{memory}");
            assert!((of_a + of_b) as u64 * memory <= ALL_BYTES_MAX);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn small_requests_need_no_memory_and_the_largest_leave_some_to_others() {
        let (requests, of) = (LargeRequests::default(), claim("a"));
        let write = RESULT_MEMORY_BYTES_MAX as u64;
        let largest = requests.memory_for(0, write, &of).await.unwrap();
        assert!(largest.is_some());
        let again = requests.memory_for(0, write, &of).await.map(drop);
        assert!(again.unwrap_err().is_over_part());
        let rest = ALL_BYTES_MAX - REQUEST_MEMORY_BYTES_MAX as u64;
        let beside = requests.memory_for(0, rest, &claim("c")).await.unwrap();
        assert!(beside.is_some());
        let other = claim("b");
        let error = requests.memory_for(0, LARGE_BYTES_MIN, &other).await;
        let error = error.map(drop).unwrap_err();
        // No default stands in for what nobody has read.
        assert!(!error.class().subject.is_said_by_source(), "{error}");
        assert!(!error.is_over_part(), "{error}");
        let small = requests.memory_for(0, LARGE_BYTES_MIN - 1, &other).await;
        assert!(small.unwrap().is_none());
        drop((largest, beside));
        let text_bytes = usize::try_from(LARGE_BYTES_MIN.div_ceil(TEXTS)).unwrap();
        let with_its_text = requests.memory_for(text_bytes, 0, &other).await;
        assert!(with_its_text.unwrap().is_some());
    }
}
