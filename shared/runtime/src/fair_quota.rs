//! A quota of permits or bytes, shared fairly by the keys that ask for them.
//!
//! A key may hold at most twice as many units as it leaves free (a dynamic threshold, after Choudhury and Hahne, 1998).
//! So one busy key comes to two thirds of the units, two come to two fifths each, and some are left for the next key. A
//! key without units takes any number that is free.
//!
//! Requests of one key wait in their order. The keys take turns: of the first requests of all keys that may have their
//! units, the one goes next whose key got units longest ago. A key that holds units yields to a waiting key that holds
//! none, so that many small requests do not starve a large one.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// The number of units that a key may hold for each unit that is free.
const HELD_PER_FREE: u64 = 2;

/// The policies of one namespace have at most this part of a limit.
const NAMESPACE_PART: u32 = 4;

/// The policies of all namespaces together have so many hundredths of a limit. Policies of the cluster always have the
/// rest.
const NAMESPACES_PERCENT: u32 = 75;

/// A number of units that keys share.
#[derive(Debug)]
pub struct FairQuota<K: Ord + Clone> {
    units_max: u64,
    /// The most units of one key.
    key_units_max: u64,
    ledger: Mutex<Ledger<K>>,
}

#[derive(Debug)]
struct Ledger<K> {
    free: u64,
    /// Keys that neither hold units nor wait for some are absent.
    by_key: BTreeMap<K, KeyUnits>,
    /// The number of requests that wait, of all keys.
    waiting: usize,
    /// Counts requests that had to wait, and grants to them.
    clock: u64,
}

#[derive(Debug, Default)]
struct KeyUnits {
    held: u64,
    /// The sum of `queue`.
    waiting: u64,
    /// By the time of their arrival.
    queue: BTreeMap<u64, WaitingRequest>,
    /// The time of the last grant, or of the first request that had to wait.
    turn: u64,
}

#[derive(Debug)]
struct WaitingRequest {
    units: u64,
    granted: oneshot::Sender<()>,
}

/// Units of a key. Dropping the permit gives them back.
#[derive(Debug)]
pub struct FairPermit<K: Ord + Clone> {
    quota: Arc<FairQuota<K>>,
    key: K,
    units: u64,
    /// The request that the units are for, until its task knows that they were granted.
    request: Option<u64>,
}

/// A key got no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{held_max} units are held")]
pub struct QuotaFull {
    /// The limit that was met: the units that the key holds, or those of the whole quota.
    pub held_max: u64,
}

impl FairQuota<String> {
    /// The part that the policies of namespaces have of a limit, by the name of the namespace.
    pub fn of_namespaces(limit: u32) -> Arc<Self> {
        let together = u64::from(limit) * u64::from(NAMESPACES_PERCENT) / 100;
        Self::new(together, (limit / NAMESPACE_PART).into())
    }
}

impl<K: Ord + Clone> FairQuota<K> {
    /// A quota of `units_max` units, of which one key may hold `key_units_max`. Zero counts as one.
    pub fn new(units_max: u64, key_units_max: u64) -> Arc<Self> {
        let units_max = units_max.max(1);
        Arc::new(Self {
            units_max,
            key_units_max: key_units_max.max(1),
            ledger: Mutex::new(Ledger {
                free: units_max,
                by_key: BTreeMap::new(),
                waiting: 0,
                clock: 0,
            }),
        })
    }

    /// The number of all units, held or free.
    pub fn units_max(&self) -> u64 {
        self.units_max
    }

    /// Takes units for `key`.
    ///
    /// # Errors
    /// [`QuotaFull`] if the key may not have them now.
    pub fn try_take(self: &Arc<Self>, key: K, units: u64) -> Result<FairPermit<K>, QuotaFull> {
        let mut ledger = self.ledger.lock();
        match self.try_hold(&mut ledger, &key, units) {
            true => Ok(self.permit(key, units, None)),
            false => Err(self.full(&ledger, &key, units)),
        }
    }

    /// Waits for units for `key`. They are granted even to a caller that gives up at the same moment, and then come back.
    ///
    /// # Errors
    /// [`QuotaFull`] if the key may not have them until `deadline`.
    pub async fn take(
        self: &Arc<Self>,
        key: K,
        units: u64,
        deadline: Instant,
    ) -> Result<FairPermit<K>, QuotaFull> {
        let (mut permit, granted) = {
            let mut ledger = self.ledger.lock();
            if self.try_hold(&mut ledger, &key, units) {
                return Ok(self.permit(key, units, None));
            }
            let (request, granted) = ledger.enqueue(&key, units);
            (self.permit(key, units, Some(request)), granted)
        };
        if let Ok(Ok(())) = timeout_at(deadline, granted).await {
            permit.request = None;
            return Ok(permit);
        }
        let ledger = self.ledger.lock();
        Err(self.full(&ledger, &permit.key, units))
    }

    /// Returns whether a key holds or waits for units, and would have more than an equal part with these. The equal part
    /// is one of as many as there are keys, and one for the next key.
    pub fn would_exceed_part(&self, key: &K, units: u64) -> bool {
        let ledger = self.ledger.lock();
        let parts = ledger.by_key.len() as u64 + 1;
        ledger.by_key.get(key).is_some_and(|of_key| {
            let wanted = of_key.held.saturating_add(of_key.waiting);
            wanted.saturating_add(units) > self.units_max / parts
        })
    }

    fn permit(self: &Arc<Self>, key: K, units: u64, request: Option<u64>) -> FairPermit<K> {
        FairPermit {
            quota: Arc::clone(self),
            key,
            units,
            request,
        }
    }

    fn full(&self, ledger: &Ledger<K>, key: &K, units: u64) -> QuotaFull {
        let held = ledger.by_key.get(key).map_or(0, |of_key| of_key.held);
        let held_max = match held == 0 || units > ledger.free {
            true => self.units_max,
            false => held,
        };
        QuotaFull { held_max }
    }

    /// Returns whether a key that holds so many units may have `units` more, of `free` ones.
    fn may_hold(&self, held: u64, units: u64, free: u64) -> bool {
        free.checked_sub(units).is_some_and(|left| {
            let threshold = left.saturating_mul(HELD_PER_FREE);
            held == 0 || held + units <= threshold.min(self.key_units_max)
        })
    }

    fn try_hold(&self, ledger: &mut Ledger<K>, key: &K, units: u64) -> bool {
        let known = ledger.by_key.get(key);
        // Requests of one key do not overtake each other.
        let waits = known.is_some_and(|of_key| !of_key.queue.is_empty());
        let held = known.map_or(0, |of_key| of_key.held);
        let free = match held {
            0 => ledger.free,
            _ => ledger.free.saturating_sub(ledger.reserved()),
        };
        let may_hold = !waits && self.may_hold(held, units, free);
        if may_hold {
            ledger.hold(key, units);
        }
        may_hold
    }

    /// Gives units to requests that wait, until none may have its units.
    fn grant(&self, ledger: &mut Ledger<K>) {
        while ledger.waiting > 0 {
            let unreserved = ledger.free.saturating_sub(ledger.reserved());
            let firsts = ledger.firsts().filter(|first| {
                let free = match first.held {
                    0 => ledger.free,
                    _ => unreserved,
                };
                self.may_hold(first.held, first.units, free)
            });
            let Some(next) = firsts.min_by_key(|first| (first.held > 0, first.turn)) else {
                return;
            };
            let (key, request, units) = (next.key.clone(), next.request, next.units);
            if let Some(waiting) = ledger.dequeue(&key, request) {
                ledger.hold(&key, units);
                ledger.take_turn(&key);
                // If its task has just given up, dropping the permit gives the units back.
                let _ = waiting.granted.send(());
            }
        }
    }
}

/// The first request of a key that waits.
struct FirstRequest<'l, K> {
    key: &'l K,
    held: u64,
    turn: u64,
    request: u64,
    units: u64,
}

impl<K: Ord + Clone> Ledger<K> {
    fn hold(&mut self, key: &K, units: u64) {
        self.free -= units;
        match self.by_key.get_mut(key) {
            Some(of_key) => of_key.held += units,
            None => {
                let of_key = self.by_key.entry(key.clone()).or_default();
                of_key.held = units;
            }
        }
    }

    fn firsts(&self) -> impl Iterator<Item = FirstRequest<'_, K>> {
        self.by_key.iter().filter_map(|(key, of_key)| {
            let (request, waiting) = of_key.queue.first_key_value()?;
            Some(FirstRequest {
                key,
                held: of_key.held,
                turn: of_key.turn,
                request: *request,
                units: waiting.units,
            })
        })
    }

    /// Returns the units that keys with units leave to the next waiting key that has none.
    fn reserved(&self) -> u64 {
        if self.waiting == 0 {
            return 0;
        }
        let without = self.firsts().filter(|first| first.held == 0);
        let next = without.min_by_key(|first| first.turn);
        next.map_or(0, |first| first.units)
    }

    fn take_turn(&mut self, key: &K) {
        self.clock += 1;
        if let Some(of_key) = self.by_key.get_mut(key) {
            of_key.turn = self.clock;
        }
    }

    fn enqueue(&mut self, key: &K, units: u64) -> (u64, oneshot::Receiver<()>) {
        self.clock += 1;
        let request = self.clock;
        self.waiting += 1;
        let (granted, receiver) = oneshot::channel();
        let of_key = self.by_key.entry(key.clone()).or_default();
        if of_key.turn == 0 {
            of_key.turn = request;
        }
        of_key.waiting = of_key.waiting.saturating_add(units);
        let waiting = WaitingRequest { units, granted };
        of_key.queue.insert(request, waiting);
        (request, receiver)
    }

    /// Takes a request out of its key's queue; `None`: it is not there any more.
    fn dequeue(&mut self, key: &K, request: u64) -> Option<WaitingRequest> {
        let of_key = self.by_key.get_mut(key)?;
        let waiting = of_key.queue.remove(&request)?;
        of_key.waiting -= waiting.units;
        self.waiting -= 1;
        Some(waiting)
    }

    /// Gives back what a permit stands for: its place in the queue, or its units.
    fn give_back(&mut self, key: &K, units: u64, request: Option<u64>) {
        let left = request.and_then(|request| self.dequeue(key, request));
        if let Some(of_key) = self.by_key.get_mut(key) {
            if left.is_none() {
                of_key.held -= units;
                self.free += units;
            }
            if of_key.held == 0 && of_key.queue.is_empty() {
                self.by_key.remove(key);
            }
        }
    }
}

impl<K: Ord + Clone> Drop for FairPermit<K> {
    fn drop(&mut self) {
        let mut ledger = self.quota.ledger.lock();
        ledger.give_back(&self.key, self.units, self.request);
        self.quota.grant(&mut ledger);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    type Permits = Vec<FairPermit<char>>;

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    /// Takes so many units for as often as the key gets them now.
    fn take_all(quota: &Arc<FairQuota<char>>, key: char, units: u64) -> Permits {
        std::iter::from_fn(|| quota.try_take(key, units).ok()).collect()
    }

    fn is_untouched(quota: &FairQuota<char>) -> bool {
        let ledger = quota.ledger.lock();
        ledger.by_key.is_empty() && ledger.waiting == 0 && ledger.free == quota.units_max
    }

    /// Polls a request once.
    fn poll<F: Future>(request: &mut std::pin::Pin<Box<F>>) -> std::task::Poll<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        request.as_mut().poll(&mut context)
    }

    /// Returns whether a request has to wait.
    fn waits<F: Future>(request: &mut std::pin::Pin<Box<F>>) -> bool {
        poll(request).is_pending()
    }

    #[test]
    fn busy_keys_leave_some_units_to_a_later_key() {
        for (units_max, key_units_max, units, expected) in [
            (16, 16, 1, vec![10, 4, 1, 1, 0]),
            (48, 16, 1, vec![16, 16, 10, 4, 1, 1, 0]),
            (4, 1, 1, vec![1, 1, 1, 1, 0]),
            (1, 1, 1, vec![1, 0]),
            (0, 0, 1, vec![1, 0]),
            (1_000, 1_000, 10, vec![66, 22, 8, 2, 1, 1, 0]),
        ] {
            let quota = FairQuota::new(units_max, key_units_max);
            let held: Vec<Permits> = ('a'..='g')
                .map(|key| take_all(&quota, key, units))
                .collect();
            let counts: Vec<_> = held.iter().map(Vec::len).take(expected.len()).collect();
            assert_eq!(counts, expected, "{units_max} {key_units_max}");
            drop(held);
            assert!(is_untouched(&quota));
        }
    }

    #[test]
    fn keys_that_go_on_asking_come_to_equal_parts() {
        for (units_max, units, expected) in [(16, 1, 4..=6), (1_000, 10, 26..=30)] {
            let quota = FairQuota::new(units_max, units_max);
            let keys = ['a', 'b', 'c'];
            let mut held = keys.map(|key| take_all(&quota, key, units));
            for _ in 0..100 {
                for (permits, key) in held.iter_mut().zip(keys) {
                    permits.pop();
                    permits.extend(take_all(&quota, key, units));
                }
            }
            let counts = held.each_ref().map(Vec::len);
            let equal = counts.iter().all(|count| expected.contains(count));
            assert!(equal, "{counts:?}");
            assert!(quota.try_take('d', units).is_ok(), "{counts:?}");
        }
    }

    #[test]
    fn a_key_without_units_gets_all_free_units() {
        let quota = FairQuota::new(100, 50);
        let most = quota.try_take('a', 90).unwrap();
        assert!(quota.try_take('a', 1).is_err());
        assert!(quota.try_take('b', 11).is_err());
        assert!(quota.try_take('b', 10).is_ok());
        drop(most);
        assert!(quota.try_take('b', 100).is_ok());
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
                (quota.units_max, quota.key_units_max),
                (together, one),
                "{limit}"
            );
        }
    }

    #[test]
    fn the_error_names_the_limit_that_was_met() {
        let quota = FairQuota::new(4, 2);
        let of_a = take_all(&quota, 'a', 1);
        let full = |key| quota.try_take(key, 1).unwrap_err();
        assert_eq!(full('a'), QuotaFull { held_max: 2 });
        let others: Vec<_> = ['b', 'c'].map(|key| take_all(&quota, key, 1)).into();
        assert_eq!(full('d'), QuotaFull { held_max: 4 });
        drop((of_a, others));
        assert!(is_untouched(&quota));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_units_until_its_deadline() {
        let quota = FairQuota::new(1, 1);
        let permit = quota.take('a', 1, in_seconds(1)).await.unwrap();
        let full = quota.take('b', 1, in_seconds(1)).await.map(drop);
        assert_eq!(full, Err(QuotaFull { held_max: 1 }));
        let mut later = Box::pin(quota.take('b', 1, in_seconds(1)));
        assert!(waits(&mut later));
        drop(permit);
        assert!(later.await.is_ok());
        assert!(is_untouched(&quota));
    }

    /// Starts requests that hold their units for a second. Returns them in the order in which they got the units.
    async fn order(
        quota: &Arc<FairQuota<char>>,
        before: FairPermit<char>,
        requests: &[(char, u64)],
    ) -> Vec<(char, u64)> {
        let (got, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (key, units) in requests.iter().copied() {
            let (quota, got) = (Arc::clone(quota), got.clone());
            tokio::spawn(async move {
                let permit = quota.take(key, units, in_seconds(60)).await;
                got.send((key, units)).unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(permit.unwrap());
            });
            tokio::task::yield_now().await;
        }
        drop((before, got));
        let mut seen = Vec::new();
        while let Some(request) = order.recv().await {
            seen.push(request);
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn keys_take_turns_and_each_goes_in_its_own_order() {
        for (units_max, requests, expected) in [
            (
                1,
                vec![('a', 1), ('a', 1), ('a', 1), ('b', 1), ('b', 1), ('c', 1)],
                vec![('a', 1), ('b', 1), ('c', 1), ('a', 1), ('b', 1), ('a', 1)],
            ),
            (
                100,
                vec![('a', 90), ('b', 80), ('a', 10), ('c', 70), ('a', 20)],
                vec![('a', 90), ('b', 80), ('a', 10), ('c', 70), ('a', 20)],
            ),
        ] {
            let quota = FairQuota::new(units_max, units_max);
            let all = quota.try_take('x', units_max).unwrap();
            assert_eq!(order(&quota, all, &requests).await, expected);
            assert!(is_untouched(&quota));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn small_requests_of_a_busy_key_do_not_starve_a_large_one() {
        let quota = FairQuota::new(120, 120);
        let mut held = take_all(&quota, 'a', 2);
        let mut large = Box::pin(quota.take('b', 100, in_seconds(60)));
        let granted = (0..held.len()).find_map(|_| match poll(&mut large) {
            std::task::Poll::Ready(granted) => granted.ok(),
            std::task::Poll::Pending => {
                held.pop();
                held.extend(take_all(&quota, 'a', 2));
                None
            }
        });
        assert!(granted.is_some(), "the other key yields");
        drop((granted, held));
        assert!(is_untouched(&quota));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gives_up_lets_the_next_one_go() {
        let quota = FairQuota::new(100, 100);
        let held = quota.try_take('a', 40).unwrap();
        let mut large = Box::pin(quota.take('a', 60, in_seconds(5)));
        assert!(waits(&mut large));
        let mut small = Box::pin(quota.take('a', 10, in_seconds(5)));
        assert!(waits(&mut small));
        drop(large);
        assert!(small.await.is_ok());
        drop(held);
        assert!(is_untouched(&quota));
    }

    #[tokio::test(start_paused = true)]
    async fn units_that_are_granted_to_a_request_that_gave_up_come_back() {
        let quota = FairQuota::new(100, 100);
        let held = quota.try_take('a', 100).unwrap();
        let mut request = Box::pin(quota.take('b', 100, in_seconds(5)));
        assert!(waits(&mut request));
        drop(held);
        assert_eq!(quota.ledger.lock().free, 0, "they are granted");
        drop(request);
        assert!(is_untouched(&quota));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_exceeds_its_part_by_what_it_holds_and_waits_for() {
        let quota = FairQuota::new(120, 120);
        assert!(!quota.would_exceed_part(&'a', 120), "it has nothing yet");
        let held = quota.try_take('a', 60).unwrap();
        assert!(quota.would_exceed_part(&'a', 1));
        assert!(!quota.would_exceed_part(&'b', 100));
        let other = quota.try_take('b', 20).unwrap();
        assert!(!quota.would_exceed_part(&'b', 20));
        assert!(quota.would_exceed_part(&'b', 21));
        let mut request = Box::pin(quota.take('b', 50, in_seconds(5)));
        assert!(waits(&mut request));
        assert!(quota.would_exceed_part(&'b', 1));
        drop((request, held, other));
        assert!(is_untouched(&quota));
    }
}
