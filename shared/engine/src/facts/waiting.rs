//! The memory that rules hold while they wait for facts: the values that they have made, and those in their questions.
//!
//! The author of a policy chooses how much a rule makes of a request, and makes it wait: a live read may be slow. Many rules of
//! many reviews wait at once. So each review has little memory of its own for what its rules hold meanwhile. All that goes
//! beyond comes from one limited memory, which the owners of reviews share fairly.
//!
//! | memory | for |
//! |---|---|
//! | the room | all rules; one owner has two thirds, or a single rule that holds more, and policies of namespaces have three quarters together |
//! | the reserve | rules that find no room, and hold little; one owner has an eighth |
//!
//! So two owners that fill the room, as large questions do, leave what most rules hold to all others. And whatever
//! policies of namespaces hold, those of the cluster have a part of the room.
//!
//! A rule that finds no memory ends at once. If it waited for memory, it would hold all the while what the memory is for.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anteroom_policy::{PARAMETERS_BYTES_MAX, WAITING_BYTES_MAX, WaitingBytes};
use anteroom_runtime::fair_quota::{FairPermit, FairQuota, QuotaFull};

use crate::{incoming::ReviewOwner, rule::PolicyScope};

/// The memory for all rules that wait, beside what each review has of its own.
const MEMORY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The parts that the memory is divided into. One of them is the reserve.
const PARTS: u64 = 4;

/// The quarters of the room that rules of policies of namespaces have.
const NAMESPACES_QUARTERS: u64 = 3;

/// The part of the reserve that one owner has, as a divisor.
const RESERVE_OWNERS: u64 = 8;

/// The memory of a review's own for its rules that wait. Policies of namespaces have as much of their own.
const FREE_BYTES_MAX: u64 = 256 * 1024;

/// The copies of a question: the rule's own, and the one that travels. The latter takes no more, as it is encoded.
const COPIES: u64 = 2;

// A rule finds room where no other one waits.
const _: () = assert!(
    COPIES * PARAMETERS_BYTES_MAX + WAITING_BYTES_MAX
        <= MEMORY_BYTES_MAX / PARTS * (PARTS - 1) / 4 * NAMESPACES_QUARTERS
);

// The values of a review find room in the reserve.
const _: () = assert!(WAITING_BYTES_MAX <= MEMORY_BYTES_MAX / PARTS / RESERVE_OWNERS);

/// The memory for rules that wait. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct WaitingMemory(Arc<MemoryParts>);

#[derive(Debug)]
struct MemoryParts {
    room: Arc<FairQuota<ReviewOwner>>,
    /// The bytes of the room that policies of namespaces hold.
    of_namespaces: Arc<FairQuota<ReviewOwner>>,
    reserve: Arc<FairQuota<ReviewOwner>>,
}

/// Bytes of the room or the reserve, until this is dropped.
#[derive(Debug)]
struct SharedBytes {
    _bytes: FairPermit<ReviewOwner>,
    /// `None`: a policy of the cluster holds the bytes, or the reserve has them.
    _of_namespaces: Option<FairPermit<ReviewOwner>>,
}

/// The memory for the rules of one review, or for the rule of a trigger.
#[derive(Debug)]
pub(crate) struct ReviewWaiting<'m> {
    memory: &'m WaitingMemory,
    owner: ReviewOwner,
    /// `None`: none of its rules has held anything yet.
    bytes: Option<Arc<ReviewBytes>>,
}

/// The bytes that the waiting rules of a review hold.
#[derive(Debug, Default)]
struct ReviewBytes {
    of_cluster: ScopeBytes,
    of_namespaces: ScopeBytes,
}

#[derive(Debug, Default)]
struct ScopeBytes {
    /// The values that rules have made.
    values: AtomicU64,
    /// The bytes of the review's own memory.
    free: AtomicU64,
}

/// The memory of what a rule holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPermit {
    review: Arc<ReviewBytes>,
    scope: PolicyScope,
    values: u64,
    /// The bytes of the review's own memory.
    free: u64,
    /// The permit for bytes of the memory of all reviews.
    taken: Option<SharedBytes>,
}

impl Default for WaitingMemory {
    fn default() -> Self {
        Self::new(MEMORY_BYTES_MAX)
    }
}

impl WaitingMemory {
    /// Memory of so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let reserve = bytes_max / PARTS;
        let room = bytes_max - reserve;
        let of_namespaces = room / 4 * NAMESPACES_QUARTERS;
        Self(Arc::new(MemoryParts {
            room: FairQuota::new(room, room),
            of_namespaces: FairQuota::new(of_namespaces, of_namespaces),
            reserve: FairQuota::new(reserve, reserve / RESERVE_OWNERS),
        }))
    }

    /// The memory for a review, or a trigger, of this owner.
    pub(crate) fn of(&self, owner: ReviewOwner) -> ReviewWaiting<'_> {
        ReviewWaiting {
            memory: self,
            owner,
            bytes: None,
        }
    }

    /// Returns whether nobody holds any of it.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        let nobody = |number: u64| ReviewOwner::of(&format!("nobody-{number}"), "");
        let of_reserve = |number| {
            let reserve = &self.0.reserve;
            reserve.try_take(nobody(number), reserve.key_units_max())
        };
        let reserve: Vec<_> = (0..RESERVE_OWNERS).map(of_reserve).collect();
        let parts = [&self.0.room, &self.0.of_namespaces];
        let mut parts = parts.into_iter();
        reserve.iter().all(Result::is_ok)
            && parts.all(|part| part.try_take(nobody(0), part.units_max()).is_ok())
    }
}

impl MemoryParts {
    /// Takes bytes of the room, or of the reserve.
    ///
    /// # Errors
    /// There is no room, and the reserve has none for this.
    fn take(
        &self,
        owner: ReviewOwner,
        scope: PolicyScope,
        bytes: u64,
    ) -> Result<SharedBytes, QuotaFull> {
        self.take_room(owner, scope, bytes).or_else(|full| {
            if bytes > self.reserve.key_units_max() {
                return Err(full);
            }
            // Who has used up its part of the room is told by the room.
            let reserved = self.reserve.try_take(owner, bytes).map_err(|_| full)?;
            Ok(SharedBytes {
                _bytes: reserved,
                _of_namespaces: None,
            })
        })
    }

    fn take_room(
        &self,
        owner: ReviewOwner,
        scope: PolicyScope,
        bytes: u64,
    ) -> Result<SharedBytes, QuotaFull> {
        // A rule on existing objects may hold more than there is, and has all of it.
        let (bytes, of_namespaces) = match scope {
            PolicyScope::Cluster => (bytes.min(self.room.units_max()), None),
            PolicyScope::Namespace => {
                let bytes = bytes.min(self.of_namespaces.units_max());
                (bytes, Some(self.of_namespaces.try_take(owner, bytes)?))
            }
        };
        Ok(SharedBytes {
            _bytes: self.room.try_take(owner, bytes)?,
            _of_namespaces: of_namespaces,
        })
    }
}

impl ReviewWaiting<'_> {
    /// Returns whether the rules of this scope may hold so much more of the values that they have made. These could be made
    /// again.
    pub(crate) fn takes_values(&self, scope: PolicyScope, values: u64) -> bool {
        let held = self.bytes.as_ref().map_or(0, |bytes| {
            let of_scope = bytes.of(scope);
            of_scope.values.load(Ordering::Relaxed)
        });
        held.saturating_add(values) <= WAITING_BYTES_MAX
    }

    /// Takes memory for what a rule of this scope holds. `None`: it holds nothing that counts.
    ///
    /// # Errors
    /// There is none now.
    pub(crate) fn hold(
        &mut self,
        scope: PolicyScope,
        held: WaitingBytes,
    ) -> Result<Option<WaitingPermit>, QuotaFull> {
        let questions = held.questions.saturating_mul(COPIES);
        let all = held.values.saturating_add(questions);
        if all == 0 {
            return Ok(None);
        }
        let review = Arc::clone(self.bytes.get_or_insert_default());
        let of_scope = review.of(scope);
        let add = |free: u64| {
            let free = free.saturating_add(all);
            (free <= FREE_BYTES_MAX).then_some(free)
        };
        let added = of_scope
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let (free, taken) = match added {
            Ok(_) => (all, None),
            Err(_) => (0, Some(self.memory.0.take(self.owner, scope, all)?)),
        };
        of_scope.values.fetch_add(held.values, Ordering::Relaxed);
        Ok(Some(WaitingPermit {
            review,
            scope,
            values: held.values,
            free,
            taken,
        }))
    }
}

impl ReviewBytes {
    fn of(&self, scope: PolicyScope) -> &ScopeBytes {
        match scope {
            PolicyScope::Cluster => &self.of_cluster,
            PolicyScope::Namespace => &self.of_namespaces,
        }
    }
}

impl WaitingPermit {
    /// Returns whether it is of the memory that all reviews share.
    pub(crate) fn is_shared(&self) -> bool {
        self.taken.is_some()
    }
}

impl Drop for WaitingPermit {
    fn drop(&mut self) {
        let of_scope = self.review.of(self.scope);
        of_scope.values.fetch_sub(self.values, Ordering::Relaxed);
        of_scope.free.fetch_sub(self.free, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_holds_more_than_there_is_has_all_of_it() {
        let memory = WaitingMemory::default();
        let hold = |namespace: &str, bytes| {
            let mut review = memory.of(owner(namespace));
            review.hold(PolicyScope::Namespace, values(bytes))
        };
        let held = hold("a", 2 * MEMORY_BYTES_MAX).unwrap();
        assert!(held.is_some() && !memory.is_free());
        assert!(hold("b", 2 * MIB).is_err());
        drop(held);
        assert!(memory.is_free());
    }

    const MIB: u64 = 1024 * 1024;

    fn values(values: u64) -> WaitingBytes {
        WaitingBytes {
            values,
            questions: 0,
        }
    }

    fn questions(questions: u64) -> WaitingBytes {
        WaitingBytes {
            values: 0,
            questions,
        }
    }

    fn owner(namespace: &str) -> ReviewOwner {
        ReviewOwner::of(namespace, "")
    }

    #[test]
    fn what_rules_of_a_review_hold_is_its_own_memory_up_to_a_limit_and_then_that_of_all() {
        let memory = WaitingMemory::default();
        let mut review = memory.of(owner("shop"));
        assert!(matches!(
            review.hold(PolicyScope::Cluster, values(0)),
            Ok(None)
        ));
        let mut hold = |scope, bytes| review.hold(scope, bytes).unwrap().unwrap();
        // Each scope has its own.
        for scope in [PolicyScope::Cluster, PolicyScope::Namespace] {
            let half = hold(scope, values(FREE_BYTES_MAX / 2));
            // A question counts twice.
            let other_half = hold(scope, questions(FREE_BYTES_MAX / 4));
            assert!(!half.is_shared() && !other_half.is_shared());
            let more = hold(scope, values(1));
            assert!(more.is_shared() && !memory.is_free());
            drop((half, more));
            assert!(memory.is_free());
            assert!(!hold(scope, values(FREE_BYTES_MAX / 2)).is_shared());
        }
    }

    #[test]
    fn values_of_all_waiting_rules_of_a_review_have_a_limit_together() {
        let memory = WaitingMemory::default();
        let mut review = memory.of(owner("shop"));
        let (cluster, namespace) = (PolicyScope::Cluster, PolicyScope::Namespace);
        assert!(review.takes_values(cluster, WAITING_BYTES_MAX));
        assert!(!review.takes_values(cluster, WAITING_BYTES_MAX + 1));
        let held = review.hold(cluster, values(WAITING_BYTES_MAX - 10));
        let held = held.unwrap();
        assert!(review.takes_values(cluster, 10) && !review.takes_values(cluster, 11));
        assert!(review.takes_values(namespace, WAITING_BYTES_MAX));
        drop(held);
        assert!(review.takes_values(cluster, WAITING_BYTES_MAX));
    }

    /// One review with 500 rules, and 30 reviews of one namespace.
    #[test]
    fn an_owner_holds_two_thirds_of_the_memory_and_leaves_some_to_others() {
        for (reviews, rules, each) in [(1, 500, values(MIB)), (30, 1, questions(8 * MIB))] {
            let memory = WaitingMemory::default();
            let (mut permits, mut refused) = (Vec::new(), 0);
            for _ in 0..reviews {
                let mut review = memory.of(owner("flood"));
                for _ in 0..rules {
                    match review.hold(PolicyScope::Cluster, each) {
                        Ok(permit) => permits.push(permit),
                        Err(full) => {
                            assert!(full.over_part, "{each:?}");
                            refused += 1;
                        }
                    }
                }
            }
            let each_bytes = each.values + COPIES * each.questions;
            let held = permits.len() as u64 * each_bytes;
            assert!(held <= MEMORY_BYTES_MAX * 2 / 3, "{held}");
            assert_eq!(permits.len() + refused, reviews * rules);
            let other = memory
                .of(owner("shop"))
                .hold(PolicyScope::Cluster, values(MIB));
            assert!(other.is_ok_and(|permit| permit.is_some()));
            drop(permits);
            assert!(memory.is_free());
        }
    }

    /// Two rules with large questions fill the room.
    #[test]
    fn an_owner_that_finds_no_room_has_a_part_of_the_reserve() {
        let memory = WaitingMemory::default();
        let hold = |namespace: &str, held| {
            let mut review = memory.of(owner(namespace));
            review.hold(PolicyScope::Cluster, held)
        };
        let full = [("a", 8), ("b", 4)].map(|(of, mib)| hold(of, questions(mib * MIB)).unwrap());
        let others: Vec<_> = (0..RESERVE_OWNERS).map(|of| of.to_string()).collect();
        let held: Vec<_> = others
            .iter()
            .map(|other| {
                let more = hold(other, values(MIB + 1));
                assert!(more.is_err_and(|full| !full.over_part));
                let held = hold(other, values(MIB)).unwrap();
                let again = hold(other, values(MIB / 2));
                assert!(again.is_err_and(|full| !full.over_part));
                held
            })
            .collect();
        assert!(hold("late", values(MIB)).is_err_and(|full| !full.over_part));
        assert!(hold("a", values(MIB)).is_err_and(|full| full.over_part));
        drop((full, held));
        assert!(memory.is_free());
    }

    #[test]
    fn policies_of_namespaces_leave_room_to_those_of_the_cluster() {
        let memory = WaitingMemory::default();
        let hold = |namespace: &str, scope, bytes| {
            let mut review = memory.of(owner(namespace));
            review.hold(scope, values(bytes))
        };
        let (cluster, namespace) = (PolicyScope::Cluster, PolicyScope::Namespace);
        let held = [("a", 12), ("b", 6)].map(|(of, mib)| hold(of, namespace, mib * MIB).unwrap());
        assert!(hold("c", namespace, 2 * MIB).is_err());
        let of_cluster = hold("c", cluster, 6 * MIB).unwrap();
        assert!(of_cluster.is_some_and(|permit| permit.is_shared()));
        drop(held);
        assert!(memory.is_free());
    }
}
