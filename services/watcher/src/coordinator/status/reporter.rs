//! The statuses of entries and policies, made anew when their content may have changed. Pure.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use anteroom_model::{EntryKind, FactError, Failure, ViewId, source_reason};
use anteroom_policy::{KindPattern, PolicyKind, Reference, scanned};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    cel_fields::CelStatus,
    conditions::{self, Need, Ready},
    rules,
    views::ViewStatusTable,
    writer::{DesiredStatus, Figures},
};
use crate::{
    coordinator::{
        effect::CoordinatorEffect,
        enforcement::{EnforcementTracker, PositionOf, RequiredReads, Surroundings},
        entry_store::{EntryStore, status_owner},
        manifests::PolicyManifest,
        permits,
        policy_store::{PolicyId, PolicyStore},
        registry::{self, EntryId, Registry},
    },
    gateway::rights,
    log_writer::publish::ViewStats,
    source::discovery::ServedResources,
};

/// The number of ticks after which every entry is visited, since ages grow by themselves.
const TICKS_PER_ROUND: u32 = 5;

/// The most entries that are visited in one tick; the others follow in the next ticks.
const ENTRIES_PER_TICK: usize = 2_000;

/// Objects to be looked at again, and the conditions of entries as they were found last.
#[derive(Debug, Default)]
pub(crate) struct StatusReporter {
    ready: HashMap<EntryId, Ready>,
    changed_entries: BTreeSet<EntryId>,
    changed_policies: BTreeSet<PolicyId>,
    ticks: u32,
    /// The entries that this round has not looked at yet.
    round: Vec<EntryId>,
}

/// All that statuses are made of.
pub(crate) struct StatusInputs<'a> {
    pub entries: &'a EntryStore,
    pub policies: &'a PolicyStore,
    pub registry: &'a Registry,
    pub views: &'a ViewStatusTable,
    pub rights: &'a rights::LackingRights,
    pub served: Option<&'a ServedResources>,
    pub position: &'a PositionOf<'a>,
    pub now: Instant,
    /// The wall clock at `now`, as statuses show it.
    pub clock: Timestamp,
}

impl StatusReporter {
    /// Looks at an entry again.
    pub(crate) fn entry_changed(&mut self, id: EntryId) {
        self.changed_entries.insert(id);
    }

    /// Looks at policies again.
    pub(crate) fn policies_changed(&mut self, ids: impl IntoIterator<Item = PolicyId>) {
        self.changed_policies.extend(ids);
    }

    /// Looks at whatever an entry is for again: an implicit one has no status, but its policies have.
    pub(crate) fn look_at(&mut self, id: &EntryId, registry: &Registry, policies: &PolicyStore) {
        match id.0 {
            EntryKind::Implicit => {
                let dependents = registry.dependents(id);
                self.policies_changed(dependents.filter_map(|uid| policies.by_uid(uid)).cloned());
            }
            EntryKind::Cached | EntryKind::Global => self.entry_changed(id.clone()),
        }
    }

    /// Notes that a view has changed; `state_changed`: for its readers too, and not only in its figures.
    pub(crate) fn view_changed(
        &mut self,
        view: &ViewId,
        state_changed: bool,
        registry: &Registry,
        policies: &PolicyStore,
    ) {
        // There may be a hundred thousand implicit entries on a view of single objects, after all
        // others: of them only the state matters.
        if !state_changed && view.is_of_references() {
            return; // What all of them come to is none's own figure.
        }
        let ids = registry.on_view(view);
        let ids = ids.take_while(|(kind, _)| state_changed || *kind != EntryKind::Implicit);
        for id in ids {
            self.look_at(id, registry, policies);
        }
    }

    /// Lets a second pass.
    pub(crate) fn tick(&mut self, entries: &EntryStore) {
        self.ticks = self.ticks.wrapping_add(1);
        if self.round.is_empty() && self.ticks.is_multiple_of(TICKS_PER_ROUND) {
            let ids = entries.iter();
            self.round
                .extend(ids.map(|entry| (entry.kind, entry.identity.name.clone())));
        }
        let rest = self.round.len().saturating_sub(ENTRIES_PER_TICK);
        self.changed_entries.extend(self.round.drain(rest..));
    }

    /// Brings the statuses up to date of everything that changed.
    pub(crate) fn update(
        &mut self,
        inputs: &StatusInputs<'_>,
        enforcement: &mut EnforcementTracker,
        effects: &mut Vec<CoordinatorEffect>,
    ) {
        for id in std::mem::take(&mut self.changed_entries) {
            effects.extend(self.update_entry(&id, inputs));
        }
        // An entry that was not read yet is not one that does not exist.
        if !inputs.entries.are_known() || inputs.served.is_none() {
            return;
        }
        for id in std::mem::take(&mut self.changed_policies) {
            let status = self.update_policy(&id, inputs, enforcement, effects);
            effects.extend(status);
        }
    }

    fn update_entry(
        &mut self,
        id: &EntryId,
        inputs: &StatusInputs<'_>,
    ) -> Option<CoordinatorEffect> {
        // `None`: not resolved yet, so nothing is known; or it is gone.
        let condition = inputs.condition(id);
        let ready = condition.as_ref().map(|(ready, _)| ready);
        if self.ready.get(id) != ready {
            match ready {
                Some(ready) => self.ready.insert(id.clone(), ready.clone()),
                None => self.ready.remove(id),
            };
            self.policies_changed(inputs.policies.readers_of(id).cloned());
        }
        let ((ready, stats), entry) = condition.zip(inputs.entries.get(id))?;
        let global = id.0 == EntryKind::Global;
        let mut figures = figures(stats.as_ref(), inputs.now, inputs.clock);
        if global {
            figures.view = None;
        }
        if global || inputs.is_of_one_object(id) {
            (figures.objects, figures.bytes) = (None, None);
        }
        let said = entry.status.clone();
        let status = DesiredStatus {
            ready,
            figures: Some(figures),
            rules: None,
            rules_now: None,
            global,
            cel: None,
            conditions: said.conditions,
            figures_now: Figures {
                view: said.view,
                objects: said.objects,
                bytes: said.bytes,
                heard: said.last_heard_time.map(|time| time.0),
            },
        };
        Some(CoordinatorEffect::SetStatus(
            status_owner(entry),
            Box::new(status),
        ))
    }

    fn update_policy(
        &self,
        id: &PolicyId,
        inputs: &StatusInputs<'_>,
        enforcement: &mut EnforcementTracker,
        effects: &mut Vec<CoordinatorEffect>,
    ) -> Option<CoordinatorEffect> {
        let policy = inputs.policies.get(id)?;
        let not_permitted = inputs.not_permitted(policy);
        let ready = self.policy_ready(id, policy, &not_permitted, inputs);
        let ready = if ready.status == "True" && !policy.kinds.is_empty() {
            let reads = RequiredReads::of(policy, id, inputs.registry);
            let around = Surroundings {
                views: inputs.views,
                served: inputs.served,
                position: inputs.position,
                now: inputs.now,
            };
            enforcement.judge(id, policy, &reads, ready, &around, effects)?
        } else {
            enforcement.forget(id);
            ready
        };
        let cel = policy.summary.as_ref().map(|summary| {
            let unscannable = inputs.unscannable(id, policy).unwrap_or_default();
            CelStatus::new(&ready, &unscannable, summary.clone())
        });
        let status = DesiredStatus {
            cel,
            ready,
            figures: None,
            rules: Some(policy.rules.with_not_permitted(not_permitted)),
            rules_now: policy.rules_now.clone(),
            global: false,
            conditions: policy.conditions.clone(),
            figures_now: Figures::default(),
        };
        let owner = PolicyStore::status_owner(id, policy);
        Some(CoordinatorEffect::SetStatus(owner, Box::new(status)))
    }

    /// Returns whether the policy compiles, and its entries are ready.
    fn policy_ready(
        &self,
        id: &PolicyId,
        policy: &PolicyManifest,
        not_permitted: &Value,
        inputs: &StatusInputs<'_>,
    ) -> Ready {
        let generation = policy.identity.generation;
        if policy.secrets_forbidden && policy.problems.is_empty() {
            return Ready::new("False", permits::forbidden("the policy"), generation);
        }
        if let Some(failure) = &policy.held_back {
            return Ready::new("False", failure.clone(), generation);
        }
        let entries = policy
            .entries
            .iter()
            .map(|entry| self.need(id, policy, entry, inputs));
        let declared = policy.references.iter().filter(|r| r.is_declared());
        let references = declared.filter_map(|reference| {
            let id = (EntryKind::Implicit, reference.name_for(&id.0));
            let record = inputs.registry.entry(&id)?;
            let ready = match registry::is_unresolved(record) {
                true => None,
                false => inputs.condition(&id).map(|(ready, _)| ready),
            };
            let (kind, name) = id;
            Some(Need {
                kind,
                name,
                ready,
                refused: false,
            })
        });
        let needs: Vec<_> = entries.chain(references).collect();
        let mut remark = rules::remark(&policy.not_run, not_permitted);
        for kind in policy.unserved_kinds(inputs.served) {
            remark.push_str(&format!("; the API server does not serve `{kind}` yet"));
        }
        conditions::of_policy(generation, &policy.problems, &needs, &remark)
    }

    /// An entry as a policy has it: not every policy may read every entry.
    fn need(
        &self,
        key: &PolicyId,
        policy: &PolicyManifest,
        id: &EntryId,
        inputs: &StatusInputs<'_>,
    ) -> Need {
        let refusal = inputs.refusal(key, policy, id);
        Need {
            kind: id.0,
            name: id.1.clone(),
            refused: refusal.is_some(),
            ready: match refusal {
                Some(failure) => Some(Ready::new("False", failure, policy.identity.generation)),
                None => self.ready.get(id).cloned(),
            },
        }
    }
}

impl StatusInputs<'_> {
    fn condition(&self, id: &EntryId) -> Option<(Ready, Option<ViewStats>)> {
        let record = self.registry.entry(id)?;
        let view = record.binding().ok().map(|binding| &binding.view);
        let stats = view.and_then(|view| self.views.stats(view, self.now));
        let holders = view.map_or_else(Default::default, |view| self.views.holders(view, self.now));
        let ready = conditions::of_entry(record, stats.as_ref(), holders);
        Some((ready, stats))
    }

    fn is_of_one_object(&self, id: &EntryId) -> bool {
        let record = self.registry.entry(id);
        let binding = record.and_then(|record| record.binding().ok());
        binding.is_some_and(|binding| binding.object.is_some())
    }

    /// Returns the reason why a namespaced policy may not read an entry: it may hold more than the policy's
    /// namespace, or Secrets, which an entry was allowed to read for cluster-wide policies alone.
    fn refusal(&self, key: &PolicyId, policy: &PolicyManifest, id: &EntryId) -> Option<Failure> {
        let own = Some(policy.identity.namespace.as_str()).filter(|own| !own.is_empty())?;
        match self.registry.entry(id)?.binding_within(Some(own)) {
            Err(error @ FactError::OutsideNamespace { .. }) => {
                let message = format!("{}: {error}", error.code());
                Some(Failure::new(source_reason::FORBIDDEN, message))
            }
            Ok(binding) if binding.secret => {
                let reader = PolicyKind::describe(&key.0);
                let error = FactError::SecretForbidden { reader };
                let message = format!("{}: {error}", error.code());
                Some(Failure::new("SecretsForbidden", message))
            }
            _ => None,
        }
    }

    /// Returns the reason why a policy cannot be scanned: it matches a subresource, which has no objects, or a kind
    /// that the watcher may not list and watch.
    fn unscannable(&self, id: &PolicyId, policy: &PolicyManifest) -> Option<String> {
        let is_subresource = |kind: &&KindPattern| !matches!(&*kind.subresource, "" | "*");
        if let Some(kind) = policy.kinds.iter().find(is_subresource) {
            return Some(format!("`{kind}` is a subresource, and is not listed"));
        }
        let served = self.served?.resources.iter();
        let records = served.map(|resource| &resource.record);
        let scanned = scanned(&policy.scanned, &policy.identity.namespace, records);
        scanned.found.into_iter().find_map(|(collection, _)| {
            let name = Reference::Collection(collection).name_for(&id.0);
            let (ready, _) = self.condition(&(EntryKind::Implicit, name))?;
            (ready.reason == source_reason::FORBIDDEN).then_some(ready.message)
        })
    }

    /// Returns the policy's rules that change nothing, for want of a right. As long as the rights are unknown, the
    /// last written status stands.
    fn not_permitted(&self, policy: &PolicyManifest) -> Value {
        if policy.writes_forbidden {
            return rules::forbidden(&policy.changes);
        }
        let known = rules::not_permitted(&policy.changes, self.rights);
        known.unwrap_or_else(|| {
            let said = policy.rules_now.as_ref();
            said.map_or(Value::Null, |said| said.not_permitted.clone())
        })
    }
}

fn figures(stats: Option<&ViewStats>, now: Instant, clock: Timestamp) -> Figures {
    let Some(stats) = stats else {
        return Figures::default();
    };
    // Of a source that was never heard from, nothing is known, which is not nothing.
    let count = |n: u64| stats.heard.map(|_| i64::try_from(n).unwrap_or(i64::MAX));
    let ago = |at: Instant| now.saturating_duration_since(at);
    // To the second, as the API server keeps it.
    let time = |ago: Duration| {
        let ago = SignedDuration::try_from(ago).ok()?;
        let heard = clock.checked_sub(ago).ok()?;
        Timestamp::from_second(heard.as_second()).ok()
    };
    Figures {
        view: Some(stats.view.to_string()),
        objects: count(stats.objects),
        bytes: count(stats.bytes),
        heard: stats.heard.and_then(|at| time(ago(at))),
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{ObjectKey, ResourceVersion};

    use super::*;
    use crate::{coordinator::manifests::EntryManifest, source::reflect::RawObject};

    #[test]
    fn a_round_looks_at_every_entry_once_and_at_so_many_in_a_tick() {
        let mut entries = EntryStore::default();
        for n in 0..=ENTRIES_PER_TICK {
            let key = ObjectKey::new("", format!("e{n}"));
            let object = RawObject {
                key: key.clone(),
                version: ResourceVersion::new("1"),
                json: "{}".into(),
            };
            let entry = EntryManifest::read(&object, EntryKind::Cached);
            entries.list_mut(EntryKind::Cached).put(key, entry);
        }
        let mut reporter = StatusReporter::default();
        let ticks = 0..=TICKS_PER_ROUND;
        let looked = ticks.map(|_| {
            reporter.tick(&entries);
            std::mem::take(&mut reporter.changed_entries).len()
        });
        let looked: Vec<_> = looked.collect();
        assert_eq!(looked, [0, 0, 0, 0, ENTRIES_PER_TICK, 1]);
    }

    #[test]
    fn a_source_never_heard_from_has_no_figures() {
        let now = Instant::now();
        let mut stats = ViewStats {
            view: ViewId::new("secrets.v1"),
            reported_state: None,
            trouble: None,
            objects: 0,
            bytes: 0,
            refused_bytes: 0,
            pending: 0,
            skipped: 0,
            heard: None,
            news_age_ms: u64::MAX,
        };
        let unheard = figures(Some(&stats), now, Timestamp::UNIX_EPOCH);
        assert_eq!((unheard.objects, unheard.bytes), (None, None));
        stats.heard = Some(now);
        let heard = figures(Some(&stats), now, Timestamp::UNIX_EPOCH);
        assert_eq!((heard.objects, heard.bytes), (Some(0), Some(0)));
    }
}
