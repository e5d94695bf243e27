//! Random histories of a log, read by a machine in every way in which a bus may deliver them.

use std::{collections::BTreeMap, time::Duration};

use anteroom_bus::{LogEvent, RestartCause, Scope, Unreadable};
use anteroom_model::{Epoch, Incarnation, ObjectKey, ResourceVersion, Revision, ViewId, ViewState};
use anteroom_view::{Read, State};
use anteroom_wire::{
    WireError,
    beat::{Beat, ViewBeat},
    envelope::{Envelope, Record},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Model, collection};

const EPOCH: Epoch = Epoch(1 << 32);

/// The states of one object, each with the moment from which it had it.
type History = Vec<(Moment, Option<Value>)>;

/// A writer, a log that keeps the last record of each object, a bus, and a machine at its end.
struct World {
    now: Moment,
    models: Vec<Model>,
    /// By position; a record that is superseded is gone.
    log: BTreeMap<Revision, Record>,
    last: Revision,
    incarnation: u32,
    /// Every state that an object ever had.
    history: BTreeMap<(ViewId, ObjectKey), History>,
    /// What was delivered, and whether the end has been said.
    delivered: Revision,
    caught_up: bool,
    asked: bool,
    /// A record was lost on the way since the log was last read from its start.
    lost: bool,
    machine: Machine,
}

#[derive(Clone, Debug)]
enum Step {
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
}

fn views() -> [ViewId; 2] {
    [
        collection("ingresses", "Ingress").source.view_id(),
        collection("gateways", "Gateway").source.view_id(),
    ]
}

impl World {
    fn new(scope: Scope) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            models: vec![
                Model::new(collection("ingresses", "Ingress")),
                Model::new(collection("gateways", "Gateway")),
            ],
            log: BTreeMap::new(),
            last: Revision(0),
            incarnation: 0,
            history: BTreeMap::new(),
            delivered: Revision(0),
            caught_up: false,
            asked: false,
            lost: false,
            machine: Machine::new(scope, MirrorConfig::default()),
        };
        world.restart(RestartCause::Start);
        world
    }

    fn take(&mut self, step: Step) {
        self.now += Duration::from_millis(1);
        match step {
            Step::Put(view, key) => {
                let object = json!({"at": self.last.0 + 1});
                let delta = self.models[view].put(EPOCH, key_of(key), object.clone());
                self.append(view, delta.key.clone(), Some(object));
                self.write(
                    view,
                    Record::Delta {
                        view: views()[view].clone(),
                        delta,
                    },
                );
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
                self.caught_up = false;
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
        }
        if std::mem::take(&mut self.asked) {
            self.restart(RestartCause::Asked);
        }
    }

    fn append(&mut self, view: usize, key: ObjectKey, object: Option<Value>) {
        let states = self.history.entry((views()[view].clone(), key));
        states.or_default().push((self.now, object));
    }

    fn write(&mut self, view: usize, record: Record) {
        self.last.0 += 1;
        self.models[view].revision = self.last;
        self.log.retain(|_, held| slot(held) != slot(&record));
        self.log.insert(self.last, record);
    }

    fn deliver(&mut self, records: usize) {
        let next = self.log.range(Revision(self.delivered.0 + 1)..);
        let next: Vec<_> = next
            .take(records)
            .map(|(revision, record)| (*revision, record.clone()))
            .collect();
        for (revision, record) in next {
            self.delivered = revision;
            self.record(revision, record);
        }
        let more = self.log.range(Revision(self.delivered.0 + 1)..).next();
        if more.is_none() && !std::mem::replace(&mut self.caught_up, true) {
            self.hand(LogEvent::CaughtUp {
                revision: self.last,
            });
        }
    }

    fn again(&mut self, which: usize) {
        let before = self.log.range(..=self.delivered);
        if let Some((revision, record)) = before.skip(which).map(|(r, e)| (*r, e.clone())).next() {
            self.record(revision, record);
        }
    }

    fn record(&mut self, revision: Revision, record: Record) {
        let envelope = Envelope {
            record,
            trace: None,
        };
        self.hand(LogEvent::Record {
            revision,
            envelope: Ok(Box::new(envelope)),
        });
    }

    fn unreadable(&mut self) {
        self.last.0 += 1;
        self.delivered = self.last;
        let envelope = Err(Unreadable {
            view: None,
            error: WireError::Body {
                problem: "test".into(),
            },
        });
        self.hand(LogEvent::Record {
            revision: self.last,
            envelope,
        });
    }

    fn beat(&mut self) {
        for view in 0..self.models.len() {
            let beat = self.a_beat(view);
            let effects = self.machine.beat(self.now, &beat);
            self.note(&effects);
        }
    }

    /// Of the writer of this view, which has no other: the two are of different groups.
    fn a_beat(&self, view: usize) -> Beat {
        let model = &self.models[view];
        Beat {
            incarnation: Incarnation(self.incarnation.to_string()),
            group: Group::of(&model.info.source),
            term: 1,
            holder: "test".into(),
            views: vec![ViewBeat {
                view: model.info.source.view_id(),
                epoch: EPOCH,
                revision: model.revision,
                news_age_ms: 0,
            }],
        }
    }

    fn restart(&mut self, cause: RestartCause) {
        self.delivered = Revision(0);
        self.caught_up = false;
        self.lost = false;
        let incarnation = Incarnation(self.incarnation.to_string());
        self.hand(LogEvent::Restart { incarnation, cause });
    }

    /// The log is made anew, and the writer writes everything again.
    fn remake(&mut self) {
        self.incarnation += 1;
        self.log.clear();
        self.last = Revision(0);
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

    fn hand(&mut self, event: LogEvent) {
        let effects = self.machine.log(self.now, event);
        self.note(&effects);
    }

    fn note(&mut self, effects: &[Effect]) {
        self.asked |= effects
            .iter()
            .any(|effect| matches!(effect, Effect::AskAgain(_)));
    }

    /// Everything is written, delivered and heard, as often as it takes.
    fn settle(&mut self) {
        for _ in 0..8 {
            for view in 0..self.models.len() {
                self.take(Step::Control(view, ViewState::Synced));
            }
            self.take(Step::Deliver(u8::MAX));
            self.take(Step::Beat);
            // As long as it may be until the log is asked for again.
            self.now += MirrorConfig::RESTART_WAIT_MAX;
            self.take(Step::Wait(1));
            self.take(Step::Deliver(u8::MAX));
            self.take(Step::Beat);
        }
    }

    fn read<R>(&self, view: usize, reader: impl FnOnce(Read<'_>, ReadAt) -> R) -> Option<R> {
        let kept = self.machine.views.get(&views()[view])?.read();
        let (snapshot, position) = kept.read(self.now, None).ok()?;
        Some(reader(
            snapshot.read(),
            ReadAt {
                age_ms: position.age_ms,
            },
        ))
    }

    /// What is answered is true: every object is as it was at a moment no earlier than the age says.
    fn check_truth(&self) -> Result<(), TestCaseError> {
        for view in 0..self.models.len() {
            self.read(view, |read, at| {
                let asof = self.now.saturating_sub(Duration::from_millis(at.age_ms));
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

    fn check_settled(&self) -> Result<(), TestCaseError> {
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

struct ReadAt {
    age_ms: u64,
}

fn key_of(key: u8) -> ObjectKey {
    ObjectKey::new("ns", format!("k{key}"))
}

fn slot(record: &Record) -> (ViewId, Option<ObjectKey>) {
    match record {
        Record::Delta { view, delta } => (view.clone(), Some(delta.key.clone())),
        Record::Control(record) => (record.view.clone(), None),
    }
}

fn body_of(bytes: &[u8]) -> Value {
    anteroom_wire::body::to_json(bytes).unwrap()
}

fn step() -> impl Strategy<Value = Step> {
    let view = 0..2_usize;
    let key = 0..5_u8;
    let state = prop_oneof![4 => Just(ViewState::Synced), 1 => Just(ViewState::Syncing)];
    let cause = prop_oneof![
        Just(RestartCause::Gap),
        Just(RestartCause::Asked),
        Just(RestartCause::AwayTooLong),
    ];
    prop_oneof![
        8 => (view.clone(), key.clone()).prop_map(|(v, k)| Step::Put(v, k)),
        3 => (view.clone(), key).prop_map(|(v, k)| Step::Delete(v, k)),
        5 => (view, state).prop_map(|(v, s)| Step::Control(v, s)),
        10 => (1..6_u8).prop_map(Step::Deliver),
        6 => Just(Step::Deliver(u8::MAX)),
        2 => (0..6_u8).prop_map(Step::Again),
        6 => Just(Step::Beat),
        3 => (1..900_u16).prop_map(Step::Wait),
        1 => cause.prop_map(Step::Restart),
        1 => Just(Step::Away),
        1 => Just(Step::Remake),
    ]
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::All), Just(Scope::Views(views().to_vec()))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_answered_is_true_and_in_the_end_it_is_all(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new(Scope::All);
        for step in steps {
            world.take(step);
            world.check_truth()?;
        }
        world.settle();
        world.check_truth()?;
        world.check_settled()?;
    }

    #[test]
    fn a_loss_that_nobody_saw_is_found_and_repaired(
        scope in scope(),
        steps in proptest::collection::vec(
            prop_oneof![20 => step(), 2 => (1..4_u8).prop_map(Step::Lose)], 1..60,
        ),
    ) {
        let mut world = World::new(scope);
        for step in steps {
            world.take(step);
        }
        world.settle();
        world.check_settled()?;
    }
}

fn synced_world() -> World {
    let mut world = World::new(Scope::All);
    world.take(Step::Put(0, 1));
    world.take(Step::Put(1, 1));
    world.settle();
    world
}

fn state(world: &World, view: usize) -> State {
    world.machine.views[&views()[view]].read().status().state
}

#[test]
fn a_view_answers_once_read_to_the_end_and_heard_of() {
    let mut world = World::new(Scope::All);
    world.take(Step::Put(0, 1));
    world.take(Step::Control(0, ViewState::Synced));
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |_, _| ()), None, "half of it is here");
    world.take(Step::Deliver(9));
    assert_eq!(world.read(0, |read, _| read.len()), Some(1));
}

#[test]
fn a_loss_while_live_stops_the_view_at_the_next_control_record_and_not_the_other() {
    let mut world = synced_world();
    world.take(Step::Put(0, 2));
    world.take(Step::Lose(1));
    // A hole alone proves nothing: the record may have been superseded. The beat does.
    world.take(Step::Control(0, ViewState::Synced));
    let restarts_before = world.delivered;
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    assert!(world.delivered < restarts_before, "the log is read again");
    assert_eq!(world.read(0, |_, _| ()), None);
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |read, _| read.len()), Some(2));
}

#[test]
fn a_wrong_digest_without_a_hole_stops_the_view_at_once() {
    let mut world = synced_world();
    let (key, model) = (key_of(7), &mut world.models[0]);
    model
        .objects
        .insert(key, (ResourceVersion::new("9"), json!({})));
    world.take(Step::Control(0, ViewState::Synced));
    world.take(Step::Deliver(1));
    assert_eq!(world.read(0, |_, _| ()), None);
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));
}

#[test]
fn a_repeat_and_the_word_of_an_earlier_tenure_prove_nothing() {
    let mut world = synced_world();
    let control = |world: &World, epoch| {
        let mut record = world.models[0].control(epoch, ViewState::Synced);
        record.objects += 1;
        Record::Control(record)
    };
    let repeat = world.models[0].revision;
    let record = control(&world, EPOCH);
    world.record(repeat, record);
    world.last.0 += 1;
    let (next, record) = (world.last, control(&world, Epoch::new(0, 9)));
    world.record(next, record);
    world.beat();
    assert!(!world.asked);
    assert_eq!(world.read(0, |read, _| read.len()), Some(1));
}

#[test]
fn a_record_that_cannot_be_read_stops_every_view_until_its_digest_agrees() {
    let mut world = synced_world();
    world.unreadable();
    for view in 0..2 {
        assert_eq!(world.read(view, |_, _| ()), None);
    }
    world.asked = true;
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::Beat);
    for view in 0..2 {
        assert_eq!(
            world.read(view, |read, _| read.len()),
            Some(1),
            "its digest agrees"
        );
    }
}

#[test]
fn silence_and_age_make_a_view_stale_and_a_beat_fresh_again() {
    let mut world = synced_world();
    let limits = MirrorConfig::default();
    world.take(Step::Beat);
    world.now += Duration::from_millis(limits.beat_silence_max_ms - 10);
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), State::Synced);
    world.now += Duration::from_millis(20);
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), State::Stale);
    world.take(Step::Beat);
    assert_eq!(state(&world, 0), State::Synced);
}

#[test]
fn beats_that_run_ahead_of_a_silent_log_have_it_read_again() {
    let mut world = synced_world();
    world.take(Step::Put(0, 2));
    world.take(Step::Beat);
    world.now += Duration::from_millis(MirrorConfig::default().lag_max_ms + 10);
    let before = world.delivered;
    world.take(Step::Wait(1));
    assert!(world.delivered < before, "it was asked for again");
}

#[test]
fn a_reader_that_lags_takes_no_beat_for_its_own_across_a_superseded_record() {
    let mut world = synced_world();
    world.take(Step::Put(0, 1));
    world.take(Step::Put(0, 2));
    world.take(Step::Beat);
    // What the beat spoke of now stands further on, and what is read next is behind the beat.
    world.take(Step::Put(0, 1));
    world.take(Step::Deliver(1));
    world.check_truth().unwrap();
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    world.check_truth().unwrap();
    let age_ms = world.read(0, |_, at| at.age_ms);
    assert_eq!(age_ms, Some(0));
}

#[test]
fn beats_of_another_log_have_it_read_again() {
    let mut world = synced_world();
    let mut beat = world.a_beat(0);
    beat.incarnation = Incarnation("another".into());
    let effects = world.machine.beat(world.now, &beat);
    let asked = |effect: &Effect| matches!(effect, Effect::AskAgain(RereadCause::Incarnation));
    assert!(effects.iter().any(asked));
}

#[test]
fn a_writer_of_an_earlier_term_brings_no_news() {
    let mut world = synced_world();
    let mut beat = world.a_beat(0);
    beat.term = 7;
    world.machine.beat(world.now, &beat);
    world.now += Duration::from_secs(6);
    world.take(Step::Beat);
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), State::Stale);
    assert_eq!(
        state(&world, 1),
        State::Synced,
        "its writer's term is as it was"
    );
}

/// Point I: the death of one group's writer is nothing to another's.
#[test]
fn a_writers_silence_makes_the_views_of_its_own_group_stale_and_no_others() {
    let mut world = synced_world();
    for _ in 0..12 {
        world.now += Duration::from_millis(500);
        let beat = world.a_beat(1);
        world.machine.beat(world.now, &beat);
    }
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), State::Stale);
    assert_eq!(state(&world, 1), State::Synced);
    // A beat that does not name the view still says that its group's writer lives.
    let mut beat = world.a_beat(0);
    beat.views.clear();
    world.machine.beat(world.now, &beat);
    assert_eq!(state(&world, 0), State::Synced);
}

/// Point H: an API call's response is as fresh as its own interval has it.
#[test]
fn a_view_with_an_age_limit_of_its_own_is_held_to_that_one() {
    let mut world = synced_world();
    let mut record = world.models[0].control(EPOCH, ViewState::Synced);
    record.age_max_ms = Some(10 * MirrorConfig::default().age_max_ms);
    world.write(0, Record::Control(record));
    world.take(Step::Deliver(1));
    let quiet_ms = MirrorConfig::default().age_max_ms + 1;
    world.take(Step::Beat);
    // The writers live, and have nothing new to say.
    for _ in 0..=quiet_ms / 500 {
        world.now += Duration::from_millis(500);
        for view in 0..2 {
            let mut beat = world.a_beat(view);
            beat.views.clear();
            world.machine.beat(world.now, &beat);
        }
    }
    assert_eq!(state(&world, 0), State::Synced);
    assert_eq!(state(&world, 1), State::Stale);
}

#[test]
fn a_failed_source_answers_with_its_error_and_a_dropped_view_is_gone() {
    let mut world = synced_world();
    let failure = anteroom_model::Failure::new("Forbidden", "no");
    let failed = ViewState::Failed {
        failure: failure.clone(),
    };
    world.take(Step::Control(0, failed));
    world.take(Step::Deliver(1));
    assert_eq!(state(&world, 0), State::Failed(failure));
    let kept = Arc::clone(&world.machine.views[&views()[0]]);
    world.take(Step::Control(0, ViewState::Dropped));
    world.take(Step::Deliver(1));
    assert!(!world.machine.views.contains_key(&views()[0]));
    assert_eq!(kept.read().status().state, State::Dropped);
    assert_eq!(kept.read().status().bytes, 0);
}
