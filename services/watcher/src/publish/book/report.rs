//! What is known of the views: for heartbeats, statuses and metrics.

use std::time::Instant;

use anteroom_wire::beat::ViewBeat;

use super::{Book, Ledger, ViewStats};

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
