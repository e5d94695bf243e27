//! What is kept of views beside their objects (indexes, aggregates): made when a query could use it,
//! kept up with its view, dropped when nobody uses it any more.
//!
//! The first query that could use it looks through all objects, as every other does until it is built
//! beside them. Nothing is ever waited for: what is being brought up by somebody else is passed over,
//! and the query looks through all objects.

use std::{
    collections::HashMap,
    fmt::Debug,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_jmespath::ParseError;
use anteroom_mirror::ViewHandle;
use anteroom_model::ViewId;
use anteroom_plan::{Aggregate, AggregateKey, Changes, Index, IndexKey, Language};
use anteroom_view::Snapshot;
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::followed::Followed;

/// Indexes of one view, and aggregates of one. A query that would need one more looks through all
/// objects.
const PER_VIEW_MAX: usize = 64;

/// How often they are brought up to their views beside queries, which do so too: what a query has
/// to catch up with is then never much, and no old state of a view is held for long.
const KEEP_UP: Duration = Duration::from_millis(50);

/// For how long one is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// How long a query waits for one that is in use: bringing it up takes microseconds, mostly.
const WAIT_MAX: Duration = Duration::from_micros(500);

/// What can be kept of a view's states, one after the other.
pub(crate) trait Keep: Debug + Send + Sized + 'static {
    /// What one is one of.
    type Key: Clone + Debug + Eq + Hash + Send + Sync + 'static;

    /// Of all objects of `at`.
    fn of(key: Self::Key, language: Language, at: &Snapshot) -> Result<Self, ParseError>;
    /// Brings it up, or back, by what differs between the state that it is of and another.
    fn follow(&mut self, changes: &Changes);
    /// The state that it is of.
    fn at(&self) -> &Snapshot;
    /// What it takes.
    fn bytes(&self) -> usize;
}

/// All of one sort that a replica keeps.
#[derive(Debug)]
pub(crate) struct Kept<T: Keep> {
    language: Language,
    views: Mutex<HashMap<ViewId, OfView<T>>>,
    followed: Arc<Followed>,
    /// Builds run one after the other: each takes a core for as long as a scan.
    builds: Arc<Semaphore>,
    begun: Instant,
}

#[derive(Debug)]
struct OfView<T: Keep> {
    view: ViewHandle,
    slots: HashMap<T::Key, Arc<Slot<T>>>,
}

/// What is kept, or the place for what is being built.
#[derive(Debug)]
struct Slot<T> {
    kept: Mutex<Option<T>>,
    bytes: AtomicUsize,
    /// When it was last asked for, in milliseconds since the replica began.
    used_ms: AtomicU64,
}

impl<T: Keep> Kept<T> {
    /// None yet. Whatever shares `followed` finds changes out together.
    pub(crate) fn new(language: Language, followed: Arc<Followed>) -> Self {
        Self {
            language,
            views: Mutex::default(),
            followed,
            builds: Arc::new(Semaphore::new(1)),
            begun: Instant::now(),
        }
    }

    /// What `ask` says of what is kept under `key`, as of `state`. `None`: it is not there yet, or
    /// cannot be.
    pub(crate) fn ask<R>(
        self: &Arc<Self>,
        view: &ViewHandle,
        state: &Snapshot,
        key: T::Key,
        ask: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let slot = self.slot(view, key)?;
        let mut held = slot.kept.try_lock_for(WAIT_MAX)?;
        // One that does not come to its end leaves nothing behind that could be taken for whole.
        let mut kept = held.take()?;
        self.advance(view.id(), &slot, &mut kept, state);
        let said = ask(&kept);
        *held = Some(kept);
        Some(said)
    }

    /// What they take.
    pub(crate) fn bytes(&self) -> u64 {
        let views = self.views.lock();
        let slots = views.values().flat_map(|of| of.slots.values());
        slots
            .map(|slot| slot.bytes.load(Ordering::Relaxed) as u64)
            .sum()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.views.lock().values().map(|of| of.slots.len()).sum()
    }

    /// Keeps them up until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> anyhow::Result<()> {
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
                self.followed.forget();
            }
        };
        stop.run_until_cancelled(keeping).await;
        Ok(())
    }

    /// The place of one; makes it, and has it built, if there is none. `None`: there are too many.
    fn slot(self: &Arc<Self>, view: &ViewHandle, key: T::Key) -> Option<Arc<Slot<T>>> {
        let mut views = self.views.lock();
        let of = views.entry(view.id().clone()).or_insert_with(|| OfView {
            view: view.clone(),
            slots: HashMap::new(),
        });
        if !of.view.is(view) {
            *of = OfView {
                view: view.clone(),
                slots: HashMap::new(),
            };
        }
        if let Some(slot) = of.slots.get(&key) {
            slot.used_ms.store(self.now_ms(), Ordering::Relaxed);
            return Some(Arc::clone(slot));
        }
        if of.slots.len() >= PER_VIEW_MAX {
            return None;
        }
        let slot = Arc::new(Slot {
            kept: Mutex::new(None),
            bytes: AtomicUsize::new(0),
            used_ms: AtomicU64::new(self.now_ms()),
        });
        of.slots.insert(key.clone(), Arc::clone(&slot));
        drop(views);
        tokio::spawn(Arc::clone(self).build(view.clone(), key, Arc::clone(&slot)));
        Some(slot)
    }

    async fn build(self: Arc<Self>, view: ViewHandle, key: T::Key, slot: Arc<Slot<T>>) {
        let Ok(_turn) = Arc::clone(&self.builds).acquire_owned().await else {
            return;
        };
        let (language, of, wanted) = (self.language, view.clone(), key.clone());
        let built = tokio::task::spawn_blocking(move || build::<T>(&of, &wanted, language));
        match built.await {
            Ok(Some(kept)) => {
                slot.bytes.store(kept.bytes(), Ordering::Relaxed);
                *slot.kept.lock() = Some(kept);
            }
            // The next query tries again.
            _ => self.forget(&view, &key),
        }
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
            of.slots.values().any(|slot| {
                slot.is_idle(now_ms)
                    || match (&state, slot.kept.try_lock()) {
                        (None, _) => true,
                        (Some((state, _)), Some(kept)) => {
                            kept.as_ref().is_some_and(|kept| !kept.at().is(state))
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
            of.slots.retain(|_, slot| !slot.is_idle(now_ms));
            let slots = of.slots.values().cloned();
            behind.extend(slots.map(|slot| (of.view.id().clone(), slot, state.clone())));
            !of.slots.is_empty()
        });
        for (view, slot, state) in behind {
            let mut held = slot.kept.lock();
            if let Some(mut kept) = held.take() {
                self.advance(&view, &slot, &mut kept, &state);
                *held = Some(kept);
            }
        }
    }

    fn advance(&self, view: &ViewId, slot: &Slot<T>, kept: &mut T, state: &Snapshot) {
        if !kept.at().is(state) {
            let changes = self.followed.changes(view, kept.at(), state);
            kept.follow(&changes);
            slot.bytes.store(kept.bytes(), Ordering::Relaxed);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// `None` where the view answers nobody.
fn build<T: Keep>(view: &ViewHandle, key: &T::Key, language: Language) -> Option<T> {
    let begun = Instant::now();
    let (state, _) = view.snapshot(Some(u64::MAX)).ok()?;
    let kept = T::of(key.clone(), language, &state).ok()?;
    tracing::info!(
        view = %view.id(),
        ?key,
        objects = state.read().len(),
        bytes = kept.bytes(),
        took = ?begun.elapsed(),
        "built, to be kept up from now on"
    );
    Some(kept)
}

impl<T: Keep> Slot<T> {
    fn is_idle(&self, now_ms: u64) -> bool {
        let unused_ms = now_ms.saturating_sub(self.used_ms.load(Ordering::Relaxed));
        unused_ms >= u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Keep for Index {
    type Key = IndexKey;

    fn of(key: IndexKey, language: Language, at: &Snapshot) -> Result<Self, ParseError> {
        Ok(Self::new(key, language, at))
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

impl Keep for Aggregate {
    type Key = AggregateKey;

    fn of(key: AggregateKey, language: Language, at: &Snapshot) -> Result<Self, ParseError> {
        Self::new(key, language.functions, at)
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
