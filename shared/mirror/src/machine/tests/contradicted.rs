//! Logs that have lost a record which their writer believes to be there.

use super::{world::slot, *};

fn is_contradicted(world: &World, view: usize) -> bool {
    let kept = world.machine.views[&views()[view]].read();
    kept.status().is_contradicted
}

/// Loses a record that was read, from the middle of the log, and reads the log from its start.
fn lose_in_log(world: &mut World) {
    let lost = (views()[0].clone(), Some(key_of(1)));
    world.log.retain(|_, record| slot(record) != lost);
    read_again(world);
}

fn read_again(world: &mut World) {
    world.restart(RestartCause::AwayTooLong);
    world.take(Step::Deliver(u8::MAX));
}

#[test]
fn a_view_whose_log_contradicts_its_writer_says_so_until_both_agree() {
    let mut world = synced_world();
    world.take(Step::Put(0, 2));
    world.settle_written();
    assert!(!is_contradicted(&world, 0));
    lose_in_log(&mut world);
    assert!(is_contradicted(&world, 0) && !is_contradicted(&world, 1));
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(is_contradicted(&world, 0), "also if it is read alone");
    world.take(Step::Put(0, 1));
    world.settle();
    world.check_settled().unwrap();
    assert!(!is_contradicted(&world, 0));
}

#[test]
fn a_contradicted_view_says_nothing_of_the_term_that_follows_before_it_is_read_again() {
    let mut world = synced_world();
    lose_in_log(&mut world);
    world.take(Step::LoadDeliver(u8::MAX));
    let next = Epoch::new(EPOCH.term() + 1, 1);
    let record = world.models[0].control(next, ViewState::Synced);
    world.write(0, Record::Control(record));
    world.take(Step::Deliver(u8::MAX));
    world.take(Step::LoadDeliver(u8::MAX));
    assert!(!is_contradicted(&world, 0));
    read_again(&mut world);
    assert!(is_contradicted(&world, 0), "nothing was mended");
    world.take(Step::Remake);
    assert!(!is_contradicted(&world, 0), "another log");
}

/// A reader that is older than the writer must not send it to compare the log for ever.
#[test]
fn a_view_with_a_record_that_cannot_be_read_does_not_contradict_its_writer() {
    for view in [Some(views()[0].clone()), None] {
        let mut world = synced_world();
        let lost = (views()[0].clone(), Some(key_of(1)));
        world.log.retain(|_, record| slot(record) != lost);
        world.restart(RestartCause::AwayTooLong);
        world.hand(LogEvent::Record {
            revision: Revision(1),
            envelope: Err(anteroom_bus::Unreadable {
                view,
                key: None,
                error: anteroom_wire::WireError::Body {
                    problem: "test".into(),
                },
            }),
        });
        world.take(Step::Deliver(u8::MAX));
        assert!(!is_contradicted(&world, 0));
    }
}
