//! Waits between attempts.

use std::time::Duration;

/// Waits that double from `base_ms` to `max_ms`, each drawn evenly between half of it and all of
/// it, so that many clients that failed together do not come back together.
///
/// Pure: whoever uses it brings the randomness and does the waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    base_ms: u64,
    max_ms: u64,
    attempt: u32,
}

impl Backoff {
    /// From `base_ms` (at least 1) up to `max_ms`.
    pub fn new(base_ms: u64, max_ms: u64) -> Self {
        let base_ms = base_ms.max(1);
        Self {
            base_ms,
            max_ms: max_ms.max(base_ms),
            attempt: 0,
        }
    }

    /// The next wait. `random` is any number, evenly distributed: `rand::random()` in a service, a
    /// seeded one in a test.
    pub fn next(&mut self, random: u64) -> Duration {
        self.next_within(random, self.max_ms)
    }

    /// Returns the next wait, as [`Backoff::next`] does, but at most `max_ms` this time.
    pub fn next_within(&mut self, random: u64, max_ms: u64) -> Duration {
        let factor = 1_u64.checked_shl(self.attempt).unwrap_or(u64::MAX);
        let max_ms = max_ms.min(self.max_ms);
        let full_ms = self.base_ms.saturating_mul(factor).min(max_ms);
        self.attempt = self.attempt.saturating_add(1);
        let half_ms = full_ms / 2;
        Duration::from_millis(half_ms + random % (full_ms - half_ms + 1))
    }

    /// Notes a success: the next wait starts at `base_ms` again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    /// The number of waits handed out since the last reset.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(wait: Duration) -> u128 {
        wait.as_millis()
    }

    #[test]
    fn a_backoff_doubles_to_its_limit_and_starts_over_on_reset() {
        let mut backoff = Backoff::new(100, 1_000);
        // The largest draw of each wait: `random % (half + 1) == half`.
        let waits: Vec<_> = [50, 100, 200, 400, 500, 500]
            .into_iter()
            .map(|most| ms(backoff.next(most)))
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
        backoff.reset();
        assert_eq!(ms(backoff.next(0)), 50);
        assert_eq!(backoff.attempt(), 1);
    }

    #[test]
    fn a_shorter_limit_bounds_the_wait_and_the_attempt_still_counts() {
        let mut backoff = Backoff::new(100, 10_000);
        let waits: Vec<_> = (0..6).map(|_| ms(backoff.next_within(0, 500))).collect();
        assert_eq!(waits, [50, 100, 200, 250, 250, 250]);
        assert_eq!(
            ms(backoff.next(0)),
            3_200,
            "the attempts count all the same"
        );
    }

    #[test]
    fn a_wait_stays_between_half_and_whole_for_any_draw_and_attempt() {
        let mut backoff = Backoff::new(3, u64::MAX);
        for attempt in 0..200_u32 {
            let random = u64::from(attempt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let full = 3_u128
                .saturating_mul(1_u128.checked_shl(attempt).unwrap_or(u128::MAX))
                .min(u128::from(u64::MAX));
            let wait = ms(backoff.next(random));
            assert!(
                wait >= full / 2 && wait <= full,
                "{attempt}: {wait} of {full}"
            );
        }
    }

    #[test]
    fn a_backoff_with_base_zero_waits_at_most_a_millisecond() {
        assert!(ms(Backoff::new(0, 0).next(1)) <= 1);
    }
}
