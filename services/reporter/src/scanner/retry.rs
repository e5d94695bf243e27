//! The times at which objects are judged again that could not be judged for lack of facts.

use std::collections::HashMap;

use anteroom_runtime::backoff::Backoff;
use tokio::time::Instant;

use crate::findings::PolicyScan;

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

/// The scans that could not judge something, and when it is tried again.
#[derive(Debug, Default)]
pub(super) struct Retries(HashMap<PolicyScan, Retry>);

impl Retries {
    /// There was something that could not be judged.
    pub(super) fn put(&mut self, scan: &PolicyScan, now: Instant) {
        let retry = self.0.entry(scan.clone()).or_insert_with(|| Retry {
            at: now,
            backoff: Backoff::new(BASE_MS, MAX_MS),
            is_begun: true,
        });
        // Many objects of one walk fail together.
        if std::mem::take(&mut retry.is_begun) {
            retry.at = now + retry.backoff.next(rand::random());
        }
    }

    /// Returns the scans whose time has come. Each is begun, [done](Retries::done) or put off.
    pub(super) fn due(&mut self, now: Instant) -> Vec<PolicyScan> {
        let due = self.0.iter_mut().filter(|(_, retry)| retry.at <= now);
        due.map(|(scan, retry)| {
            retry.is_begun = true;
            // Where nothing fails any more, that is found out then.
            retry.at = now + retry.backoff.clone().next(u64::MAX);
            scan.clone()
        })
        .collect()
    }

    /// The retry of this scan could not be begun: it is due again soon.
    pub(super) fn later(&mut self, scan: &PolicyScan, now: Instant) {
        if let Some(retry) = self.0.get_mut(scan) {
            retry.at = now + std::time::Duration::from_millis(BASE_MS);
        }
    }

    /// There is nothing left that could not be judged.
    pub(super) fn done(&mut self, scan: &PolicyScan) {
        self.0.remove(scan);
    }

    /// Forgets all other scans.
    pub(super) fn retain(&mut self, is_scan: impl Fn(&PolicyScan) -> bool) {
        self.0.retain(|scan, _| is_scan(scan));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::findings::tests::scan;

    #[test]
    fn a_failing_policy_is_retried_with_growing_waits() {
        let begin = Instant::now();
        let mut retries = Retries::default();
        let scan = scan("p");
        retries.put(&scan, begin);
        let first = retries.0[&scan].at;
        assert!(first <= begin + Duration::from_millis(BASE_MS));
        retries.put(&scan, begin);
        assert_eq!(retries.0[&scan].at, first, "they failed together");
        assert_eq!(retries.due(begin), []);
        let mut now = begin;
        for _ in 0..20 {
            now += Duration::from_millis(MAX_MS);
            assert_eq!(retries.due(now), std::slice::from_ref(&scan));
            assert_eq!(retries.due(now), []);
            retries.put(&scan, now);
        }
        assert!(retries.0[&scan].at >= now + Duration::from_millis(MAX_MS / 2));
        retries.done(&scan);
        assert_eq!(retries.due(now + Duration::from_secs(3_600)), []);
    }
}
