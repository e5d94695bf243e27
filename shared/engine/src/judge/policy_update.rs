//! Runs the rules with `mutateExistingOnPolicyUpdate` on existing objects, once for each version of a policy. A
//! `MutatingPolicy` runs on each object that it changes, as if that object triggered it.

use std::sync::Arc;

use anteroom_model::{ExistingObjects, FactError, KindRecord, ObjectKey};
use anteroom_policy::{KindPattern, scanned};
use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::{CatalogSnapshot, Judge, creation, is_filtered};
use crate::{policies::CompiledPolicy, rule::RuleName};

/// Triggers that are worked on at once.
const AT_ONCE: usize = 8;

/// The longest time for one part of a list of triggers.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of times that a part is asked for before the rest is given up.
const READS_MAX: u32 = 5;

/// The pause before a part is asked for again.
const PAUSE: Duration = Duration::from_secs(2);

/// A policy with rules that existing objects trigger. Cheap to clone.
#[derive(Clone, Debug)]
pub struct UpdatedPolicy(Arc<CompiledPolicy>);

/// The counts of a policy's triggers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Triggers {
    /// Triggers that were gone through.
    pub seen: usize,
    /// Triggers with which a rule failed.
    pub failed: usize,
    /// Some triggers could not be read, so it is unknown whether these are all.
    pub is_unread: bool,
}

impl CatalogSnapshot {
    /// The policies with such rules, in order of key.
    pub fn run_on_update(&self) -> impl Iterator<Item = UpdatedPolicy> {
        let has_any = |entry: &&Arc<CompiledPolicy>| rules(entry).next().is_some();
        let entries = self.0.policies.all().iter();
        entries.filter(has_any).cloned().map(UpdatedPolicy)
    }
}

impl UpdatedPolicy {
    /// Returns the policy's key, unique among all kinds.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// Returns whether it says the same.
    pub fn same_manifest(&self, other: &Self) -> bool {
        self.0.same_manifest(&other.0)
    }
}

impl Judge {
    /// Runs the rules of a policy for each existing object that triggers them, and writes their changes. A failure is
    /// reported like the failure of a request's rule.
    pub async fn run_policy_update(
        &self,
        catalog: &CatalogSnapshot,
        policy: &UpdatedPolicy,
    ) -> Triggers {
        let mut triggers = Triggers::default();
        for (name, patterns) in rules(&policy.0) {
            let namespace = &*policy.0.key.namespace;
            let kinds = scanned(&patterns, namespace, catalog.0.kinds.records());
            for (_, kind) in kinds.found {
                self.run_kind(name, kind, &mut triggers).await;
            }
        }
        triggers
    }

    async fn run_kind(&self, name: &RuleName, kind: &KindRecord, triggers: &mut Triggers) {
        let mut objects = ExistingObjects {
            group: kind.gvr.group.clone(),
            version: kind.gvr.version.clone(),
            kind: kind.kind.clone(),
            resource: kind.gvr.resource.clone(),
            namespace: name.reader.policy.namespace.to_string(),
            ..ExistingObjects::default()
        };
        loop {
            let part = match self.part(name, &objects).await {
                Ok(part) => part,
                Err(error) => {
                    let policy = &*name.policy;
                    tracing::warn!(
                        policy,
                        rule = name.rule(),
                        %objects,
                        %error,
                        "triggers of a rule not listed: tried again later"
                    );
                    triggers.is_unread = true;
                    return;
                }
            };
            if let Some(unread) = part["unread"]
                .as_array()
                .filter(|unread| !unread.is_empty())
            {
                let (policy, unread) = (&*name.policy, unread.len());
                tracing::warn!(
                    policy,
                    rule = name.rule(),
                    %objects,
                    unread,
                    "triggers over the size limit left out: the rule does not run for them"
                );
                triggers.is_unread = true;
            }
            let items = part["items"].as_array().cloned().unwrap_or_default();
            let exemptions = self.exemptions();
            let works = items
                .into_iter()
                .filter(|object| !is_filtered(&exemptions.filters, object))
                .filter_map(|object| creation(object, Some(kind)))
                .map(async |request| self.worker.work_on_existing(name, &request).await);
            let mut works = stream::iter(works).buffer_unordered(AT_ONCE);
            while let Some(is_well) = works.next().await {
                triggers.seen += 1;
                triggers.failed += usize::from(!is_well);
            }
            match part["continue"].as_str() {
                Some(place) if !place.is_empty() => place.clone_into(&mut objects.continues),
                _ => return,
            }
        }
    }

    async fn part(&self, name: &RuleName, objects: &ExistingObjects) -> Result<Value, FactError> {
        let mut reads = 0;
        loop {
            reads += 1;
            let deadline = Instant::now() + READ_TIMEOUT;
            let facts = self.engine.facts();
            match facts
                .triggers(&name.reader, objects.clone(), deadline)
                .await
            {
                Err(_) if reads < READS_MAX => tokio::time::sleep(PAUSE).await,
                part => return part,
            }
        }
    }
}

/// Returns the rules that existing objects trigger, and the kinds of their triggers.
fn rules(entry: &CompiledPolicy) -> impl Iterator<Item = (&Arc<RuleName>, Vec<KindPattern>)> {
    entry.outcome.iter().flat_map(|policy| {
        let named = policy.rules().iter().zip(&entry.names);
        let renewed = named.filter(|(rule, _)| rule.runs_on_policy_update());
        renewed.map(|(rule, name)| (name, rule.kinds_on_policy_update()))
    })
}
