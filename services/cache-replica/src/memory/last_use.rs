//! The time of each view's last use, and the reason of its eviction.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use anteroom_model::ViewId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::sealed;

/// The last use of each view.
#[derive(Debug)]
pub(crate) struct ViewUsages {
    since: Instant,
    by_view: Mutex<BTreeMap<ViewId, Arc<ViewUsage>>>,
}

/// The last use of a view, and the reason of its eviction.
#[derive(Debug)]
pub(crate) struct ViewUsage {
    since: Instant,
    at: AtomicU64,
    /// The reason of the view's eviction, if it is evicted.
    evicted: Mutex<Option<String>>,
    /// The bodies of the view are sealed in the log.
    sealed: AtomicBool,
}

impl ViewUsages {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            by_view: Mutex::default(),
        }
    }

    /// Milliseconds since the replica was started.
    pub(crate) fn now(&self) -> u64 {
        now(self.since)
    }

    pub(crate) fn get_or_create(&self, view: &ViewId) -> Arc<ViewUsage> {
        let mut of = self.by_view.lock();
        let kept = of.entry(view.clone()).or_insert_with(|| {
            Arc::new(ViewUsage {
                since: self.since,
                at: AtomicU64::new(0),
                evicted: Mutex::default(),
                sealed: AtomicBool::new(sealed::is_secret(view)),
            })
        });
        Arc::clone(kept)
    }

    /// Forgets all views but the known ones, and views whose use is still shared: an endpoint that was opened after
    /// the set of views was read would otherwise count into a lost record.
    pub(crate) fn retain(&self, known: impl Fn(&ViewId) -> bool) {
        let mut of = self.by_view.lock();
        of.retain(|view, kept| known(view) || Arc::strong_count(kept) > 1);
    }
}

impl ViewUsage {
    /// Somebody asks for the view.
    pub(crate) fn used(&self) {
        // From 1 on: 0 is never.
        self.at.store(now(self.since).max(1), Ordering::Relaxed);
    }

    /// Returns the time of the last query; 0: there was none.
    pub(crate) fn at(&self) -> u64 {
        self.at.load(Ordering::Relaxed)
    }

    /// Notes that the view's bodies are sealed. The mark is never removed.
    pub(crate) fn set_sealed(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_evicted(&self, reason: Option<String>) {
        *self.evicted.lock() = reason;
    }

    pub(crate) fn evicted(&self) -> Option<String> {
        self.evicted.lock().clone()
    }
}

fn now(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_use_of_a_view_that_came_meanwhile_is_counted() {
        let uses = ViewUsages::new();
        let (old, new) = (ViewId::new("old"), ViewId::new("new"));
        uses.get_or_create(&old).used();
        // The set of views was taken before both: `old` is gone, and `new` has an endpoint since.
        let endpoint = uses.get_or_create(&new);
        uses.retain(|_| false);
        endpoint.used();
        assert_eq!(uses.get_or_create(&new).at(), 1);
        assert_eq!(
            uses.get_or_create(&old).at(),
            0,
            "nobody holds it: it is forgotten"
        );
        drop(endpoint);
        uses.retain(|_| false);
        assert_eq!(uses.get_or_create(&new).at(), 0);
    }
}
