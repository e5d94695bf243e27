//! The views, and the watchers, that do not answer at the moment, each with the start of its outage.
//!
//! A young outage is waited out within the request's own deadline: a replica that starts again is soon back. In an
//! old outage requests fail at once. Otherwise each would hang until its deadline, and hold its place for so long. One request
//! at a time looks whether the outage is over; the others wait for its outcome.
//!
//! | time without an answer | a request |
//! |---|---|
//! | less than the patience | asks again, until the patience or its deadline is over |
//! | longer | fails with the last error; one in [`PROBE_INTERVAL`] asks once |
//!
//! An outage is remembered for all who ask by its key, and counted for the policies of the namespace that found it first. The
//! author of a policy chooses a part of the key: the age that it accepts. So the policies of a namespace have a part of the
//! outages that are remembered, and those of the cluster always find room.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_model::FactError;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota, QuotaFull};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, futures::OwnedNotified},
    time::{Instant, sleep, timeout_at},
};

/// The time for which requests wait during an outage, unless an option changes it.
pub(super) const PATIENCE_DEFAULT: Duration = Duration::from_secs(10);

/// The first pause before somebody looks again; each is twice as long, up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The time between two requests that look whether an old outage is over.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// The time after which a waiting request takes over the look from a request that may be gone.
const TAKEN_OVER_AFTER: Duration = Duration::from_millis(500);

/// The period over which the retries of waiting requests are spread, so that a returning backend is not flooded.
const SPREAD: Duration = Duration::from_millis(50);

/// The most outages that are known at once. Requests do not wait for further ones. Policies of namespaces find three quarters
/// of them at most, and those of one namespace a quarter.
const OUTAGES_MAX: u32 = 4_096;

/// The outages of everything that is asked by a key. Cheap to clone; all clones are one.
#[derive(Debug)]
pub(super) struct Outages<K>(Arc<OutageState<K>>);

#[derive(Debug)]
struct OutageState<K> {
    patience: Duration,
    /// The number of outages, so that nothing is looked up while there are none.
    count: AtomicUsize,
    outages: Mutex<HashMap<K, Outage>>,
    outages_max: usize,
    /// The places for outages that policies of namespaces found.
    places: Arc<FairQuota<String>>,
}

#[derive(Debug)]
struct Outage {
    /// `None`: a policy of the cluster found it.
    _place: Option<FairPermit<String>>,
    since: Instant,
    /// The time of the last failed request.
    last: Instant,
    error: FactError,
    pause: Duration,
    /// Somebody is to look again.
    is_watched: bool,
    probe_at: Instant,
    over: Arc<Notify>,
}

impl<K> Clone for Outages<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The part of a request in finding out whether an outage is over.
enum OutageStep<'a, K: Clone + Eq + Hash> {
    /// The request asks again, after a pause.
    Look {
        pause: Duration,
        _watching: Watching<'a, K>,
    },
    /// A different request looks, and tells. The wait began under the lock, so that no word in between is missed.
    Wait(OwnedNotified),
    /// The outage is over.
    Over,
}

/// The right to look again. Dropping it lets a different request look.
struct Watching<'a, K: Clone + Eq + Hash> {
    outages: &'a Outages<K>,
    key: &'a K,
}

impl<K: Clone + Eq + Hash> Drop for Watching<'_, K> {
    fn drop(&mut self) {
        if let Some(outage) = self.outages.0.outages.lock().get_mut(self.key) {
            outage.is_watched = false;
        }
    }
}

impl<K: Clone + Eq + Hash> Outages<K> {
    pub(super) fn new(patience: Duration) -> Self {
        Self::with_room(patience, OUTAGES_MAX)
    }

    fn with_room(patience: Duration, outages_max: u32) -> Self {
        Self(Arc::new(OutageState {
            patience,
            count: AtomicUsize::new(0),
            outages: Mutex::default(),
            outages_max: outages_max as usize,
            places: FairQuota::of_namespaces(outages_max),
        }))
    }

    /// Returns the error of an old outage, unless it is this request's turn to look whether it is over.
    pub(super) fn refusal(&self, key: &K) -> Option<FactError> {
        if self.0.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = Instant::now();
        let mut outages = self.0.outages.lock();
        let outage = outages.get_mut(key)?;
        if now < outage.since + self.0.patience || outage.is_forgotten(now, self.0.patience) {
            return None;
        }
        if now >= outage.probe_at {
            outage.probe_at = now + PROBE_INTERVAL;
            return None;
        }
        Some(outage.error.clone())
    }

    /// Somebody has answered.
    pub(super) fn answered(&self, key: &K) {
        if self.0.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut outages = self.0.outages.lock();
        if let Some(outage) = outages.remove(key) {
            self.0.count.store(outages.len(), Ordering::Relaxed);
            outage.over.notify_waiters();
        }
    }

    /// Waits until it may be worth asking again. False: it is not within the patience and the deadline. `namespace`: that of
    /// the policies that ask; empty: they are of the cluster.
    pub(super) async fn wait(
        &self,
        key: &K,
        namespace: &str,
        error: &FactError,
        deadline: Instant,
    ) -> bool {
        let Some(until) = self.failed(key, namespace, error, deadline) else {
            return false;
        };
        loop {
            let over = match self.next_step(key) {
                OutageStep::Look { pause, .. } if Instant::now() + pause >= until => return false,
                OutageStep::Look { pause, _watching } => {
                    sleep(pause).await;
                    return true;
                }
                OutageStep::Wait(over) => over,
                OutageStep::Over => return Instant::now() < until,
            };
            let ended = timeout_at(until.min(Instant::now() + TAKEN_OVER_AFTER), over);
            if ended.await.is_ok() {
                sleep(SPREAD.mul_f64(rand::random())).await;
                return Instant::now() < until;
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }

    /// Notes a failure. Returns the time until which the request may wait; `None`: the outage is old, or there is no room to
    /// remember it.
    fn failed(
        &self,
        key: &K,
        namespace: &str,
        error: &FactError,
        deadline: Instant,
    ) -> Option<Instant> {
        let (now, patience) = (Instant::now(), self.0.patience);
        let mut outages = self.0.outages.lock();
        let known = outages.get(key);
        if known.is_none_or(|outage| outage.is_forgotten(now, patience)) {
            outages.retain(|_, outage| !outage.is_forgotten(now, patience));
            self.0.count.store(outages.len(), Ordering::Relaxed);
            if outages.len() >= self.0.outages_max {
                return None;
            }
            let place = self.place(namespace).ok()?;
            outages.insert(key.clone(), Outage::new(now, error, place));
        }
        let outage = outages.get_mut(key)?;
        outage.last = now;
        outage.error = error.clone();
        let until = deadline.min(outage.since + patience);
        self.0.count.store(outages.len(), Ordering::Relaxed);
        (now < until).then_some(until)
    }

    /// Takes a place for an outage that policies of this namespace found. Those of the cluster need none.
    fn place(&self, namespace: &str) -> Result<Option<FairPermit<String>>, QuotaFull> {
        match namespace {
            "" => Ok(None),
            namespace => self.0.places.try_take(namespace.to_owned(), 1).map(Some),
        }
    }

    fn next_step<'a>(&'a self, key: &'a K) -> OutageStep<'a, K> {
        let mut outages = self.0.outages.lock();
        let Some(outage) = outages.get_mut(key) else {
            return OutageStep::Over;
        };
        if std::mem::replace(&mut outage.is_watched, true) {
            return OutageStep::Wait(Arc::clone(&outage.over).notified_owned());
        }
        let pause = outage.pause;
        outage.pause = (pause * 2).min(PAUSE_MAX);
        OutageStep::Look {
            pause,
            _watching: Watching { outages: self, key },
        }
    }
}

impl Outage {
    fn new(now: Instant, error: &FactError, place: Option<FairPermit<String>>) -> Self {
        Self {
            _place: place,
            since: now,
            last: now,
            error: error.clone(),
            pause: PAUSE_MIN,
            is_watched: false,
            probe_at: now,
            over: Arc::default(),
        }
    }

    /// Returns whether the last request is so long ago that the outage proves nothing about the present.
    fn is_forgotten(&self, now: Instant, patience: Duration) -> bool {
        now >= self.last + patience
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    fn error() -> FactError {
        FactError::NoReplica { view: "v".into() }
    }

    /// Asks until it is answered, as a request does. Nobody answers before `back`.
    async fn ask(outages: &Outages<u8>, back: Instant, deadline: Instant) -> (bool, usize) {
        let mut asked = 0;
        loop {
            if outages.refusal(&1).is_some() {
                return (false, asked);
            }
            asked += 1;
            if Instant::now() >= back {
                outages.answered(&1);
                return (true, asked);
            }
            if !outages.wait(&1, "", &error(), deadline).await {
                return (false, asked);
            }
        }
    }

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_young_outage_is_waited_out_by_all_and_looked_at_by_one() {
        const REQUESTS: usize = 100;
        let outages = Outages::new(PATIENCE_DEFAULT);
        let (begun, back, deadline) = (Instant::now(), after(3), after(9));
        let asking = (0..REQUESTS).map(|_| ask(&outages, back, deadline));
        let answered = futures::future::join_all(asking).await;
        assert!(answered.iter().all(|(is_answered, _)| *is_answered));
        assert!(begun.elapsed() < Duration::from_secs(4));
        let asked: usize = answered.iter().map(|(_, asked)| asked).sum();
        // Each at first and at the end, and few between.
        assert!(asked < REQUESTS * 2 + 50, "{asked}");
        assert_eq!(outages.0.count.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_the_wait_before_the_patience_does() {
        let outages = Outages::new(PATIENCE_DEFAULT);
        let begun = Instant::now();
        assert!(!ask(&outages, after(60), after(2)).await.0);
        assert!(begun.elapsed() <= Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_outage_fails_at_once_and_its_end_is_seen_soon() {
        let outages = Outages::new(PATIENCE_DEFAULT);
        let back = after(20);
        assert!(!ask(&outages, back, after(15)).await.0);
        let mut refused = 0;
        while Instant::now() < back {
            let begun = Instant::now();
            assert!(!ask(&outages, back, after(10)).await.0);
            assert!(begun.elapsed() < Duration::from_millis(50), "it hangs");
            refused += 1;
            sleep(Duration::from_millis(100)).await;
        }
        assert!(refused > 50);
        sleep(PROBE_INTERVAL).await;
        assert!(ask(&outages, back, after(10)).await.0);
        assert_eq!(outages.refusal(&1), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_that_nobody_has_seen_for_long_is_a_new_one() {
        let outages = Outages::new(PATIENCE_DEFAULT);
        assert!(!ask(&outages, after(600), after(15)).await.0);
        sleep(PATIENCE_DEFAULT).await;
        let back = after(1);
        assert!(ask(&outages, back, after(10)).await.0);
    }

    #[test]
    fn an_answer_before_the_wait_begins_ends_it() {
        let outages = Outages::new(PATIENCE_DEFAULT);
        assert!(outages.failed(&1, "", &error(), after(5)).is_some());
        let looking = outages.next_step(&1);
        assert!(matches!(looking, OutageStep::Look { .. }));
        let OutageStep::Wait(over) = outages.next_step(&1) else {
            panic!("two look at once");
        };
        outages.answered(&1);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(over).poll(&mut context).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn outages_of_different_keys_are_independent() {
        let outages = Outages::new(PATIENCE_DEFAULT);
        assert!(!ask(&outages, after(600), after(15)).await.0);
        sleep(Duration::from_secs(1)).await;
        assert!(outages.refusal(&1).is_none(), "its turn to look");
        assert!(outages.refusal(&1).is_some());
        assert!(outages.refusal(&2).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn outages_that_a_namespace_finds_leave_room_to_those_of_others() {
        let (outages, mut keys) = (Outages::with_room(PATIENCE_DEFAULT, 64), 0_u32..);
        // Returns those that are remembered of a hundred new outages.
        let mut find = |namespace: &str| -> Vec<u32> {
            let found = keys.by_ref().take(100).filter(|key| {
                let until = outages.failed(key, namespace, &error(), after(20));
                until.is_some()
            });
            found.collect()
        };
        let of_flood = find("flood");
        assert_eq!((of_flood.len(), find("shop").len()), (16, 16));
        // The place of an outage that is over is free.
        outages.answered(&of_flood[0]);
        assert_eq!(find("flood").len(), 1);
        // However many namespaces there are, the cluster has the last quarter.
        let of_others = ["a", "b", "c", "d", "e"].map(|namespace| find(namespace).len());
        assert_eq!(of_others.iter().sum::<usize>(), 16, "{of_others:?}");
        assert_eq!((find("").len(), find("late").len()), (16, 0));
        // An outage is remembered for all who ask the same.
        let known = outages.failed(&of_flood[1], "late", &error(), after(20));
        assert!(known.is_some());
        sleep(PATIENCE_DEFAULT).await;
        assert_eq!(find("flood").len(), 16);
        assert_eq!(outages.0.count.load(Ordering::Relaxed), 16);
    }
}
