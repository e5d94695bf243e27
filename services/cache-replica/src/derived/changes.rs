//! The difference between two states of a view, found once for all that follows the view.

use std::{collections::HashMap, sync::Arc};

use anteroom_model::ViewId;
use anteroom_plan::Changes;
use anteroom_view::Snapshot;
use parking_lot::Mutex;

/// The last changes of each view.
#[derive(Debug, Default)]
pub(super) struct LastChanges(Mutex<HashMap<ViewId, Arc<Changes>>>);

impl LastChanges {
    /// Returns the changes between two states of a view.
    pub(super) fn between(&self, view: &ViewId, from: &Snapshot, to: &Snapshot) -> Arc<Changes> {
        let last = self.0.lock().get(view).cloned();
        if let Some(last) = last.filter(|last| last.lead(from, to)) {
            return last;
        }
        // Two callers at once both do the work, rather than that one waits.
        let changes = Arc::new(Changes::between(from, to));
        let before = self.0.lock().insert(view.clone(), Arc::clone(&changes));
        drop(before); // It may be the last that holds a state: not under the lock.
        changes
    }

    /// Releases the states that the changes hold.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }
}
