//! What differs between two states of a view, found out once for all that is kept beside it.

use std::{collections::HashMap, sync::Arc};

use anteroom_model::ViewId;
use anteroom_plan::Changes;
use anteroom_view::Snapshot;
use parking_lot::Mutex;

/// The last changes of each view, for whatever else has to follow them.
#[derive(Debug, Default)]
pub(crate) struct Followed(Mutex<HashMap<ViewId, Arc<Changes>>>);

impl Followed {
    /// How to come from one state of a view to another.
    pub(crate) fn changes(&self, view: &ViewId, from: &Snapshot, to: &Snapshot) -> Arc<Changes> {
        let known = self.0.lock().get(view).cloned();
        if let Some(known) = known.filter(|known| known.lead(from, to)) {
            return known;
        }
        // Two at once find out the same twice, rather than that one waits.
        let changes = Arc::new(Changes::between(from, to));
        let before = self.0.lock().insert(view.clone(), Arc::clone(&changes));
        drop(before); // It may be the last that holds a state: not under the lock.
        changes
    }

    /// Lets go of the states that are held for whoever has not followed yet.
    pub(crate) fn forget(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}
