//! Takes over the present policies, and the views that they are scanned on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anteroom_engine::judge::{CatalogSnapshot, ScannedPolicy};
use anteroom_mirror::HeldViewFilter;
use anteroom_model::{ObjectKey, ViewId};
use tokio::time::Instant;

use super::Scanner;
use crate::{findings::PolicyScan, shared::ReportedPolicy};

impl Scanner {
    /// Returns whether `known` is a newer catalog than the scanner's.
    pub(super) fn is_news(&self, known: &CatalogSnapshot) -> bool {
        self.known.as_ref().is_none_or(|before| !before.is(known))
    }

    /// Takes over the present policies and entries.
    pub(super) fn refresh_policies(&mut self, known: CatalogSnapshot) {
        let policies: BTreeMap<ObjectKey, ScannedPolicy> = known
            .scanned()
            .map(|policy| (policy.key().clone(), policy))
            .collect();
        let changed = |key: &ObjectKey| match (self.policies.get(key), policies.get(key)) {
            (Some(before), Some(now)) => !before.is(now),
            _ => false, // It begins anew by itself, or is gone.
        };
        let changed: BTreeSet<ObjectKey> =
            policies.keys().filter(|k| changed(k)).cloned().collect();
        self.collections = self.collections_of(&known, &policies);
        let scans: BTreeSet<PolicyScan> = self
            .collections
            .iter()
            .filter_map(|((policy, _), (_, view))| {
                Some(PolicyScan {
                    policy: policy.clone(),
                    view: view.clone()?,
                })
            })
            .collect();
        self.hold(&scans);
        let mut has_room = false;
        if self.plan.set(&scans) {
            let plan = &self.plan;
            has_room = self.shared.write(|findings| {
                findings.retain(|scan| plan.has(scan));
                findings.reopen()
            });
        }
        self.retries.retain(|scan| scans.contains(scan));
        // Which policies other exceptions are about is for their rules to say.
        let before = self.known.as_ref();
        let excepts_as = before.is_none_or(|before| before.excepts_as(&known));
        let is_other = |policy: &ObjectKey| !excepts_as || changed.contains(policy);
        let is_new = |policy: &ObjectKey| !self.policies.contains_key(policy);
        let new: BTreeSet<ObjectKey> = policies.keys().filter(|k| is_new(k)).cloned().collect();
        self.update_reported(reported(&policies));
        self.metrics.policies(policies.len());
        let reads = policies.iter();
        let reads = reads.map(|(key, policy)| (key.clone(), known.reads(policy)));
        self.rescans.set(reads.collect(), Instant::now());
        self.judge_by_new_facts(|policy| new.contains(policy));
        // Where there is room, others' objects may be among those that were left out.
        self.rescan_all(|policy| has_room || is_other(policy));
        self.fact_timeout
            .retain(|policy, _| policies.contains_key(policy));
        self.policies = policies;
        self.known = Some(known);
    }

    /// Reports say it too, though nothing else was found.
    fn update_reported(&self, reported: HashMap<ObjectKey, ReportedPolicy>) {
        let before = self.shared.reported();
        let changed = changed_in_reports(&before, &reported);
        self.shared.set_reported(reported);
        if !changed.is_empty() {
            self.shared
                .write(|findings| findings.touch(|policy| changed.contains(policy)));
        }
    }

    /// Returns the collections of a policy. A view that is not resolved at the moment counts as before: that alone
    /// does not mean that there are no objects.
    fn collections_of(
        &self,
        known: &CatalogSnapshot,
        policies: &BTreeMap<ObjectKey, ScannedPolicy>,
    ) -> super::Collections {
        let mut collections = super::Collections::new();
        let mut left_out = 0;
        for (key, policy) in policies {
            let of_policy = known.collections(policy);
            left_out += of_policy.left_out;
            for collection in of_policy.found {
                let gvr = collection.kind.gvr;
                let kind = (gvr.group.clone(), collection.kind.kind);
                let place = (key.clone(), gvr);
                let before = self.collections.get(&place);
                let before = before.and_then(|(_, view)| view.clone());
                let view = collection.view.or(before);
                collections.insert(place, (kind, view));
            }
        }
        self.metrics.left_out(left_out);
        collections
    }

    fn hold(&self, scans: &BTreeSet<PolicyScan>) {
        let views: BTreeSet<ViewId> = scans.iter().map(|f| f.view.clone()).collect();
        self.metrics.views(views.len());
        self.mirror
            .hold(HeldViewFilter::new(move |view| views.contains(view)));
    }
}

fn reported(policies: &BTreeMap<ObjectKey, ScannedPolicy>) -> HashMap<ObjectKey, ReportedPolicy> {
    let reported = |(key, policy): (&ObjectKey, &ScannedPolicy)| {
        let policy = policy.policy()?;
        let reported = ReportedPolicy {
            reporting: policy.reporting().clone(),
            uid: policy.uid().map(str::to_owned),
        };
        Some((key.clone(), reported))
    };
    policies.iter().filter_map(reported).collect()
}

/// The policies of which reports say something else now.
fn changed_in_reports(
    before: &HashMap<ObjectKey, ReportedPolicy>,
    now: &HashMap<ObjectKey, ReportedPolicy>,
) -> BTreeSet<ObjectKey> {
    let changed = now.iter().filter(|(key, reported)| {
        let before = before.get(*key);
        before.is_some_and(|before| before.reporting != reported.reporting)
    });
    changed.map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use anteroom_policy::Reporting;

    use super::*;

    #[test]
    fn a_policy_whose_severity_changes_is_reported_again() {
        let reported = |severity, uid: &str| ReportedPolicy {
            reporting: Reporting {
                severity,
                ..Reporting::default()
            },
            uid: Some(uid.to_owned()),
        };
        let all = |all: &[(&str, ReportedPolicy)]| -> HashMap<ObjectKey, ReportedPolicy> {
            let all = all.iter();
            all.map(|(name, reported)| (ObjectKey::new("", *name), reported.clone()))
                .collect()
        };
        let before = all(&[("p", reported(None, "1")), ("q", reported(None, "1"))]);
        let now = all(&[
            ("p", reported(Some("high"), "1")),
            ("q", reported(None, "2")),
            ("new", reported(Some("low"), "1")),
        ]);
        let expected = BTreeSet::from([ObjectKey::new("", "p")]);
        assert_eq!(changed_in_reports(&before, &now), expected);
    }
}
