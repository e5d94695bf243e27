//! Indexes and counters over the views. Each is built when a query could use it, follows its view, and is dropped
//! when no query uses it any more.

mod byte_limit;
mod cache;
mod changes;
mod counts;
mod indexes;

use std::sync::Arc;

use anteroom_mirror::ViewHandle;
use anteroom_plan::{Counter, Index, IndexKey, Language};
use anteroom_view::Snapshot;
use tokio_util::sync::CancellationToken;

use byte_limit::ByteLimit;
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
    limit: Arc<ByteLimit>,
}

impl Derived {
    /// None yet. All together may take `bytes_max`.
    pub(crate) fn new(language: Language, bytes_max: usize) -> Self {
        let changes = Arc::new(LastChanges::default());
        let limit = ByteLimit::new(bytes_max);
        let indexes = DerivedCache::new(language, Arc::clone(&changes), Arc::clone(&limit));
        let counters = DerivedCache::new(language, changes, Arc::clone(&limit));
        Self {
            indexes: Arc::new(indexes),
            counters: Arc::new(counters),
            limit,
        }
    }

    /// Returns the size of all indexes and counters in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.limit.taken() as u64
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
