//! Indexes of the views: see [`crate::kept`].

use std::sync::Arc;

use anteroom_mirror::ViewHandle;
use anteroom_plan::{Index, IndexKey, Scalar};
use anteroom_view::{Object, Snapshot};

use crate::kept::Kept;

/// All indexes of a replica.
pub(crate) type Indexes = Kept<Index>;

impl Indexes {
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
            // The others are still asked where one is not there, so that all are built at once.
            complete &= self
                .ask(view, state, key, |index| {
                    let few = found.len() + index.count(value.as_ref()) <= most;
                    if few {
                        found.extend(index.find(value.as_ref()).cloned());
                    }
                    few
                })
                .unwrap_or(false);
        }
        found.sort_unstable();
        found.dedup();
        complete.then_some(found)
    }
}
