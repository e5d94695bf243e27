//! How the views fare, as the coordinator learns it: from the control records of the log, from the
//! beats of whoever writes the views, and from the beats of the replicas that serve them. The same
//! road whether this watcher writes them itself or not. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use anteroom_bus::LogEvent;
use anteroom_model::{Failure, ViewId, ViewRecord, ViewState, limits::REPLICA_SILENCE_MAX_MS};
use anteroom_wire::{
    beat::{Beat, ViewBeat},
    envelope::Record,
    replica_beat::ReplicaBeat,
};

use crate::publish::ViewStats;

/// Without a beat for this long, a replica is not counted.
const REPLICA_SILENCE_MAX: Duration = Duration::from_millis(REPLICA_SILENCE_MAX_MS);

/// The word of a replica for a view that it let go of to save memory.
const EVICTED: &str = "evicted";

/// The word of a replica for a view that it serves.
const SYNCED: &str = "synced";

#[derive(Debug, Default)]
struct Known {
    record: Option<ViewRecord>,
    /// In which reading of the log the record was seen.
    reading: u64,
    beat: Option<(ViewBeat, Instant)>,
}

#[derive(Debug)]
struct Replica {
    at: Instant,
    views: HashMap<ViewId, String>,
}

/// How many replicas hold a view, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Those whose share it is in.
    pub total: usize,
    /// Those that serve it.
    pub serving: usize,
    /// Those that let it go to save memory.
    pub evicted: usize,
}

impl Holders {
    /// It is nowhere any more, for want of memory.
    pub(crate) fn is_evicted(self) -> bool {
        self.total > 0 && self.evicted == self.total
    }
}

/// What is known of all views.
#[derive(Debug, Default)]
pub(crate) struct Board {
    views: HashMap<ViewId, Known>,
    replicas: BTreeMap<String, Replica>,
    reading: u64,
    /// Of which something changed that people are told; whether that is more than figures.
    changed: HashMap<ViewId, bool>,
}

impl Board {
    /// The views of which something changed since this was last asked for, and whether that is more
    /// than their figures.
    pub(crate) fn take_changed(&mut self) -> HashMap<ViewId, bool> {
        std::mem::take(&mut self.changed)
    }

    /// What is known of a view; `None`: nothing.
    pub(crate) fn stats(&self, view: &ViewId, now: Instant) -> Option<ViewStats> {
        let known = self.views.get(view)?;
        let record = known.record.as_ref();
        let told = record.map(|record| record.state.clone());
        let told = told.filter(|state| *state != ViewState::Dropped);
        if told.is_none() && known.beat.is_none() {
            return None;
        }
        let beat = known.beat.as_ref().map(|(beat, _)| beat);
        let age = known.beat.as_ref().and_then(|(beat, at)| {
            let age = Duration::from_millis(beat.news_age_ms);
            (beat.news_age_ms != u64::MAX).then(|| age + now.saturating_duration_since(*at))
        });
        Some(ViewStats {
            view: view.clone(),
            told,
            trouble: beat.and_then(|beat| beat.trouble.clone()),
            objects: beat.map_or(0, |beat| beat.objects),
            bytes: beat.map_or(0, |beat| beat.bytes),
            pending: 0,
            skipped: beat.map_or(0, |beat| beat.skipped),
            heard: age.and_then(|age| now.checked_sub(age)),
            news_age_ms: age.map_or(u64::MAX, |age| {
                u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
            }),
        })
    }

    /// The failure that the readers of a view are told.
    pub(crate) fn failure(&self, view: &ViewId) -> Option<&Failure> {
        match &self.views.get(view)?.record.as_ref()?.state {
            ViewState::Failed { failure } => Some(failure),
            _ => None,
        }
    }

    /// How many replicas hold a view.
    pub(crate) fn holders(&self, view: &ViewId, now: Instant) -> Holders {
        let live = self
            .replicas
            .values()
            .filter(|replica| replica.is_live(now));
        let states = live.filter_map(|replica| replica.views.get(view));
        states.fold(Holders::default(), |holders, state| Holders {
            total: holders.total + 1,
            serving: holders.serving + usize::from(state == SYNCED),
            evicted: holders.evicted + usize::from(state == EVICTED),
        })
    }

    /// Takes an event of the log's control records in.
    pub(crate) fn log(&mut self, event: LogEvent) {
        match event {
            LogEvent::Restart { .. } => self.reading += 1,
            LogEvent::CaughtUp { .. } => {
                let reading = self.reading;
                for (view, known) in &mut self.views {
                    if known.reading != reading && known.record.take().is_some() {
                        self.changed.insert(view.clone(), true);
                    }
                }
                self.views
                    .retain(|_, known| known.record.is_some() || known.beat.is_some());
            }
            LogEvent::Record {
                envelope: Ok(envelope),
                ..
            } => {
                if let Record::Control(record) = envelope.record {
                    let known = self.views.entry(record.view.clone()).or_default();
                    known.reading = self.reading;
                    let before = known.record.as_ref().map(|record| &record.state);
                    let state = before != Some(&record.state);
                    *self.changed.entry(record.view.clone()).or_default() |= state;
                    if record.state == ViewState::Dropped {
                        known.beat = None;
                    }
                    known.record = Some(record);
                }
            }
            LogEvent::Record { .. } | LogEvent::Away { .. } => {}
        }
    }

    /// Takes a writer's beat in.
    pub(crate) fn beat(&mut self, beat: Beat, now: Instant) {
        for beat in beat.views {
            let known = self.views.entry(beat.view.clone()).or_default();
            let before = known.beat.as_ref().map(|(before, _)| before);
            let figures = |beat: &ViewBeat| (beat.objects, beat.bytes, beat.skipped);
            let trouble =
                before.and_then(|before| before.trouble.as_ref()) != beat.trouble.as_ref();
            if trouble || before.map(figures) != Some(figures(&beat)) {
                *self.changed.entry(beat.view.clone()).or_default() |= trouble;
            }
            known.beat = Some((beat, now));
        }
    }

    /// Takes a replica's beat in.
    pub(crate) fn replica(&mut self, beat: ReplicaBeat, now: Instant) {
        let before = self.replicas.remove(&beat.replica);
        let before = before.map(|replica| replica.views).unwrap_or_default();
        let after: HashMap<_, _> = match beat.leaving {
            true => HashMap::new(),
            false => beat.views.into_iter().map(|v| (v.view, v.state)).collect(),
        };
        for (view, state) in &after {
            if before.get(view) != Some(state) {
                self.changed.insert(view.clone(), true);
            }
        }
        let gone = before.into_keys().filter(|view| !after.contains_key(view));
        self.changed.extend(gone.map(|view| (view, true)));
        if !beat.leaving {
            let views = after;
            self.replicas
                .insert(beat.replica, Replica { at: now, views });
        }
    }

    /// Time has passed: replicas that were not heard are forgotten.
    pub(crate) fn tick(&mut self, now: Instant) {
        let silent = self
            .replicas
            .extract_if(.., |_, replica| !replica.is_live(now));
        let views = silent.flat_map(|(_, replica)| replica.views.into_keys());
        self.changed.extend(views.map(|view| (view, true)));
    }
}

impl Replica {
    fn is_live(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < REPLICA_SILENCE_MAX
    }
}

#[cfg(test)]
mod tests;
