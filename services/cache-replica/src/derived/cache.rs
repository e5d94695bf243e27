//! A cache of structures that are derived from views: indexes, counters.
//!
//! The first query that could use one starts its build, and looks through all objects, as every other
//! does until the build is over. No query waits long for one: where another query or task is bringing it
//! up, the query looks through all objects. So it does where a structure would take more bytes than its part: see
//! [`byte_limit`](super::byte_limit).

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anteroom_jmespath::ParseError;
use anteroom_mirror::ViewHandle;
use anteroom_model::ViewId;
use anteroom_plan::{Changes, Counter, CounterKey, Index, IndexKey, Language};
use anteroom_view::Snapshot;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    AskedState,
    byte_limit::{ByteLimit, Charge, Refusal},
    changes::LastChanges,
};

/// The most indexes, and the most counters, of one view. A query that would need one more looks through
/// all objects.
const PER_VIEW_MAX: usize = 64;

/// The most of one view that the policies of one namespace alone use.
const PER_NAMESPACE_MAX: usize = PER_VIEW_MAX / 4;

/// The most of one view that no policy of the cluster uses.
const PER_NAMESPACES_MAX: usize = PER_VIEW_MAX * 3 / 4;

/// The interval at which all are brought up to their views. Queries do so too, with less to catch up,
/// and no old state of a view is held for long.
const KEEP_UP: Duration = Duration::from_millis(50);

/// The time after which an unused structure is dropped.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// The time for which a refused structure is not built again.
const REFUSED: Duration = Duration::from_secs(60);

/// The longest wait of a query for one that is brought up, where the call arrived: that takes microseconds, mostly.
pub(crate) const WAIT_MAX: Duration = Duration::from_micros(500);

/// A structure that is derived from the objects of one state of a view, and can follow its changes.
pub(super) trait Derive: Debug + Send + Sync + Sized + 'static {
    /// Identifies an index or counter among those of its view.
    type Key: Clone + Debug + Eq + Hash + Send + Sync + 'static;

    /// Derives it from all objects of `at`. `None`: it takes more than `bytes_max`.
    fn derive(
        key: Self::Key,
        language: Language,
        at: &Snapshot,
        bytes_max: usize,
    ) -> Result<Option<Self>, ParseError>;
    /// Applies the changes between the structure's state and a later or earlier state.
    fn follow(&mut self, changes: &Changes);
    /// The state that it is of.
    fn at(&self) -> &Snapshot;
    /// Returns the size in memory.
    fn bytes(&self) -> usize;
}

/// All structures of one type in a replica.
#[derive(Debug)]
pub(super) struct DerivedCache<T: Derive> {
    language: Language,
    views: Mutex<HashMap<ViewId, ViewSlots<T>>>,
    changes: Arc<LastChanges>,
    limit: Arc<ByteLimit>,
    /// Builds run one after the other: each takes a core for as long as a scan.
    builds: Arc<Semaphore>,
}

#[derive(Debug)]
struct ViewSlots<T: Derive> {
    view: ViewHandle,
    slots: HashMap<T::Key, OwnedSlot<T>>,
}

#[derive(Debug)]
struct OwnedSlot<T> {
    /// The namespace whose policies used it first; empty: policies of the cluster use it.
    namespace: Box<str>,
    slot: Arc<DerivedSlot<T>>,
}

/// A structure, or `None` while it is built, and once it is refused.
#[derive(Debug)]
struct DerivedSlot<T> {
    derived: RwLock<Option<T>>,
    /// No query uses the slot once this is refused. The next [`DerivedCache::keep_up`] drops the structure.
    charge: Charge,
    /// The time of its last use, in milliseconds of [`ByteLimit::now_ms`].
    used_ms: AtomicU64,
}

impl<T: Derive> DerivedCache<T> {
    /// An empty cache. Caches that share `changes` find the changes of a view once. Caches that share `limit` have it
    /// together.
    pub(super) fn new(
        language: Language,
        changes: Arc<LastChanges>,
        limit: Arc<ByteLimit>,
    ) -> Self {
        Self {
            language,
            views: Mutex::default(),
            changes,
            limit,
            builds: Arc::new(Semaphore::new(1)),
        }
    }

    /// Brings the structure of this key to `state`, and calls `ask` with it. Those that ask for the same state do so side
    /// by side. `None`: it is not built yet, there are too many, they take too many bytes, or it is of another state and
    /// was in use for `wait_max`.
    pub(super) fn ask<R>(
        self: &Arc<Self>,
        asked: AskedState<'_>,
        key: T::Key,
        wait_max: Duration,
        ask: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let slot = self.slot(asked, key)?;
        let AskedState { view, state, .. } = asked;
        let advance = |derived: &mut T| self.advance(view.id(), derived, state);
        let ask = |derived: &T| {
            let answer = ask(derived);
            // A lookup makes an index larger if it puts the values in order.
            slot.charge.set(derived.bytes());
            answer
        };
        slot.ask(state, wait_max, advance, ask)
    }

    /// Returns the number of indexes or counters, including those that are being built.
    pub(super) fn count(&self) -> usize {
        let views = self.views.lock();
        let slots = views.values().flat_map(|of| of.slots.values());
        slots
            .filter(|owned| owned.slot.charge.refusal().is_none())
            .count()
    }

    /// Keeps them up with their views until `stop`.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(KEEP_UP);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let keeping = async {
            loop {
                tick.tick().await;
                if self.is_behind() {
                    let this = Arc::clone(&self);
                    // A panic would be that of an evaluation, which has none.
                    let _ = tokio::task::spawn_blocking(move || this.keep_up()).await;
                }
                self.changes.clear();
            }
        };
        stop.run_until_cancelled(keeping).await;
    }

    /// Returns the slot of this key. Adds one, and starts its build, if there is none. `None`: there are too
    /// many, or its owner has no bytes left for it.
    fn slot(self: &Arc<Self>, asked: AskedState<'_>, key: T::Key) -> Option<Arc<DerivedSlot<T>>> {
        let AskedState {
            view, namespace, ..
        } = asked;
        let mut views = self.views.lock();
        let slots_of_view = views.entry(view.id().clone()).or_insert_with(|| ViewSlots {
            view: view.clone(),
            slots: HashMap::new(),
        });
        if !slots_of_view.view.is(view) {
            *slots_of_view = ViewSlots {
                view: view.clone(),
                slots: HashMap::new(),
            };
        }
        let slots = &mut slots_of_view.slots;
        let refused = slots.get(&key).map(|owned| &owned.slot);
        if let Some(slot) = refused.filter(|slot| slot.charge.refusal().is_some()) {
            if !slot.may_try_again(self.limit.left(namespace, view.id())) {
                return None;
            }
            slots.remove(&key);
        }
        if let Some(owned) = slots.get_mut(&key) {
            if namespace.is_empty() && !owned.namespace.is_empty() {
                owned.namespace = Box::default();
                owned.slot.charge.move_to_cluster();
            }
            owned.slot.used_ms.store(self.now_ms(), Ordering::Relaxed);
            return Some(Arc::clone(&owned.slot));
        }
        let namespaces = slots.values().map(|owned| &*owned.namespace);
        if !has_room(namespaces, namespace) || self.limit.left(namespace, view.id()) == 0 {
            return None;
        }
        let slot = Arc::new(DerivedSlot {
            derived: RwLock::new(None),
            charge: Charge::new(Arc::clone(&self.limit), view.id(), namespace),
            used_ms: AtomicU64::new(self.now_ms()),
        });
        let owned = OwnedSlot {
            namespace: namespace.into(),
            slot: Arc::clone(&slot),
        };
        slots.insert(key.clone(), owned);
        drop(views);
        tokio::spawn(Arc::clone(self).build(view.clone(), key, Arc::clone(&slot)));
        Some(slot)
    }

    async fn build(self: Arc<Self>, view: ViewHandle, key: T::Key, slot: Arc<DerivedSlot<T>>) {
        let Ok(_turn) = Arc::clone(&self.builds).acquire_owned().await else {
            return;
        };
        let (this, of, wanted) = (Arc::clone(&self), view.clone(), key.clone());
        let built = tokio::task::spawn_blocking(move || this.fill(&of, &wanted, &slot));
        if !matches!(built.await, Ok(Some(()))) {
            // The next query tries again.
            self.forget(&view, &key);
        }
    }

    /// Builds an index or counter from the view's present state, or refuses it. `None`: the view does not answer.
    fn fill(&self, view: &ViewHandle, key: &T::Key, slot: &DerivedSlot<T>) -> Option<()> {
        let begun = Instant::now();
        let (state, _) = view.snapshot(Some(u64::MAX)).ok()?;
        let bytes_max = slot.charge.left();
        let derived = T::derive(key.clone(), self.language, &state, bytes_max).ok()?;
        let Some(derived) = derived else {
            slot.charge.refuse(bytes_max);
            return Some(());
        };
        let bytes = derived.bytes();
        tracing::info!(
            view = %view.id(),
            ?key,
            objects = state.read().len(),
            bytes,
            took = ?begun.elapsed(),
            "index or counter of the view built for the queries that can use it"
        );
        slot.charge.set(bytes);
        // Others may have grown meanwhile.
        if slot.charge.refusal().is_none() {
            *slot.derived.write() = Some(derived);
        }
        Some(())
    }

    fn forget(&self, view: &ViewHandle, key: &T::Key) {
        let mut views = self.views.lock();
        if let Some(of) = views.get_mut(view.id()).filter(|of| of.view.is(view)) {
            of.slots.remove(key);
        }
    }

    fn is_behind(&self) -> bool {
        let (views, now_ms) = (self.views.lock(), self.now_ms());
        views.values().any(|of| {
            let state = of.view.snapshot(Some(u64::MAX)).ok();
            of.slots.values().any(|OwnedSlot { slot, .. }| {
                slot.is_idle(now_ms)
                    || match (&state, slot.derived.try_read()) {
                        (None, _) => true,
                        (Some((state, _)), Some(derived)) => {
                            let is_refused = slot.charge.refusal().is_some();
                            derived
                                .as_ref()
                                .is_some_and(|it| is_refused || !it.at().is(state))
                        }
                        (Some(_), None) => false, // Somebody is bringing it up.
                    }
            })
        })
    }

    fn keep_up(&self) {
        let now_ms = self.now_ms();
        let mut behind = Vec::new();
        self.views.lock().retain(|_, of| {
            let Ok((state, _)) = of.view.snapshot(Some(u64::MAX)) else {
                return false; // Evicted, failed, or gone: it holds objects for nobody.
            };
            of.slots.retain(|_, owned| !owned.slot.is_idle(now_ms));
            let slots = of.slots.values().map(|owned| Arc::clone(&owned.slot));
            behind.extend(slots.map(|slot| (of.view.id().clone(), slot, state.clone())));
            !of.slots.is_empty()
        });
        for (view, slot, state) in behind {
            let mut held = slot.derived.write();
            let Some(mut derived) = held.take() else {
                continue;
            };
            if slot.charge.refusal().is_some() {
                continue;
            }
            self.advance(&view, &mut derived, &state);
            slot.charge.set(derived.bytes());
            if slot.charge.refusal().is_none() {
                *held = Some(derived);
            }
        }
    }

    fn advance(&self, view: &ViewId, derived: &mut T, state: &Snapshot) {
        if !derived.at().is(state) {
            let changes = self.changes.between(view, derived.at(), state);
            derived.follow(&changes);
        }
    }

    fn now_ms(&self) -> u64 {
        self.limit.now_ms()
    }
}

/// Returns true if one more may be built for policies of `namespace` (empty: of the cluster). `held` are the
/// namespaces for which the view has some.
fn has_room<'n>(held: impl Iterator<Item = &'n str>, namespace: &str) -> bool {
    let (mut all, mut of_namespaces, mut own) = (0, 0, 0);
    for held in held {
        all += 1;
        of_namespaces += usize::from(!held.is_empty());
        own += usize::from(held == namespace);
    }
    let is_within = own < PER_NAMESPACE_MAX && of_namespaces < PER_NAMESPACES_MAX;
    all < PER_VIEW_MAX && (namespace.is_empty() || is_within)
}

impl<T: Derive> DerivedSlot<T> {
    /// Calls `ask` with the structure at `state`; `advance` moves the structure there.
    fn ask<R>(
        &self,
        state: &Snapshot,
        wait_max: Duration,
        advance: impl FnOnce(&mut T),
        ask: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        {
            let held = self.derived.try_read_for(wait_max)?;
            if held.as_ref()?.at().is(state) {
                return held.as_ref().map(ask);
            }
        }
        let mut held = self.derived.try_write_for(wait_max)?;
        // A panic on the way leaves no half of a structure behind.
        let mut derived = held.take()?;
        advance(&mut derived);
        *held = Some(derived);
        RwLockWriteGuard::downgrade(held).as_ref().map(ask)
    }

    /// Returns true if an owner that has `left` bytes may try before [`REFUSED`] is over: it has clearly more than was too
    /// little. So policies of several namespaces cannot have builds begin time and again.
    fn may_try_again(&self, left: usize) -> bool {
        let enough = |refusal: &Refusal| left > refusal.bytes.saturating_add(refusal.bytes / 4);
        let is_dropped = || self.derived.try_read().is_some_and(|held| held.is_none());
        self.charge.refusal().is_some_and(enough) && is_dropped()
    }

    /// Returns true if the slot can go: it was unused for [`IDLE`], or refused for [`REFUSED`].
    fn is_idle(&self, now_ms: u64) -> bool {
        let (since_ms, stays) = match self.charge.refusal() {
            Some(refusal) => (refusal.at_ms, REFUSED),
            None => (self.used_ms.load(Ordering::Relaxed), IDLE),
        };
        now_ms.saturating_sub(since_ms) >= u64::try_from(stays.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Derive for Index {
    type Key = IndexKey;

    fn derive(
        key: IndexKey,
        language: Language,
        at: &Snapshot,
        bytes_max: usize,
    ) -> Result<Option<Self>, ParseError> {
        Ok(Self::new_within(key, language, at, bytes_max))
    }

    fn follow(&mut self, changes: &Changes) {
        self.follow(changes);
    }

    fn at(&self) -> &Snapshot {
        self.at()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Derive for Counter {
    type Key = CounterKey;

    fn derive(
        key: CounterKey,
        language: Language,
        at: &Snapshot,
        bytes_max: usize,
    ) -> Result<Option<Self>, ParseError> {
        // It has a number for each namespace, whatever the objects are.
        let counter = Self::new(key, language.functions, at)?;
        Ok((counter.bytes() <= bytes_max).then_some(counter))
    }

    fn follow(&mut self, changes: &Changes) {
        self.follow(changes);
    }

    fn at(&self) -> &Snapshot {
        self.at()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

#[cfg(test)]
mod tests;
