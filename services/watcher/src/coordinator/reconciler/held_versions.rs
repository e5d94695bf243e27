//! New versions of policies that cannot be put in force, because they are over a quota or do not compile. The last
//! version that was in force stays in force, with its views, until there is room for the new version, or a version
//! compiles. The version in force is the one in the log, so it outlives the watcher that put it there.

use std::collections::BTreeSet;

use anteroom_model::{Dependent, Failure, ResourceVersion};
use bytes::Bytes;

use super::Reconciler;
use crate::{
    coordinator::{
        effect::{CoordinatorEffect, Record, SystemView, Write},
        manifests::PolicyManifest,
        policy_store::PolicyId,
        registry::Referred,
        status::conditions,
    },
    source::reflect::RawObject,
};

/// A policy that waits for room, as it will be put in force.
pub(super) struct HeldVersion {
    pub(super) manifest: PolicyManifest,
    pub(super) write: Write,
    pub(super) referred: Vec<Referred>,
    pub(super) sources: BTreeSet<String>,
}

impl HeldVersion {
    /// Returns the policy as read, with the sources that it keeps.
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
    pub(super) fn policy_read(&mut self, id: PolicyId, policy: HeldVersion) {
        self.uncompiled.remove(&id);
        if let Some(failure) = self.not_compiled(&id, &policy.manifest) {
            self.uncompiled.insert(id.clone(), policy.manifest.clone());
            return self.policy_held_back(&id, policy.manifest, failure);
        }
        match self.check_quotas(&id, &policy) {
            Ok(()) => self.policy_admitted(&id, policy),
            Err(failure) => {
                self.policy_held_back(&id, policy.manifest.clone(), failure);
                self.quotas.put_waiting_size(&id, policy.manifest.size);
                self.held_back.insert(id, policy);
            }
        }
    }

    /// Returns the version of a policy that was read last, as it was read.
    pub(super) fn known_version(&self, id: &PolicyId) -> Option<PolicyManifest> {
        let held_back = self.held_back.get(id).map(|held| &held.manifest);
        let known = held_back
            .or_else(|| self.uncompiled.get(id))
            // One that is held back has parts of the version in force.
            .or_else(|| {
                let known = self.policies.get(id)?;
                known.held_back.is_none().then_some(known)
            });
        known.cloned()
    }

    fn check_quotas(&self, id: &PolicyId, policy: &HeldVersion) -> Result<(), Failure> {
        self.quotas.check_size(id, policy.manifest.size)?;
        self.quotas.check(id, &policy.sources)
    }

    /// Returns whether this version compiles, and is within its quotas.
    pub(super) fn may_be_in_force(&self, id: &PolicyId, policy: &HeldVersion) -> bool {
        policy.manifest.in_force.is_some() && self.check_quotas(id, policy).is_ok()
    }

    /// Puts the version of a policy in force that an earlier term left in the log, if there is one: the present one cannot
    /// be. A policy with another UID is another policy.
    pub(super) fn put_inherited(&mut self, id: &PolicyId, uid: &str) {
        if let Some(body) = self.inherited.remove(&id.0) {
            self.policy_inherited(id, uid, &body);
        }
    }

    fn policy_inherited(&mut self, id: &PolicyId, uid: &str, body: &Bytes) {
        let Ok(manifest) = anteroom_wire::body::to_json(body) else {
            return;
        };
        let object = RawObject {
            key: id.object(),
            version: ResourceVersion::default(),
            json: manifest.to_string().into(),
        };
        let inherited = self.policy_of(id, &object, None);
        let is_same = inherited.manifest.identity.uid == uid;
        if is_same && self.may_be_in_force(id, &inherited) {
            self.policy_admitted(id, inherited);
        }
    }

    /// Returns the reason for holding back a version that does not compile. `None`: the version compiles, or no
    /// version before it did. In the second case readers report the version's problems.
    fn not_compiled(&self, id: &PolicyId, manifest: &PolicyManifest) -> Option<Failure> {
        let ready = conditions::of_problems(&manifest.problems)?;
        let before = self.policies.get(id)?;
        let generation = before
            .in_force
            .filter(|_| before.identity.uid == manifest.identity.uid)?;
        let message = format!("generation {generation} stays in force: {}", ready.message);
        Some(Failure::new(ready.reason, message))
    }

    /// Forgets a version that waits for sources, since there is a newer one.
    pub(super) fn drop_held_back(&mut self, id: &PolicyId) {
        if self.held_back.remove(id).is_some() {
            let in_force = self.policies.get(id).map(|policy| policy.size);
            self.quotas.put_size(id, in_force.unwrap_or_default());
        }
    }

    /// Tells the author of a policy that this version of it is held back.
    pub(super) fn policy_held_back(
        &mut self,
        id: &PolicyId,
        manifest: PolicyManifest,
        failure: Failure,
    ) {
        tracing::warn!(
            policy = %id.0,
            %failure,
            "new version of the policy held back: correct it, or raise the quota"
        );
        self.put_held_back(id, manifest, failure);
        self.reporter.policies_changed([id.clone()]);
    }

    /// Keeps what is known of a version that is held back.
    pub(super) fn put_held_back(
        &mut self,
        id: &PolicyId,
        manifest: PolicyManifest,
        failure: Failure,
    ) {
        let uid = &manifest.identity.uid;
        let before = self.policies.get(id);
        let in_force = before.filter(|before| before.identity.uid == *uid);
        let manifest = manifest.held_back(failure, in_force);
        let change = self.policies.put(id, manifest);
        if let Some((dependent, owner)) = change.replaced {
            // The policy that was in force under this name was deleted.
            self.quotas.remove(id);
            self.policy_replaced(dependent, owner);
            self.write(SystemView::Policies, Write::delete(id.0.clone()));
            let needed = self.policies.rights_needed();
            self.effects.push(CoordinatorEffect::NeedRights(needed));
        }
    }

    /// Tries policies again that were held back, the oldest first: others may read less by now.
    pub(super) fn try_held_back(&mut self) {
        let fits = |(id, policy): (&PolicyId, &HeldVersion)| {
            let fits = self.check_quotas(id, policy).is_ok();
            fits.then(|| (policy.manifest.created.clone(), id.clone()))
        };
        let mut fitting: Vec<_> = self.held_back.iter().filter_map(fits).collect();
        fitting.sort_unstable();
        for (_, id) in fitting {
            // An earlier policy may have taken the room.
            if let Some(policy) = self.held_back.remove(&id) {
                self.policy_read(id, policy);
            }
        }
    }

    /// The policy is gone.
    pub(super) fn policy_released(&mut self, id: &PolicyId) {
        self.quotas.remove(id);
        self.held_back.remove(id);
        self.uncompiled.remove(id);
        self.waiting.remove(id);
    }

    /// Returns the policy's dependent.
    pub(super) fn dependent_of(manifest: &PolicyManifest) -> Dependent {
        Dependent(manifest.identity.uid.clone())
    }
}
