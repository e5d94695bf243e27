//! The clock of ages: it goes on while the machine is suspended, and `Instant` does not.
//!
//! Linux has a clock of each kind. Every suspend makes the distance between the two grow, and [`suspended`] returns that
//! growth. So an age is a duration of `Instant`, plus the growth since its moment.
//!
//! Only [`process::run`](crate::process::run) begins to count suspends. Tests and simulated schedules, which turn tokio's
//! clock by themselves, never see one.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The least growth that counts. The two clocks are read one after the other, so a smaller growth may be none.
const SUSPEND_MIN_MS: u64 = 50;

/// Readings by which growth is confirmed. The least counts: a thread that loses its processor between the two clocks
/// reads too much.
const READINGS: usize = 3;

static SUSPENDS: OnceLock<SuspendCounter> = OnceLock::new();

/// Counts suspends of the machine from now on.
pub(crate) fn count_suspends() {
    SUSPENDS.get_or_init(|| SuspendCounter::new(distance_ms));
}

/// Returns for how long the machine has been suspended since the process began.
pub fn suspended() -> Duration {
    let counted_ms = SUSPENDS
        .get()
        .map_or(0, |counter| counter.read_ms(distance_ms));
    Duration::from_millis(counted_ms)
}

/// A moment that an age is counted from, suspends included.
#[derive(Clone, Copy, Debug)]
pub struct BootInstant {
    at: Instant,
    suspended: Duration,
}

impl BootInstant {
    /// Returns the present moment.
    pub fn now() -> Self {
        // In this order: a suspend between the two readings has passed then.
        let at = Instant::now();
        let suspended = suspended();
        Self { at, suspended }
    }

    /// Returns the time from an earlier moment to this one.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        let suspended = self.suspended.saturating_sub(earlier.suspended);
        let running = self.at.saturating_duration_since(earlier.at);
        running.saturating_add(suspended)
    }

    /// Returns the time since then.
    pub fn elapsed(self) -> Duration {
        Self::now().saturating_duration_since(self)
    }
}

/// The growth of the distance between the two clocks.
#[derive(Debug)]
struct SuspendCounter {
    begun_ms: u64,
    counted_ms: AtomicU64,
}

impl SuspendCounter {
    fn new(distance_ms: impl Fn() -> u64) -> Self {
        Self {
            begun_ms: least(distance_ms),
            counted_ms: AtomicU64::new(0),
        }
    }

    fn read_ms(&self, distance_ms: impl Fn() -> u64) -> u64 {
        let counted_ms = self.counted_ms.load(Ordering::Relaxed);
        let grown = |distance: u64| {
            let suspended_ms = distance.saturating_sub(self.begun_ms);
            (suspended_ms >= counted_ms + SUSPEND_MIN_MS).then_some(suspended_ms)
        };
        if grown(distance_ms()).is_none() {
            return counted_ms;
        }
        match grown(least(distance_ms)) {
            Some(suspended_ms) => {
                let before_ms = self.counted_ms.fetch_max(suspended_ms, Ordering::Relaxed);
                before_ms.max(suspended_ms)
            }
            None => counted_ms,
        }
    }
}

fn least(distance_ms: impl Fn() -> u64) -> u64 {
    let readings = (0..READINGS).map(|_| distance_ms());
    readings.min().unwrap_or_default()
}

/// Returns how far `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`, which `Instant` reads.
#[cfg(target_os = "linux")]
fn distance_ms() -> u64 {
    use rustix::time::{ClockId, DynamicClockId, clock_gettime_dynamic};

    // An error, of a kernel without the clock, is as if nothing was ever suspended.
    let read = |clock| -> Option<Duration> { clock_gettime_dynamic(clock).ok()?.try_into().ok() };
    let monotonic = read(DynamicClockId::Known(ClockId::Monotonic));
    let boot = read(DynamicClockId::Boottime);
    let distance = boot.zip(monotonic);
    let distance = distance.map(|(boot, monotonic)| boot.saturating_sub(monotonic));
    u64::try_from(distance.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

/// Services run on Linux. Elsewhere, suspends are not noticed.
#[cfg(not(target_os = "linux"))]
fn distance_ms() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_growth_since_the_begin_is_what_was_suspended() {
        let distance = Cell::new(70_000);
        let counter = SuspendCounter::new(|| distance.get());
        let read = || counter.read_ms(|| distance.get());
        assert_eq!(read(), 0, "the process began after those");
        distance.set(70_000 + SUSPEND_MIN_MS - 1);
        assert_eq!(read(), 0);
        distance.set(3_670_000);
        assert_eq!(read(), 3_600_000);
        // It never shrinks, and short suspends count once they are enough together.
        distance.set(3_669_000);
        assert_eq!(read(), 3_600_000);
        distance.set(3_670_000 + SUSPEND_MIN_MS);
        assert_eq!(read(), 3_600_000 + SUSPEND_MIN_MS);
    }

    #[test]
    fn a_reading_that_was_held_up_between_the_clocks_is_no_suspend() {
        let readings = Cell::new(0);
        let delayed = || {
            readings.set(readings.get() + 1);
            if readings.get() % 2 == 1 { 500 } else { 7 }
        };
        let counter = SuspendCounter::new(delayed);
        assert_eq!(counter.begun_ms, 7);
        for _ in 0..4 {
            assert_eq!(counter.read_ms(delayed), 0);
        }
    }

    #[test]
    fn an_age_counts_the_suspends_after_its_moment() {
        let (at, minute) = (Instant::now(), Duration::from_secs(60));
        let moment = |seconds, suspended| BootInstant {
            at: at + Duration::from_secs(seconds),
            suspended,
        };
        let heard = moment(1, minute);
        assert_eq!(
            moment(3, minute).saturating_duration_since(heard).as_secs(),
            2
        );
        let woken = moment(3, 10 * minute);
        assert_eq!(woken.saturating_duration_since(heard).as_secs(), 2 + 540);
        assert_eq!(heard.saturating_duration_since(woken), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_process_that_counts_suspends_tokios_clock_is_all() {
        let begun = BootInstant::now();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
        assert_eq!(suspended(), Duration::ZERO);
    }
}
