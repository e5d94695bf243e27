//! Faults on demand, for tests and the simulation.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use anteroom_model::Revision;
use tokio::sync::mpsc;

use super::{WitnessedBatch, hub::Hub, link::Link};

/// A handle that injects the faults of a real bus. [`super::LocalBus::faults`] returns it.
///
/// Everything here is what NATS, its network and its disks were seen or are documented to do. A server whose copy of
/// the stream differs from the others', for instance, leaves out records without a gap. What a bus may *not* do (reorder a log, deliver a batch in part, answer one call twice) cannot be asked
/// for. A run is the same every time for one seed on a single-threaded runtime with paused time.
#[derive(Clone, Debug)]
pub struct Faults {
    pub(super) hub: Arc<Hub>,
    pub(super) link: Arc<Link>,
}

/// The times within which a batch arrives that was held up: bytes in a socket outlast its sender's patience.
pub(super) const APPEND_LATE_MIN: Duration = Duration::from_secs(1);
/// See [`Chances::append_late`].
pub const APPEND_LATE_MAX: Duration = Duration::from_secs(90);

/// The probability of each transport fault, 0 to 1, and the longest delay. All are zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chances {
    /// A batch is lost on its way: not appended, reported as `Unknown`.
    pub append_lost: f64,
    /// A batch is appended, but its acknowledgement is lost: reported as `Unknown`.
    pub ack_lost: f64,
    /// A batch is held up on its way: reported as `Unknown`, and appended up to [`APPEND_LATE_MAX`] later, if its fence
    /// still holds then.
    pub append_late: f64,
    /// The probability that a call is lost before it reaches a server: the caller waits for its timeout.
    pub call_lost: f64,
    /// A call is answered, but the reply is lost: its caller waits for its timeout.
    pub reply_lost: f64,
    /// One listener misses a beat.
    pub beat_lost: f64,
    /// Each append, call, reply and delivery takes up to this long, evenly spread. Beats are not
    /// delayed by it.
    pub delay_max: Duration,
    /// One listener's way from one sender stalls: this beat and those behind it wait, and arrive together and in order.
    pub beat_delayed: f64,
    /// The longest time of such a stall. All of them end once [`Chances::beat_delayed`] is 0.
    pub beat_delay_max: Duration,
}

impl Faults {
    /// Cuts this client's own way to the bus; the others do not notice.
    pub fn cut(&self) {
        self.link.set_way(false);
    }

    /// Mends what [`Faults::cut`] cut.
    pub fn mend(&self) {
        self.link.set_way(true);
    }

    /// Stops the broker for every client. What the log holds stays.
    pub fn stop(&self) {
        self.set_broker(false);
    }

    /// Starts it again.
    pub fn start(&self) {
        self.set_broker(true);
    }

    fn set_broker(&self, up: bool) {
        self.hub.with(|state| {
            state.up = up;
            state.refresh_links();
        });
    }

    /// Deletes the log. There is none until a writer creates it.
    pub fn delete_log(&self) {
        self.hub.with(|state| state.log = None);
        self.hub.notify();
    }

    /// Deletes the log and makes it again, empty, in one moment.
    pub fn remake_log(&self) {
        let tombstone_ttl = self.hub.options.tombstone_ttl;
        self.hub.with(|state| {
            state.log = None;
            state.ensure_log(tombstone_ttl);
        });
        self.hub.notify();
    }

    /// Drops every record after `last`, although it was acknowledged. Followers that are connected
    /// notice at once, the others when they come back.
    pub fn truncate_log(&self, last: Revision) {
        self.hub.with(|state| state.truncate(last));
        self.hub.notify();
    }

    /// Restores the log as it was at `last`, and lets it grow to the present length or beyond in another history, under
    /// the same numbers. In that history, other writers took every lease and handed it back. Nobody is told.
    pub fn replace_history(&self, last: Revision) {
        self.hub.with(|state| state.replace_history(last));
        self.hub.notify();
    }

    /// Loses the first objects in the log behind `after`, up to `records_max`, as a server does that lost a block of its
    /// storage. Later records stay, and nobody is told.
    pub fn lose_in_log(&self, after: Revision, records_max: usize) {
        self.hub.with(|state| {
            if let Some(log) = &mut state.log {
                log.lose(after, records_max);
            }
        });
        self.hub.notify();
    }

    /// Sets the largest size of the log, as an administrator would; `None`: there is no limit.
    pub fn limit_log(&self, bytes_max: Option<u64>) {
        self.hub.with(|state| state.limit_log(bytes_max));
    }

    /// Makes every follower of this client lose messages on the way, and notice: each begins again
    /// with [`crate::RestartCause::Gap`].
    pub fn gap(&self) {
        self.link.gap();
        self.hub.notify();
    }

    /// Moves this client's followers to a server whose copy of the log gets no more records, until [`Faults::catch_copy_up`].
    /// The log's end comes from the server that leads. Nothing happens where there is no log.
    pub fn lag_copy(&self) {
        if let Ok(head) = self.hub.with_log(|log| log.head()) {
            self.link.lag(head.last);
            self.hub.notify();
        }
    }

    /// Gives the copy of this client's followers all records that it lacks.
    pub fn catch_copy_up(&self) {
        if self.link.lag_no_more() {
            self.hub.notify();
        }
    }

    /// Loses the next `records` records on their way to this client's followers, and tells nobody. 0: no more are lost.
    pub fn lose(&self, records: u64) {
        self.link.lose(records);
    }

    /// Loses every batch of this client from now on, or no more of them. Leases, beats and calls go on: so it is where
    /// large packets alone are lost.
    pub fn fail_appends(&self, fail: bool) {
        self.link.fail_appends(fail);
    }

    /// Returns every batch that is appended from now on, by any client. Whoever watched before sees no more.
    pub fn watch_appends(&self) -> mpsc::UnboundedReceiver<WitnessedBatch> {
        let (witness, batches) = mpsc::unbounded_channel();
        self.hub.with(|state| state.witness = Some(witness));
        batches
    }

    /// Sets how often the transport of the whole bus fails by chance.
    pub fn set_chances(&self, chances: Chances) {
        let links = self.hub.with(|state| {
            state.chances = chances;
            state.links.clone()
        });
        if chances.beat_delayed <= 0.0 {
            let links = links.iter().filter_map(Weak::upgrade);
            links.for_each(|link| link.hear_delayed());
        }
    }
}
