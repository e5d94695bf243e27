//! The quotas of policies: of the sources that policies may have kept, and of their own [`sizes`]. Pure.
//!
//! Every source costs the API server a watch, and the log and every replica its objects. So the policies of one
//! namespace have a quota. Above it, only policies of that namespace are held back.

mod sizes;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anteroom_model::{Failure, own_reason};
use anteroom_policy::Reference;

use super::{policy_size::PolicySize, policy_store::PolicyId, registry::Referred};
use sizes::Sizes;

pub(super) use sizes::{
    NAMESPACE_MANIFESTS_BYTES_MAX, NAMESPACE_POLICIES_MAX, beyond_waiting, is_too_large,
};

/// Sources of one `Policy`.
pub(super) const POLICY_SOURCES_MAX: usize = 64;

/// Sources of one `ClusterPolicy`.
pub(super) const CLUSTER_POLICY_SOURCES_MAX: usize = 256;

/// The most sources that only the policies of a single namespace read.
pub(super) const NAMESPACE_SOURCES_MAX: usize = 32;

/// The name of a source, equal for all policies that read the source.
type SourceName = String;

/// The sources of the references. Referenced objects of the same type share a source.
pub(super) fn sources(referred: &[Referred]) -> BTreeSet<SourceName> {
    let names = referred.iter().map(|referred| match &referred.reference {
        Reference::Object(object) => format!(
            "objects of {}/{}/{}",
            object.group, object.version, object.resource
        ),
        reference => reference.name(),
    });
    names.collect()
}

/// The sources of the policies in force.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    policies: HashMap<PolicyId, BTreeSet<SourceName>>,
    /// The number of policies by the source that they read and by namespace, which is empty for a `ClusterPolicy`.
    readers: HashMap<SourceName, BTreeMap<String, usize>>,
    /// The sources that the policies of a namespace read.
    namespaces: HashMap<String, BTreeSet<SourceName>>,
    sizes: Sizes,
}

impl Quotas {
    /// Returns the reason why a policy of this size is held back, if it is.
    pub(super) fn check_size(&self, id: &PolicyId, size: PolicySize) -> Result<(), Failure> {
        self.sizes.check(id, size)
    }

    /// The policy is in force, and has this size.
    pub(super) fn put_size(&mut self, id: &PolicyId, size: PolicySize) {
        self.sizes.put(id, size);
    }

    /// A version of the policy waits, and has this size. Of it and the version in force the larger counts.
    pub(super) fn put_waiting_size(&mut self, id: &PolicyId, size: PolicySize) {
        self.sizes.put_larger(id, size);
    }

    /// Returns the reason why a policy that reads these is held back, if it is.
    pub(super) fn check(
        &self,
        id: &PolicyId,
        sources: &BTreeSet<SourceName>,
    ) -> Result<(), Failure> {
        let namespace = &*id.0.namespace;
        let sources_max = match namespace.is_empty() {
            true => CLUSTER_POLICY_SOURCES_MAX,
            false => POLICY_SOURCES_MAX,
        };
        if sources.len() > sources_max {
            return Err(Failure::new(
                own_reason::QUOTA_EXCEEDED,
                format!(
                    "the policy has {} sources kept, and {sources_max} are the limit: read fewer, or \
                     divide it",
                    sources.len()
                ),
            ));
        }
        if namespace.is_empty() {
            return Ok(());
        }
        let none = BTreeSet::new();
        let now = self.policies.get(id).unwrap_or(&none);
        let now = self.count_own(namespace, id, now);
        let own = self.count_own(namespace, id, sources);
        // Where others ceased to read something, the namespace may be over it already.
        if own <= NAMESPACE_SOURCES_MAX.max(now) {
            return Ok(());
        }
        Err(Failure::new(
            own_reason::QUOTA_EXCEEDED,
            format!(
                "with this policy, the policies of namespace `{namespace}` have {own} sources kept that \
                 nobody else reads, and {NAMESPACE_SOURCES_MAX} are the limit: read fewer, or delete \
                 another policy. It is tried again by itself"
            ),
        ))
    }

    /// Counts the sources that only this namespace would read, if the policy read `sources`.
    fn count_own(&self, namespace: &str, id: &PolicyId, sources: &BTreeSet<SourceName>) -> usize {
        let before = self.policies.get(id);
        let stays = |source: &&SourceName| {
            let readers = self
                .readers
                .get(*source)
                .and_then(|readers| readers.get(namespace));
            let is_its_own = before.is_some_and(|before| before.contains(*source));
            readers.copied().unwrap_or_default() > usize::from(is_its_own)
        };
        let others = self.namespaces.get(namespace).into_iter().flatten();
        let mut all: BTreeSet<_> = others.filter(stays).collect();
        all.extend(sources);
        let is_shared = |source: &SourceName| {
            let mut readers = self.readers.get(source).into_iter().flatten();
            readers.any(|(other, _)| other != namespace)
        };
        all.into_iter().filter(|source| !is_shared(source)).count()
    }

    /// The policy is in force, and reads these.
    pub(super) fn put(&mut self, id: &PolicyId, sources: BTreeSet<SourceName>) {
        self.remove_sources(id);
        let namespace = id.0.namespace.to_string();
        for source in &sources {
            let readers = self.readers.entry(source.clone()).or_default();
            *readers.entry(namespace.clone()).or_default() += 1;
            let of_namespace = self.namespaces.entry(namespace.clone()).or_default();
            of_namespace.insert(source.clone());
        }
        self.policies.insert(id.clone(), sources);
    }

    /// The policy is not in force any more.
    pub(super) fn remove(&mut self, id: &PolicyId) {
        self.sizes.remove(id);
        self.remove_sources(id);
    }

    fn remove_sources(&mut self, id: &PolicyId) {
        let namespace = &*id.0.namespace;
        for source in self.policies.remove(id).unwrap_or_default() {
            let Some(readers) = self.readers.get_mut(&source) else {
                continue;
            };
            let reads = readers.get_mut(namespace).map(|count| {
                *count -= 1;
                *count
            });
            if reads != Some(0) {
                continue;
            }
            readers.remove(namespace);
            if readers.is_empty() {
                self.readers.remove(&source);
            }
            if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
                of_namespace.remove(&source);
                if of_namespace.is_empty() {
                    self.namespaces.remove(namespace);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::ObjectKey;

    use super::*;

    fn id(namespace: &str, name: &str) -> PolicyId {
        PolicyId(ObjectKey::new(namespace, name))
    }

    fn sources(numbers: std::ops::Range<usize>) -> BTreeSet<SourceName> {
        numbers.map(|n| format!("kind{n}")).collect()
    }

    /// Asserts that a policy is held back since a quota has no room for it.
    fn assert_exceeded(checked: Result<(), Failure>) {
        assert_eq!(checked.unwrap_err().reason, own_reason::QUOTA_EXCEEDED);
    }

    #[test]
    fn a_policy_has_a_quota_of_its_own() {
        let quotas = Quotas::default();
        let cluster = id("", "p");
        assert!(quotas.check(&cluster, &sources(0..256)).is_ok());
        let failure = quotas.check(&cluster, &sources(0..257)).unwrap_err();
        assert_eq!(failure.reason, "QuotaExceeded");
        assert_exceeded(quotas.check(&id("a", "p"), &sources(0..65)));
        let message = quotas.check(&id("a", "p"), &sources(0..12_000));
        assert!(message.unwrap_err().message.contains("12000 sources"));
    }

    #[test]
    fn a_namespace_has_a_quota_of_what_nobody_else_reads() {
        let mut quotas = Quotas::default();
        assert_exceeded(quotas.check(&id("a", "one"), &sources(0..33)));
        quotas.put(&id("a", "one"), sources(0..20));
        assert!(quotas.check(&id("a", "two"), &sources(10..32)).is_ok());
        assert_exceeded(quotas.check(&id("a", "two"), &sources(20..33)));
        assert!(quotas.check(&id("b", "two"), &sources(20..33)).is_ok());
        assert!(
            quotas.check(&id("a", "one"), &sources(40..72)).is_ok(),
            "what it read before counts no more"
        );
        quotas.put(&id("", "cluster"), sources(20..60));
        assert!(quotas.check(&id("a", "two"), &sources(20..60)).is_ok());
        quotas.put(&id("a", "two"), sources(20..60));
        quotas.remove(&id("", "cluster"));
        assert!(
            quotas.check(&id("a", "two"), &sources(20..60)).is_ok(),
            "what is in force stays"
        );
        assert!(quotas.check(&id("a", "three"), &sources(0..0)).is_ok());
        assert_exceeded(quotas.check(&id("a", "three"), &sources(60..61)));
        quotas.remove(&id("a", "two"));
        assert_exceeded(quotas.check(&id("a", "two"), &sources(20..60)));
        quotas.remove(&id("a", "one"));
        assert!(quotas.check(&id("a", "two"), &sources(20..52)).is_ok());
        assert!(quotas.readers.is_empty() && quotas.namespaces.is_empty());
    }
}
