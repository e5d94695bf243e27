//! A quota of permits or bytes, shared fairly by the keys that ask for them.
//!
//! A key may hold at most twice as many units as it leaves free (a dynamic threshold, after Choudhury and Hahne, 1998).
//! So one busy key comes to two thirds of the units, two come to two fifths each, and some are left for the next key. A
//! key without units takes any number that is free, up to the most that one key may have.
//!
//! Requests of one key wait in their order. The keys take turns: of the first requests of all keys that may have their
//! units, the one goes next whose key has waited longest without a unit. A key that holds units yields to a waiting key
//! that holds none, so that many small requests do not starve a large one, and one large request does not follow another.

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
    /// Counts requests that had to wait, grants to them, and the times at which waiting keys gave back their last units.
    clock: u64,
}

#[derive(Debug, Default)]
struct KeyUnits {
    held: u64,
    /// The sum of `queue`.
    waiting: u64,
    /// The requests that wait, by the time of their arrival.
    queue: BTreeMap<u64, WaitingRequest>,
    /// The time from which the key waits for its turn: the last time at which a request of it began to wait alone, got its
    /// units, or gave back the key's last ones.
    turn: u64,
    /// The time of the last grant to a request that waited.
    last_grant: u64,
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
    /// The key's other requests use up its part: it holds as many units as one key may, or it has had a turn and wants
    /// more than an equal part.
    pub over_part: bool,
}

impl FairQuota<String> {
    /// The part that the policies of namespaces have of a limit, by the name of the namespace.
    pub fn of_namespaces(limit: u32) -> Arc<Self> {
        let together = u64::from(limit) * u64::from(NAMESPACES_PERCENT) / 100;
        Self::new(together, (limit / NAMESPACE_PART).into())
    }
}

impl<K: Ord + Clone> FairQuota<K> {
    /// A quota of `units_max` units, of which one key may hold `key_units_max`, also by a single request. Zero counts as
    /// one.
    pub fn new(units_max: u64, key_units_max: u64) -> Arc<Self> {
        let units_max = units_max.max(1);
        Arc::new(Self {
            units_max,
            key_units_max: key_units_max.clamp(1, units_max),
            ledger: Mutex::new(Ledger {
                free: units_max,
                by_key: BTreeMap::new(),
                waiting: 0,
                clock: 0,
            }),
        })
    }

    /// A quota of `units_max` units, of which one request has at most what many small ones of its key come to: two thirds.
    pub fn limiting_requests(units_max: u64) -> Arc<Self> {
        let of_one = units_max.saturating_mul(HELD_PER_FREE) / (HELD_PER_FREE + 1);
        Self::new(units_max, of_one)
    }

    /// The number of all units, held or free.
    pub fn units_max(&self) -> u64 {
        self.units_max
    }

    /// The most units of one key, and thus of one request.
    pub fn key_units_max(&self) -> u64 {
        self.key_units_max
    }

    /// Takes units for `key`. A request for more than one key may have gets as many as that, so that it is not impossible.
    /// One for more than all units never gets any.
    ///
    /// # Errors
    /// [`QuotaFull`] if the key may not have them now.
    pub fn try_take(self: &Arc<Self>, key: K, units: u64) -> Result<FairPermit<K>, QuotaFull> {
        let units = self.counted(units);
        let mut ledger = self.ledger.lock();
        match self.try_hold(&mut ledger, &key, units) {
            true => Ok(self.permit(key, units, None)),
            false => Err(self.full(&ledger, &key, units, None)),
        }
    }

    /// Waits for as many units for `key` as [`FairQuota::try_take`] takes. They are granted even to a caller that gives up at
    /// the same moment, and then come back.
    ///
    /// # Errors
    /// [`QuotaFull`] if the key may not have them until `deadline`.
    pub async fn take(
        self: &Arc<Self>,
        key: K,
        units: u64,
        deadline: Instant,
    ) -> Result<FairPermit<K>, QuotaFull> {
        let units = self.counted(units);
        let (mut permit, granted) = {
            let mut ledger = self.ledger.lock();
            if units > self.units_max {
                // It would keep others waiting for nothing.
                return Err(self.full(&ledger, &key, units, None));
            }
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
        Err(self.full(&ledger, &permit.key, units, permit.request))
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

    /// The units that a request counts as.
    fn counted(&self, units: u64) -> u64 {
        match units > self.units_max {
            true => units,
            false => units.min(self.key_units_max),
        }
    }

    fn permit(self: &Arc<Self>, key: K, units: u64, request: Option<u64>) -> FairPermit<K> {
        FairPermit {
            quota: Arc::clone(self),
            key,
            units,
            request,
        }
    }

    /// The error of a request for units. A request that waits has a number.
    fn full(&self, ledger: &Ledger<K>, key: &K, units: u64, request: Option<u64>) -> QuotaFull {
        let of_key = ledger.by_key.get(key);
        let held = of_key.map_or(0, |of_key| of_key.held);
        let held_max = match held == 0 || units > ledger.free {
            true => self.units_max,
            false => held,
        };
        QuotaFull {
            held_max,
            over_part: of_key.is_some_and(|of_key| {
                let parts = ledger.by_key.len() as u64 + 1;
                self.is_over_part(of_key, parts, units, request)
            }),
        }
    }

    /// Returns whether a key's other requests use up its part, one of so many, before a request for units.
    fn is_over_part(
        &self,
        of_key: &KeyUnits,
        parts: u64,
        units: u64,
        request: Option<u64>,
    ) -> bool {
        let is_at_its_limit =
            of_key.held > 0 && of_key.held.saturating_add(units) > self.key_units_max;
        // Where the key has had no turn, requests of other keys kept this request waiting.
        let has_had_a_turn = of_key.held > 0 || request.is_some_and(|at| of_key.last_grant > at);
        let own = request.map_or(0, |_| units);
        let others = of_key
            .held
            .saturating_add(of_key.waiting)
            .saturating_sub(own);
        let is_over_equal_part = others.saturating_add(units) > self.units_max / parts;
        is_at_its_limit || (has_had_a_turn && is_over_equal_part)
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
            of_key.last_grant = self.clock;
        }
    }

    fn enqueue(&mut self, key: &K, units: u64) -> (u64, oneshot::Receiver<()>) {
        self.clock += 1;
        let request = self.clock;
        self.waiting += 1;
        let (granted, receiver) = oneshot::channel();
        let of_key = self.by_key.entry(key.clone()).or_default();
        // What the key got before is no head start over keys that have asked meanwhile.
        if of_key.queue.is_empty() {
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
            } else if of_key.held == 0 && left.is_none() {
                // However early this key asked again, it goes behind those that have waited while it held units.
                self.clock += 1;
                of_key.turn = self.clock;
            }
        }
    }
}

impl<K: Ord + Clone> FairPermit<K> {
    /// Returns whether the key holds or waits for other units too, and has more than an equal part with these.
    pub fn is_over_part(&self) -> bool {
        let ledger = self.quota.ledger.lock();
        let parts = ledger.by_key.len() as u64 + 1;
        ledger.by_key.get(&self.key).is_some_and(|of_key| {
            let wanted = of_key.held.saturating_add(of_key.waiting);
            wanted > self.units.max(self.quota.units_max / parts)
        })
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
mod tests;
