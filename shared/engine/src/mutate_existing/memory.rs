//! The memory of triggers: of those that wait, and of those that are worked on.
//!
//! A trigger waits as text. Each attempt parses it anew, in memory that is taken until the attempt ends, by the parts of the
//! text. A trigger that takes more than all memory is dropped. Small triggers have a reserve of their own, so that none
//! of them waits for a large one.
//!
//! The owners of the requests share each kind of memory fairly, so none of them takes what the others need.

use std::{sync::Arc, time::Duration};

use anteroom_runtime::fair_quota::{FairPermit, FairQuota, QuotaFull};
use tokio::time::Instant;

use super::held::HeldRequest;
use crate::incoming::ReviewOwner;

/// Memory of all triggers. A webhook has it beside the memory for reviews.
const MEMORY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The part of the memory in which triggers wait.
const WAITING_BYTES_MAX: u64 = MEMORY_BYTES_MAX / 4;

/// The part of the memory for attempts of small triggers.
const SMALL_BYTES_MAX: u64 = MEMORY_BYTES_MAX / 4;

/// The part of the memory for attempts of large triggers: the most that an attempt takes.
const LARGE_BYTES_MAX: u64 = MEMORY_BYTES_MAX - WAITING_BYTES_MAX - SMALL_BYTES_MAX;

/// The most triggers that wait or are worked on: so many with one rule find room.
pub(super) const TRIGGERS_MAX: usize = 1_024;

/// Memory that a trigger takes while it waits, beside its text, and each of its rules.
const PART_BYTES: u64 = WAITING_BYTES_MAX / TRIGGERS_MAX as u64 / 2;

/// Memory that every attempt takes beside its objects: 256 small ones find room at once. It has room for the fields that the
/// API server adds to an object that it stores.
const ATTEMPT_BYTES_MIN: u64 = SMALL_BYTES_MAX / 256;

/// Memory above which an attempt takes the memory of large ones.
const SMALL_ATTEMPT_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// The longest wait of an attempt for its memory.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The most parts of lists that all attempts hold at once; each has the objects of one read. A watcher hands on 256 KiB
/// in a part, so these take 16 MiB parsed. Only an object that is larger is a larger part, alone.
const PARTS_MAX: u64 = 2;

/// A turn of an attempt, until it is dropped.
pub(super) type PartTurn = FairPermit<ReviewOwner>;

/// The turns of attempts, each to hold one part of a list, or the object that triggers the rule as it was looked up. What
/// may take long is evaluated in a turn too. An owner has all but one of them, in which others go on.
#[derive(Debug)]
pub(super) struct PartTurns(Arc<FairQuota<ReviewOwner>>);

impl PartTurns {
    pub(super) fn new() -> Self {
        Self(FairQuota::new(PARTS_MAX, PARTS_MAX - 1))
    }

    /// Waits for a turn of the owner.
    ///
    /// # Errors
    /// The owner had none for an hour.
    pub(super) async fn take(&self, owner: ReviewOwner) -> Result<PartTurn, QuotaFull> {
        self.0.take(owner, 1, Instant::now() + PATIENCE).await
    }
}

/// The memory of triggers.
#[derive(Debug)]
pub(super) struct TriggerMemory {
    waiting: Arc<FairQuota<ReviewOwner>>,
    small: Arc<FairQuota<ReviewOwner>>,
    large: Arc<FairQuota<ReviewOwner>>,
}

impl TriggerMemory {
    pub(super) fn new() -> Self {
        let shared = |bytes_max: u64| FairQuota::new(bytes_max, bytes_max);
        Self {
            waiting: shared(WAITING_BYTES_MAX),
            small: shared(SMALL_BYTES_MAX),
            large: shared(LARGE_BYTES_MAX),
        }
    }

    /// Takes memory for a trigger of so many rules, until it is done with.
    ///
    /// # Errors
    /// Its owner may not have it now.
    pub(super) fn try_hold(
        &self,
        request: &HeldRequest,
        rules: usize,
    ) -> Result<FairPermit<ReviewOwner>, QuotaFull> {
        let bytes = request.text_bytes() as u64 + PART_BYTES * (1 + rules as u64);
        self.waiting.try_take(request.owner, bytes)
    }

    /// Waits for the memory of an attempt whose objects take so many bytes, for which [there can be some](fits).
    ///
    /// # Errors
    /// Its owner had none for an hour.
    pub(super) async fn take(
        &self,
        owner: ReviewOwner,
        parsed_bytes: u64,
    ) -> Result<FairPermit<ReviewOwner>, QuotaFull> {
        let bytes = attempt_bytes(parsed_bytes);
        let pool = match bytes <= SMALL_ATTEMPT_BYTES_MAX {
            true => &self.small,
            false => &self.large,
        };
        pool.take(owner, bytes, Instant::now() + PATIENCE).await
    }

    /// Takes all memory of large attempts for an owner.
    #[cfg(test)]
    pub(super) fn hold_large(&self, owner: ReviewOwner) -> FairPermit<ReviewOwner> {
        self.large.try_take(owner, self.large.units_max()).unwrap()
    }

    /// Returns whether nobody holds any of it.
    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        let nobody = ReviewOwner::of("nobody", "");
        let mut all = [&self.waiting, &self.small, &self.large].into_iter();
        all.all(|quota| quota.try_take(nobody, quota.units_max()).is_ok())
    }
}

/// Returns whether there can be memory for an attempt whose objects take so many bytes.
pub(super) fn fits(parsed_bytes: u64) -> bool {
    attempt_bytes(parsed_bytes) <= LARGE_BYTES_MAX
}

/// Returns whether the memory of an attempt whose objects take `taken_for` bytes is enough for objects of so many.
pub(super) fn is_enough(parsed_bytes: u64, taken_for: u64) -> bool {
    parsed_bytes <= attempt_bytes(taken_for)
}

/// Returns the memory of an attempt whose objects take so many bytes.
fn attempt_bytes(parsed_bytes: u64) -> u64 {
    parsed_bytes.saturating_add(ATTEMPT_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use anteroom_policy::AdmissionRequest;
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    /// A request with an object of about so many bytes.
    fn request(owner: &str, bytes: usize) -> HeldRequest {
        let request = json!({
            "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "object": {"data": {"a": "x".repeat(bytes)}},
        });
        let request = AdmissionRequest::new(request).unwrap();
        HeldRequest::of(request, ReviewOwner::of(owner, ""))
    }

    /// Returns the number of such triggers that find memory, which keep it in `held`.
    fn hold_all(
        memory: &TriggerMemory,
        request: &HeldRequest,
        held: &mut Vec<FairPermit<ReviewOwner>>,
    ) -> usize {
        let found = std::iter::from_fn(|| memory.try_hold(request, 1).ok());
        let before = held.len();
        held.extend(found);
        held.len() - before
    }

    #[test]
    fn triggers_that_wait_are_counted_by_their_text_and_shared_by_their_owners() {
        let (memory, mut held) = (TriggerMemory::new(), Vec::new());
        let of_one = hold_all(&memory, &request("a", 1024 * 1024), &mut held);
        assert_eq!(of_one, 10, "two thirds of 16 MiB");
        assert!(hold_all(&memory, &request("b", 1024 * 1024), &mut held) > 0);
        assert!(hold_all(&memory, &request("c", 10), &mut held) > 0);
        held.clear();
        let of_one = hold_all(&memory, &request("a", 10), &mut held);
        assert!((650..TRIGGERS_MAX).contains(&of_one), "{of_one}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_attempt_waits_for_no_large_one() {
        const MIB: u64 = 1024 * 1024;
        let memory = TriggerMemory::new();
        let [a, b] = ["a", "b"].map(|name| ReviewOwner::of(name, ""));
        let large = memory.take(a, 30 * MIB).await.unwrap();
        assert!(memory.take(b, 3 * MIB).now_or_never().is_none());
        let small: Vec<_> = std::iter::from_fn(|| memory.take(a, 0).now_or_never()?.ok()).collect();
        assert!((128..256).contains(&small.len()), "{}", small.len());
        assert!(memory.take(b, MIB).now_or_never().is_some());
        drop(large);
        assert!(memory.take(b, 3 * MIB).now_or_never().is_some());
    }

    #[test]
    fn an_attempt_takes_the_memory_of_its_objects_and_little_more() {
        let much = LARGE_BYTES_MAX - ATTEMPT_BYTES_MIN;
        assert!(fits(much) && !fits(much + 1) && !fits(u64::MAX));
        let more = 100_000 + ATTEMPT_BYTES_MIN;
        assert!(is_enough(more, 100_000) && !is_enough(more + 1, 100_000));
    }

    #[tokio::test(start_paused = true)]
    async fn one_owner_leaves_a_turn_to_others() {
        let turns = PartTurns::new();
        let [one, other] = ["one", "other"].map(|namespace| ReviewOwner::of(namespace, ""));
        let first = turns.take(one).await.unwrap();
        let mut waiting = std::pin::pin!(turns.take(one));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(
            turns
                .take(other)
                .now_or_never()
                .is_some_and(|turn| turn.is_ok())
        );
        drop(first);
        assert!(waiting.now_or_never().is_some_and(|turn| turn.is_ok()));
    }
}
