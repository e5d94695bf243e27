//! The next work of the writer, and the state of a view once the work is done.

use anteroom_model::{
    Revision, ViewId, ViewState,
    limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX},
};
use anteroom_wire::envelope::Record;
use tokio::time::Instant;
use tracing::Span;

use super::{CONTROL_AFTER_CHANGE, CONTROL_WITHOUT_CHANGE, WriteQueue};
use crate::log_writer::publish::{
    view_state::ViewWriteState,
    work::{Batch, Item, Work, WriteHandle},
};

impl WriteQueue {
    /// Returns the next work, if there is any. Asking again says that the last is done.
    pub(crate) fn next_work(&mut self, now: Instant) -> Option<Work> {
        let work = self.take_work(now);
        self.at_work = work.is_some();
        work
    }

    fn take_work(&mut self, now: Instant) -> Option<Work> {
        let mut batch = Batch::default();
        while let Some(item) = self.queue.front() {
            if batch.records.len() == BATCH_MESSAGES_MAX || !self.fits(item, &batch) {
                break;
            }
            if let Item::Purge(view) = item {
                if !batch.records.is_empty() {
                    break; // It follows the batch that says that the view is dropped.
                }
                let view = view.clone();
                self.queue.pop_front();
                return Some(Work::Purge(view));
            }
            if let Some((view, over)) = self.without_room(item) {
                self.suspend(&view, over, now);
                continue;
            }
            if let Some(item) = self.queue.pop_front() {
                self.take(item, now, &mut batch);
            }
        }
        (!batch.records.is_empty()).then_some(Work::Append(batch))
    }

    fn fits(&self, item: &Item, batch: &Batch) -> bool {
        match item {
            Item::Change { handle, key } => {
                let next = self
                    .views
                    .get(&handle.view)
                    .map_or(0, |view| view.next_bytes(key));
                batch.records.is_empty() || batch.body_bytes + next <= BATCH_BYTES_MAX
            }
            // One subject is written once in a batch.
            Item::Control {
                handle: WriteHandle { view, .. },
                ..
            } => !has_control(batch, view),
            Item::Dropped(record) => !has_control(batch, &record.view),
            Item::Purge(_) => true,
        }
    }

    fn take(&mut self, item: Item, now: Instant, batch: &mut Batch) {
        match item {
            Item::Change { handle, key } => {
                let Some(view) = self.view(&handle) else {
                    return;
                };
                let Some(taken) = view.take(&handle.view, &key) else {
                    return;
                };
                if taken.delta.is_some() {
                    view.freshness.send(taken.since);
                }
                self.pending_bytes -= taken.body_bytes;
                if let Some(delta) = taken.delta {
                    self.log_space.take(taken.growth);
                    let record = Record::Delta {
                        view: handle.view,
                        delta,
                    };
                    batch.push(record, taken.span);
                }
            }
            Item::Control {
                handle,
                state,
                version,
            } => {
                let Some(view) = self.view(&handle) else {
                    return;
                };
                view.last_control.at = Some(now);
                view.last_control.outdated = false;
                let state = view.truthful(state);
                let record = view.record(handle.view.clone(), state, version);
                batch.push(Record::Control(record), Span::none());
            }
            Item::Dropped(record) => batch.push(Record::Control(*record), Span::none()),
            Item::Purge(_) => {}
        }
    }

    /// The batch is in the log, its last record at `last`. Says whether the state of a view changed
    /// for its readers.
    pub(crate) fn written(&mut self, batch: &Batch, last: Revision) -> bool {
        let mut changed = false;
        let first = last.0 + 1 - batch.records.len() as u64;
        for (at, (record, _)) in batch.records.iter().enumerate() {
            let Some(view) = self.views.get_mut(record.view()) else {
                continue;
            };
            view.revision = Revision(first + at as u64);
            view.freshness.arrive();
            if let Record::Control(record) = record
                && record.epoch == view.epoch
            {
                view.reported(&record.state);
                changed |= view.last_control.state.as_ref() != Some(&record.state);
                view.last_control.state = Some(record.state.clone());
                if record.state != ViewState::Syncing {
                    view.freshness.serve_epoch();
                }
            }
        }
        changed
    }

    /// Appends the control record of one view again, whichever that is.
    pub(crate) fn append_any_control_record(&mut self) {
        let is_written = |view: &&ViewWriteState| view.last_control.at.is_some();
        let Some(view) = self.views.values().find(is_written) else {
            return;
        };
        let handle = WriteHandle {
            view: view.info.source.view_id(),
            epoch: view.accepted_epoch,
        };
        let (state, version) = (view.state.clone(), view.version.clone());
        self.control(&handle, state, version);
    }

    /// Control records that are due although no state changed, so that readers can compare.
    pub(crate) fn refresh(&mut self, now: Instant) {
        let due = self.views.iter().filter(|(_, view)| {
            let Some(at) = view.last_control.at else {
                return false;
            };
            let outdated = view.last_control.outdated;
            let after = if outdated {
                CONTROL_AFTER_CHANGE
            } else {
                CONTROL_WITHOUT_CHANGE
            };
            now.saturating_duration_since(at) >= after
        });
        let due: Vec<_> = due
            .map(|(id, view)| {
                let handle = WriteHandle {
                    view: id.clone(),
                    epoch: view.accepted_epoch,
                };
                (handle, view.state.clone(), view.version.clone())
            })
            .collect();
        for (handle, state, version) in due {
            if let Some(view) = self.view(&handle) {
                view.last_control.at = None; // Not again before this one is written.
            }
            self.control(&handle, state, version);
        }
    }
}

fn has_control(batch: &Batch, view: &ViewId) -> bool {
    let mut records = batch.records.iter();
    records.any(|(record, _)| matches!(record, Record::Control(r) if r.view == *view))
}
