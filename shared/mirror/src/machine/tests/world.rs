//! A writer, a log, a bus that delivers it in every way in which one may, and a machine.

use std::{collections::BTreeMap, time::Duration};

use anteroom_bus::{LogEvent, LogScope, RestartCause, Unreadable};
use anteroom_model::{Epoch, Incarnation, ObjectKey, Revision, ViewId, ViewState};
use anteroom_view::Read;
use anteroom_wire::{
    WireError,
    beat::{Beat, ViewBeat},
    envelope::{Envelope, Record},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    ServedFrom,
    testing::{Model, collection},
};

pub(super) const EPOCH: Epoch = Epoch(1 << 32);

/// The states of an object, each with the moment at which the state began.
pub(super) type History = Vec<(Moment, Option<Value>)>;

/// A writer, a log that keeps the last record of each object, a bus, and a machine at its end.
pub(super) struct World {
    pub(super) now: Moment,
    pub(super) models: Vec<Model>,
    /// The records by position; a superseded one is gone.
    pub(super) log: BTreeMap<Revision, Record>,
    pub(super) last: Revision,
    /// The moments at which the positions of this log were written.
    written: BTreeMap<Revision, Moment>,
    pub(super) incarnation: u32,
    /// Every state that an object ever had.
    pub(super) history: BTreeMap<(ViewId, ObjectKey), History>,
    /// The position up to which records were delivered.
    pub(super) delivered: Revision,
    /// The last position that the machine was told of.
    handed: Revision,
    pub(super) caught_up: bool,
    /// It was caught up, and has passed superseded records since.
    lags: bool,
    pub(super) asked: bool,
    /// A record was lost on the way since the log was last read from its start.
    pub(super) lost: bool,
    /// Readers of one view each.
    pub(super) loads: BTreeMap<ViewId, Reader>,
    /// The views whose start has not been announced yet.
    begun: Vec<ViewId>,
    pub(super) machine: Machine,
}

/// The progress of a reader of one view.
#[derive(Default)]
pub(super) struct Reader {
    delivered: Revision,
    caught_up: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Put(usize, u8),
    Delete(usize, u8),
    Control(usize, ViewState),
    Deliver(u8),
    /// A record arrives that came before.
    Again(u8),
    Beat,
    Wait(u16),
    Restart(RestartCause),
    Away,
    Remake,
    /// Records are lost on the way, and nobody notices.
    Lose(u8),
    Evict(usize),
    Load(usize),
    /// The mirror holds these views from now on.
    Hold([bool; 2]),
    /// Records arrive at readers of one view.
    LoadDeliver(u8),
    LoadAway,
    LoadRestart(RestartCause),
}

pub(super) fn views() -> [ViewId; 2] {
    [
        collection("ingresses", "Ingress").source.view_id(),
        collection("gateways", "Gateway").source.view_id(),
    ]
}

impl World {
    pub(super) fn new(scope: LogScope) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            models: vec![
                Model::new(collection("ingresses", "Ingress")),
                Model::new(collection("gateways", "Gateway")),
            ],
            log: BTreeMap::new(),
            last: Revision(0),
            written: BTreeMap::new(),
            incarnation: 0,
            history: BTreeMap::new(),
            delivered: Revision(0),
            handed: Revision(0),
            caught_up: false,
            lags: false,
            asked: false,
            lost: false,
            loads: BTreeMap::new(),
            begun: Vec::new(),
            machine: Machine::new(scope, MirrorConfig::default()),
        };
        world.restart(RestartCause::Start);
        world
    }

    pub(super) fn take(&mut self, step: Step) {
        self.now += Duration::from_millis(1);
        match step {
            Step::Put(view, key) => {
                let record = self.put(view, key);
                self.write(view, record);
            }
            Step::Delete(view, key) => {
                if self.models[view].objects.contains_key(&key_of(key)) {
                    let delta = self.models[view].delete(EPOCH, key_of(key));
                    self.append(view, delta.key.clone(), None);
                    self.write(
                        view,
                        Record::Delta {
                            view: views()[view].clone(),
                            delta,
                        },
                    );
                }
            }
            Step::Control(view, state) => {
                let record = self.models[view].control(EPOCH, state);
                self.write(view, Record::Control(record));
            }
            Step::Deliver(records) => self.deliver(records.into()),
            Step::Again(which) => self.again(which.into()),
            Step::Beat => self.beat(),
            Step::Wait(ms) => {
                self.now += Duration::from_millis(ms.into());
                let effects = self.machine.tick(self.now);
                self.note(&effects);
            }
            Step::Restart(cause) => self.restart(cause),
            Step::Away => {
                (self.caught_up, self.lags) = (false, false);
                self.hand(LogEvent::Away {
                    reason: "test".into(),
                });
            }
            Step::Remake => self.remake(),
            Step::Lose(records) => {
                let next = self.log.range(Revision(self.delivered.0 + 1)..);
                if let Some((last, _)) = next.take(records.into()).last() {
                    self.delivered = *last;
                    self.lost = true;
                }
            }
            Step::Evict(view) => {
                let effects = self.machine.evict(&views()[view]);
                self.note(&effects);
            }
            Step::Load(view) => {
                let effects = self.machine.load(&views()[view]);
                self.note(&effects);
            }
            Step::Hold(held) => {
                let held = move |id: &ViewId| {
                    let of = views().iter().position(|view| view == id);
                    of.is_some_and(|view| held[view])
                };
                let effects = self.machine.hold(HeldViewFilter::new(held));
                self.note(&effects);
            }
            Step::LoadDeliver(records) => {
                for id in self.loads.keys().cloned().collect::<Vec<_>>() {
                    self.load_deliver(&id, records.into());
                }
            }
            Step::LoadAway => {
                for id in self.loads.keys().cloned().collect::<Vec<_>>() {
                    if let Some(reader) = self.loads.get_mut(&id) {
                        reader.caught_up = false;
                    }
                    let reason = "test".into();
                    self.load_hand(&id, LogEvent::Away { reason });
                }
            }
            Step::LoadRestart(cause) => {
                for id in self.loads.keys().cloned().collect::<Vec<_>>() {
                    self.load_restart(&id, cause);
                }
            }
        }
        while let Some(id) = self.begun.pop() {
            self.load_restart(&id, RestartCause::Start);
        }
        if std::mem::take(&mut self.asked) {
            self.restart(RestartCause::Asked);
        }
    }

    /// The source has a new state of an object: what is written of it.
    pub(super) fn put(&mut self, view: usize, key: u8) -> Record {
        let object = json!({"at": self.last.0 + 1});
        let delta = self.models[view].put(EPOCH, key_of(key), object.clone());
        self.append(view, delta.key.clone(), Some(object));
        let view = views()[view].clone();
        Record::Delta { view, delta }
    }

    /// All that was written is said to be all, delivered and heard.
    pub(super) fn settle_written(&mut self) {
        for view in 0..self.models.len() {
            self.take(Step::Control(view, ViewState::Synced));
        }
        self.take(Step::Deliver(u8::MAX));
        self.take(Step::Beat);
    }

    fn load_restart(&mut self, id: &ViewId, cause: RestartCause) {
        if let Some(reader) = self.loads.get_mut(id) {
            *reader = Reader::default();
            let incarnation = Incarnation(self.incarnation.to_string());
            self.load_hand(id, LogEvent::Restart { incarnation, cause });
        }
    }

    fn load_hand(&mut self, id: &ViewId, event: LogEvent) {
        let effects = self.machine.load_log(self.now, id, event);
        self.note(&effects);
    }

    fn load_deliver(&mut self, id: &ViewId, records: usize) {
        for _ in 0..=records {
            let Some(reader) = self.loads.get_mut(id) else {
                return;
            };
            let mut next = self.log.range(Revision(reader.delivered.0 + 1)..);
            let next = next.find(|(_, record)| record.view() == id);
            if let Some((revision, record)) = next.map(|(at, record)| (*at, record.clone())) {
                reader.delivered = revision;
                let trace = None;
                let envelope = Ok(Box::new(Envelope { record, trace }));
                self.load_hand(id, LogEvent::Record { revision, envelope });
                continue;
            }
            if !std::mem::replace(&mut reader.caught_up, true) {
                let revision = self.last;
                self.load_hand(id, LogEvent::CaughtUp { revision });
            }
            return;
        }
    }

    pub(super) fn append(&mut self, view: usize, key: ObjectKey, object: Option<Value>) {
        let states = self.history.entry((views()[view].clone(), key));
        states.or_default().push((self.now, object));
    }

    pub(super) fn write(&mut self, view: usize, record: Record) {
        self.last.0 += 1;
        self.models[view].revision = self.last;
        self.log.retain(|_, held| slot(held) != slot(&record));
        self.log.insert(self.last, record);
        self.written.insert(self.last, self.now);
    }

    pub(super) fn deliver(&mut self, records: usize) {
        let next = self.log.range(Revision(self.delivered.0 + 1)..);
        let next: Vec<_> = next
            .take(records)
            .map(|(revision, record)| (*revision, record.clone()))
            .collect();
        for (revision, record) in next {
            self.delivered = revision;
            let was_caught_up = self.caught_up || self.lags;
            let sees_gaps = self.machine.scope == LogScope::All;
            if was_caught_up && sees_gaps && revision.0 > self.handed.0 + 1 {
                (self.caught_up, self.lags) = (false, true);
                self.hand(LogEvent::Superseded { before: revision });
            }
            self.record(revision, record);
        }
        let more = self.log.range(Revision(self.delivered.0 + 1)..).next();
        if more.is_none() && !std::mem::replace(&mut self.caught_up, true) {
            self.lags = false;
            self.handed = self.last;
            self.hand(LogEvent::CaughtUp {
                revision: self.last,
            });
        }
    }

    pub(super) fn again(&mut self, which: usize) {
        let before = self.log.range(..=self.delivered);
        if let Some((revision, record)) = before.skip(which).map(|(r, e)| (*r, e.clone())).next() {
            self.record(revision, record);
        }
    }

    pub(super) fn record(&mut self, revision: Revision, record: Record) {
        let envelope = Envelope {
            record,
            trace: None,
        };
        self.handed = self.handed.max(revision);
        self.hand(LogEvent::Record {
            revision,
            envelope: Ok(Box::new(envelope)),
        });
    }

    /// Hands in an unreadable record, of `view` if given.
    pub(super) fn unreadable(&mut self, view: Option<ViewId>) {
        self.last.0 += 1;
        self.delivered = self.last;
        self.handed = self.last;
        let envelope = Err(Unreadable {
            view,
            key: None,
            error: WireError::Body {
                problem: "test".into(),
            },
        });
        self.hand(LogEvent::Record {
            revision: self.last,
            envelope,
        });
    }

    pub(super) fn beat(&mut self) {
        for view in 0..self.models.len() {
            let beat = self.a_beat(view);
            let effects = self.machine.beat(self.now, &beat);
            self.note(&effects);
        }
    }

    /// A beat of the writer of this view alone: the two views are of different groups.
    pub(super) fn a_beat(&self, view: usize) -> Beat {
        let model = &self.models[view];
        Beat {
            incarnation: Incarnation(self.incarnation.to_string()),
            group: Group::of(&model.info.source),
            term: 1,
            holder: "test".into(),
            page: 0,
            sent_ms: None,
            views: vec![ViewBeat {
                view: model.info.source.view_id(),
                epoch: EPOCH,
                revision: model.revision,
                news_age_ms: 0,
                objects: 0,
                bytes: 0,
                skipped: 0,
                trouble: None,
            }],
        }
    }

    pub(super) fn restart(&mut self, cause: RestartCause) {
        self.delivered = Revision(0);
        self.handed = Revision(0);
        (self.caught_up, self.lags) = (false, false);
        self.lost = false;
        let incarnation = Incarnation(self.incarnation.to_string());
        self.hand(LogEvent::Restart { incarnation, cause });
    }

    /// The log is made anew, and the writer writes everything again.
    pub(super) fn remake(&mut self) {
        self.incarnation += 1;
        self.log.clear();
        self.written.clear();
        self.last = Revision(0);
        // Readers of one view may be the first to see it.
        self.take(Step::LoadRestart(RestartCause::NewIncarnation));
        self.restart(RestartCause::NewIncarnation);
        for view in 0..self.models.len() {
            let objects: Vec<_> = self.models[view].objects.clone().into_iter().collect();
            for (key, (_, object)) in objects {
                let delta = self.models[view].put(EPOCH, key, object);
                self.write(
                    view,
                    Record::Delta {
                        view: views()[view].clone(),
                        delta,
                    },
                );
            }
            self.take(Step::Control(view, ViewState::Synced));
        }
    }

    pub(super) fn hand(&mut self, event: LogEvent) {
        let effects = self.machine.log(self.now, event);
        self.note(&effects);
    }

    pub(super) fn note(&mut self, effects: &[MirrorEffect]) {
        for effect in effects {
            match effect {
                MirrorEffect::AskAgain(_) => self.asked = true,
                MirrorEffect::Load(id) => {
                    self.loads.insert(id.clone(), Reader::default());
                    self.begun.push(id.clone());
                }
                MirrorEffect::LoadEnded(id) => {
                    self.loads.remove(id);
                    self.begun.retain(|begun| begun != id);
                }
                _ => {}
            }
        }
    }

    /// Everything is written, delivered and heard, as often as it takes.
    pub(super) fn settle(&mut self) {
        self.take(Step::Hold([true; 2]));
        for _ in 0..8 {
            for view in 0..self.models.len() {
                self.take(Step::Load(view));
            }
            self.take(Step::LoadDeliver(u8::MAX));
            for view in 0..self.models.len() {
                self.take(Step::Control(view, ViewState::Synced));
            }
            self.take(Step::Deliver(u8::MAX));
            self.take(Step::Beat);
            // As long as it may be until the log is asked for again.
            self.now += MirrorConfig::RESTART_WAIT_MAX;
            self.take(Step::Wait(1));
            self.take(Step::Deliver(u8::MAX));
            self.take(Step::LoadDeliver(u8::MAX));
            self.take(Step::Beat);
        }
    }

    /// The error that a reader gets; `None`: the view answers.
    pub(super) fn error(&self, view: usize) -> Option<anteroom_model::FactError> {
        let kept = self.machine.views.get(&views()[view])?.read();
        kept.read(self.now, None).err()
    }

    pub(super) fn read<R>(
        &self,
        view: usize,
        reader: impl FnOnce(Read<'_>, ReadAt) -> R,
    ) -> Option<R> {
        let kept = self.machine.views.get(&views()[view])?.read();
        let (snapshot, position) = kept.read(self.now, None).ok()?;
        Some(reader(
            snapshot.read(),
            ReadAt {
                age_ms: position.age_ms,
            },
        ))
    }

    /// Returns when the last position was written that a reader of this view may demand at once.
    fn as_of_floor(&self, view: usize) -> Moment {
        let Some(kept) = self.machine.views.get(&views()[view]) else {
            return Moment::ZERO;
        };
        let status = kept.read().status();
        let log = Incarnation(self.incarnation.to_string());
        if self.lost || kept.read().serves_from(&log) != ServedFrom::This {
            return Moment::ZERO;
        }
        let complete_to = status.left_complete_to;
        let complete_to = complete_to.unwrap_or(self.machine.complete_to());
        let floor = match status.live {
            true => complete_to,
            false => complete_to.min(status.revision),
        };
        let written = self.written.range(..=floor).next_back();
        written.map_or(Moment::ZERO, |(_, at)| *at)
    }

    /// Checks that each answer is true: every object is as it was at a moment no earlier than the age
    /// says, nor than the positions that a reader may demand.
    pub(super) fn check_truth(&self) -> Result<(), TestCaseError> {
        for view in 0..self.models.len() {
            self.read(view, |read, at| {
                let as_old = self.now.saturating_sub(Duration::from_millis(at.age_ms));
                let asof = as_old.max(self.as_of_floor(view));
                for ((of, key), states) in &self.history {
                    if *of != views()[view] {
                        continue;
                    }
                    let before = states.iter().rposition(|(when, _)| *when <= asof);
                    let allowed = &states[before.unwrap_or(0)..];
                    let got = read.get(&key.namespace, &key.name);
                    let got = got.map(|object| body_of(object.body()));
                    let true_then = allowed.iter().any(|(_, state)| *state == got)
                        || (before.is_none() && got.is_none());
                    prop_assert!(true_then, "{key} of {of}: {got:?} is none of {allowed:?}");
                }
                Ok(())
            })
            .unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    pub(super) fn check_settled(&self) -> Result<(), TestCaseError> {
        for (view, model) in self.models.iter().enumerate() {
            let items = self.read(view, |read, _| {
                let bodies = read.objects().map(|object| body_of(object.body()));
                bodies.collect::<Vec<_>>()
            });
            prop_assert_eq!(items, Some(model.items()), "view {}", view);
        }
        Ok(())
    }
}

pub(super) struct ReadAt {
    pub(super) age_ms: u64,
}

pub(super) fn key_of(key: u8) -> ObjectKey {
    ObjectKey::new("ns", format!("k{key}"))
}

pub(super) fn slot(record: &Record) -> (ViewId, Option<ObjectKey>) {
    match record {
        Record::Delta { view, delta } => (view.clone(), Some(delta.key.clone())),
        Record::Control(record) => (record.view.clone(), None),
    }
}

pub(super) fn body_of(bytes: &[u8]) -> Value {
    anteroom_wire::body::to_json(bytes).unwrap()
}
