//! Permits for concurrent work, shared fairly by those who ask for it.
//!
//! A key may hold at most twice as many permits as are free (a dynamic threshold, after Choudhury and Hahne, 1998). So
//! one busy key gets two thirds of the permits, and two come to two fifths each: a busy key gets no new permit while a
//! later one has less. A key without a permit gets one while any is free.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// The number of permits that a key may hold for each free one.
const HELD_PER_FREE: u32 = 2;

/// The policies of one namespace have at most this part of a limit.
const NAMESPACE_PART: u32 = 4;

/// The policies of all namespaces together have so many hundredths of a limit. Policies of the cluster always have the
/// rest.
const NAMESPACES_PERCENT: u32 = 75;

/// A number of permits that keys share. At most that many keys are known at a time.
#[derive(Debug)]
pub struct FairQuota<K> {
    permits_max: u32,
    /// The most permits of one key.
    key_permits_max: u32,
    held: Mutex<Held<K>>,
    released: Notify,
}

#[derive(Debug)]
struct Held<K> {
    /// The sum of `by_key`.
    all: u32,
    /// Keys that hold none are absent.
    by_key: BTreeMap<K, u32>,
}

/// A permit. Dropping it gives it back.
#[derive(Debug)]
pub struct FairPermit<K: Ord> {
    quota: Arc<FairQuota<K>>,
    key: K,
}

/// A key got no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{held_max} permits are held")]
pub struct QuotaFull {
    /// The limit that was met: the permits that the key holds, or that all keys hold.
    pub held_max: u32,
}

impl FairQuota<String> {
    /// The part that the policies of namespaces have of a limit, by the name of the namespace.
    pub fn of_namespaces(limit: u32) -> Arc<Self> {
        let together = u64::from(limit) * u64::from(NAMESPACES_PERCENT) / 100;
        Self::new(
            u32::try_from(together).unwrap_or(u32::MAX),
            limit / NAMESPACE_PART,
        )
    }
}

impl<K: Ord + Clone> FairQuota<K> {
    /// A quota of `permits_max` permits, of which one key may hold `key_permits_max`. Zero counts as one.
    pub fn new(permits_max: u32, key_permits_max: u32) -> Arc<Self> {
        Arc::new(Self {
            permits_max: permits_max.max(1),
            key_permits_max: key_permits_max.max(1),
            held: Mutex::new(Held {
                all: 0,
                by_key: BTreeMap::new(),
            }),
            released: Notify::new(),
        })
    }

    /// Takes a permit for `key`.
    ///
    /// # Errors
    /// [`QuotaFull`] if the key may not hold one more now.
    pub fn try_admit(self: &Arc<Self>, key: K) -> Result<FairPermit<K>, QuotaFull> {
        let mut held = self.held.lock();
        let free = self.permits_max - held.all;
        let of_key = held.by_key.get(&key).copied().unwrap_or(0);
        if free == 0 {
            return Err(QuotaFull {
                held_max: self.permits_max,
            });
        }
        let threshold = free.saturating_mul(HELD_PER_FREE);
        if of_key > 0 && of_key >= threshold.min(self.key_permits_max) {
            return Err(QuotaFull { held_max: of_key });
        }
        held.all += 1;
        held.by_key.insert(key.clone(), of_key + 1);
        drop(held);
        Ok(FairPermit {
            quota: Arc::clone(self),
            key,
        })
    }

    /// Waits for a permit for `key`.
    ///
    /// # Errors
    /// [`QuotaFull`] if the key may hold no more until `deadline`.
    pub async fn admit(
        self: &Arc<Self>,
        key: K,
        deadline: Instant,
    ) -> Result<FairPermit<K>, QuotaFull> {
        loop {
            let released = self.released.notified();
            tokio::pin!(released);
            // A permit that is given back from here on is not missed.
            released.as_mut().enable();
            let full = match self.try_admit(key.clone()) {
                Ok(permit) => return Ok(permit),
                Err(full) => full,
            };
            if tokio::time::timeout_at(deadline, released).await.is_err() {
                return Err(full);
            }
        }
    }
}

impl<K: Ord> Drop for FairPermit<K> {
    fn drop(&mut self) {
        let mut held = self.quota.held.lock();
        held.all -= 1;
        if let Some(count) = held.by_key.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                held.by_key.remove(&self.key);
            }
        }
        drop(held);
        self.quota.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    type Permits = Vec<FairPermit<&'static str>>;

    /// Takes as many permits as the key gets now.
    fn take(quota: &Arc<FairQuota<&'static str>>, key: &'static str) -> Permits {
        std::iter::from_fn(|| quota.try_admit(key).ok()).collect()
    }

    #[test]
    fn busy_keys_get_equal_parts_and_leave_some_to_a_later_key() {
        for (permits_max, key_permits_max, expected) in [
            (16, 16, vec![11, 4, 1, 0]),
            (48, 16, vec![16, 16, 11, 4, 1, 0]),
            (4, 1, vec![1, 1, 1, 1, 0]),
            (1, 1, vec![1, 0]),
            (0, 0, vec![1, 0]),
        ] {
            let quota = FairQuota::new(permits_max, key_permits_max);
            let keys = ["a", "b", "c", "d", "e", "f", "g"];
            let held: Vec<Permits> = keys.iter().map(|key| take(&quota, key)).collect();
            let counts: Vec<_> = held.iter().map(Vec::len).take(expected.len()).collect();
            assert_eq!(counts, expected, "{permits_max} {key_permits_max}");
        }
    }

    #[test]
    fn keys_that_go_on_asking_come_to_equal_parts() {
        let quota = FairQuota::new(16, 16);
        let keys = ["a", "b", "c"];
        let mut held: Vec<Permits> = keys.iter().map(|key| take(&quota, key)).collect();
        for _ in 0..100 {
            for (permits, key) in held.iter_mut().zip(keys) {
                permits.pop();
                permits.extend(take(&quota, key));
            }
        }
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert!(
            counts.iter().all(|count| (4..=6).contains(count)),
            "{counts:?}"
        );
        assert!(quota.try_admit("d").is_ok(), "{counts:?}");
    }

    #[test]
    fn a_namespace_has_a_quarter_and_all_namespaces_three_quarters() {
        for (limit, together, one) in [
            (64, 48, 16),
            (8, 6, 2),
            (3, 2, 1),
            (1, 1, 1),
            (u32::MAX, 3_221_225_471, 1_073_741_823),
        ] {
            let quota = FairQuota::of_namespaces(limit);
            assert_eq!(
                (quota.permits_max, quota.key_permits_max),
                (together, one),
                "{limit}"
            );
        }
    }

    #[test]
    fn the_error_names_the_limit_that_was_met() {
        let quota = FairQuota::new(4, 2);
        let of_a = take(&quota, "a");
        assert_eq!(quota.try_admit("a").unwrap_err(), QuotaFull { held_max: 2 });
        let others: Vec<_> = ["b", "c"].map(|key| take(&quota, key)).into();
        assert_eq!(quota.try_admit("d").unwrap_err(), QuotaFull { held_max: 4 });
        drop((of_a, others));
        let held = quota.held.lock();
        assert_eq!((held.all, held.by_key.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_a_permit_until_its_deadline() {
        let quota = FairQuota::new(1, 1);
        let soon = || Instant::now() + Duration::from_millis(5);
        let permit = quota.admit("a", soon()).await.unwrap();
        let full = quota.admit("b", soon()).await.map(drop).unwrap_err();
        assert_eq!(full, QuotaFull { held_max: 1 });
        let later = tokio::spawn({
            let quota = Arc::clone(&quota);
            async move { quota.admit("b", soon()).await.map(drop) }
        });
        tokio::task::yield_now().await;
        drop(permit);
        assert_eq!(later.await.unwrap(), Ok(()));
    }
}
