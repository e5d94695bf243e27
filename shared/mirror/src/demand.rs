//! The views that a mirror is asked to follow, to hold, to load and to evict.
//!
//! Keepers of memory, of use and of shares ask here, at any time and without waiting; the mirror's task takes the
//! demands up. A demand on a view replaces the earlier demand on it, so there are at most as many demands as views.

use std::{collections::BTreeMap, fmt, sync::Arc};

use anteroom_model::{ObjectKey, ViewId};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A predicate that selects the views that a mirror holds. The mirror calls it for every record of a view that is not
/// held, so it should be a look-up. It must select the system views that the mirror's readiness waits for.
#[derive(Clone)]
pub struct HeldViewFilter(Arc<dyn Fn(&ViewId) -> bool + Send + Sync>);

impl HeldViewFilter {
    /// Returns a filter by a predicate, whose result for a view must never change. For other views, make a new filter.
    pub fn new(holds: impl Fn(&ViewId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    /// Returns a filter that selects every view.
    pub fn all() -> Self {
        Self::new(|_| true)
    }

    /// Returns true if the view is held.
    pub fn holds(&self, view: &ViewId) -> bool {
        (self.0)(view)
    }
}

impl fmt::Debug for HeldViewFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldViewFilter")
    }
}

impl Default for HeldViewFilter {
    fn default() -> Self {
        Self::all()
    }
}

/// Opens bodies that are sealed in the log.
pub trait OpenSealed: fmt::Debug + Send + Sync {
    /// Opens the sealed body of this object of this view.
    ///
    /// # Errors
    /// Why it cannot be opened and what to do, for people; never anything of what is inside.
    fn open(&self, view: &ViewId, key: &ObjectKey, sealed: &[u8]) -> Result<Bytes, String>;
}

/// One thing asked.
#[derive(Debug)]
pub(crate) enum Demand {
    /// From now on, these views of the log alone.
    Follow(Vec<ViewId>),
    /// From now on, these views.
    Hold(HeldViewFilter),
    /// Sealed bodies may be opened now that could not be.
    Reopen,
    /// Free the view's objects.
    Evict(ViewId),
    /// Read them again.
    Load(ViewId),
}

/// The requests of readers that were not taken up yet. Cheap to clone; one reader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demands(Arc<DemandQueue>);

#[derive(Debug, Default)]
struct DemandQueue {
    asked: Mutex<Requests>,
    come: Notify,
}

#[derive(Debug, Default)]
struct Requests {
    follow: Option<Vec<ViewId>>,
    hold: Option<HeldViewFilter>,
    reopen: bool,
    /// True for each view that is to be loaded, false for each that is to be evicted.
    views: BTreeMap<ViewId, bool>,
}

impl Requests {
    fn next(&mut self) -> Option<Demand> {
        if let Some(views) = self.follow.take() {
            return Some(Demand::Follow(views));
        }
        if let Some(hold) = self.hold.take() {
            return Some(Demand::Hold(hold));
        }
        if std::mem::take(&mut self.reopen) {
            return Some(Demand::Reopen);
        }
        let (view, load) = self.views.pop_first()?;
        Some(match load {
            true => Demand::Load(view),
            false => Demand::Evict(view),
        })
    }
}

impl Demands {
    pub(crate) fn put(&self, demand: Demand) {
        let mut asked = self.0.asked.lock();
        match demand {
            Demand::Follow(views) => asked.follow = Some(views),
            Demand::Hold(hold) => asked.hold = Some(hold),
            Demand::Reopen => asked.reopen = true,
            Demand::Evict(view) => {
                asked.views.insert(view, false);
            }
            Demand::Load(view) => {
                asked.views.insert(view, true);
            }
        }
        self.0.come.notify_one();
    }

    /// The next one. Nothing is lost where this is dropped before it is ready.
    pub(crate) async fn next(&self) -> Demand {
        loop {
            if let Some(demand) = self.0.asked.lock().next() {
                return demand;
            }
            self.0.come.notified().await;
        }
    }
}
