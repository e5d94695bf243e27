//! Policies that are over a quota. The last version that was in force stays in force, with all that it reads,
//! until there is room for the new one.

use std::collections::BTreeSet;

use anteroom_model::{Dependent, Failure};

use super::Reconciler;
use crate::coordinator::{
    effect::{Effect, Record, SystemView, Write},
    manifests::PolicyManifest,
    policy_store::PolicyId,
    registry::{Event, Referred},
};

/// A policy that waits for room, as it will be put in force.
pub(super) struct HeldBack {
    pub(super) manifest: PolicyManifest,
    pub(super) write: Write,
    pub(super) referred: Vec<Referred>,
    pub(super) sources: BTreeSet<String>,
}

impl HeldBack {
    /// Returns the policy as it was read, with what it has kept.
    pub(super) fn new(
        id: &PolicyId,
        manifest: PolicyManifest,
        record: Option<Record>,
        referred: Vec<Referred>,
        sources: BTreeSet<String>,
    ) -> Self {
        let write = match record {
            Some(record) => Write::put(record),
            None => Write::delete(id.0.clone()),
        };
        Self {
            manifest,
            write,
            referred,
            sources,
        }
    }
}

impl Reconciler {
    /// Puts a policy in force, or holds it back.
    pub(super) fn policy_read(&mut self, id: PolicyId, policy: HeldBack) {
        match self.quotas.check(&id, &policy.sources) {
            Ok(()) => self.policy_admitted(id, policy),
            Err(failure) => self.policy_held_back(id, policy, failure),
        }
    }

    fn policy_held_back(&mut self, id: PolicyId, policy: HeldBack, failure: Failure) {
        tracing::warn!(policy = %id.0, %failure, "policy held back");
        let uid = &policy.manifest.identity.uid;
        let before = self.policies.get(&id);
        let in_force = before.filter(|before| before.identity.uid == *uid);
        let manifest = policy.manifest.clone().held_back(failure, in_force);
        let change = self.policies.put(&id, manifest);
        if let Some(replaced) = change.replaced {
            // The policy that was in force under this name was deleted.
            self.quotas.remove(&id);
            self.apply(Event::PolicyGone(replaced));
            self.write(SystemView::Policies, Write::delete(id.0.clone()));
            let needed = self.policies.rights_needed();
            self.effects.push(Effect::NeedRights(needed));
        }
        self.reporter.policies_changed([id.clone()]);
        self.held_back.insert(id, policy);
    }

    /// Tries policies again that were held back: others may read less by now.
    pub(super) fn try_held_back(&mut self) {
        let fits = |(id, policy): (&PolicyId, &HeldBack)| {
            let fits = self.quotas.check(id, &policy.sources).is_ok();
            fits.then(|| id.clone())
        };
        let fitting: Vec<_> = self.held_back.iter().filter_map(fits).collect();
        for id in fitting {
            // One before it may have taken the room.
            if let Some(policy) = self.held_back.remove(&id) {
                self.policy_read(id, policy);
            }
        }
    }

    /// The policy is gone.
    pub(super) fn policy_released(&mut self, id: &PolicyId) {
        self.quotas.remove(id);
        self.held_back.remove(id);
    }

    /// Returns the policy's dependent.
    pub(super) fn dependent_of(manifest: &PolicyManifest) -> Dependent {
        Dependent(manifest.identity.uid.clone())
    }
}
