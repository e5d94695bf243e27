//! The parts of a system and its views, put together from heartbeats. Pure.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anteroom_model::{
    Failure, Group, ViewId,
    limits::{
        AGE_MAX_DEFAULT_MS, BEAT_SILENCE_MAX_MS, REPLICA_SILENCE_MAX_MS, WEBHOOK_SILENCE_MAX_MS,
    },
};
use anteroom_wire::{
    beat::Beat,
    replica_beat::{HeldViews, ReplicaBeat},
    webhook_beat::WebhookBeat,
};
use serde::Serialize;

/// The state of a view that answers.
pub(crate) const SYNCED: &str = "synced";

/// A system as its heartbeats describe it.
#[derive(Clone, Debug, Default)]
pub(crate) struct System {
    groups: BTreeMap<Group, Led>,
    candidates: BTreeMap<String, Instant>,
    views: BTreeMap<ViewId, Fed>,
    replicas: BTreeMap<String, Replica>,
    webhooks: BTreeMap<String, (WebhookBeat, Instant)>,
}

#[derive(Clone, Debug)]
struct Led {
    holder: String,
    term: u32,
    heard: Instant,
}

/// A view as its writer has it.
#[derive(Clone, Debug)]
struct Fed {
    group: Group,
    revision: u64,
    news_age_ms: u64,
    objects: u64,
    bytes: u64,
    trouble: Option<Failure>,
    heard: Instant,
}

#[derive(Clone, Debug)]
struct Replica {
    bytes: u64,
    bytes_max: Option<u64>,
    digest_mismatches: u64,
    held: HeldViews,
    heard: Instant,
}

/// The leader of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupRow {
    pub(crate) group: u16,
    pub(crate) leader: String,
    pub(crate) term: u32,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ViewRow {
    pub(crate) view: String,
    /// The state `synced`, or the reason that the writer or a replica reports.
    pub(crate) state: String,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// The age of its news; `None`: its source was never heard from.
    pub(crate) age_ms: Option<u64>,
    pub(crate) revision: u64,
    pub(crate) group: u16,
    pub(crate) leader: String,
    /// The replicas that serve it.
    pub(crate) served_by: usize,
    /// Why its source cannot be heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    /// The view holds what the system needs itself, as policies and entries.
    pub(crate) is_system: bool,
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplicaRow {
    pub(crate) replica: String,
    pub(crate) bytes: u64,
    pub(crate) bytes_max: Option<u64>,
    pub(crate) views: usize,
    /// Views that it holds and does not serve, with their states.
    pub(crate) unserved: Vec<(String, String)>,
    /// Times since its start that a view of it was proven to differ from the log.
    pub(crate) digest_mismatches: u64,
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WebhookRow {
    pub(crate) webhook: String,
    pub(crate) compiled: u64,
    pub(crate) enforced: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
}

/// A heartbeat of any part.
#[derive(Debug)]
pub(crate) enum AnyBeat {
    Writer(Beat),
    Replica(ReplicaBeat),
    Webhook(WebhookBeat),
}

impl System {
    /// Takes a heartbeat in.
    pub(crate) fn take_beat(&mut self, beat: AnyBeat, at: Instant) {
        match beat {
            AnyBeat::Writer(beat) => self.writer(beat, at),
            AnyBeat::Replica(beat) => self.replica(beat, at),
            AnyBeat::Webhook(beat) => self.webhook(beat, at),
        }
    }

    /// Takes a writer's heartbeat in.
    pub(crate) fn writer(&mut self, beat: Beat, at: Instant) {
        if beat.group == Group::NONE {
            match beat.term {
                0 => drop(self.candidates.remove(&beat.holder)),
                _ => drop(self.candidates.insert(beat.holder, at)),
            }
            return;
        }
        let known = self.groups.get(&beat.group);
        if known.is_some_and(|known| known.term > beat.term) {
            return; // The sender has lost the lease, and has not noticed yet.
        }
        let led = Led {
            holder: beat.holder,
            term: beat.term,
            heard: at,
        };
        self.groups.insert(beat.group, led);
        for view in beat.views {
            let fed = Fed {
                group: beat.group,
                revision: view.revision.0,
                news_age_ms: view.news_age_ms,
                objects: view.objects,
                bytes: view.bytes,
                trouble: view.trouble,
                heard: at,
            };
            self.views.insert(view.view, fed);
        }
    }

    /// Takes a replica's heartbeat in.
    pub(crate) fn replica(&mut self, beat: ReplicaBeat, at: Instant) {
        if beat.leaving {
            self.replicas.remove(&beat.replica);
            return;
        }
        let replica = self.replicas.entry(beat.replica).or_insert(Replica {
            bytes: 0,
            bytes_max: None,
            digest_mismatches: 0,
            held: HeldViews::default(),
            heard: at,
        });
        replica.held.take_page(beat.page, beat.views);
        replica.bytes = beat.bytes;
        replica.bytes_max = beat.bytes_max;
        replica.digest_mismatches = beat.digest_mismatches;
        replica.heard = at;
    }

    /// Takes a webhook's heartbeat in.
    pub(crate) fn webhook(&mut self, beat: WebhookBeat, at: Instant) {
        match beat.leaving {
            true => drop(self.webhooks.remove(&beat.webhook)),
            false => drop(self.webhooks.insert(beat.webhook.clone(), (beat, at))),
        }
    }

    /// Forgets what was silent for too long.
    pub(crate) fn forget_silent(&mut self, now: Instant) {
        let lives = |heard: Instant, max_ms: u64| {
            now.saturating_duration_since(heard) <= Duration::from_millis(max_ms)
        };
        self.groups
            .retain(|_, led| lives(led.heard, BEAT_SILENCE_MAX_MS));
        self.candidates
            .retain(|_, heard| lives(*heard, BEAT_SILENCE_MAX_MS));
        self.views
            .retain(|_, fed| lives(fed.heard, AGE_MAX_DEFAULT_MS));
        self.replicas
            .retain(|_, replica| lives(replica.heard, REPLICA_SILENCE_MAX_MS));
        self.webhooks
            .retain(|_, (_, heard)| lives(*heard, WEBHOOK_SILENCE_MAX_MS));
    }

    /// Returns the groups that somebody leads.
    pub(crate) fn groups(&self) -> Vec<GroupRow> {
        let rows = self.groups.iter().map(|(group, led)| GroupRow {
            group: group.0,
            leader: led.holder.clone(),
            term: led.term,
        });
        rows.collect()
    }

    /// Returns the name of the coordinator, if one leads.
    pub(crate) fn coordinator(&self) -> Option<&str> {
        let led = self.groups.get(&Group::COORDINATOR);
        led.map(|led| led.holder.as_str())
    }

    /// Returns the names of all watchers that live.
    pub(crate) fn watchers(&self) -> Vec<&str> {
        let leaders = self.groups.values().map(|led| led.holder.as_str());
        let candidates = self.candidates.keys().map(String::as_str);
        let mut all: Vec<_> = leaders.chain(candidates).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the views that writers keep, by name.
    pub(crate) fn views(&self, now: Instant) -> Vec<ViewRow> {
        self.views
            .iter()
            .map(|(view, fed)| self.view(view, fed, now))
            .collect()
    }

    fn view(&self, view: &ViewId, fed: &Fed, now: Instant) -> ViewRow {
        let states = self.replicas.values();
        let states: Vec<_> = states
            .filter_map(|replica| replica.held.state(view))
            .collect();
        let served_by = states.iter().filter(|state| **state == SYNCED).count();
        let otherwise = states.iter().find(|state| **state != SYNCED).copied();
        let state = match (served_by, otherwise) {
            (0, Some(state)) => state,
            (0, None) if !view.is_system() => "unserved",
            _ => SYNCED,
        };
        let silent = now.saturating_duration_since(fed.heard);
        let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let leader = self.groups.get(&fed.group);
        ViewRow {
            view: view.to_string(),
            state: state.to_owned(),
            objects: fed.objects,
            bytes: fed.bytes,
            age_ms: Some(fed.news_age_ms)
                .filter(|age_ms| *age_ms != u64::MAX)
                .map(|age_ms| age_ms.saturating_add(silent_ms)),
            revision: fed.revision,
            group: fed.group.0,
            leader: leader.map(|led| led.holder.clone()).unwrap_or_default(),
            served_by,
            trouble: fed
                .trouble
                .as_ref()
                .map(|trouble| format!("{}: {}", trouble.reason, trouble.message)),
            is_system: view.is_system(),
        }
    }

    /// Returns the views that each replica that lives holds, by the replica's name.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&str, &HeldViews)> {
        let replicas = self.replicas.iter();
        replicas.map(|(name, replica)| (name.as_str(), &replica.held))
    }

    /// Returns the replicas that live.
    pub(crate) fn replicas(&self) -> Vec<ReplicaRow> {
        let rows = self.replicas.iter().map(|(name, replica)| {
            let held = || replica.held.iter();
            let mut unserved: Vec<_> = held()
                .filter(|(_, state)| *state != SYNCED)
                .map(|(view, state)| (view.to_string(), state.to_owned()))
                .collect();
            unserved.sort_unstable();
            ReplicaRow {
                replica: name.clone(),
                bytes: replica.bytes,
                bytes_max: replica.bytes_max,
                views: held().count(),
                unserved,
                digest_mismatches: replica.digest_mismatches,
            }
        });
        rows.collect()
    }

    /// Returns the webhooks that live.
    pub(crate) fn webhooks(&self) -> Vec<WebhookRow> {
        let rows = self.webhooks.values().map(|(beat, _)| WebhookRow {
            webhook: beat.webhook.clone(),
            compiled: beat.compiled.0,
            enforced: beat.enforced.0,
            trouble: beat
                .trouble
                .as_ref()
                .map(|trouble| format!("{}: {}", trouble.reason, trouble.message)),
        });
        rows.collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use anteroom_model::{Epoch, Incarnation, Revision};
    use anteroom_wire::{beat::ViewBeat, replica_beat::ReplicaView};

    use super::*;

    fn beat(group: u16, term: u32, holder: &str, views: &[&str]) -> Beat {
        let view = |name: &&str| ViewBeat {
            view: ViewId::new(*name),
            epoch: Epoch(1),
            revision: Revision(9),
            news_age_ms: 100,
            objects: 3,
            bytes: 50,
            skipped: 0,
            trouble: None,
        };
        Beat {
            incarnation: Incarnation("i".into()),
            group: Group(group),
            term,
            holder: holder.into(),
            page: 0,
            sent_ms: None,
            views: views.iter().map(view).collect(),
        }
    }

    /// Returns the heartbeat of a replica that holds these views, each with its state.
    pub(crate) fn replica(name: &str, views: &[(&str, &str)]) -> ReplicaBeat {
        let view = |(view, state): &(&str, &str)| ReplicaView {
            view: ViewId::new(*view),
            state: (*state).into(),
            bytes: 1,
        };
        ReplicaBeat {
            replica: name.into(),
            views: views.iter().map(view).collect(),
            ..ReplicaBeat::default()
        }
    }

    #[test]
    fn a_view_has_its_writers_figures_and_its_replicas_states() {
        let (mut system, now) = (System::default(), Instant::now());
        system.writer(beat(0, 1, "w-1", &[]), now);
        system.writer(
            beat(3, 2, "w-2", &["pods.v1", "services.v1", "jobs.v1.batch"]),
            now,
        );
        system.replica(
            replica("r-1", &[("pods.v1", "synced"), ("services.v1", "stale")]),
            now,
        );
        system.replica(replica("r-2", &[("pods.v1", "synced")]), now);
        let later = now + Duration::from_millis(400);
        let views = system.views(later);
        let shown: Vec<_> = views
            .iter()
            .map(|row| (&*row.view, &*row.state, row.served_by, row.age_ms))
            .collect();
        let age = Some(500);
        assert_eq!(
            shown,
            [
                ("jobs.v1.batch", "unserved", 0, age),
                ("pods.v1", "synced", 2, age),
                ("services.v1", "stale", 0, age)
            ]
        );
        assert_eq!((&*views[0].leader, views[0].group), ("w-2", 3));
        assert_eq!(system.coordinator(), Some("w-1"));
        let unserved = vec![("services.v1".to_owned(), "stale".to_owned())];
        assert_eq!(system.replicas()[0].unserved, unserved);
    }

    #[test]
    fn services_that_leave_or_fall_silent_are_removed() {
        let (mut system, now) = (System::default(), Instant::now());
        system.writer(beat(0, 2, "w-2", &[]), now);
        // The former leader has not noticed the new leader yet.
        system.writer(beat(0, 1, "w-1", &[]), now);
        system.writer(
            Beat {
                group: Group::NONE,
                ..beat(0, 1, "w-3", &[])
            },
            now,
        );
        assert_eq!(system.watchers(), ["w-2", "w-3"]);
        system.writer(
            Beat {
                group: Group::NONE,
                ..beat(0, 0, "w-3", &[])
            },
            now,
        );
        assert_eq!(system.watchers(), ["w-2"]);
        for name in ["a", "b"] {
            system.replica(replica(name, &[]), now);
            let webhook = WebhookBeat {
                webhook: name.into(),
                ..WebhookBeat::default()
            };
            system.webhook(webhook, now);
        }
        system.replica(
            ReplicaBeat {
                leaving: true,
                ..replica("a", &[])
            },
            now,
        );
        let leaving = WebhookBeat {
            webhook: "a".into(),
            leaving: true,
            ..WebhookBeat::default()
        };
        system.webhook(leaving, now);
        assert_eq!((system.replicas().len(), system.webhooks().len()), (1, 1));
        system.forget_silent(now + Duration::from_secs(6));
        assert_eq!((system.replicas().len(), system.webhooks().len()), (0, 0));
        assert_eq!((system.coordinator(), system.groups()), (None, Vec::new()));
    }
}
