//! The waiting changes of a view, and the state of the log once they are written.

use std::collections::hash_map::Entry;

use anteroom_model::{Delta, ObjectKey, Op, ResourceVersion, ViewId, ViewRecord, ViewState};

use super::{ViewWriteState, signed};
use crate::log_writer::publish::pending::{BatchedChange, Change, Queued};

impl ViewWriteState {
    pub(super) fn queue(&mut self, key: ObjectKey, mut change: Change) -> (Queued, isize) {
        if self.is_suspended() {
            return (Queued::Nothing, 0);
        }
        change.since = self.freshness.since(change.since, &change.origin);
        let grown = signed(change.body_bytes());
        match self.pending.entry(key) {
            Entry::Vacant(slot) => {
                slot.insert(change);
                (Queued::New, grown)
            }
            Entry::Occupied(mut slot) => {
                let older = slot.get_mut();
                let shrunk = signed(older.body_bytes());
                change.logged = older.logged.take();
                change.logged_bytes = older.logged_bytes;
                change.since = older.since;
                slot.insert(change);
                (Queued::Coalesced, grown - shrunk)
            }
        }
    }

    /// Takes the change of a key for a batch; `None`: the log needs no change.
    pub(in crate::log_writer::publish) fn take(
        &mut self,
        view: &ViewId,
        key: &ObjectKey,
    ) -> Option<BatchedChange> {
        let change = self.pending.remove(key)?;
        let (body_bytes, growth) = (change.body_bytes(), change.growth());
        if change.logged.is_none() && change.op == Op::Delete {
            return Some(BatchedChange {
                delta: None,
                body_bytes,
                growth,
                since: change.since,
                span: change.origin.into_span(),
            });
        }
        if let Some(version) = &change.logged {
            self.logged_digest.remove(key, version);
            self.logged_objects -= 1;
        }
        if let Op::Put(_) = &change.op {
            self.logged_digest.add(key, &change.version);
            self.logged_objects += 1;
        }
        self.last_control.outdated = true;
        let delta = Delta {
            key: key.clone(),
            epoch: self.epoch,
            version: change.version,
            op: change.op,
        };
        tracing::trace!(%view, %key, "change added to a batch");
        Some(BatchedChange {
            delta: Some(delta),
            body_bytes,
            growth,
            since: change.since,
            span: change.origin.into_span(),
        })
    }

    /// The bytes of the next change of a key.
    pub(in crate::log_writer::publish) fn next_bytes(&self, key: &ObjectKey) -> usize {
        self.pending.get(key).map_or(0, Change::body_bytes)
    }

    /// Returns the control record that is true once all taken changes are in the log.
    pub(in crate::log_writer::publish) fn record(
        &self,
        view: ViewId,
        state: ViewState,
        version: ResourceVersion,
    ) -> ViewRecord {
        ViewRecord {
            view,
            info: self.info.clone(),
            epoch: self.epoch,
            state,
            version,
            objects: self.logged_objects,
            digest: self.logged_digest,
            origin: self.origin,
            age_max_ms: self.age_max_ms,
        }
    }
}
