//! Reports on the views: for heartbeats, statuses and metrics.

use std::time::Duration;

use anteroom_model::{ObjectKey, Revision};
use anteroom_wire::beat::ViewBeat;
use tokio::time::Instant;

use super::WriteQueue;
use crate::log_writer::publish::{
    view_state::ViewWriteState,
    work::{ViewStats, WriteHandle},
};

impl WriteQueue {
    /// The machine has been suspended for `total` since the process began. Ages count that from now on.
    pub(crate) fn note_suspended(&mut self, total: Duration, now: Instant) {
        self.suspends.note(total, now);
    }

    /// Returns the part of every view in the next heartbeat.
    pub(crate) fn beats(&self, now: Instant) -> Vec<ViewBeat> {
        let beats = self.views.iter().map(|(id, view)| ViewBeat {
            view: id.clone(),
            epoch: view.epoch,
            revision: view.revision,
            news_age_ms: view.news_age_ms(now, &self.suspends),
            objects: view.objects(),
            bytes: view.bytes(),
            skipped: view.skipped(),
            trouble: view.trouble.clone(),
        });
        beats.collect()
    }

    /// Returns a position up to which the log has these objects in their last versions; `None`: some of them are on
    /// their way.
    pub(crate) fn logged(&self, handle: &WriteHandle, keys: &[ObjectKey]) -> Option<Revision> {
        let view = self.views.get(&handle.view)?;
        let pending = keys.iter().any(|key| view.is_pending(key));
        (!pending).then(|| settled(view))?
    }

    /// Does the same as [`WriteQueue::logged`], for everything in the view.
    pub(crate) fn all_logged(&self, handle: &WriteHandle) -> Option<Revision> {
        let view = self.views.get(&handle.view)?;
        (view.pending() == 0).then(|| settled(view))?
    }

    /// Returns the figures of every view, by name.
    pub(crate) fn stats(&self, now: Instant) -> Vec<ViewStats> {
        let stats = self.views.iter().map(|(id, view)| ViewStats {
            view: id.clone(),
            reported_state: view.last_control.state.clone(),
            trouble: view.trouble.clone(),
            objects: view.objects(),
            bytes: view.bytes(),
            refused_bytes: if view.is_suspended() { view.bytes() } else { 0 },
            pending: view.pending(),
            skipped: view.skipped(),
            heard: view.freshness.news_at(),
            news_age_ms: view.news_age_ms(now, &self.suspends),
        });
        let mut stats: Vec<_> = stats.collect();
        stats.sort_by(|a, b| a.view.cmp(&b.view));
        stats
    }
}

/// Returns the last position of the view, if no change of it is on its way and it was written in this term. Records
/// of earlier terms stand before that position.
fn settled(view: &ViewWriteState) -> Option<Revision> {
    let written = view.revision > Revision::default();
    (written && !view.freshness.is_in_flight()).then_some(view.revision)
}
