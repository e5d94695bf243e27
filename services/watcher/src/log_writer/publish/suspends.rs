//! The times at which the machine was suspended: news of before is as much older. Pure.
//!
//! `Instant` stands still while a machine is suspended. So the age of news is the time by `Instant`, plus each suspend
//! since.

use std::{collections::VecDeque, time::Duration};

use anteroom_model::limits::SUSPEND_SETTLE_MS;
use tokio::time::Instant;

/// The suspends that are known one by one. Of more, the two earliest count as one that ended with the later.
const SUSPENDS_MAX: usize = 16;

/// The suspends since the first note.
#[derive(Debug, Default)]
pub(super) struct Suspends {
    /// For how long the machine was suspended since the process began, at the last note.
    total: Option<Duration>,
    each: VecDeque<Suspend>,
}

#[derive(Debug)]
struct Suspend {
    took: Duration,
    /// The time up to which news may arrive that was sent before the suspend.
    settled_at: Instant,
}

impl Suspends {
    /// The machine has been suspended for `total` since the process began.
    pub(super) fn note(&mut self, total: Duration, now: Instant) {
        let before = self.total.replace(total).unwrap_or(total);
        let took = total.saturating_sub(before);
        if took.is_zero() {
            return;
        }
        if self.each.len() == SUSPENDS_MAX
            && let Some(earliest) = self.each.pop_front()
            && let Some(next) = self.each.front_mut()
        {
            next.took += earliest.took;
        }
        let settled_at = now + Duration::from_millis(SUSPEND_SETTLE_MS);
        self.each.push_back(Suspend { took, settled_at });
    }

    /// Returns the age at `now` of what came at `at`.
    pub(super) fn age(&self, at: Instant, now: Instant) -> Duration {
        let suspends = self.each.iter();
        let since = suspends.filter(|suspend| at <= suspend.settled_at);
        let suspended: Duration = since.map(|suspend| suspend.took).sum();
        now.saturating_duration_since(at).saturating_add(suspended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_counts_each_suspend_since_then_and_no_earlier_one() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut suspends = Suspends::default();
        let mut total = Duration::from_secs(7_000);
        suspends.note(total, at(0));
        let age = |suspends: &Suspends, of, now| suspends.age(at(of), at(now)).as_secs();
        assert_eq!(
            age(&suspends, 0, 10),
            10,
            "suspends of before are not of this time"
        );
        for (now, took) in [(20, 100), (40, 1_000)] {
            total += Duration::from_secs(took);
            suspends.note(total, at(now));
            suspends.note(total, at(now + 1));
        }
        assert_eq!(age(&suspends, 10, 50), 40 + 1_100);
        assert_eq!(age(&suspends, 30, 50), 20 + 1_000);
        assert_eq!(age(&suspends, 42, 50), 8);
    }

    #[test]
    fn suspends_beyond_the_limit_make_nothing_younger() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut suspends = Suspends::default();
        let many = 3 * SUSPENDS_MAX as u64;
        for n in 0..=many {
            suspends.note(Duration::from_secs(n * 100), at(n * 10));
        }
        assert_eq!(suspends.each.len(), SUSPENDS_MAX);
        let end = many * 10;
        assert_eq!(suspends.age(at(0), at(end)).as_secs(), end + many * 100);
        let last = suspends.age(at(end - 5), at(end)).as_secs();
        assert_eq!(last, 5 + 100);
    }
}
