//! What people are told: the statuses of entries and policies. Only of what something changed for is
//! looked at.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_model::{EntryKind, FactError, Failure, ObjectKey, ViewId};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Controller, entries::author, policies::PolicyId};
use crate::{
    conditions::{self, Need, Ready},
    manifests::PolicyManifest,
    publish::ViewStats,
    registry::{self, EntryId},
    rules,
    status::{Figures, Wanted},
};

impl Controller {
    /// Brings everything up to date that people see.
    pub(super) fn tell(&mut self) {
        for (view, state_changed) in self.board.take_changed() {
            self.view_changed(view, state_changed);
        }
        let now = Instant::now();
        for id in std::mem::take(&mut self.dirty.entries) {
            if id.0 != EntryKind::Implicit {
                self.tell_entry(&id, now);
            }
        }
        // An entry that was not read yet is not one that does not exist.
        if !self.cached.is_known() || !self.global.is_known() || self.catalog.is_none() {
            return;
        }
        for id in std::mem::take(&mut self.dirty.policies) {
            self.tell_policy(&id, now);
        }
    }

    fn view_changed(&mut self, view: ViewId, state_changed: bool) {
        // There may be a hundred thousand implicit entries on a view of single objects, after all
        // others: of them only the state matters.
        if !state_changed && view.is_of_references() {
            return; // What all of them come to is none's own figure.
        }
        let ids = self.registry.on_view(&view);
        let ids = ids.take_while(|(kind, _)| state_changed || *kind != EntryKind::Implicit);
        for id in ids {
            if id.0 == EntryKind::Implicit {
                let policies = self.registry.dependents(id);
                let policies = policies.filter_map(|uid| self.by_uid.get(uid));
                self.dirty.policies.extend(policies.cloned());
            } else {
                self.dirty.entries.insert(id.clone());
            }
        }
        if let Some(failure) = self.board.failure(&view).filter(|_| state_changed) {
            let failure = failure.clone();
            self.forbidden(view, failure);
        }
    }

    fn condition(&self, id: &EntryId, now: Instant) -> Option<(Ready, Option<ViewStats>)> {
        let record = self.registry.entry(id)?;
        let view = record.binding().ok().map(|binding| &binding.view);
        let stats = view.and_then(|view| self.board.stats(view, now));
        let holders = view.map_or_else(Default::default, |view| self.board.holders(view, now));
        let ready = conditions::of_entry(record, stats.as_ref(), holders);
        Some((ready, stats))
    }

    fn tell_entry(&mut self, id: &EntryId, now: Instant) {
        // `None`: not resolved yet, so nothing is known; or it is gone.
        let condition = self.condition(id, now);
        let ready = condition.as_ref().map(|(ready, _)| ready);
        if self.ready.get(id) != ready {
            match ready {
                Some(ready) => self.ready.insert(id.clone(), ready.clone()),
                None => self.ready.remove(id),
            };
            let readers = self.readers.get(id).into_iter().flatten();
            self.dirty.policies.extend(readers.cloned());
        }
        let key = ObjectKey::new("", id.1.as_str());
        let entry = self.entry_feed(id.0).roster.get(&key).cloned();
        let (Some((ready, stats)), Some(entry)) = (condition, entry) else {
            return;
        };
        let author = author(&entry);
        let said = entry.status;
        let global = id.0 == EntryKind::Global;
        let mut figures = figures(stats.as_ref(), now, Timestamp::now());
        if global {
            figures.view = None;
        }
        if global || self.is_of_one_object(id) {
            (figures.objects, figures.bytes) = (None, None);
        }
        self.tools.status.put(
            author,
            Wanted {
                ready,
                figures: Some(figures),
                rules: None,
                rules_now: None,
                global,
                conditions: said.conditions,
                figures_now: Figures {
                    view: said.view,
                    objects: said.objects,
                    bytes: said.bytes,
                    heard: said.last_heard_time.map(|time| time.0),
                },
            },
        );
    }

    fn is_of_one_object(&self, id: &EntryId) -> bool {
        let record = self.registry.entry(id);
        let binding = record.and_then(|record| record.binding().ok());
        binding.is_some_and(|binding| binding.object.is_some())
    }

    /// An entry as a policy has it: not every policy may read every entry.
    fn need(&self, policy: &PolicyManifest, id: &EntryId) -> Need {
        let refusal = self.refusal(policy, id);
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

    /// Why a namespaced policy may not read an entry: it may hold more than the policy's namespace, or
    /// Secrets, which an entry was allowed to read for cluster-wide policies alone.
    fn refusal(&self, policy: &PolicyManifest, id: &EntryId) -> Option<Failure> {
        let own = Some(policy.identity.namespace.as_str()).filter(|own| !own.is_empty())?;
        match self.registry.entry(id)?.binding_within(Some(own)) {
            Err(error @ FactError::OutsideNamespace { .. }) => {
                let message = format!("{}: {error}", error.code());
                Some(Failure::new("Forbidden", message))
            }
            Ok(binding) if binding.secret => {
                let reader = format!("Policy {own}/{}", policy.identity.name);
                let error = FactError::SecretForbidden { reader };
                let message = format!("{}: {error}", error.code());
                Some(Failure::new("SecretsForbidden", message))
            }
            _ => None,
        }
    }

    fn tell_policy(&mut self, id: &PolicyId, now: Instant) {
        let feed = self.policy_feed(id);
        let Some(policy) = feed.roster.get(&id.0).cloned() else {
            return;
        };
        let author = feed.author(&policy);
        let not_permitted = self.not_permitted(&policy);
        let ready = self.policy_ready(id, &policy, &not_permitted, now);
        let ready = if ready.status == "True" && !policy.kinds.is_empty() {
            let reads = self.reads(&policy, &id.0);
            self.enforced(id, &policy, &reads, ready, now)
        } else {
            self.not_to_enforce(id);
            Some(ready)
        };
        let Some(ready) = ready else {
            return;
        };
        self.tools.status.put(
            author,
            Wanted {
                ready,
                figures: None,
                rules: Some(with_rights(policy.rules, not_permitted)),
                rules_now: policy.rules_said,
                global: false,
                conditions: policy.conditions,
                figures_now: Figures::default(),
            },
        );
    }

    /// Which of its rules change nothing, for want of a right. As long as nothing is known, what was told stands.
    fn not_permitted(&self, policy: &PolicyManifest) -> Value {
        let found = self.rights.found.borrow();
        let known = rules::not_permitted(&policy.changes, &found);
        known.unwrap_or_else(|| {
            let said = policy.rules_said.as_ref();
            said.map_or(Value::Null, |said| said[rules::NOT_PERMITTED].clone())
        })
    }

    /// Whether it compiles, and what it reads is there.
    fn policy_ready(
        &self,
        id: &PolicyId,
        policy: &PolicyManifest,
        not_permitted: &Value,
        now: Instant,
    ) -> Ready {
        let entries = policy.entries.iter().map(|id| self.need(policy, id));
        let declared = policy.references.iter().filter(|r| r.is_declared());
        let key = id.0.clone();
        let references = declared.filter_map(|reference| {
            let id = (EntryKind::Implicit, reference.name_for(&key));
            let record = self.registry.entry(&id)?;
            let ready = match registry::is_unresolved(record) {
                true => None,
                false => self.condition(&id, now).map(|(ready, _)| ready),
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
        let generation = policy.identity.generation;
        if policy.secrets_forbidden && policy.problems.is_empty() {
            let failure = crate::permits::forbidden("the policy");
            Ready::new("False", failure, generation)
        } else {
            let remark = rules::remark(&policy.not_run, not_permitted);
            conditions::of_policy(generation, &policy.problems, &needs, &remark)
        }
    }
}

/// What a status says of a policy's rules.
fn with_rights(told: Arc<Value>, not_permitted: Value) -> Arc<Value> {
    let mut told = Arc::unwrap_or_clone(told);
    told[rules::NOT_PERMITTED] = not_permitted;
    Arc::new(told)
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
    use super::*;

    #[test]
    fn a_source_never_heard_from_has_no_figures() {
        let now = Instant::now();
        let mut stats = ViewStats {
            view: ViewId::new("secrets.v1"),
            told: None,
            trouble: None,
            objects: 0,
            bytes: 0,
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
