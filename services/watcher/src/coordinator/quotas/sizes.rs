//! The quotas of the policies of a namespace: their number, and their rules, kinds and bytes together. Pure.
//!
//! Every webhook, replica, watcher and reporter keeps the policies that are in force. So who writes policies for one
//! namespace has a share of their memory. Cluster-wide policies have no quota: who may write these may stop the cluster
//! anyway, and one that is held back would be missed by all namespaces.

use std::collections::HashMap;

use anteroom_model::{Failure, own_reason};

use crate::coordinator::{policy_size::PolicySize, policy_store::PolicyId};

/// Policies of one namespace that are in force.
pub(in crate::coordinator) const NAMESPACE_POLICIES_MAX: usize = 100;

/// Rules of all policies of one namespace.
const NAMESPACE_RULES_MAX: usize = 500;

/// Kinds that all rules of one namespace name.
const NAMESPACE_KINDS_MAX: usize = 4_096;

/// Bytes of the manifests of one namespace, as they are published.
pub(in crate::coordinator) const NAMESPACE_MANIFESTS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The limits of a namespace.
const NAMESPACE_MAX: PolicySize = PolicySize {
    policies: NAMESPACE_POLICIES_MAX,
    rules: NAMESPACE_RULES_MAX,
    kinds: NAMESPACE_KINDS_MAX,
    bytes: NAMESPACE_MANIFESTS_BYTES_MAX,
};

/// The way in which policies that wait are put in force.
const TRIED_AGAIN: &str = "Once there is room, the oldest of those that wait are put in force, and all others when they are \
                           written again";

/// The sizes of the policies of namespaces that are in force.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    policies: HashMap<PolicyId, PolicySize>,
    namespaces: HashMap<String, PolicySize>,
}

impl Sizes {
    /// Returns the reason why a policy of this size is held back, if it is. Those that are in force stay, also where they are
    /// over a limit together.
    pub(super) fn check(&self, id: &PolicyId, size: PolicySize) -> Result<(), Failure> {
        if !id.is_namespaced() {
            return Ok(());
        }
        let now = self.namespaces.get(&*id.0.namespace);
        let now = now.copied().unwrap_or_default();
        let own = self.policies.get(id).copied().unwrap_or_default();
        let others = now.zip(own, usize::saturating_sub);
        let next = others.zip(size, usize::saturating_add);
        match next.beyond(NAMESPACE_MAX.zip(now, usize::max)) {
            None => Ok(()),
            Some((what, number, max)) => {
                let namespace = &id.0.namespace;
                let message = format!(
                    "with this policy, namespace `{namespace}` would have {number} {what}, and {max} are the limit: make \
                     policies smaller, or delete others. {TRIED_AGAIN}"
                );
                Err(Failure::new(own_reason::QUOTA_EXCEEDED, message))
            }
        }
    }

    /// Takes in that a policy of a namespace has this size.
    pub(super) fn put(&mut self, id: &PolicyId, size: PolicySize) {
        self.remove(id);
        if id.is_namespaced() {
            let namespace = id.0.namespace.to_string();
            let total = self.namespaces.entry(namespace).or_default();
            *total = total.zip(size, usize::saturating_add);
            self.policies.insert(id.clone(), size);
        }
    }

    /// Takes in that so much of a policy is kept, if it is more than what is in force.
    pub(super) fn put_larger(&mut self, id: &PolicyId, size: PolicySize) {
        let now = self.policies.get(id).copied().unwrap_or_default();
        self.put(id, now.zip(size, usize::max));
    }

    /// Takes in that a policy is not in force any more.
    pub(super) fn remove(&mut self, id: &PolicyId) {
        let Some(size) = self.policies.remove(id) else {
            return;
        };
        let namespace = &*id.0.namespace;
        if let Some(total) = self.namespaces.get_mut(namespace) {
            *total = total.zip(size, usize::saturating_sub);
            if *total == PolicySize::default() {
                self.namespaces.remove(namespace);
            }
        }
    }
}

/// Returns whether a policy is over a limit of its namespace alone.
pub(in crate::coordinator) fn is_too_large(size: PolicySize) -> bool {
    size.beyond(NAMESPACE_MAX).is_some()
}

/// Returns the reason of a policy that waits for room behind more policies than are kept for that.
pub(in crate::coordinator) fn beyond_waiting(namespace: &str) -> Failure {
    let message = format!(
        "more policies of namespace `{namespace}` wait for room than are kept: make policies smaller, or delete others. \
         {TRIED_AGAIN}"
    );
    Failure::new(own_reason::QUOTA_EXCEEDED, message)
}

#[cfg(test)]
mod tests {
    use anteroom_model::ObjectKey;

    use super::*;

    fn id(namespace: &str, name: &str) -> PolicyId {
        PolicyId(ObjectKey::new(namespace, name))
    }

    fn size(rules: usize, kinds: usize, bytes: usize) -> PolicySize {
        PolicySize {
            policies: 1,
            rules,
            kinds,
            bytes,
        }
    }

    /// Asserts that a policy is held back since a quota has no room for it.
    fn assert_exceeded(checked: Result<(), Failure>) {
        assert_eq!(checked.unwrap_err().reason, own_reason::QUOTA_EXCEEDED);
    }

    #[test]
    fn the_policies_of_a_namespace_are_limited_in_number_rules_kinds_and_bytes() {
        let small = size(1, 1, 1);
        for (each, of_them, what) in [
            (small, NAMESPACE_POLICIES_MAX, "101 policies"),
            (size(250, 1, 1), 2, "501 rules"),
            (size(1, 2_048, 1), 2, "4097 kinds"),
            (
                size(1, 1, NAMESPACE_MANIFESTS_BYTES_MAX / 4),
                4,
                "4194305 bytes",
            ),
        ] {
            let mut sizes = Sizes::default();
            for number in 0..of_them {
                let id = id("a", &number.to_string());
                assert_eq!(sizes.check(&id, each), Ok(()), "{what} {number}");
                sizes.put(&id, each);
            }
            let failure = sizes.check(&id("a", "more"), small).unwrap_err();
            assert_eq!(failure.reason, "QuotaExceeded");
            assert!(failure.message.contains(what), "{failure}");
            assert_eq!(sizes.check(&id("b", "more"), small), Ok(()));
            assert_eq!(sizes.check(&id("", "more"), small), Ok(()), "cluster-wide");
            assert_eq!(
                sizes.check(&id("a", "0"), each),
                Ok(()),
                "it is there already"
            );
            sizes.remove(&id("a", "0"));
            assert_eq!(sizes.check(&id("a", "more"), small), Ok(()));
        }
    }

    #[test]
    fn policies_that_are_over_a_limit_together_stay_and_may_shrink() {
        let mut sizes = Sizes::default();
        for number in 0..=NAMESPACE_POLICIES_MAX {
            sizes.put(&id("a", &number.to_string()), size(10, 1, 1));
        }
        let one = id("a", "7");
        assert_eq!(sizes.check(&one, size(10, 1, 1)), Ok(()));
        assert_eq!(sizes.check(&one, size(9, 1, 1)), Ok(()));
        assert_exceeded(sizes.check(&one, size(11, 1, 1)));
        assert_exceeded(sizes.check(&id("a", "more"), size(0, 0, 0)));
        for number in 0..=NAMESPACE_POLICIES_MAX {
            sizes.remove(&id("a", &number.to_string()));
        }
        assert!(sizes.policies.is_empty() && sizes.namespaces.is_empty());
    }

    #[test]
    fn a_version_that_waits_counts_beside_the_one_in_force() {
        let mut sizes = Sizes::default();
        sizes.put(&id("a", "one"), size(10, 1, 1));
        sizes.put_larger(&id("a", "one"), size(450, 0, 0));
        assert_exceeded(sizes.check(&id("a", "two"), size(51, 0, 0)));
        sizes.put_larger(&id("a", "one"), size(1, 0, 0));
        assert_exceeded(sizes.check(&id("a", "two"), size(51, 0, 0)));
        sizes.put(&id("a", "one"), size(10, 1, 1));
        assert_eq!(sizes.check(&id("a", "two"), size(51, 0, 0)), Ok(()));
    }
}
