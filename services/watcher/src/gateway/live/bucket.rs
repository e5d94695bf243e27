//! A token bucket: it limits the reads that begin in a second. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket of tokens that is full at first and fills at a steady rate. A caller that takes a token before it is
/// there waits for it. Waiting callers are served in the order of their calls.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Between two tokens.
    step: Duration,
    /// The capacity.
    burst: u32,
    /// The time of the next token. A time further back than a full bucket counts as a full bucket.
    next: Instant,
}

impl Bucket {
    /// So many in a second (at least one), and as many at once.
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        let burst = per_second.max(1);
        let step = Duration::from_secs(1) / burst;
        Self {
            step,
            burst,
            next: now.checked_sub(step * burst).unwrap_or(now),
        }
    }

    /// Takes a token. Returns the wait for it; `None`, without taking one, if the wait is longer than `most`.
    pub(super) fn take(&mut self, now: Instant, most: Duration) -> Option<Duration> {
        let at = self.next.max(self.full(now));
        let wait = at.saturating_duration_since(now);
        if wait > most {
            return None;
        }
        self.next = at + self.step;
        Some(wait)
    }

    /// The time of the next token of a full bucket.
    fn full(&self, now: Instant) -> Instant {
        now.checked_sub(self.step * (self.burst - 1)).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A burst, then a steady rate, then a burst again.
    #[test]
    fn a_bucket_allows_a_burst_and_then_a_steady_rate() {
        let begun = Instant::now();
        let mut bucket = Bucket::new(4, begun);
        let mut take = |at_ms: u32, most_ms: u32| {
            let wait = bucket.take(begun + MS * at_ms, MS * most_ms);
            wait.map(|wait| wait.as_millis())
        };
        for (at_ms, most_ms, wait_ms) in [
            (0, 0, Some(0)),
            (0, 0, Some(0)),
            (0, 0, Some(0)),
            (0, 0, Some(0)),
            // The bucket is empty: what may not wait takes nothing.
            (0, 249, None),
            (0, 250, Some(250)),
            (0, 1_000, Some(500)),
            (500, 0, None),
            (500, 250, Some(250)),
            // Full again, and no fuller.
            (10_000, 0, Some(0)),
            (10_000, 0, Some(0)),
            (10_000, 0, Some(0)),
            (10_000, 0, Some(0)),
            (10_000, 0, None),
        ] {
            assert_eq!(take(at_ms, most_ms), wait_ms, "{at_ms} {most_ms}");
        }
    }
}
