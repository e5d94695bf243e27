//! Indexes of the views: made when a query could use one, kept up with their view, dropped when
//! nobody uses them any more.
//!
//! The first query that could use an index looks through all objects, as every other does until the
//! index is built beside them. An index is never waited for: one that is being brought up by somebody
//! else is passed over, and the query looks through all objects.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_jmespath::FunctionTable;
use anteroom_mirror::ViewHandle;
use anteroom_model::ViewId;
use anteroom_plan::{Index, IndexKey, Scalar};
use anteroom_view::{Object, Snapshot};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

/// Indexes of one view. A query that would need one more looks through all objects.
const PER_VIEW_MAX: usize = 64;

/// How often indexes are brought up to their views beside queries, which do so too: what a query has
/// to catch up with is then never much, and no old state of a view is held for long.
const KEEP_UP: Duration = Duration::from_millis(50);

/// For how long an index is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// How long a query waits for an index that is in use: bringing one up takes microseconds, mostly.
const WAIT_MAX: Duration = Duration::from_micros(500);

/// All indexes of a replica.
#[derive(Debug)]
pub(crate) struct Indexes {
    functions: &'static FunctionTable,
    views: Mutex<HashMap<ViewId, OfView>>,
    /// Builds run one after the other: each takes a core for as long as a scan.
    builds: Arc<Semaphore>,
    begun: Instant,
}

#[derive(Debug)]
struct OfView {
    view: ViewHandle,
    slots: HashMap<IndexKey, Arc<Slot>>,
}

/// An index, or the place for one that is being built.
#[derive(Debug, Default)]
struct Slot {
    index: Mutex<Option<Index>>,
    bytes: AtomicUsize,
    /// When it was last asked for, in milliseconds since the replica began.
    used_ms: AtomicU64,
}

impl Indexes {
    pub(crate) fn new(functions: &'static FunctionTable) -> Self {
        Self {
            functions,
            views: Mutex::default(),
            builds: Arc::new(Semaphore::new(1)),
            begun: Instant::now(),
        }
    }

    /// The objects of `state` that have one of the values at its key, or of which that cannot be told,
    /// each once and in order. `None`: there is no index for them yet, or they may be more than `most`.
    pub(crate) fn find(
        self: &Arc<Self>,
        view: &ViewHandle,
        state: &Snapshot,
        lookups: impl Iterator<Item = (IndexKey, Option<Scalar>)>,
        most: usize,
    ) -> Option<Vec<Object>> {
        let mut found = Vec::new();
        let mut complete = true;
        for (key, value) in lookups {
            let slot = self.slot(view, key)?;
            let mut held = slot.index.try_lock_for(WAIT_MAX)?;
            // One that does not come to its end leaves nothing behind that could be taken for whole.
            let Some(mut index) = held.take() else {
                complete = false; // The others are still asked, so that all are built at once.
                continue;
            };
            slot.advance(&mut index, state);
            let few = found.len() + index.count(value.as_ref()) <= most;
            if few {
                found.extend(index.find(value.as_ref()).cloned());
            }
            *held = Some(index);
            complete &= few;
        }
        found.sort_unstable();
        found.dedup();
        complete.then_some(found)
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
            }
        };
        stop.run_until_cancelled(keeping).await;
        Ok(())
    }

    /// The place of an index; makes it, and has it built, if there is none. `None`: there are too many.
    fn slot(self: &Arc<Self>, view: &ViewHandle, key: IndexKey) -> Option<Arc<Slot>> {
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
        let slot = Arc::new(Slot::default());
        slot.used_ms.store(self.now_ms(), Ordering::Relaxed);
        of.slots.insert(key.clone(), Arc::clone(&slot));
        drop(views);
        tokio::spawn(Arc::clone(self).build(view.clone(), key, Arc::clone(&slot)));
        Some(slot)
    }

    async fn build(self: Arc<Self>, view: ViewHandle, key: IndexKey, slot: Arc<Slot>) {
        let Ok(_turn) = Arc::clone(&self.builds).acquire_owned().await else {
            return;
        };
        let (functions, of, wanted) = (self.functions, view.clone(), key.clone());
        let built = tokio::task::spawn_blocking(move || build(&of, wanted, functions));
        match built.await {
            Ok(Some(index)) => {
                slot.bytes.store(index.bytes(), Ordering::Relaxed);
                *slot.index.lock() = Some(index);
            }
            // The next query tries again.
            _ => self.forget(&view, &key),
        }
    }

    fn forget(&self, view: &ViewHandle, key: &IndexKey) {
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
                    || match (&state, slot.index.try_lock()) {
                        (None, _) => true,
                        (Some((state, _)), Some(index)) => {
                            index.as_ref().is_some_and(|index| !index.at().is(state))
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
            behind.extend(slots.map(|slot| (slot, state.clone())));
            !of.slots.is_empty()
        });
        for (slot, state) in behind {
            let mut held = slot.index.lock();
            if let Some(mut index) = held.take() {
                slot.advance(&mut index, &state);
                *held = Some(index);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// `None` where the view answers nobody.
fn build(view: &ViewHandle, key: IndexKey, functions: &'static FunctionTable) -> Option<Index> {
    let begun = Instant::now();
    let (state, _) = view.snapshot(Some(u64::MAX)).ok()?;
    let expression = Arc::clone(&key.expression);
    let index = Index::new(key, functions, &state).ok()?;
    tracing::info!(
        view = %view.id(),
        key = &*expression,
        objects = state.read().len(),
        bytes = index.bytes(),
        took = ?begun.elapsed(),
        "index built"
    );
    Some(index)
}

impl Slot {
    fn advance(&self, index: &mut Index, state: &Snapshot) {
        if !index.at().is(state) {
            index.advance(state);
            self.bytes.store(index.bytes(), Ordering::Relaxed);
        }
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        let unused_ms = now_ms.saturating_sub(self.used_ms.load(Ordering::Relaxed));
        unused_ms >= u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX)
    }
}
