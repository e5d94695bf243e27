//! Ready means ready: every view that the policies need has a replica that answers for it.
//!
//! | the policy's need | is it missing |
//! |---|---|
//! | an entry on a view that no replica has, or has not read yet, or whose news is too old | yes |
//! | something that it declares to be kept, and that the watcher has not registered yet | yes |
//! | a view that failed at its source, or was evicted: every reader gets that error | no |
//! | an entry that is invalid, or not there: every reader gets that error | no |
//! | a view that may be kept and is not declared: live reads answer meanwhile | no |
//! | a call that declares to be kept, where the watcher keeps none | no |
//!
//! A missing part makes the webhook unready at its start alone, until everything was there once, and for a minute at most:
//!
//! | missing | then the webhook |
//! |---|---|
//! | at the start | is not ready |
//! | a minute after the start, or later on | stays ready: the readiness report mentions it, and a rule that needs it waits, and gets the error of its state |
//!
//! A webhook that is not ready decides nothing, and most policies need none of the missing parts. A webhook that
//! alone has lost NATS becomes unready by another check ([`lagging_check`](crate::registration::lagging_check)).
//!
//! Heartbeats of replicas name the views that they hold.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, BusExt as _, Signals};
use anteroom_engine::{
    catalog::{Catalog, Catalogs},
    policies::Need,
};
use anteroom_model::{
    FactError, ViewId,
    limits::{REPLICA_BEAT_INTERVAL_MS, REPLICA_SILENCE_MAX_MS},
};
use anteroom_runtime::{Check, Shutdown};
use anteroom_wire::replica_beat::{HeldViews, ReplicaBeat};
use tokio::time::Instant;

/// Missing things that a message names; the rest are counted.
const NAMED_MAX: usize = 8;

/// The silence after which a replica does not count.
const SILENCE_MAX: Duration = Duration::from_millis(REPLICA_SILENCE_MAX_MS);

/// Time after the start in which missing things hold readiness back: one that never comes must not stop a rollout.
const HELD_MAX: Duration = Duration::from_secs(60);

/// Interval between checks for silent replicas.
const TICK: Duration = Duration::from_millis(REPLICA_BEAT_INTERVAL_MS);

/// The least time between two looks: beats of many replicas are taken in together.
const PACE: Duration = Duration::from_millis(20);

/// Keeps `check` in step until shutdown.
pub(crate) async fn keep(
    bus: Arc<dyn Bus>,
    mut catalogs: Catalogs,
    check: Check,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    let mut replicas = Replicas::default();
    let mut beats: Option<Signals<ReplicaBeat>> = None;
    let mut needs = Needs::default();
    let mut standing = StartProgress::new(Instant::now());
    let mut known = false;
    loop {
        if beats.is_none() {
            // The bus may be away: it is tried again at the next tick.
            beats = bus.signals::<ReplicaBeat>().await.ok();
        }
        let is_new = catalogs.has_changed().unwrap_or_default() || !known;
        if is_new && let Some(catalog) = catalogs.borrow_and_update().as_deref() {
            needs = Needs::of(catalog);
            known = true;
        }
        let now = Instant::now();
        replicas.forget_silent(now);
        if known {
            let MissingThings { holds, waits } = standing.judge(now, &needs, &replicas);
            match (holds.is_empty(), waits.is_empty()) {
                (false, _) => check.not_ready(listed(&holds)),
                (true, false) => check.ready_but(listed(&waits)),
                (true, true) => check.ready(),
            }
        }
        let next_beat = async {
            match &mut beats {
                Some(beats) => beats.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Ok(()) = catalogs.changed() => catalogs.mark_changed(),
            () = tokio::time::sleep(TICK) => {}
            beat = next_beat => match beat {
                Some(beat) => replicas.take_beat(Instant::now(), beat),
                None => beats = None,
            }
        }
        // Whatever else has come by then is taken in by the same look.
        let until = now + PACE;
        while let Some(listening) = &mut beats
            && let Ok(beat) = tokio::time::timeout_at(until, listening.next()).await
        {
            match beat {
                Some(beat) => replicas.take_beat(Instant::now(), beat),
                None => beats = None,
            }
        }
    }
}

fn listed(missing: &[String]) -> String {
    let named = missing.len().min(NAMED_MAX);
    let mut text = missing[..named].join("; ");
    if missing.len() > named {
        text.push_str(&format!("; and {} more", missing.len() - named));
    }
    text
}

/// The start of the webhook: it is over once nothing is missing, or at `until`.
#[derive(Debug)]
struct StartProgress {
    begun: bool,
    until: Instant,
}

/// The missing things, as text for people.
#[derive(Debug, Default, PartialEq, Eq)]
struct MissingThings {
    /// Missing things that hold back readiness.
    holds: Vec<String>,
    /// Missing parts that do not delay readiness.
    waits: Vec<String>,
}

impl StartProgress {
    fn new(now: Instant) -> Self {
        Self {
            begun: false,
            until: now + HELD_MAX,
        }
    }

    /// Returns the parts that are missing now.
    fn judge(&mut self, now: Instant, needs: &Needs, replicas: &Replicas) -> MissingThings {
        let lacking = needs.views.iter().filter_map(|(view, by)| {
            let state = replicas.lacks(view)?;
            Some(format!("{by}: {state}"))
        });
        let missing: Vec<_> = needs.unregistered.iter().cloned().chain(lacking).collect();
        self.begun |= missing.is_empty() || now >= self.until;
        match self.begun {
            true => MissingThings {
                holds: Vec::new(),
                waits: missing,
            },
            false => MissingThings {
                holds: missing,
                waits: Vec::new(),
            },
        }
    }
}

/// The needs of all policies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    /// Views, each with the names of those that need it, for people.
    views: BTreeMap<ViewId, String>,
    /// Declared references without a view yet, as text for people.
    unregistered: BTreeSet<String>,
}

impl Needs {
    fn of(catalog: &Catalog) -> Self {
        let mut needs = Self::default();
        for policy in catalog.policies.all() {
            for need in &policy.needs {
                needs.add(catalog, need, || policy.key.to_string());
            }
        }
        needs
    }

    fn add(&mut self, catalog: &Catalog, need: &Need, policy: impl Fn() -> String) {
        let mut of_entry = String::new();
        let view = match need {
            // Read live, whatever it declares.
            Need::Objects(reference, _) | Need::Declared(reference, _)
                if !catalog.keeps(reference) =>
            {
                return;
            }
            Need::Objects(_, view) => view.clone(),
            Need::Entry(kind, name) => match catalog.entry(*kind, name) {
                Ok(record) => match record.binding() {
                    Ok(binding) => {
                        of_entry = format!(" of {} `{name}`", kind.name());
                        binding.view.clone()
                    }
                    Err(_) => return,
                },
                Err(_) => return,
            },
            Need::Declared(_, name) => {
                let entry = catalog.entry(anteroom_model::EntryKind::Implicit, name);
                match entry.and_then(|record| record.binding()) {
                    Ok(binding) => binding.view.clone(),
                    Err(FactError::EntryNotFound { .. }) => {
                        let policy = policy();
                        let text = format!(
                            "{name} for policy {policy}: the watcher has not registered it"
                        );
                        self.unregistered.insert(text);
                        return;
                    }
                    Err(_) => return,
                }
            }
        };
        let text = || format!("view {view}{of_entry} for policy {}", policy());
        self.views.entry(view.clone()).or_insert_with(text);
    }
}

/// The last heartbeat of each replica.
#[derive(Debug, Default)]
struct Replicas(HashMap<String, HeardReplica>);

#[derive(Debug)]
struct HeardReplica {
    at: Instant,
    views: HeldViews,
}

impl Replicas {
    fn take_beat(&mut self, now: Instant, beat: ReplicaBeat) {
        if beat.leaving {
            self.0.remove(&beat.replica);
            return;
        }
        let heard = self.0.entry(beat.replica).or_insert_with(|| HeardReplica {
            at: now,
            views: HeldViews::default(),
        });
        heard.at = now;
        heard.views.take_page(beat.page, beat.views);
    }

    fn forget_silent(&mut self, now: Instant) {
        self.0
            .retain(|_, heard| now.duration_since(heard.at) < SILENCE_MAX);
    }

    /// Returns the obstacle for a view; `None`: a replica answers for the view, with its data or with its error.
    fn lacks(&self, view: &ViewId) -> Option<String> {
        let mut said: Option<(&str, &str)> = None;
        for (replica, heard) in &self.0 {
            match heard.views.state(view) {
                Some("synced" | "failed" | "evicted") => return None,
                // The maximum does not depend on the order of the map.
                Some(state) => said = said.max(Some((state, replica))),
                None => {}
            }
        }
        Some(match said {
            Some((state, replica)) => format!("{state} in {replica}"),
            None if self.0.is_empty() => "no replica is heard".to_owned(),
            None => "no replica holds it".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
