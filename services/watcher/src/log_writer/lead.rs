//! The election of the writer of a group of views: one watcher at a time, by the group's lease on
//! the bus.
//!
//! Taking a lease too early does no harm, since every write is fenced: the earlier leader is refused at its next
//! batch. So a watcher does not wait until readers give up (`BEAT_SILENCE_MAX_MS`) but half of that, and readers go
//! on without a gap. The watcher that the group is assigned to ([`Members::preferred_leader`]) goes first, and the
//! others a little later.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{AppendError, Bus, BusError, BusExt as _, Connection, Fence, Lease, LogHead};
use anteroom_model::{Group, Incarnation, Revision};
use anteroom_runtime::{Check, backoff::Backoff};
use anteroom_wire::beat::Beat;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::log_writer::{
    highest::HighestPosition,
    members::{Members, SILENCE_MAX},
};

/// The time for which a candidate leaves an open lease to the group's preferred watcher.
const DEFERENCE: Duration = Duration::from_millis(700);

/// The interval at which a watcher that waits checks whether the group was taken.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The wait after an error of the bus, in milliseconds.
const RETRY_BASE_MS: u64 = 200;
const RETRY_MAX_MS: u64 = 5_000;

/// The right to write.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// The group.
    pub group: Group,
    /// The term.
    pub term: u32,
    /// The proof.
    pub fence: TermFence,
    /// The log that is written.
    pub incarnation: Incarnation,
    /// The watcher that leads.
    pub holder: String,
}

/// The fence of a term. It moves when the lease is renewed. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct TermFence(Arc<Mutex<Fence>>);

impl TermFence {
    /// A term that begins with this fence.
    pub(crate) fn new(fence: Fence) -> Self {
        Self(Arc::new(Mutex::new(fence)))
    }

    /// Returns the present fence.
    pub(crate) fn now(&self) -> Fence {
        *self.0.lock()
    }

    fn set(&self, fence: Fence) {
        *self.0.lock() = fence;
    }
}

/// The lease as this candidate finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    /// The lease is this candidate's own, from before a restart: it may take the lease at once.
    Own,
    /// No watcher holds the lease: the watcher that the group is assigned to may take it at once.
    Free,
    /// Somebody has it: not before they have been silent.
    Held {
        /// For people.
        holder: String,
    },
}

fn claim(lease: Option<&Lease>, me: &str) -> Claim {
    match lease {
        Some(lease) if lease.holder == me => Claim::Own,
        Some(lease) if !lease.holder.is_empty() => Claim::Held {
            holder: lease.holder.clone(),
        },
        _ => Claim::Free,
    }
}

/// The next step towards a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Take,
    /// Check again after this time at most.
    Wait(Duration),
}

/// `open_for`: for how long the lease has been free, or its holder silent beyond [`SILENCE_MAX`];
/// `None`: it is held, by one that has been silent for `silent`.
fn step(open_for: Option<Duration>, silent: Duration, mine: bool) -> Step {
    match open_for {
        None => Step::Wait(SILENCE_MAX.saturating_sub(silent).max(LOOK_INTERVAL)),
        Some(open_for) if mine || open_for >= DEFERENCE => Step::Take,
        Some(_) => Step::Wait(LOOK_INTERVAL),
    }
}

/// A candidate's attempt to lead a group.
#[derive(Debug)]
pub(crate) struct Campaign<'a> {
    /// The bus with the lease.
    pub bus: &'a dyn Bus,
    /// The group to lead.
    pub group: Group,
    /// The watchers that stand for election.
    pub members: &'a Members,
    /// The highest term that this watcher has seen. A log that was created anew begins with a higher term, so that no
    /// reader mistakes a new term for an old one.
    pub term_seen: u32,
    /// The readiness check that names what the campaign waits for.
    pub bus_check: &'a Check,
}

impl Campaign<'_> {
    /// Returns once this watcher leads the group.
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
        let highest = self.members.highest();
        // From now on readers may tell how far they have read it.
        highest.raise(&head.incarnation, Revision(0));
        if highest.is_shortened(&head.incarnation) {
            self.bus.remake_log(&head.incarnation).await?;
            return Ok(None);
        }
        let found = self.bus.lease(self.group).await?;
        self.bus_check.ready();
        let (lease, fence) = found.unzip();
        let term = lease.as_ref().map_or(0, |lease| lease.term);
        if lease.is_none() {
            // A log that lost its end may have lost its leases, while records of their terms are left.
            let term = self.members.term_in(self.bus, &head.incarnation).await?;
            self.term_seen = self.term_seen.max(term);
        }
        // A lease that was overwritten may have an earlier term than the leader that was heard last.
        let heard = self.members.last_beat(self.group, term);
        let heard = heard.map_or(term, |beat| beat.term);
        self.term_seen = self.term_seen.max(heard);
        let claim = claim(lease.as_ref(), self.members.me());
        if let Claim::Held { holder } = &claim {
            tracing::info!(
                group = %self.group,
                term,
                leader = holder,
                "group led by another watcher: this one stands by"
            );
        }
        if !matches!(claim, Claim::Held { .. })
            && let Some(wait) = self.uninformed_for(&head)
        {
            tokio::time::sleep(wait).await;
            return Ok(None);
        }
        if claim != Claim::Own && !self.until_open(term, claim == Claim::Free).await {
            return Ok(None);
        }
        self.take(head.incarnation, fence).await
    }

    /// Returns for how long others have to be heard before this watcher may write to the log for the first time; `None`:
    /// no longer. If the log has lost records, the first batches could take it past all that others know of it, and
    /// nothing would prove the loss. A lease that is held is taken after a longer silence anyway.
    fn uninformed_for(&self, head: &LogHead) -> Option<Duration> {
        let is_known = self.members.highest().is_led_here(&head.incarnation);
        match head.last == Revision(0) || is_known {
            true => None,
            false => self.members.uninformed_for(),
        }
    }

    /// Waits until the lease of `term` may be taken by this candidate; `false`: look again, since it
    /// is another one by now.
    async fn until_open(&mut self, term: u32, free: bool) -> bool {
        let begun = Instant::now();
        let mut changes = self.members.changes();
        loop {
            changes.mark_unchanged();
            let later = self.members.last_beat(self.group, term.saturating_add(1));
            // An earlier heartbeat is of a log that was made anew, or the lease would say so.
            if let Some(beat) = later.filter(|beat| beat.at > begun) {
                self.term_seen = self.term_seen.max(beat.term);
                return false; // It was taken, or handed back: the lease says which.
            }
            let silent = self.members.silence(self.group, term, begun);
            let open_for = if free {
                Some(begun.elapsed())
            } else {
                silent.checked_sub(SILENCE_MAX)
            };
            let mine = self.members.preferred_leader(self.group) == self.members.me();
            match step(open_for, silent, mine) {
                Step::Take => return true,
                Step::Wait(wait) => tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    _ = changes.changed() => {}
                },
            }
        }
    }

    async fn take(
        &mut self,
        incarnation: Incarnation,
        expected: Option<Fence>,
    ) -> Result<Option<Leadership>, BusError> {
        if self.bus.head().await?.incarnation != incarnation {
            return Ok(None); // It was made anew since the lease was looked at.
        }
        let term = self.term_seen.saturating_add(1);
        let holder = self.members.me().to_owned();
        let lease = Lease {
            term,
            holder: holder.clone(),
        };
        let highest = self.members.highest();
        let known = highest.position_in(&incarnation);
        match self.bus.take_lease(self.group, lease, expected).await {
            Ok(fence) => {
                let given = fence.at.0..=fence.at.0;
                let is_same = self.bus.head().await?.incarnation == incarnation;
                if !is_same || highest.note_appended(&incarnation, known, given).is_err() {
                    self.learn_terms().await;
                    return Ok(None);
                }
                highest.note_led(&incarnation);
                Ok(Some(Leadership {
                    group: self.group,
                    term,
                    fence: TermFence::new(fence),
                    incarnation,
                    holder,
                }))
            }
            // Somebody was faster.
            Err(AppendError::Fenced) => Ok(None),
            // If it was taken after all, it is found to be this candidate's own.
            Err(AppendError::Unknown { message }) => Err(BusError::Unavailable { message }),
            Err(AppendError::Bus(error)) => Err(error),
        }
    }

    /// Takes in the terms that the log has. Another log's lease may have had the same position as the one that was looked
    /// at, and a later term than the one that has overwritten it.
    async fn learn_terms(&mut self) {
        let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
        loop {
            match self.bus.index().await {
                Ok(index) => {
                    self.term_seen = self.term_seen.max(index.term_max);
                    return;
                }
                Err(error) => {
                    self.bus_check.not_ready(format!("the bus: {error}"));
                    tokio::time::sleep(backoff.next(rand::random())).await;
                }
            }
        }
    }
}

impl Leadership {
    /// Takes the lease of a group in a new log.
    #[cfg(test)]
    pub(crate) async fn of_new_log(bus: &dyn Bus, group: Group) -> Self {
        let incarnation = bus.ensure_log().await.unwrap().incarnation;
        let (term, holder) = (1, "w".to_owned());
        let lease = Lease {
            term,
            holder: holder.clone(),
        };
        Self {
            group,
            term,
            fence: TermFence::new(bus.take_lease(group, lease, None).await.unwrap()),
            incarnation,
            holder,
        }
    }

    /// Takes the lease once more, within its term. A batch that was held up on its way names the fence of before, and
    /// is refused from now on.
    ///
    /// # Errors
    /// [`AppendError::Fenced`] if another watcher has the lease, [`BusError::NoLog`] if the new position proves that the
    /// log has lost records.
    pub(crate) async fn renew(
        &self,
        bus: &dyn Bus,
        highest: &HighestPosition,
    ) -> Result<(), AppendError> {
        let lease = Lease {
            term: self.term,
            holder: self.holder.clone(),
        };
        // The lease of another log may have the same position.
        if bus.head().await?.incarnation != self.incarnation {
            return Err(AppendError::Bus(BusError::NoLog));
        }
        let held = self.fence.now();
        let known = highest.position_in(&self.incarnation);
        let mut taken = bus.take_lease(self.group, lease.clone(), Some(held)).await;
        if matches!(taken, Err(AppendError::Fenced)) {
            // A renewal that nobody acknowledged may have been written after all.
            taken = match bus.lease(self.group).await? {
                Some((found, at)) if found == lease => {
                    bus.take_lease(self.group, lease, Some(at)).await
                }
                _ => Err(AppendError::Fenced),
            };
        }
        let fence = taken?;
        let given = fence.at.0..=fence.at.0;
        if highest
            .note_appended(&self.incarnation, known, given)
            .is_err()
        {
            // The next term makes it anew.
            return Err(AppendError::Bus(BusError::NoLog));
        }
        self.fence.set(fence);
        Ok(())
    }

    /// Hands the lease back, so that a successor need not wait. If that fails, the successor waits until the lease
    /// ends.
    pub(crate) async fn release(&self, bus: &dyn Bus) {
        let term = self.term.saturating_add(1);
        let free = Lease {
            term,
            holder: String::new(),
        };
        let fence = self.fence.now();
        if let Err(error) = bus.take_lease(self.group, free, Some(fence)).await {
            tracing::debug!(
                %error,
                group = %self.group,
                "lease not handed back: the successor waits until it ends"
            );
            return;
        }
        let last = Beat {
            incarnation: self.incarnation.clone(),
            group: self.group,
            term,
            holder: String::new(),
            page: 0,
            sent_ms: None,
            views: Vec::new(),
        };
        if let Err(error) = bus.send(&last).await {
            tracing::debug!(
                %error,
                "end of the leadership not announced: the successor learns of it later"
            );
        }
    }
}

#[cfg(test)]
mod tests;
