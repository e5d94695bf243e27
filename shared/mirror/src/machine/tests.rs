//! Random histories of a log, read by a machine in every way in which a bus may deliver them.

mod contradicted;
mod delayed;
mod shortened;
mod suspended;
mod world;

use std::time::Duration;

use anteroom_bus::{LogScope, RestartCause};
use anteroom_model::{
    Epoch, FactError, Incarnation, ObjectKey, ResourceVersion, ViewId, ViewState,
};
use anteroom_view::LifeState;
use anteroom_wire::envelope::Record;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use world::{EPOCH, Step, World, key_of, views};

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

/// With views that come and go here.
fn demand_step() -> impl Strategy<Value = Step> {
    let cause = prop_oneof![Just(RestartCause::Gap), Just(RestartCause::AwayTooLong)];
    prop_oneof![
        20 => step(),
        2 => (0..2_usize).prop_map(Step::Evict),
        4 => (0..2_usize).prop_map(Step::Load),
        2 => any::<[bool; 2]>().prop_map(Step::Hold),
        6 => (1..6_u8).prop_map(Step::LoadDeliver),
        3 => Just(Step::LoadDeliver(u8::MAX)),
        1 => Just(Step::LoadAway),
        1 => cause.prop_map(Step::LoadRestart),
    ]
}

fn scope() -> impl Strategy<Value = LogScope> {
    prop_oneof![Just(LogScope::All), Just(LogScope::Views(views().to_vec()))]
}

/// Checks after every step that each answer is true, and in the end that every view answers.
fn play(steps: Vec<Step>) -> Result<World, TestCaseError> {
    let mut world = World::new(LogScope::All);
    for step in steps {
        world.take(step);
        world.check_truth()?;
    }
    world.settle();
    world.check_truth()?;
    world.check_settled()?;
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn answers_of_a_mirror_are_true_and_in_the_end_complete(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        play(steps)?;
    }

    /// Whatever is evicted, loaded, given away and taken back meanwhile, and whichever
    /// reader is ahead of the other.
    #[test]
    fn views_that_are_held_and_released_answer_truly_and_in_the_end_completely(
        steps in proptest::collection::vec(demand_step(), 1..100),
    ) {
        let world = play(steps)?;
        prop_assert!(world.loads.is_empty(), "every load comes to an end");
    }

    #[test]
    fn an_unnoticed_loss_of_records_is_found_and_repaired(
        scope in scope(),
        steps in proptest::collection::vec(
            prop_oneof![20 => demand_step(), 2 => (1..4_u8).prop_map(Step::Lose)], 1..60,
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
    let mut world = World::new(LogScope::All);
    world.take(Step::Put(0, 1));
    world.take(Step::Put(1, 1));
    world.settle();
    world
}

fn state(world: &World, view: usize) -> LifeState {
    world.machine.views[&views()[view]].read().status().state
}

#[test]
fn a_view_answers_once_its_log_is_read_and_a_beat_arrived() {
    let mut world = World::new(LogScope::All);
    world.take(Step::Put(0, 1));
    world.take(Step::Control(0, ViewState::Synced));
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |_, _| ()), None, "half of it is here");
    world.take(Step::Deliver(9));
    assert_eq!(world.read(0, |read, _| read.len()), Some(1));
}

#[test]
fn a_loss_while_live_stops_the_losing_view_alone() {
    let mut world = synced_world();
    world.take(Step::Put(0, 2));
    world.take(Step::Lose(1));
    // A hole alone proves nothing: the record may have been superseded. The beat does.
    world.take(Step::Control(0, ViewState::Synced));
    let read = world.delivered;
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |_, _| ()), None);
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));
    assert!(
        world.delivered > read,
        "the log is not read again for one view"
    );
    world.take(Step::LoadDeliver(u8::MAX));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |read, _| read.len()), Some(2));
    assert!(world.loads.is_empty());
}

/// Beats come more often than a large log is read.
#[test]
fn a_beat_before_the_logs_end_does_not_break_a_view_that_is_read_again() {
    let mut world = synced_world();
    world.take(Step::Put(0, 2));
    world.take(Step::Lose(1));
    world.take(Step::Control(0, ViewState::Synced));
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    world.take(Step::LoadDeliver(0));
    world.take(Step::Beat);
    world.take(Step::LoadDeliver(u8::MAX));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |read, _| read.len()), Some(2));
}

#[test]
fn a_fault_that_reading_one_view_does_not_mend_has_the_whole_log_read() {
    let mut world = synced_world();
    let before = world.delivered;
    // The writer's own count is wrong.
    let mut record = world.models[0].control(EPOCH, ViewState::Synced);
    record.objects += 1;
    world.write(0, Record::Control(record));
    world.take(Step::Deliver(1));
    assert!(world.loads.contains_key(&views()[0]));
    world.take(Step::LoadDeliver(u8::MAX));
    assert_eq!(world.read(0, |_, _| ()), None);
    world.take(Step::Wait(
        MirrorConfig::default().restart_wait.as_millis() as u16
    ));
    assert!(world.delivered < before && world.loads.is_empty());
    world.settle();
    world.check_settled().unwrap();
}

/// An evicted view answers *evicted*, never empty, and comes back whole beside updates.
#[test]
fn an_evicted_view_answers_evicted_and_comes_back_complete() {
    let mut world = synced_world();
    world.take(Step::Evict(0));
    assert_eq!(state(&world, 0), LifeState::Evicted);
    let kept = Arc::clone(&world.machine.views[&views()[0]]);
    assert_eq!(kept.read().status().bytes, 0);
    let refused = kept.read().read(world.now, Some(u64::MAX)).unwrap_err();
    assert!(matches!(refused, anteroom_model::FactError::Evicted { .. }));
    for step in [
        Step::Put(0, 2),
        Step::Control(0, ViewState::Synced),
        Step::Deliver(u8::MAX),
        Step::Beat,
    ] {
        world.take(step);
    }
    assert_eq!(
        state(&world, 0),
        LifeState::Evicted,
        "until it is asked for"
    );
    world.take(Step::Load(0));
    world.take(Step::Put(0, 3));
    world.take(Step::LoadDeliver(1));
    assert_eq!(state(&world, 0), LifeState::Evicted, "half of it is here");
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(world.loads.is_empty(), "handed over");
    world.take(Step::Put(0, 4));
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |read, _| read.len()), Some(4));
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));
}

#[test]
fn a_loaded_view_is_not_handed_over_before_it_has_skipped_records() {
    let mut world = synced_world();
    world.take(Step::Evict(0));
    world.take(Step::Load(0));
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(world.loads.is_empty());
    world.take(Step::Evict(0));
    world.take(Step::Load(0));
    world.take(Step::Away);
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(!world.loads.is_empty(), "the main reader is away");
    world.take(Step::Put(0, 2));
    world.take(Step::Deliver(u8::MAX));
    assert!(
        !world.loads.is_empty(),
        "the main reader has passed over more"
    );
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(world.loads.is_empty());
    world.take(Step::Beat);
    assert_eq!(world.read(0, |read, _| read.len()), Some(2));
}

/// A replica with a share holds what is its own, and nothing of the others.
#[test]
fn views_of_others_are_not_held_and_those_taken_over_are_loaded() {
    let mut world = World::new(LogScope::All);
    world.take(Step::Hold([true, false]));
    world.take(Step::Put(0, 1));
    world.take(Step::Put(1, 1));
    for view in 0..2 {
        world.take(Step::Control(view, ViewState::Synced));
    }
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::Beat);
    assert_eq!(world.read(0, |read, _| read.len()), Some(1));
    assert!(!world.machine.views.contains_key(&views()[1]));
    world.take(Step::Hold([false, true]));
    assert!(!world.machine.views.contains_key(&views()[0]));
    assert_eq!(state(&world, 1), LifeState::Unsynced);
    world.take(Step::LoadDeliver(u8::MAX));
    world.take(Step::Beat);
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));
}

/// A malformed record does not affect further views.
#[test]
fn a_record_that_cannot_be_read_stops_its_own_view_alone() {
    let mut world = synced_world();
    world.unreadable(Some(views()[0].clone()));
    assert_eq!(world.read(0, |_, _| ()), None);
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));
    world.settle();
    world.check_settled().unwrap();
}

#[derive(Debug, Default)]
struct Ring(std::sync::atomic::AtomicBool);

impl crate::OpenSealed for Ring {
    fn open(&self, _: &ViewId, _: &ObjectKey, sealed: &[u8]) -> Result<Bytes, String> {
        match self.0.load(std::sync::atomic::Ordering::Relaxed) {
            true => Ok(Bytes::copy_from_slice(&sealed[1..])),
            false => Err("key `k2` is not in the ring: mount it".to_owned()),
        }
    }
}

fn seal(world: &mut World, key: u8) {
    let Record::Delta { view, mut delta } = world.put(0, key) else {
        return;
    };
    if let Op::Put(plain) = &delta.op {
        delta.op = Op::Put([&[0xC1], plain.as_ref()].concat().into());
    }
    world.write(0, Record::Delta { view, delta });
}

/// Bodies that cannot be opened fail their own view with a reason, until the key is there.
#[test]
fn sealed_bodies_are_opened_or_fail_their_view_alone_until_they_can_be() {
    let ring = Arc::new(Ring::default());
    let mut world = World::new(LogScope::All);
    world.machine.config.opener = Some(Arc::clone(&ring) as _);
    world.take(Step::Put(1, 1));
    seal(&mut world, 1);
    world.settle_written();
    let failure = Failure::new("SealedUnreadable", "key `k2` is not in the ring: mount it");
    assert_eq!(state(&world, 0), LifeState::Failed(failure));
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));
    ring.0.store(true, std::sync::atomic::Ordering::Relaxed);
    let effects = world.machine.reopen();
    world.note(&effects);
    world.take(Step::Wait(1));
    world.take(Step::LoadDeliver(u8::MAX));
    world.take(Step::Beat);
    world.check_settled().unwrap();
    seal(&mut world, 2);
    world.settle_written();
    world.check_settled().unwrap();
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
fn repeated_and_earlier_epoch_control_records_prove_nothing() {
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
    world.unreadable(None);
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

/// A silent writer costs nothing as long as the news is young enough for the reader.
#[test]
fn age_alone_makes_a_view_stale_and_a_beat_makes_it_fresh() {
    let mut world = synced_world();
    let limits = MirrorConfig::default();
    world.take(Step::Beat);
    world.now += Duration::from_millis(limits.age_max_ms - 10);
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), LifeState::Synced, "its writer is silent");
    world.now += Duration::from_millis(20);
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), LifeState::Stale);
    let error = world.error(0).unwrap();
    assert!(
        matches!(error, FactError::Stale { silent_ms: Some(ms), age_ms, age_max_ms, .. }
            if ms > limits.beat_silence_max_ms && age_ms > age_max_ms),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("its watcher has not been heard from for")
    );
    world.take(Step::Beat);
    assert_eq!(state(&world, 0), LifeState::Synced);
    assert_eq!(world.error(0), None);
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
fn a_lagging_reader_ignores_beats_across_a_superseded_record() {
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

/// The first record of the next epoch was superseded on its way, so that a delta begins it here.
#[test]
fn what_is_served_beside_the_next_epoch_is_complete_only_to_where_it_was() {
    let mut world = synced_world();
    let before = world.machine.complete_to();
    world.take(Step::Put(0, 5));
    world.take(Step::Put(0, 6));
    let mut record = world.put(0, 5);
    if let Record::Delta { delta, .. } = &mut record {
        delta.epoch = Epoch::new(EPOCH.term() + 1, 1);
    }
    world.write(0, record);
    world.take(Step::Deliver(1));
    assert_eq!(world.machine.complete_to(), before);
    world.take(Step::Deliver(1));
    assert_eq!(world.machine.complete_to(), world.last, "caught up");
    let status = world.machine.views[&views()[0]].read().status();
    assert!(!status.live, "the next epoch is gathered");
    assert_eq!(status.left_complete_to, Some(before));
    world.check_truth().unwrap();
}

#[test]
fn beats_of_another_log_have_it_read_again() {
    let mut world = synced_world();
    let mut beat = world.a_beat(0);
    beat.incarnation = Incarnation("another".into());
    let effects = world.machine.beat(world.now, &beat);
    let asked =
        |effect: &MirrorEffect| matches!(effect, MirrorEffect::AskAgain(RereadCause::Incarnation));
    assert!(effects.iter().any(asked));
}

/// A leader that has not noticed that the log was made anew beats of the one before for a while.
#[test]
fn beats_of_a_log_that_was_left_ask_for_nothing() {
    let mut world = synced_world();
    let late = world.a_beat(0);
    world.take(Step::Remake);
    for _ in 0..10 {
        world.now += Duration::from_millis(500);
        let effects = world.machine.beat(world.now, &late);
        let asked = |effect: &MirrorEffect| matches!(effect, MirrorEffect::AskAgain(_));
        assert!(!effects.iter().any(asked), "{effects:?}");
    }
    // Of a log restored from a backup it is told by whoever follows it.
    world.incarnation = 0;
    world.restart(RestartCause::NewIncarnation);
    let mut other = world.a_beat(0);
    assert_eq!(other.incarnation, late.incarnation);
    other.incarnation = Incarnation("another".into());
    let effects = world.machine.beat(world.now, &other);
    let asked =
        |effect: &MirrorEffect| matches!(effect, MirrorEffect::AskAgain(RereadCause::Incarnation));
    assert!(effects.iter().any(asked));
}

#[test]
fn a_beat_of_an_earlier_term_does_not_refresh_a_view() {
    let mut world = synced_world();
    let mut beat = world.a_beat(0);
    beat.term = 7;
    world.machine.beat(world.now, &beat);
    world.now += Duration::from_millis(MirrorConfig::default().age_max_ms + 1);
    world.take(Step::Beat);
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), LifeState::Stale);
    assert_eq!(
        state(&world, 1),
        LifeState::Synced,
        "its writer's term is as it was"
    );
}

/// The death of one group's writer is nothing to another's.
#[test]
fn a_writers_silence_ages_the_views_of_its_own_group_and_no_others() {
    let mut world = synced_world();
    let until = world.now + Duration::from_millis(MirrorConfig::default().age_max_ms + 500);
    while world.now < until {
        world.now += Duration::from_millis(500);
        let beat = world.a_beat(1);
        world.machine.beat(world.now, &beat);
    }
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), LifeState::Stale);
    assert_eq!(state(&world, 1), LifeState::Synced);
    // A beat that does not name the view says that its group's writer lives, and nothing of the view's age.
    let mut beat = world.a_beat(0);
    beat.views.clear();
    world.machine.beat(world.now, &beat);
    assert_eq!(state(&world, 0), LifeState::Stale);
    let error = world.error(0).unwrap();
    assert!(
        matches!(
            error,
            FactError::Stale {
                silent_ms: None,
                ..
            }
        ),
        "{error}"
    );
}

/// An API call's response is as fresh as its own interval has it.
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
    assert_eq!(state(&world, 0), LifeState::Synced);
    assert_eq!(state(&world, 1), LifeState::Stale);
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
    assert_eq!(state(&world, 0), LifeState::Failed(failure));
    let kept = Arc::clone(&world.machine.views[&views()[0]]);
    world.take(Step::Control(0, ViewState::Dropped));
    world.take(Step::Deliver(1));
    assert!(!world.machine.views.contains_key(&views()[0]));
    assert_eq!(kept.read().status().state, LifeState::Dropped);
    assert_eq!(kept.read().status().bytes, 0);
}
