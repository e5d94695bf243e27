//! Logs that have lost their last records, and terms that began anew.

use super::{loads::EARLY_END_WAIT, *};

/// Loses the last records of the log, which were read.
fn shorten(world: &mut World, records: u64) {
    let last = Revision(world.last.0 - records);
    world.log.retain(|at, _| *at <= last);
    world.last = last;
    world.restart(RestartCause::Truncated);
    world.take(Step::Deliver(u8::MAX));
}

#[test]
fn a_shortened_log_does_not_replace_what_is_served_before_its_writer_begins_a_term() {
    let mut world = synced_world();
    let before = world.read(0, |read, _| read.len()).unwrap();
    world.take(Step::Put(0, 9));
    world.take(Step::Deliver(1));
    shorten(&mut world, 1);
    assert_eq!(world.read(0, |read, _| read.len()), Some(before + 1));
    assert_eq!(world.error(0), None, "it is served, and grows old");
    // The writer compares the log with the source, and writes what is lost.
    let next = Epoch::new(EPOCH.term() + 1, 1);
    let mut delta = world.put(0, 9);
    if let Record::Delta { delta, .. } = &mut delta {
        delta.epoch = next;
    }
    let mut record = world.models[0].control(next, ViewState::Synced);
    record.origin = EPOCH;
    world.write(0, delta);
    world.write(0, Record::Control(record));
    world.now += MirrorConfig::RESTART_WAIT_MAX / 2;
    world.take(Step::Wait(1));
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::LoadDeliver(u8::MAX));
    assert_eq!(world.read(0, |read, _| read.len()), Some(before + 1));
    world.take(Step::Deliver(u8::MAX));
    let live = world.machine.views[&views()[0]].read().status().live;
    assert!(live, "it follows the log again");
}

/// The records that superseded what was served are lost, and the reader had not read them.
#[test]
fn a_log_that_ends_where_its_reader_is_does_not_replace_what_is_served_by_an_older_state() {
    let mut world = synced_world();
    world.take(Step::Put(0, 9));
    world.take(Step::Deliver(1));
    let whole = world.read(0, |read, _| read.len());
    let read = world.last;
    world.take(Step::Put(0, 9));
    world.log.retain(|at, _| *at <= read);
    world.last = read;
    world.take(Step::Restart(RestartCause::Asked));
    world.take(Step::Deliver(u8::MAX));
    assert_eq!(world.read(0, |read, _| read.len()), whole);
    assert_eq!(world.error(0), None, "it is served, and grows old");
}

#[test]
fn a_mirror_takes_over_a_shortened_log_once_its_served_data_is_too_old() {
    let mut world = synced_world();
    let before = world.read(0, |read, _| read.len()).unwrap();
    world.take(Step::Put(0, 9));
    world.take(Step::Deliver(1));
    shorten(&mut world, 1);
    world.now += Duration::from_millis(MirrorConfig::default().age_max_ms + 1);
    for _ in 0..2 {
        world.now += MirrorConfig::RESTART_WAIT_MAX;
        world.take(Step::Wait(1));
        world.take(Step::Deliver(u8::MAX));
        world.take(Step::LoadDeliver(u8::MAX));
    }
    let kept = world.machine.views[&views()[0]].read();
    let (snapshot, _) = kept.read(world.now, Some(u64::MAX)).unwrap();
    assert_eq!(snapshot.read().len(), before);
}

#[test]
fn a_view_that_is_loaded_alone_takes_over_no_end_before_what_the_main_reader_had_read() {
    let mut world = synced_world();
    world.take(Step::Put(0, 9));
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    let whole = world.read(0, |read, _| read.len());
    world.take(Step::Evict(0));
    // A server that is late tells an earlier end, as one does that has lost records.
    let (log, last) = (world.log.clone(), world.last);
    let earlier = Revision(last.0 - 1);
    world.log.retain(|at, _| *at <= earlier);
    world.last = earlier;
    world.take(Step::Load(0));
    world.take(Step::LoadDeliver(u8::MAX));
    assert_eq!(state(&world, 0), LifeState::Evicted);
    let wait = Step::Wait(EARLY_END_WAIT.as_millis() as u16);
    world.take(wait.clone());
    world.take(Step::LoadDeliver(u8::MAX));
    assert_eq!(state(&world, 0), LifeState::Evicted, "it ends there still");
    (world.log, world.last) = (log, last);
    world.take(wait);
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(world.loads.is_empty(), "handed over");
    world.take(Step::Beat);
    assert_eq!(world.read(0, |read, _| read.len()), whole);
}

/// A load may come to an end that the main reader has passed meanwhile.
#[test]
fn a_load_is_not_held_up_by_records_that_the_main_reader_brought_meanwhile() {
    let mut world = synced_world();
    world.take(Step::Evict(0));
    world.take(Step::Load(0));
    let (log, last) = (world.log.clone(), world.last);
    world.take(Step::Put(1, 9));
    world.take(Step::Deliver(1));
    let (log, last) = (
        std::mem::replace(&mut world.log, log),
        std::mem::replace(&mut world.last, last),
    );
    world.take(Step::LoadDeliver(u8::MAX));
    (world.log, world.last) = (log, last);
    assert!(world.loads.is_empty(), "handed over");
    world.take(Step::Beat);
    assert_eq!(world.error(0), None);
}

#[test]
fn a_view_without_objects_is_not_as_young_as_it_was_before_the_log_was_shortened() {
    let mut world = synced_world();
    world.take(Step::Put(0, 9));
    world.take(Step::Deliver(1));
    world.take(Step::Beat);
    world.take(Step::Evict(0));
    shorten(&mut world, 1);
    world.take(Step::Load(0));
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(!world.loads.contains_key(&views()[0]), "handed over");
    let error = world.error(0);
    assert!(
        matches!(error, Some(FactError::NotSynced { .. })),
        "{error:?}"
    );
    // The beat names the lost record, as long as the writer knows no better.
    world.take(Step::Beat);
    assert!(world.error(0).is_some());
}

#[test]
fn terms_that_began_anew_count_once_the_last_leader_has_been_silent() {
    let mut world = synced_world();
    let mut beat = world.a_beat(0);
    beat.term = 7;
    world.machine.beat(world.now, &beat);
    let age_ms = |world: &World| world.read(0, |_, at| at.age_ms).unwrap();
    beat.term = 1;
    for _ in 0..=10 {
        world.now += Duration::from_millis(500);
        world.machine.beat(world.now, &beat);
        assert!(age_ms(&world) > 0, "of an earlier term");
    }
    world.now += Duration::from_millis(500);
    world.machine.beat(world.now, &beat);
    assert_eq!(age_ms(&world), 0);
    // Where the last leader is heard, they never do.
    for at in 0..30 {
        world.now += Duration::from_millis(500);
        beat.term = if at % 4 == 0 { 9 } else { 2 };
        world.machine.beat(world.now, &beat);
    }
    assert!(age_ms(&world) > 0);
}

/// Nobody desires the view any more, or its next writer begins it anew.
#[test]
fn objects_without_a_control_record_are_given_up_until_a_record_of_their_view_comes() {
    let mut world = World::new(LogScope::All);
    world.take(Step::Put(0, 1));
    world.take(Step::Put(1, 1));
    world.take(Step::Control(1, ViewState::Synced));
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::Beat);
    assert!(!world.machine.views.contains_key(&views()[0]));
    assert_eq!(world.read(1, |read, _| read.len()), Some(1));

    let next = Epoch::new(EPOCH.term() + 1, 1);
    world.models[0].objects.clear();
    let control = |world: &mut World, state| {
        let mut record = world.models[0].control(next, state);
        record.origin = next;
        world.write(0, Record::Control(record));
    };
    control(&mut world, ViewState::Syncing);
    world.take(Step::Deliver(1));
    assert!(world.loads.contains_key(&views()[0]), "nothing is missed");
    let mut delta = world.put(0, 2);
    if let Record::Delta { delta, .. } = &mut delta {
        delta.epoch = next;
    }
    world.write(0, delta);
    control(&mut world, ViewState::Synced);
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(world.loads.is_empty(), "handed over");
    let mut beat = world.a_beat(0);
    beat.term = next.term();
    beat.views[0].epoch = next;
    world.machine.beat(world.now, &beat);
    assert_eq!(world.read(0, |read, _| read.len()), Some(1));
}

/// A follower that begins anew knows nothing of the log's earlier end.
#[test]
fn a_log_that_was_shortened_before_a_new_follower_began_is_noticed_at_its_end() {
    let mut world = synced_world();
    let read = world.last;
    let incarnation = world.machine.incarnation.clone();
    let cause = RestartCause::Start;
    let log = |world: &mut World, event| world.machine.log(world.now, event);
    log(&mut world, LogEvent::Restart { incarnation, cause });
    let revision = Revision(read.0 - 1);
    let effects = log(&mut world, LogEvent::CaughtUp { revision });
    let asks =
        |effect: &MirrorEffect| matches!(effect, MirrorEffect::AskAgain(RereadCause::Shortened));
    assert!(effects.iter().any(asks));
    assert_eq!(world.machine.shortened(), 1);
    assert_eq!(world.machine.position(), Revision(0));
    assert_eq!(world.machine.furthest().1, read);
}

#[test]
fn the_furthest_position_outlives_a_loss_of_records_and_no_new_log() {
    let mut world = synced_world();
    let read = world.last;
    assert_eq!(world.machine.shortened(), 0);
    shorten(&mut world, 1);
    assert_eq!(world.machine.furthest().1, read);
    assert_eq!(world.machine.shortened(), 1);
    world.take(Step::Remake);
    world.take(Step::Deliver(u8::MAX));
    assert!(world.last < read);
    assert_eq!(world.machine.furthest().1, world.last);
}
