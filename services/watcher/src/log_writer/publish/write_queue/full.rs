//! The treatment of views when the log, or the quota of a namespace, is full. A view that does not fit is suspended
//! whole, and written again once there is room for all its objects. The other views go on.

use std::collections::HashSet;

use anteroom_bus::LogSize;
use anteroom_model::{Op, ViewId, ViewState};
use anteroom_wire::envelope::Record;
use tokio::time::Instant;

use super::WriteQueue;
use crate::log_writer::publish::{
    view_state::{Limit, ViewWriteState},
    work::{Batch, Item, WriteHandle},
};

impl WriteQueue {
    /// The log was looked at.
    pub(crate) fn set_room(&mut self, size: LogSize) {
        self.log_space.set(size);
    }

    /// Returns the view that has to be suspended before this can be written, and the limit that it is over. Of a
    /// quota it is the largest view in it; of the log it is the view itself if that is large, or else the largest.
    pub(super) fn without_room(&self, item: &Item) -> Option<(ViewId, Limit)> {
        let Item::Change { handle, key } = item else {
            return None;
        };
        let view = self.views.get(&handle.view)?;
        let bytes = view.growth(key);
        if handle.view.is_system() || bytes == 0 {
            return None;
        }
        if let Some(over) = self.over_quota(view) {
            return Some(over);
        }
        let view_bytes = view.bytes_wanted();
        let refused = if self.log_space.holds(bytes, view_bytes) {
            None
        } else if self.log_space.is_large(view_bytes) {
            Some(handle.view.clone())
        } else {
            self.largest(|_| true)
        };
        refused.map(|view| (view, Limit::Log))
    }

    pub(super) fn largest(&self, condition: impl Fn(&ViewId) -> bool) -> Option<ViewId> {
        let views = self.views.iter();
        let written = views.filter(|(id, view)| !id.is_system() && !view.is_suspended());
        let candidates = written.filter(|(id, _)| condition(id));
        let largest = candidates.max_by_key(|(id, view)| (view.bytes_wanted(), *id));
        largest.map(|(id, _)| id.clone())
    }

    /// Suspends a view. Its objects are removed from the log before anything else is written, which makes room.
    pub(super) fn suspend(&mut self, id: &ViewId, over: Limit, now: Instant) {
        let (dropped, failed) = (self.next_epoch(), self.next_epoch());
        let Some(view) = self.views.get_mut(id) else {
            return;
        };
        self.log_space.free(view.bytes_logged());
        self.pending_bytes -= view.suspend(failed, over, now);
        let (state, version) = (view.state.clone(), view.version.clone());
        if let ViewState::Failed { failure } = &state {
            tracing::error!(
                view = %id,
                limit = over.name(),
                %failure,
                "view suspended: it does not fit; make it smaller, or raise the limit"
            );
        }
        let mut record = view.record(id.clone(), ViewState::Dropped, version.clone());
        record.epoch = dropped;
        let handle = WriteHandle {
            view: id.clone(),
            epoch: view.accepted_epoch,
        };
        self.queue.push_front(Item::Control {
            handle,
            state,
            version,
        });
        self.queue.push_front(Item::Purge(id.clone()));
        self.queue.push_front(Item::Dropped(Box::new(record)));
    }

    /// Handles a batch for which the log had no room: of its views with new objects, the largest is suspended.
    /// Returns the rest of the batch; an error: the unchanged batch, since it has no such view.
    pub(crate) fn refuse(&mut self, batch: Batch, now: Instant) -> Result<Batch, Batch> {
        let puts = batch.records.iter().filter(|(record, _)| is_put(record));
        let with_puts: HashSet<_> = puts.map(|(record, _)| record.view().clone()).collect();
        let Some(refused) = self.largest(|view| with_puts.contains(view)) else {
            return Err(batch);
        };
        self.suspend(&refused, Limit::Log, now);
        let mut rest = Batch::default();
        for (record, span) in batch.records {
            let dropped =
                matches!(&record, Record::Control(record) if record.state == ViewState::Dropped);
            if *record.view() != refused || dropped {
                rest.push(record, span);
            }
        }
        Ok(rest)
    }

    /// Returns a suspended view for which there is room now, the smallest first. While one is written
    /// again, the others wait.
    pub(crate) fn next_to_resume(&self, now: Instant) -> Option<ViewId> {
        if self.views.values().any(|view| view.is_resuming(now)) {
            return None;
        }
        let may_resume = |view: &ViewWriteState| view.may_resume(now) && self.quota_holds(view);
        let waiting = self.views.iter().filter(|(_, view)| may_resume(view));
        let (id, view) = waiting.min_by_key(|(id, view)| (view.bytes_wanted(), *id))?;
        let bytes = view.bytes_wanted();
        self.log_space.holds(bytes, bytes).then(|| id.clone())
    }

    /// A suspended view is written again: its objects have to be handed in anew, after
    /// [`WriteQueue::reread`].
    pub(crate) fn resume_after_full(&mut self, id: &ViewId, now: Instant) {
        if let Some(view) = self.views.get_mut(id).filter(|view| view.is_suspended()) {
            tracing::info!(view = %id, "view resumed: it fits again");
            view.resume_after_full(now);
        }
    }
}

fn is_put(record: &Record) -> bool {
    matches!(record, Record::Delta { delta, .. } if matches!(delta.op, Op::Put(_)))
}
