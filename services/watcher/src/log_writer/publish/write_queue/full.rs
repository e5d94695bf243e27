//! The treatment of views when the log, or the quota of a namespace, is full. A view that does not fit is suspended
//! whole, and written again once there is room for all its objects. The other views go on.
//!
//! A view that only policies of namespaces need is a tenants' view: see [`ViewOptions::in_quota`]. All others are the
//! cluster's. Where the log lacks room, views are suspended in this order:
//!
//! 1. Tenants' views of which the log has objects: of the namespace whose views take most, the largest first. A view that
//!    namespaces share counts as one of the namespace that has the largest part of it.
//! 2. The cluster's views: the one that does not fit, if it is large, and otherwise the largest first.
//!
//! They come back in the other order: the cluster's views first. A view that comes back is written like any other, so
//! a view of the cluster takes the room of tenants' views. Sizes are estimates: half of what these views take in the
//! log counts as room, so that no view is suspended for one that does not fit after all.
//!
//! A writer knows the views of its own group alone. To the other groups, tenants' views leave a reserve: see
//! [`log_space`](crate::log_writer::publish::log_space).
//!
//! [`ViewOptions::in_quota`]: anteroom_model::ViewOptions::in_quota

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
    /// quota it is the largest view in it; of the log it is the first in the order that the module has.
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
        let is_large = self.log_space.is_large(view.bytes_wanted());
        if self.log_space.holds(bytes, is_large || view.in_quota) {
            return None;
        }
        let first = self.first_to_suspend(|id, other| {
            let is_clusters = !other.in_quota;
            *id == handle.view || other.is_tenants_in_log() || (is_clusters && !is_large)
        });
        first.map(|view| (view, Limit::Log))
    }

    /// Returns the view that is suspended first of all that meet the condition.
    pub(super) fn first_to_suspend(
        &self,
        condition: impl Fn(&ViewId, &ViewWriteState) -> bool,
    ) -> Option<ViewId> {
        let views = self.views.iter();
        let written = views.filter(|(id, view)| !id.is_system() && !view.is_suspended());
        let candidates = written.filter(|(id, view)| condition(id, view));
        let first = candidates.max_by_key(|(id, view)| {
            let namespace_bytes = self.namespace_bytes(view);
            (view.in_quota, namespace_bytes, view.bytes_wanted(), *id)
        });
        first.map(|(id, _)| id.clone())
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

    /// Handles a batch with new objects for which the log had no room. A tenants' view is suspended, or a view of
    /// these objects: the first in the order that the module has. Returns the batch without the records of that view.
    /// The rest is to be written after the next two items of the queue, which remove the view's objects. An error: the
    /// unchanged batch, since it has no new object of a view that may be suspended.
    pub(crate) fn refuse(&mut self, batch: Batch, now: Instant) -> Result<Batch, Batch> {
        let puts = batch.records.iter().filter(|(record, _)| is_put(record));
        let with_puts: HashSet<_> = puts.map(|(record, _)| record.view().clone()).collect();
        let may_be_refused =
            |id: &ViewId, view: &ViewWriteState| with_puts.contains(id) || view.is_tenants_in_log();
        let first = self.first_to_suspend(may_be_refused);
        let Some(refused) = first.filter(|_| !with_puts.is_empty()) else {
            return Err(batch);
        };
        self.suspend(&refused, Limit::Log, now);
        let mut rest = Batch::default();
        for (record, span) in batch.records {
            if *record.view() != refused {
                rest.push(record, span);
            }
        }
        Ok(rest)
    }

    /// Returns a suspended view for which there is room now: the cluster's views come first, and of those the
    /// smallest. While one is written again, the others wait.
    pub(crate) fn next_to_resume(&self, now: Instant) -> Option<ViewId> {
        if self.views.values().any(|view| view.is_resuming(now)) {
            return None;
        }
        let may_resume = |view: &ViewWriteState| {
            view.may_resume(now) && self.quota_holds(view) && self.log_holds_again(view)
        };
        let waiting = self.views.iter().filter(|(_, view)| may_resume(view));
        let next = waiting.min_by_key(|(id, view)| (view.in_quota, view.bytes_wanted(), *id));
        next.map(|(id, _)| id.clone())
    }

    /// Returns whether there is room in the log for all of a suspended view.
    fn log_holds_again(&self, view: &ViewWriteState) -> bool {
        let bytes = view.bytes_wanted();
        let made = if view.in_quota {
            0
        } else {
            self.tenants_bytes() / 2
        };
        let stops_early = view.in_quota || self.log_space.is_large(bytes);
        let bytes = bytes.saturating_sub(made);
        self.log_space.holds(bytes, stops_early)
    }

    /// Returns about the bytes that tenants' views take in the log.
    fn tenants_bytes(&self) -> u64 {
        let views = self.views.values();
        let tenants = views.filter(|view| view.in_quota && !view.is_suspended());
        tenants.map(ViewWriteState::bytes_logged).sum()
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
