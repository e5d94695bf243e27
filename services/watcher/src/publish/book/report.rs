//! What is known of the views: for heartbeats, statuses and metrics.

use std::time::Instant;

use anteroom_model::{ObjectKey, Revision};
use anteroom_wire::beat::ViewBeat;

use super::{Book, Ledger, Tenure, ViewStats};

impl Book {
    /// What the next heartbeat says of every view.
    pub(crate) fn beats(&self, now: Instant) -> Vec<ViewBeat> {
        let beats = self.views.iter().map(|(view, ledger)| ViewBeat {
            view: view.clone(),
            epoch: ledger.epoch,
            revision: ledger.revision,
            news_age_ms: news_age_ms(ledger, now),
            objects: ledger.objects(),
            bytes: ledger.bytes(),
            skipped: ledger.skipped,
            trouble: ledger.trouble.clone(),
        });
        beats.collect()
    }

    /// A position of the log up to which it has these objects as they were handed in last; `None`: some
    /// of them are on their way.
    pub(crate) fn logged(&self, tenure: &Tenure, keys: &[ObjectKey]) -> Option<Revision> {
        let ledger = self.views.get(&tenure.view)?;
        let pending = keys.iter().any(|key| ledger.is_pending(key));
        (!pending).then(|| settled(ledger))?
    }

    /// As [`Book::logged`], of everything in the view.
    pub(crate) fn all_logged(&self, tenure: &Tenure) -> Option<Revision> {
        let ledger = self.views.get(&tenure.view)?;
        (ledger.pending() == 0).then(|| settled(ledger))?
    }

    /// What is known of every view, by name.
    pub(crate) fn stats(&self, now: Instant) -> Vec<ViewStats> {
        let stats = self.views.iter().map(|(view, ledger)| ViewStats {
            view: view.clone(),
            told: ledger.told.state.clone(),
            trouble: ledger.trouble.clone(),
            objects: ledger.objects(),
            bytes: ledger.bytes(),
            pending: ledger.pending(),
            skipped: ledger.skipped,
            heard: ledger.heard,
            news_age_ms: news_age_ms(ledger, now),
        });
        let mut stats: Vec<_> = stats.collect();
        stats.sort_by(|a, b| a.view.cmp(&b.view));
        stats
    }
}

/// The last position of the view, if nothing of it is on its way and it was written in this term: what
/// earlier terms left stands before that.
fn settled(ledger: &Ledger) -> Option<Revision> {
    let written = ledger.revision > Revision::default();
    (written && ledger.in_flight_since.is_none()).then_some(ledger.revision)
}

/// How long ago the source was last heard from, plus how long the oldest change has waited.
fn news_age_ms(ledger: &Ledger, now: Instant) -> u64 {
    let Some(heard) = ledger.heard else {
        return u64::MAX;
    };
    let age = now.saturating_duration_since(heard);
    let waited = ledger
        .oldest_change()
        .map(|since| now.saturating_duration_since(since));
    u64::try_from((age + waited.unwrap_or_default()).as_millis()).unwrap_or(u64::MAX)
}
