//! Who writes: one watcher at a time, by a lease on the bus.
//!
//! Taking the lease too early does no harm, since every write is fenced: the one who lost it is
//! refused at its next batch. So a standby does not wait until readers give up
//! ([`BEAT_SILENCE_MAX_MS`]) but half of that, and readers go on without a gap.

use std::time::Duration;

use anteroom_bus::{AppendError, Bus, BusError, Connection, Fence, Lease};
use anteroom_model::{Incarnation, limits::BEAT_SILENCE_MAX_MS};
use anteroom_runtime::{Check, backoff::Backoff};
use anteroom_wire::beat::Beat;

/// How long the leader may be silent before a standby takes over.
const TAKEOVER_SILENCE: Duration = Duration::from_millis(BEAT_SILENCE_MAX_MS / 2);

/// Waits while the bus does not do what it should, in milliseconds.
const RETRY_BASE_MS: u64 = 200;
const RETRY_MAX_MS: u64 = 5_000;

/// The right to write.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// The term.
    pub term: u32,
    /// The proof.
    pub fence: Fence,
    /// The log that is written.
    pub incarnation: Incarnation,
    /// Who leads.
    pub holder: String,
}

/// What the lease says to this candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    /// It may be taken at once: nobody has it, it was handed over, or it is this candidate's own
    /// from before a restart.
    Free,
    /// Somebody has it: not before they have been silent.
    Held {
        /// Whose beats are listened to, and those of later terms.
        term: u32,
        /// For people.
        holder: String,
    },
}

fn claim(lease: Option<&Lease>, me: &str) -> Claim {
    match lease {
        Some(lease) if !lease.holder.is_empty() && lease.holder != me => Claim::Held {
            term: lease.term,
            holder: lease.holder.clone(),
        },
        _ => Claim::Free,
    }
}

/// The candidates' side of it.
#[derive(Debug)]
pub(crate) struct Campaign<'a> {
    /// Where.
    pub bus: &'a dyn Bus,
    /// Who this is.
    pub me: &'a str,
    /// The highest term that was ever seen. A log that was made anew begins with a higher one, so
    /// that nobody mistakes a new tenure for an old one.
    pub term_seen: u32,
    /// Says what is waited for. A standby is ready.
    pub bus_check: &'a Check,
    /// Says whether this watcher leads or stands by.
    pub lead_check: &'a Check,
}

impl Campaign<'_> {
    /// Returns once this watcher leads.
    pub(crate) async fn win(mut self) -> Leadership {
        let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
        loop {
            match self.attempt().await {
                Ok(Some(leadership)) => return leadership,
                Ok(None) => backoff.reset(),
                Err(error) => {
                    self.bus_check.not_ready(format!("the bus: {error}"));
                    tokio::time::sleep(backoff.next(rand::random())).await;
                }
            }
        }
    }

    /// `None`: it is somebody else's, look again.
    async fn attempt(&mut self) -> Result<Option<Leadership>, BusError> {
        let mut connection = self.bus.connection();
        if *connection.borrow() == Connection::Down {
            self.bus_check.not_ready("the bus: it cannot be reached");
        }
        // An error says that the bus was closed, which the next call says better.
        let _ = connection.wait_for(|state| *state == Connection::Up).await;
        let head = self.bus.ensure_log().await?;
        // Listened to before the lease is read, so that no beat falls between.
        let mut beats = self.bus.beats().await?;
        let found = self.bus.lease(anteroom_model::Group::COORDINATOR).await?;
        self.bus_check.ready();
        let (lease, fence) = found.unzip();
        self.term_seen = self
            .term_seen
            .max(lease.as_ref().map_or(0, |lease| lease.term));
        if let Claim::Held { term, holder } = claim(lease.as_ref(), self.me) {
            tracing::info!(term, leader = holder, "standing by");
            self.lead_check.ready();
            self.until_silent(&mut beats, term).await;
        }
        let term = self.term_seen.saturating_add(1);
        let lease = Lease {
            term,
            holder: self.me.to_owned(),
        };
        match self
            .bus
            .take_lease(anteroom_model::Group::COORDINATOR, lease, fence)
            .await
        {
            Ok(fence) => Ok(Some(Leadership {
                term,
                fence,
                incarnation: head.incarnation,
                holder: self.me.to_owned(),
            })),
            // Somebody was faster.
            Err(AppendError::Fenced) => Ok(None),
            // If it was taken after all, it is found to be this candidate's own.
            Err(AppendError::Unknown { message }) => Err(BusError::Unavailable { message }),
            Err(AppendError::Bus(error)) => Err(error),
            Err(error) => Err(BusError::Unavailable {
                message: error.to_string(),
            }),
        }
    }

    /// Returns when the leader of `term` has been silent for long enough, or says that it goes.
    async fn until_silent(&mut self, beats: &mut anteroom_bus::Beats, term: u32) {
        loop {
            match tokio::time::timeout(TAKEOVER_SILENCE, beats.next()).await {
                Ok(Some(beat)) => {
                    self.term_seen = self.term_seen.max(beat.term);
                    if beat.holder.is_empty() {
                        return;
                    }
                    if beat.term < term {
                        // A leader that does not know yet that it was replaced.
                        tracing::debug!(beat.term, "a beat of an earlier term");
                    }
                }
                Ok(None) | Err(_) => return,
            }
        }
    }
}

impl Leadership {
    /// Hands the lease back, so that a standby need not wait. Whatever comes of it: at worst the
    /// standby waits.
    pub(crate) async fn release(&self, bus: &dyn Bus) {
        let term = self.term.saturating_add(1);
        let free = Lease {
            term,
            holder: String::new(),
        };
        if let Err(error) = bus
            .take_lease(anteroom_model::Group::COORDINATOR, free, Some(self.fence))
            .await
        {
            tracing::debug!(%error, "the lease was not handed back");
            return;
        }
        let last = Beat {
            incarnation: self.incarnation.clone(),
            group: anteroom_model::Group::COORDINATOR,
            term,
            holder: String::new(),
            views: Vec::new(),
        };
        if let Err(error) = bus.send_beat(&last).await {
            tracing::debug!(%error, "nobody was told that the lease is free");
        }
    }
}

#[cfg(test)]
mod tests;
