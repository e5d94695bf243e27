//! The memory that rules hold while they wait for facts: the values that they have made, and those in their questions.
//!
//! The author of a policy chooses how much a rule makes of a request, and makes it wait: a live read may be slow. Many rules of
//! many reviews wait at once. So each review has little memory of its own for what its rules hold meanwhile. All that goes
//! beyond comes from one limited memory, which the owners of reviews share fairly.
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

/// The memory of a review's own for its rules that wait. Policies of namespaces have as much of their own.
const FREE_BYTES_MAX: u64 = 256 * 1024;

/// The copies of a question: the rule's own, and the one that travels. The latter takes no more, as it is encoded.
const COPIES: u64 = 2;

// A rule finds room where no other one waits.
const _: () = assert!(COPIES * PARAMETERS_BYTES_MAX + WAITING_BYTES_MAX <= MEMORY_BYTES_MAX);

/// The memory for rules that wait. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct WaitingMemory(Arc<FairQuota<ReviewOwner>>);

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
    /// Of the review's own memory.
    free: u64,
    /// Of the memory of all.
    taken: Option<FairPermit<ReviewOwner>>,
}

impl Default for WaitingMemory {
    fn default() -> Self {
        Self::new(MEMORY_BYTES_MAX)
    }
}

impl WaitingMemory {
    /// Memory of so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self(FairQuota::new(bytes_max, bytes_max))
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
        let nobody = ReviewOwner::of("nobody", "");
        self.0.try_take(nobody, self.0.units_max()).is_ok()
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
            Err(_) => {
                // A rule on existing objects may hold more than there is, and has all of it.
                let units = all.min(self.memory.0.units_max());
                (0, Some(self.memory.0.try_take(self.owner, units)?))
            }
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
        assert!(hold("b", MIB).is_err());
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
}
