//! The policies that need an implicit entry, and the implicit entries that a policy needs.

use std::collections::BTreeSet;

use anteroom_model::Dependent;

/// The policies and exceptions that need an implicit entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Dependents {
    /// Policies of namespaces, whose views have a quota in the log.
    in_quota: BTreeSet<Dependent>,
    others: BTreeSet<Dependent>,
}

impl Dependents {
    pub(super) fn insert(&mut self, dependent: Dependent, in_quota: bool) {
        self.of_mut(in_quota).insert(dependent);
    }

    pub(super) fn remove(&mut self, dependent: &Dependent, in_quota: bool) {
        self.of_mut(in_quota).remove(dependent);
    }

    fn of_mut(&mut self, in_quota: bool) -> &mut BTreeSet<Dependent> {
        match in_quota {
            true => &mut self.in_quota,
            false => &mut self.others,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_quota.is_empty() && self.others.is_empty()
    }

    /// Returns whether only policies of namespaces need the entry.
    pub(super) fn are_in_quota(&self) -> bool {
        self.others.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Dependent> {
        self.in_quota.iter().chain(&self.others)
    }
}

/// The implicit entries that a policy or exception depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct ImplicitReads {
    pub(super) in_quota: bool,
    pub(super) names: BTreeSet<String>,
}
