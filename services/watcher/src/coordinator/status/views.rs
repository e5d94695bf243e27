//! The status of each view, as the coordinator collects it: from the control records of the log, from the heartbeats
//! of the views' writers, and from those of the replicas. The sources are the same if this watcher writes the views
//! itself. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anteroom_bus::LogEvent;
use anteroom_model::{
    Epoch, Failure, ViewId, ViewRecord, ViewState, limits::REPLICA_SILENCE_MAX_MS,
};
use anteroom_wire::{
    beat::{Beat, ViewBeat},
    envelope::Record,
    replica_beat::{HeldViews, ReplicaBeat},
};
use tokio::time::Instant;

use crate::{generations::Generations, log_writer::publish::ViewStats};

/// The silence after which a replica does not count.
const REPLICA_SILENCE_MAX: Duration = Duration::from_millis(REPLICA_SILENCE_MAX_MS);

/// The state of a view that a replica let go of to save memory.
const EVICTED: &str = "evicted";

/// The state of a view that a replica serves.
const SYNCED: &str = "synced";

#[derive(Debug)]
struct Replica {
    at: Instant,
    views: HeldViews,
}

/// The number of replicas that hold a view, by how they hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Replicas whose share it is in.
    pub total: usize,
    /// Replicas that serve it.
    pub serving: usize,
    /// The number of replicas that evicted the view to save memory.
    pub evicted: usize,
}

impl Holders {
    /// Returns whether no replica has the view any more, for want of memory.
    pub(crate) fn is_evicted(self) -> bool {
        self.total > 0 && self.evicted == self.total
    }
}

/// The state of every view in the log, and the last heartbeats of its writer and of its replicas.
#[derive(Debug, Default)]
pub(crate) struct ViewStatusTable {
    /// The state of each view, as its control records in the log give it to readers.
    states: Generations<ViewId, ReaderState>,
    beats: HashMap<ViewId, (ViewBeat, Instant)>,
    replicas: BTreeMap<String, Replica>,
    /// Views that changed since the last call of [`Self::take_changed`]; `true`: in more than figures.
    changed: HashMap<ViewId, bool>,
}

/// The state of a view for its readers.
#[derive(Debug, PartialEq, Eq)]
struct ReaderState {
    state: ViewState,
    epoch: Epoch,
    origin: Epoch,
}

impl ReaderState {
    /// Returns the state after the next control record. If a writer reads the source of a synced view anew because
    /// the view changes its watch, the view stays synced: readers are served the known objects meanwhile.
    fn after(before: Option<&Self>, record: ViewRecord) -> Self {
        let ViewRecord {
            state,
            epoch,
            origin,
            ..
        } = record;
        let goes_on = before.is_some_and(|before| {
            before.state == ViewState::Synced
                && before.epoch.term() == epoch.term()
                && before.origin == origin
        });
        let state = match state {
            ViewState::Syncing if goes_on => ViewState::Synced,
            state => state,
        };
        Self {
            state,
            epoch,
            origin,
        }
    }
}

impl ViewStatusTable {
    /// The views of which something changed since this was last asked for, and whether that is more
    /// than their figures.
    pub(crate) fn take_changed(&mut self) -> HashMap<ViewId, bool> {
        std::mem::take(&mut self.changed)
    }

    /// Returns the state and figures of a view; `None`: nothing is known about the view.
    pub(crate) fn stats(&self, view: &ViewId, now: Instant) -> Option<ViewStats> {
        let reported_state = self.states.get(view).map(|reported| reported.state.clone());
        let reported_state = reported_state.filter(|state| *state != ViewState::Dropped);
        let heard = self.beats.get(view);
        if reported_state.is_none() && heard.is_none() {
            return None;
        }
        let beat = heard.map(|(beat, _)| beat);
        let age = heard.and_then(|(beat, at)| {
            let age = Duration::from_millis(beat.news_age_ms);
            (beat.news_age_ms != u64::MAX).then(|| age + now.saturating_duration_since(*at))
        });
        Some(ViewStats {
            view: view.clone(),
            reported_state,
            trouble: beat.and_then(|beat| beat.trouble.clone()),
            objects: beat.map_or(0, |beat| beat.objects),
            bytes: beat.map_or(0, |beat| beat.bytes),
            refused_bytes: 0,
            pending: 0,
            skipped: beat.map_or(0, |beat| beat.skipped),
            heard: age.and_then(|age| now.checked_sub(age)),
            news_age_ms: age.map_or(u64::MAX, |age| {
                u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
            }),
        })
    }

    /// Returns the failure that the readers of a view get.
    pub(crate) fn failure(&self, view: &ViewId) -> Option<&Failure> {
        match &self.states.get(view)?.state {
            ViewState::Failed { failure } => Some(failure),
            ViewState::Syncing | ViewState::Synced | ViewState::Dropped => None,
        }
    }

    /// Returns how many replicas hold a view.
    pub(crate) fn holders(&self, view: &ViewId, now: Instant) -> Holders {
        let live = self
            .replicas
            .values()
            .filter(|replica| replica.is_live(now));
        let states = live.filter_map(|replica| replica.views.state(view));
        states.fold(Holders::default(), |holders, state| Holders {
            total: holders.total + 1,
            serving: holders.serving + usize::from(state == SYNCED),
            evicted: holders.evicted + usize::from(state == EVICTED),
        })
    }

    /// Takes an event of the log's control records.
    pub(crate) fn log(&mut self, event: LogEvent) {
        match event {
            LogEvent::Restart { .. } => self.states.begin(),
            LogEvent::CaughtUp { .. } => {
                let gone = self.states.sweep().into_iter();
                self.changed.extend(gone.map(|(view, _)| (view, true)));
            }
            LogEvent::Record {
                envelope: Ok(envelope),
                ..
            } => {
                if let Record::Control(record) = envelope.record {
                    let view = record.view.clone();
                    let before = self.states.get(&view);
                    let reader = ReaderState::after(before, record);
                    let is_news = before.is_none_or(|before| before.state != reader.state);
                    *self.changed.entry(view.clone()).or_default() |= is_news;
                    if reader.state == ViewState::Dropped {
                        self.beats.remove(&view);
                    }
                    self.states.put(view, reader);
                }
            }
            LogEvent::Record { .. } | LogEvent::Superseded { .. } | LogEvent::Away { .. } => {}
        }
    }

    /// Takes a writer's heartbeat.
    pub(crate) fn beat(&mut self, beat: Beat, now: Instant) {
        for beat in beat.views {
            let before = self.beats.get(&beat.view).map(|(before, _)| before);
            let figures = |beat: &ViewBeat| (beat.objects, beat.bytes, beat.skipped);
            let trouble =
                before.and_then(|before| before.trouble.as_ref()) != beat.trouble.as_ref();
            if trouble || before.map(figures) != Some(figures(&beat)) {
                *self.changed.entry(beat.view.clone()).or_default() |= trouble;
            }
            self.beats.insert(beat.view.clone(), (beat, now));
        }
    }

    /// Takes a replica's heartbeat.
    pub(crate) fn replica(&mut self, beat: ReplicaBeat, now: Instant) {
        let before = self.replicas.remove(&beat.replica);
        let mut views = before.map(|replica| replica.views).unwrap_or_default();
        let changed = match beat.leaving {
            true => views.iter().map(|(view, _)| view.clone()).collect(),
            false => views.take_page(beat.page, beat.views),
        };
        self.changed
            .extend(changed.into_iter().map(|view| (view, true)));
        if !beat.leaving {
            self.replicas
                .insert(beat.replica, Replica { at: now, views });
        }
    }

    /// Time has passed: replicas that were not heard are forgotten.
    pub(crate) fn tick(&mut self, now: Instant) {
        let silent = self
            .replicas
            .extract_if(.., |_, replica| !replica.is_live(now));
        for (_, replica) in silent {
            let views = replica.views.iter();
            self.changed
                .extend(views.map(|(view, _)| (view.clone(), true)));
        }
    }
}

impl Replica {
    fn is_live(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < REPLICA_SILENCE_MAX
    }
}

#[cfg(test)]
mod tests;
