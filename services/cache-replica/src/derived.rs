//! Indexes and counters over the views. Each is built when a query could use it, follows its view, and is dropped
//! when no query uses it any more.

mod cache;
mod changes;
mod counts;
mod indexes;

use std::sync::Arc;

use anteroom_mirror::ViewHandle;
use anteroom_plan::{Counter, Index, IndexKey, Language};
use anteroom_view::Snapshot;
use tokio_util::sync::CancellationToken;

use cache::DerivedCache;
pub(crate) use cache::WAIT_MAX;
use changes::LastChanges;
pub(crate) use counts::{CountParameters, RewrittenQuery};
pub(crate) use indexes::{LookupContext, LookupLimit};

/// A state of a view, and the policies that ask about its objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedState<'q> {
    pub(crate) view: &'q ViewHandle,
    pub(crate) state: &'q Snapshot,
    /// The namespace of the policies; empty: policies of the cluster.
    pub(crate) namespace: &'q str,
}

/// All indexes and counters of a replica.
#[derive(Debug)]
pub(crate) struct Derived {
    indexes: Arc<DerivedCache<Index>>,
    counters: Arc<DerivedCache<Counter>>,
}

impl Derived {
    pub(crate) fn new(language: Language) -> Self {
        let changes = Arc::new(LastChanges::default());
        Self {
            indexes: Arc::new(DerivedCache::new(language, Arc::clone(&changes))),
            counters: Arc::new(DerivedCache::new(language, changes)),
        }
    }

    /// Returns the size of all indexes and counters in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.indexes.bytes() + self.counters.bytes()
    }

    /// Returns the number of indexes and counters.
    pub(crate) fn count(&self) -> usize {
        self.indexes.count() + self.counters.count()
    }

    /// Calls `ask` with the index of this key, in a state of its view. Returns false if there is none at present.
    pub(crate) fn ask_index(
        &self,
        asked: AskedState<'_>,
        key: &IndexKey,
        ask: &mut dyn FnMut(&Index),
    ) -> bool {
        let answered = self
            .indexes
            .ask(asked, key.clone(), WAIT_MAX, |index| ask(index));
        answered.is_some()
    }

    /// Keeps them up with their views until `stop`.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let indexes = Arc::clone(&self.indexes).run(stop.clone());
        let counters = Arc::clone(&self.counters).run(stop);
        tokio::join!(indexes, counters);
    }
}
