//! Beats that were on their way for long.

use super::*;

/// The first view's writer sent a beat so long after its term began, and it arrives now.
fn hear(world: &mut World, sent: Duration) {
    let beat = Beat {
        sent_ms: Some(sent.as_millis() as u64),
        ..world.a_beat(0)
    };
    world.machine.beat(world.now, &beat);
}

fn age_ms(world: &World) -> u64 {
    let kept = world.machine.views[&views()[0]].read();
    kept.age_ms(world.now)
}

#[test]
fn a_beat_that_was_on_its_way_for_long_does_not_make_a_view_younger() {
    let mut world = synced_world();
    let (begun, sent) = (world.now, Duration::from_secs(7));
    let half = Duration::from_millis(500);
    hear(&mut world, sent);
    assert_eq!(age_ms(&world), 0);
    // Beats wait in a socket for 50 s, and arrive at once.
    world.now += Duration::from_secs(50);
    for beats in 1..=20_u32 {
        hear(&mut world, sent + half * beats);
        let newest_ms = 50_000 - u64::from(beats) * 500;
        assert_eq!(age_ms(&world), newest_ms);
    }
    let newest = sent + (world.now - begun);
    hear(&mut world, newest);
    assert_eq!(age_ms(&world), 0);
}

#[test]
fn a_delayed_beat_counts_as_delayed_also_once_its_position_is_read() {
    let mut world = synced_world();
    let sent = Duration::from_secs(7);
    hear(&mut world, sent);
    world.take(Step::Put(0, 9));
    world.now += Duration::from_secs(30);
    hear(&mut world, sent + Duration::from_secs(1));
    world.take(Step::Deliver(u8::MAX));
    assert!(age_ms(&world) >= 29_000, "{}", age_ms(&world));
}

#[test]
fn beats_of_a_writer_that_was_suspended_are_not_delayed() {
    let mut world = synced_world();
    let mut sent = Duration::ZERO;
    hear(&mut world, sent);
    for suspended_s in [3_600, 1] {
        // Its clock goes on meanwhile.
        let suspended = Duration::from_secs(suspended_s);
        sent += suspended;
        world.now += suspended;
        hear(&mut world, sent);
        assert_eq!(age_ms(&world), 0);
    }
    // Another term begins, on a clock of its own.
    let mut beat = world.a_beat(0);
    (beat.term, beat.sent_ms) = (2, Some(0));
    world.now += Duration::from_secs(5);
    world.machine.beat(world.now, &beat);
    assert_eq!(age_ms(&world), 0);
}

#[test]
fn a_new_log_has_terms_of_its_own() {
    let mut world = synced_world();
    hear(&mut world, Duration::from_secs(3_600));
    world.take(Step::Remake);
    world.take(Step::Deliver(u8::MAX));
    world.now += Duration::from_secs(1);
    hear(&mut world, Duration::ZERO);
    assert_eq!(age_ms(&world), 0);
}
