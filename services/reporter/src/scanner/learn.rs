//! What the policies are now, and which views they are scanned on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anteroom_mirror::Hold;
use anteroom_model::{ObjectKey, ViewId};
use anteroom_webhook::background::{Known, Scanned};

use super::Scanner;
use crate::{book::Finder, desk::About};

impl Scanner {
    /// Whether this is something else than what is known.
    pub(super) fn is_news(&self, known: &Known) -> bool {
        self.known.as_ref().is_none_or(|before| !before.is(known))
    }

    /// Takes in what is known now.
    pub(super) fn learn(&mut self, known: Known) {
        let policies: BTreeMap<ObjectKey, Scanned> = known
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
        let finders: BTreeSet<Finder> = self
            .collections
            .iter()
            .filter_map(|((policy, _), (_, view))| {
                Some(Finder {
                    policy: policy.clone(),
                    view: view.clone()?,
                })
            })
            .collect();
        self.hold(&finders);
        if self.plan.set(&finders) {
            let plan = &self.plan;
            self.desk
                .write(|book| book.retain(|finder| plan.has(finder)));
        }
        self.retries.retain(|finder| finders.contains(finder));
        // Which policies other exceptions are about is for their rules to say.
        let before = self.known.as_ref();
        let excepts_as = before.is_none_or(|before| before.excepts_as(&known));
        self.plan
            .anew(|policy| !excepts_as || changed.contains(policy));
        self.desk.set_about(about(&policies));
        self.metrics.policies(policies.len());
        self.policies = policies;
        self.known = Some(known);
    }

    /// A view that is not known (any more) is taken for what it was: that an entry cannot be resolved for
    /// a moment does not mean that there are no objects.
    fn collections_of(
        &self,
        known: &Known,
        policies: &BTreeMap<ObjectKey, Scanned>,
    ) -> super::Collections {
        let mut collections = super::Collections::new();
        for (key, policy) in policies {
            for collection in known.collections(policy) {
                let gvr = collection.kind.gvr;
                let kind = (gvr.group.clone(), collection.kind.kind);
                let place = (key.clone(), gvr);
                let before = self.collections.get(&place);
                let before = before.and_then(|(_, view)| view.clone());
                let view = collection.view.or(before);
                collections.insert(place, (kind, view));
            }
        }
        collections
    }

    fn hold(&self, finders: &BTreeSet<Finder>) {
        let views: BTreeSet<ViewId> = finders.iter().map(|f| f.view.clone()).collect();
        self.metrics.views(views.len());
        self.mirror
            .hold(Hold::new(move |view| views.contains(view)));
    }
}

fn about(policies: &BTreeMap<ObjectKey, Scanned>) -> HashMap<ObjectKey, About> {
    let about = |(key, policy): (&ObjectKey, &Scanned)| {
        let policy = policy.policy()?;
        let about = About {
            reporting: policy.reporting().clone(),
            uid: policy.uid().map(str::to_owned),
        };
        Some((key.clone(), about))
    };
    policies.iter().filter_map(about).collect()
}
