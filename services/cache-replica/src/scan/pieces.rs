//! Cached partial results of a scan by stretch of the view: after a change, only changed stretches are scanned again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anteroom_model::ViewId;
use anteroom_plan::SliceResult;
use anteroom_view::{Stretch, StretchMark};
use moka::sync::Cache;

use crate::memo::QueryKey;

/// The time after which unused pieces are dropped.
const IDLE: Duration = Duration::from_secs(30);

/// The size of a piece beside its part.
const PIECE_BYTES: usize = 128;

/// The parts of a query's result, by stretch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces(HashMap<StretchMark, SliceResult>);

/// A query of a view, in any state of the view: a stretch is recognised in each state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PieceKey {
    pub(crate) view: ViewId,
    pub(crate) query: QueryKey,
}

impl Pieces {
    /// Returns the part computed from this identical stretch.
    pub(crate) fn get(&self, stretch: Stretch<'_>) -> Option<SliceResult> {
        self.0.get(&stretch.mark()).cloned()
    }

    fn bytes(&self) -> usize {
        let parts: usize = self.0.values().map(SliceResult::bytes).sum();
        parts + self.0.len() * PIECE_BYTES
    }
}

impl FromIterator<(StretchMark, SliceResult)> for Pieces {
    fn from_iter<I: IntoIterator<Item = (StretchMark, SliceResult)>>(pieces: I) -> Self {
        Self(pieces.into_iter().collect())
    }
}

/// The pieces of many queries, bounded by bytes.
#[derive(Debug)]
pub(crate) struct PartialResults(Cache<PieceKey, Arc<Pieces>>);

impl PartialResults {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let weigh = |key: &PieceKey, pieces: &Arc<Pieces>| {
            u32::try_from(key.query.bytes() + pieces.bytes()).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder()
            .max_capacity(bytes_max)
            .weigher(weigh)
            .time_to_idle(IDLE);
        Self(cache.build())
    }

    /// The size of all pieces in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weighted_size()
    }

    #[cfg(test)]
    pub(crate) fn bytes_max(&self) -> u64 {
        self.0.policy().max_capacity().unwrap_or(u64::MAX)
    }

    pub(crate) fn get(&self, key: &PieceKey) -> Option<Arc<Pieces>> {
        self.0.get(key)
    }

    pub(crate) fn put(&self, key: PieceKey, pieces: Pieces) {
        self.0.insert(key, Arc::new(pieces));
    }
}
