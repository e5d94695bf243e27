//! What people are told: statuses, metrics and readiness.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use anteroom_model::{FactError, Failure, ViewId, ViewState};
use jiff::{SignedDuration, Timestamp};

use super::Controller;
use crate::{
    conditions::{self, Ready},
    manifests::{POLICY_API_VERSION, PolicyManifest},
    publish::{Book, ViewStats},
    status::{Author, Figures, Wanted},
};

/// The API version of entries.
pub(crate) const ENTRY_API_VERSION: &str = "kyverno.io/v2alpha1";

impl Controller {
    /// Brings everything up to date that people see.
    pub(super) fn tell(&self) {
        let now = Instant::now();
        let stats = self.tools.publisher.look(|book: &Book| book.stats(now));
        stats
            .iter()
            .for_each(|stats| self.tools.metrics.view(stats));
        self.check_views(&stats);
        let stats: HashMap<_, _> = stats
            .into_iter()
            .map(|stats| (stats.view.clone(), stats))
            .collect();
        let mut ready = BTreeMap::new();
        let mut wanted = self.entry_statuses(&stats, now, &mut ready);
        wanted.extend(self.policy_statuses(&ready));
        self.tools.status.set(wanted);
    }

    /// A view is waited for until it is synced, or until its source said that it never will be.
    fn check_views(&self, stats: &[ViewStats]) {
        let unread = |stats: &&ViewStats| {
            let told = stats.told.as_ref();
            !matches!(told, Some(ViewState::Synced | ViewState::Failed { .. }))
        };
        let collections = stats.iter().filter(|stats| !stats.view.is_system());
        let unread: Vec<_> = collections
            .filter(unread)
            .map(|s| s.view.as_str())
            .collect();
        let check = &self.tools.checks.views;
        match unread.as_slice() {
            [] => check.ready(),
            [first, ..] => check.not_ready(format!(
                "{} of {} views to be read, the first is {first}",
                unread.len(),
                stats.len()
            )),
        }
    }

    fn entry_statuses(
        &self,
        stats: &HashMap<ViewId, ViewStats>,
        now: Instant,
        ready: &mut BTreeMap<String, Ready>,
    ) -> Vec<(Author, Wanted)> {
        let clock = Timestamp::now();
        let mut wanted = Vec::new();
        for entry in self.entries.values() {
            let identity = &entry.identity;
            let Some(record) = self.registry.entry(&identity.name) else {
                continue; // Not resolved yet: nothing is known.
            };
            let stats = record
                .binding()
                .ok()
                .and_then(|binding| stats.get(&binding.view));
            let condition = conditions::of_entry(record, stats);
            ready.insert(identity.name.clone(), condition.clone());
            let plural = "cachedcontextentries";
            let kind = "CachedContextEntry";
            let author = Author::new(ENTRY_API_VERSION, kind, plural, identity);
            let said = entry.status.clone();
            wanted.push((
                author,
                Wanted {
                    ready: condition,
                    figures: Some(figures(stats, now, clock)),
                    conditions: said.conditions,
                    figures_now: Figures {
                        view: said.view,
                        objects: said.objects,
                        bytes: said.bytes,
                        heard: said.last_heard_time.map(|time| time.0),
                    },
                },
            ));
        }
        wanted
    }

    /// An entry's condition as a policy has it: a namespaced one may not read every entry.
    fn readiness_for(
        &self,
        policy: &PolicyManifest,
        entry: &str,
        ready: &BTreeMap<String, Ready>,
    ) -> Option<Ready> {
        let own = Some(policy.identity.namespace.as_str()).filter(|own| !own.is_empty());
        let refused = self.registry.entry(entry)?.binding_within(own).err();
        match refused {
            Some(error @ FactError::OutsideNamespace { .. }) => {
                let failure = Failure::new("Forbidden", format!("{}: {error}", error.code()));
                Some(Ready::new("False", failure, policy.identity.generation))
            }
            _ => ready.get(entry).cloned(),
        }
    }

    fn policy_statuses(&self, ready: &BTreeMap<String, Ready>) -> Vec<(Author, Wanted)> {
        let feeds = [&self.cluster_policies, &self.policies].into_iter();
        let policies = feeds.flat_map(|feed| feed.roster.values().map(move |p| (feed, p)));
        let wanted = policies.map(|(feed, policy)| {
            let names = policy.entries.iter();
            let entries: Vec<_> = names
                .map(|name| (name.clone(), self.readiness_for(policy, name, ready)))
                .collect();
            let generation = policy.identity.generation;
            let condition = conditions::of_policy(generation, &policy.problems, &entries);
            let author = Author::new(POLICY_API_VERSION, feed.kind, feed.plural, &policy.identity);
            (
                author,
                Wanted {
                    ready: condition,
                    figures: None,
                    conditions: policy.conditions.clone(),
                    figures_now: Figures::default(),
                },
            )
        });
        wanted.collect()
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
