//! The times at which objects are judged again that could not be judged for lack of facts.

use std::collections::HashMap;

use anteroom_runtime::backoff::Backoff;
use tokio::time::Instant;

use crate::findings::Finder;

/// Waits until then, in milliseconds.
const BASE_MS: u64 = 2_000;
const MAX_MS: u64 = 10 * 60 * 1_000;

#[derive(Debug)]
struct Retry {
    at: Instant,
    backoff: Backoff,
    /// The retry has begun, and its outcome is not known yet.
    is_begun: bool,
}

/// The finders that could not judge something, and when it is tried again.
#[derive(Debug, Default)]
pub(super) struct Retries(HashMap<Finder, Retry>);

impl Retries {
    /// There was something that could not be judged.
    pub(super) fn put(&mut self, finder: &Finder, now: Instant) {
        let retry = self.0.entry(finder.clone()).or_insert_with(|| Retry {
            at: now,
            backoff: Backoff::new(BASE_MS, MAX_MS),
            is_begun: true,
        });
        // Many objects of one walk fail together.
        if std::mem::take(&mut retry.is_begun) {
            retry.at = now + retry.backoff.next(rand::random());
        }
    }

    /// Returns the finders whose time has come. Each is begun, [done](Retries::done) or put off.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Finder> {
        let due = self.0.iter_mut().filter(|(_, retry)| retry.at <= now);
        due.map(|(finder, retry)| {
            retry.is_begun = true;
            // Where nothing fails any more, that is found out then.
            retry.at = now + retry.backoff.clone().next(u64::MAX);
            finder.clone()
        })
        .collect()
    }

    /// The retry of this finder could not be begun: it is due again soon.
    pub(super) fn later(&mut self, finder: &Finder, now: Instant) {
        if let Some(retry) = self.0.get_mut(finder) {
            retry.at = now + std::time::Duration::from_millis(BASE_MS);
        }
    }

    /// There is nothing left that could not be judged.
    pub(super) fn done(&mut self, finder: &Finder) {
        self.0.remove(finder);
    }

    /// Forgets all other finders.
    pub(super) fn retain(&mut self, is_finder: impl Fn(&Finder) -> bool) {
        self.0.retain(|finder, _| is_finder(finder));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::findings::tests::finder;

    #[test]
    fn a_failing_policy_is_retried_with_growing_waits() {
        let begin = Instant::now();
        let mut retries = Retries::default();
        let finder = finder("p");
        retries.put(&finder, begin);
        let first = retries.0[&finder].at;
        assert!(first <= begin + Duration::from_millis(BASE_MS));
        retries.put(&finder, begin);
        assert_eq!(retries.0[&finder].at, first, "they failed together");
        assert_eq!(retries.due(begin), []);
        let mut now = begin;
        for _ in 0..20 {
            now += Duration::from_millis(MAX_MS);
            assert_eq!(retries.due(now), std::slice::from_ref(&finder));
            assert_eq!(retries.due(now), []);
            retries.put(&finder, now);
        }
        assert!(retries.0[&finder].at >= now + Duration::from_millis(MAX_MS / 2));
        retries.done(&finder);
        assert_eq!(retries.due(now + Duration::from_secs(3_600)), []);
    }
}
