//! A host that was suspended: all moments are as much later, and what was on its way is as much older.

use anteroom_model::limits::SUSPEND_SETTLE_MS;

use super::*;

const SUSPENDED: Duration = Duration::from_secs(3_600);

/// The host is suspended, and wakes.
fn suspend(world: &mut World) {
    world.now += SUSPENDED;
    world.machine.woke(world.now);
}

fn age_ms(world: &World) -> u64 {
    let kept = world.machine.views[&views()[0]].read();
    kept.age_ms(world.now)
}

#[test]
fn a_view_is_stale_after_a_suspend_until_the_next_beat_is_read() {
    let mut world = synced_world();
    world.take(Step::Beat);
    assert_eq!(world.error(0), None);
    suspend(&mut world);
    let error = world.error(0);
    assert!(matches!(error, Some(FactError::Stale { .. })), "{error:?}");
    world.take(Step::Wait(1));
    assert_eq!(state(&world, 0), LifeState::Stale);
    world.now += Duration::from_millis(SUSPEND_SETTLE_MS);
    world.take(Step::Beat);
    assert_eq!(world.error(0), None);
    assert_eq!(state(&world, 0), LifeState::Synced);
}

#[test]
fn a_beat_that_was_sent_before_a_suspend_does_not_make_a_view_younger() {
    let suspended_ms = SUSPENDED.as_millis() as u64;
    let mut world = synced_world();
    // One has arrived, and waits for its position to be read.
    world.take(Step::Put(0, 9));
    world.take(Step::Beat);
    suspend(&mut world);
    world.take(Step::Deliver(u8::MAX));
    assert!(!world.machine.views[&views()[0]].read().is_behind());
    assert!(age_ms(&world) >= suspended_ms, "{}", age_ms(&world));
    // A beat was on its way, and arrives at once.
    world.take(Step::Beat);
    assert!(age_ms(&world) >= suspended_ms, "{}", age_ms(&world));
    world.now += Duration::from_millis(SUSPEND_SETTLE_MS);
    world.take(Step::Beat);
    assert_eq!(age_ms(&world), 0);
}
