//! Views for background scans: of all objects of the kinds that a policy is evaluated on where they
//! exist. They are wanted as what the policy reads is, so a policy that goes takes them along.

use anteroom_model::Dependent;
use anteroom_policy::{Reference, scanned};

use super::{Controller, policies::PolicyId};
use crate::{
    manifests::PolicyManifest,
    registry::{Event, Referred},
};

impl Controller {
    /// All that is kept for a policy: what it reads, and what it is scanned on.
    pub(super) fn kept_for(&self, id: &PolicyId, manifest: &PolicyManifest) -> Vec<Referred> {
        let mode = self.tools.cache_api_calls;
        let references = manifest.references.iter().filter(|r| mode.keeps(r));
        let mut kept: Vec<_> = references.map(|r| Referred::by(&id.0, r)).collect();
        let scans = self.scans_of(manifest);
        for scan in scans.iter().map(|scan| Referred::by(&id.0, scan)) {
            // What it reads too says more of it: that it has to be there.
            if kept.iter().all(|known| known.name != scan.name) {
                kept.push(scan);
            }
        }
        kept
    }

    /// None until it is known what is served.
    fn scans_of(&self, manifest: &PolicyManifest) -> Vec<Reference> {
        let Some(catalog) = self
            .catalog
            .as_ref()
            .filter(|_| self.tools.background_scans)
        else {
            return Vec::new();
        };
        let records = catalog.resources.iter().map(|served| &served.record);
        let scanned = scanned(&manifest.scanned, &manifest.identity.namespace, records);
        let references = scanned.found.into_iter().map(|(collection, _)| collection);
        references.map(Reference::Collection).collect()
    }

    /// What is served is another thing now, and so is what kinds with wildcards are.
    pub(super) fn scans_again(&mut self) {
        if !self.tools.background_scans {
            return;
        }
        let feeds = [&self.cluster_policies, &self.policies];
        let policies = feeds.iter().flat_map(|feed| feed.roster.values());
        let scanned = policies.filter(|policy| !policy.scanned.is_empty());
        let kept: Vec<_> = scanned
            .map(|policy| {
                let id = PolicyId(anteroom_model::ObjectKey::new(
                    policy.identity.namespace.as_str(),
                    policy.identity.name.as_str(),
                ));
                let uid = Dependent(policy.identity.uid.clone());
                (uid, self.kept_for(&id, policy))
            })
            .collect();
        for (uid, kept) in kept {
            self.apply(Event::Policy(uid, kept));
        }
    }
}
