//! The live webhooks and the log position that each enforces, from their heartbeats; from these
//! follows whether a policy is in force. Pure.
//!
//! A policy *becomes* in force when at least one webhook is heard. Each webhook that is heard must also say
//! that the API server calls it for the policy's own place in the log. From then on the policy *is* in force,
//! for this object and generation:
//!
//! | webhooks | a policy that is not in force yet | one that is |
//! |---|---|---|
//! | listened to for less than `LISTEN` | waits: one may not have been heard yet | stays |
//! | none is heard | waits: `NoWebhook` | stays for `WEBHOOKS_AWAY_MAX_MS`, then `NoWebhook` |
//! | one that is heard is behind, or names a position that the log does not have | waits: `NotEnforced`, with its name and reason | stays |
//! | all webhooks have passed the position | is in force | stays |
//!
//! So a webhook that joins, restarts, lags or leaves changes no policy that is ready: a webhook reads the whole log
//! before it takes a request, and a webhook that died decides nothing. Only if there was no webhook at all for long,
//! no policy is enforced, and the condition says so. The coordinator does not wait for a webhook that was silent for
//! `WEBHOOK_SILENCE_MAX_MS`.

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::{
    Failure, Incarnation, Revision,
    limits::{WEBHOOK_BEAT_INTERVAL_MS, WEBHOOK_SILENCE_MAX_MS, WEBHOOKS_AWAY_MAX_MS},
};
use anteroom_wire::webhook_beat::WebhookBeat;
use tokio::time::Instant;

/// The silence after which policies do not wait for a webhook.
const SILENCE_MAX: Duration = Duration::from_millis(WEBHOOK_SILENCE_MAX_MS);

/// The time without any webhook after which no policy is in force.
const AWAY_MAX: Duration = Duration::from_millis(WEBHOOKS_AWAY_MAX_MS);

/// The time that the watcher listens before it knows all live webhooks: one and a half heartbeats.
pub(crate) const LISTEN: Duration = Duration::from_millis(WEBHOOK_BEAT_INTERVAL_MS * 3 / 2);

/// The webhooks that are heard at once: far more than anybody runs. All have one login to NATS, and whoever has it can
/// make up names.
const HEARD_MAX: usize = 256;

/// The reason in the status of a policy that the webhooks do not enforce yet.
pub(crate) const NOT_ENFORCED: &str = "NotEnforced";

/// The reason in the status of policies while no webhook is alive.
const NO_WEBHOOK: &str = "NoWebhook";

/// The last heartbeat of each webhook.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    /// The time since which webhooks are heard.
    since: Option<Instant>,
    /// The time at which any webhook was last heard from.
    last: Option<Instant>,
    /// At most [`HEARD_MAX`].
    heard: BTreeMap<String, (Instant, WebhookBeat)>,
    /// Heartbeats of further webhooks since the last tick, which are left out.
    left_out: u64,
    /// The end of the log, as far as it is known; `None`: nobody has told.
    end: Option<Revision>,
}

impl Webhooks {
    /// Notes that the webhooks are listened to from now on, be it again.
    pub(crate) fn listen(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Notes the end of the log. A webhook beyond it has read what the log has lost since, and says nothing of what was
    /// written in its place.
    pub(crate) fn log_ends_at(&mut self, end: Revision) {
        self.end = Some(end);
    }

    /// Returns whether a webhook names a position of this log beyond its known end.
    pub(crate) fn is_any_beyond(&self, log: &Incarnation) -> bool {
        let mut beats = self.heard.values().map(|(_, beat)| beat);
        beats.any(|beat| beat.incarnation == *log && self.is_beyond(beat))
    }

    fn is_beyond(&self, beat: &WebhookBeat) -> bool {
        self.end.is_some_and(|end| beat.enforced > end)
    }

    /// Takes a heartbeat. Returns whether it may have changed which policies are in force. The compiled position
    /// alone changes with every record, and does not count.
    pub(crate) fn take_beat(&mut self, beat: WebhookBeat, now: Instant) -> bool {
        self.last = Some(now);
        if beat.leaving {
            return self.heard.remove(&beat.webhook).is_some();
        }
        let before = self.heard.get(&beat.webhook);
        if before.is_none() && self.heard.len() >= HEARD_MAX {
            self.left_out += 1;
            return false;
        }
        let news = before.is_none_or(|(_, before)| {
            (&before.incarnation, before.enforced) != (&beat.incarnation, beat.enforced)
        });
        self.heard.insert(beat.webhook.clone(), (now, beat));
        news
    }

    /// Time has passed: those that were not heard are forgotten.
    pub(crate) fn tick(&mut self, now: Instant) {
        let silent = |at: &Instant| now.saturating_duration_since(*at) >= SILENCE_MAX;
        self.heard.retain(|_, (at, _)| !silent(at));
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "heartbeats of more than {HEARD_MAX} webhooks heard: policies do not wait for the others; check who has the webhooks' login to NATS"
            );
        }
    }

    /// Nobody enforces anything, and that for long.
    pub(crate) fn are_away(&self, now: Instant) -> bool {
        let known = self.since.max(self.last);
        self.heard.is_empty()
            && known.is_some_and(|known| now.saturating_duration_since(known) >= AWAY_MAX)
    }

    /// Checks whether policies that were in force still are.
    ///
    /// # Errors
    /// The reason why it is not in force, for the policy's author.
    pub(crate) fn still_enforce(&self, now: Instant) -> Result<(), Failure> {
        match self.are_away(now) {
            true => Err(nobody()),
            false => Ok(()),
        }
    }

    /// Checks whether a policy is in force whose position in this log is `revision`; `None`: the policy's record is not
    /// in the log yet.
    ///
    /// # Errors
    /// The reason why it is not in force, for the policy's author.
    pub(crate) fn enforce(
        &self,
        log: &Incarnation,
        revision: Option<Revision>,
        now: Instant,
    ) -> Result<(), Failure> {
        let waits = |message: &str| Err(Failure::new(NOT_ENFORCED, message));
        let listened = self.since.map(|since| now.saturating_duration_since(since));
        if listened.is_none_or(|listened| listened < LISTEN) {
            return waits("it is not known yet which webhooks there are");
        }
        if self.heard.is_empty() {
            return Err(nobody());
        }
        let Some(revision) = revision else {
            return waits("the policy is on its way to the webhooks");
        };
        let beats = self.heard.values().map(|(_, beat)| beat);
        let there = |beat: &WebhookBeat| {
            let is_known = !self.is_beyond(beat);
            is_known && beat.incarnation == *log && beat.enforced >= revision
        };
        let mut behind = beats.filter(|beat| !there(beat));
        let Some(first) = behind.next() else {
            return Ok(());
        };
        let reason = match &first.trouble {
            _ if first.incarnation != *log || first.compiled < revision => {
                "has not read the policy yet".to_owned()
            }
            _ if self.is_beyond(first) => {
                "names a position that the log does not have any more".to_owned()
            }
            None => "is not called by the API server for the policy yet".to_owned(),
            Some(trouble) => format!("is not called by the API server for the policy: {trouble}"),
        };
        let others = match behind.count() {
            0 => String::new(),
            others => format!("; nor do {others} other(s) enforce it"),
        };
        waits(&format!("webhook {} {reason}{others}", first.webhook))
    }
}

fn nobody() -> Failure {
    Failure::new(
        NO_WEBHOOK,
        "no webhook is heard, so nobody enforces the policy: start anteroom-webhook, and look whether \
         it reaches NATS and belongs to this cluster",
    )
}

#[cfg(test)]
mod tests;
