//! The seam: what a bus does, whichever it is.

use std::{collections::HashMap, fmt::Debug, time::Duration};

use anteroom_model::{
    Epoch, Group, Incarnation, ObjectKey, ResourceVersion, Revision, ViewId, ViewRecord,
    limits::MESSAGE_BYTES_MAX,
};
use anteroom_wire::{
    beat::Beat,
    envelope::{Envelope, Record, TraceContext},
    replica_beat::ReplicaBeat,
    violation::Violation,
    webhook_beat::WebhookBeat,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use thiserror::Error;
use tokio::sync::watch;

use crate::Violations;

/// A bus.
///
/// # The log
/// One log for all views, in one total order, that keeps the last record of every object and every
/// view's last control record. A tombstone is kept for `TOMBSTONE_TTL_MS`. Reading it from its start
/// is enough to build every view; nobody else is asked.
///
/// # Writing
/// One writer at a time for each [`Group`] of views. It takes the group's lease by compare-and-swap,
/// and every batch is conditional on that lease still being its own, so a writer that was paused can
/// never write after its successor.
#[async_trait]
pub trait Bus: Debug + Send + Sync + 'static {
    /// Whether the bus is within reach right now, and changes of that.
    fn connection(&self) -> watch::Receiver<Connection>;

    /// Makes the log if there is none (a new [`Incarnation`]) and says where it stands. The writer
    /// calls this; readers use [`Bus::head`].
    async fn ensure_log(&self) -> Result<LogHead, BusError>;

    /// Where the log stands; [`BusError::NoLog`] if there is none.
    async fn head(&self) -> Result<LogHead, BusError>;

    /// The group's lease as it stands, if anybody ever took it.
    async fn lease(&self, group: Group) -> Result<Option<(Lease, Fence)>, BusError>;

    /// Takes the group's lease if it is still as `expected` says (`None`: never taken):
    /// compare-and-swap. A fence of another group is [`AppendError::Fenced`].
    async fn take_lease(
        &self,
        group: Group,
        lease: Lease,
        expected: Option<Fence>,
    ) -> Result<Fence, AppendError>;

    /// The largest message that it takes now, headers included: at most `MESSAGE_BYTES_MAX`, and less
    /// where a server was set up for less.
    fn message_bytes_max(&self) -> usize {
        MESSAGE_BYTES_MAX
    }

    /// Appends all of `batch` or nothing, provided that the lease is still the one of `fence`.
    /// Returns the position of the batch's last record; the others stand contiguously before it.
    /// At most `BATCH_MESSAGES_MAX` records and `BATCH_BYTES_MAX` bytes (one record may exceed the
    /// latter alone).
    async fn append(&self, fence: Fence, batch: Vec<Envelope>) -> Result<Revision, AppendError>;

    /// Removes every object of a view from the log (its control record stays, and is what tells
    /// readers that it is dropped). Call it after the `Dropped` control record was appended.
    async fn purge(&self, fence: Fence, view: &ViewId) -> Result<(), AppendError>;

    /// What the log holds, without bodies: what a new writer compares the source with. Whole for the groups
    /// whose lease was taken before it is asked for; of a group that somebody else writes meanwhile, what
    /// is written then may be missing.
    async fn index(&self) -> Result<LogIndex, BusError>;

    /// As [`Bus::index`], of one group's views alone: those whose control record names a source of
    /// the group. A view is in the log from its first control record on, so none is missed.
    async fn index_of(&self, group: Group) -> Result<LogIndex, BusError>;

    /// Reads the log from its start and then follows it, through every reconnect. Returns at once;
    /// everything, the first read included, arrives as events.
    fn follow(&self, scope: Scope) -> Follower;

    /// Sends a heartbeat to whoever listens now. Never stored, and lost when the bus is away.
    async fn send_beat(&self, beat: &Beat) -> Result<(), BusError>;

    /// The heartbeats of the writers, from now on. A slow reader loses the oldest.
    async fn beats(&self) -> Result<Beats, BusError>;

    /// As [`Bus::send_beat`], from a replica.
    async fn send_replica_beat(&self, beat: &ReplicaBeat) -> Result<(), BusError>;

    /// The heartbeats of the replicas, from now on. A slow reader loses the oldest.
    async fn replica_beats(&self) -> Result<Beats<ReplicaBeat>, BusError>;

    /// As [`Bus::send_beat`], from a webhook.
    async fn send_webhook_beat(&self, beat: &WebhookBeat) -> Result<(), BusError>;

    /// The heartbeats of the webhooks, from now on. A slow reader loses the oldest.
    async fn webhook_beats(&self) -> Result<Beats<WebhookBeat>, BusError>;

    /// As [`Bus::send_beat`]: what a webhook found at admission.
    async fn send_violation(&self, violation: &Violation) -> Result<(), BusError>;

    /// What webhooks find at admission, from now on. A slow reader loses the oldest, and is told how many.
    async fn violations(&self) -> Result<Violations, BusError>;

    /// Asks whoever serves `to`; one of them answers.
    async fn request(
        &self,
        to: &Address,
        call: Call,
        timeout: Duration,
    ) -> Result<Bytes, RequestError>;

    /// Serves `at` until the returned handle is drained or dropped. Of several that serve one
    /// address, each call reaches one.
    async fn serve(&self, at: &Address) -> Result<Serving, BusError>;

    /// What this client has met so far, for metrics.
    fn counters(&self) -> crate::Counters {
        crate::Counters::default()
    }

    /// Sends what is still buffered and closes. Nothing may be called after it.
    async fn close(&self);
}

/// Whether the bus is within reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Requests and writes go through.
    Up,
    /// The client is trying to reconnect, for ever.
    Down,
}

/// Where the log stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Which log.
    pub incarnation: Incarnation,
    /// The position of its last record; 0 if it is empty.
    pub last: Revision,
}

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Grows by one with every taking.
    pub term: u32,
    /// Who took it, as in a pod's name.
    pub holder: String,
}

/// Proof of having taken a group's lease: the position at which it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Whose lease.
    pub group: Group,
    /// Where it stands in the log.
    pub at: Revision,
}

/// What a reader follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every view.
    All,
    /// These views.
    Views(Vec<ViewId>),
    /// The control records of every view, and no objects.
    Controls,
}

/// What the log holds, without bodies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogIndex {
    /// Which log.
    pub incarnation: Incarnation,
    /// The last control record of every view.
    pub views: HashMap<ViewId, ViewRecord>,
    /// Live objects of every view; tombstones are left out.
    pub objects: HashMap<ViewId, HashMap<ObjectKey, (Epoch, ResourceVersion)>>,
}

/// What a reader of the log sees.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// The read begins (again) from the start of the log: until [`LogEvent::CaughtUp`], mark what
    /// is delivered; then sweep what was not.
    Restart {
        /// Which log is read now.
        incarnation: Incarnation,
        /// Why.
        cause: RestartCause,
    },
    /// The next record.
    Record {
        /// Its position.
        revision: Revision,
        /// Itself. An error is a record that cannot be read: counted, and never silently skipped
        /// over, since its view is now incomplete.
        envelope: Result<Box<Envelope>, Unreadable>,
    },
    /// Everything that the log holds in this scope has been delivered. Sent once after each
    /// [`LogEvent::Restart`], and again after each time that the reader was away and resumed.
    CaughtUp {
        /// The log's position, at least: nothing in scope up to here is missing.
        revision: Revision,
    },
    /// The log is out of reach; what was delivered stays true, and grows old.
    Away {
        /// What the transport said.
        reason: String,
    },
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct Unreadable {
    /// Whose record it is; `None` where not even that can be told: it may be any view's.
    pub view: Option<ViewId>,
    /// Which object's; `None` for a control record, and where it cannot be told.
    pub key: Option<ObjectKey>,
    /// What is wrong with it.
    pub error: anteroom_wire::WireError,
}

/// Why a reader starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartCause {
    /// The first read.
    Start,
    /// The log was made anew.
    NewIncarnation,
    /// The log ends before what was already read.
    Truncated,
    /// The reader was away for longer than tombstones last.
    AwayTooLong,
    /// Messages were lost on the way (a slow consumer, a gap in the sequence).
    Gap,
    /// The reader asked for it: see [`Follower::restart`].
    Asked,
}

/// A reader of the log. Bounded: when nobody reads it, the source waits.
#[derive(Debug)]
pub struct Follower {
    pub(crate) events: tokio::sync::mpsc::Receiver<LogEvent>,
    pub(crate) restart: std::sync::Arc<tokio::sync::Notify>,
    /// Stops the reading task when the follower goes.
    pub(crate) _stop: tokio_util::sync::DropGuard,
}

impl Follower {
    /// The next event; `None` when the bus was closed.
    pub async fn next(&mut self) -> Option<LogEvent> {
        self.events.recv().await
    }

    /// Reads the log from its start again: the reader has found that it misses something.
    pub fn restart(&self) {
        self.restart.notify_one();
    }
}

/// Heartbeats, as they come.
#[derive(Debug)]
pub struct Beats<T = Beat>(pub(crate) tokio::sync::broadcast::Receiver<T>);

impl<T: Clone> Beats<T> {
    /// The next beat; `None` when the bus was closed. Beats that came faster than they were read
    /// are skipped: only the newest matters.
    pub async fn next(&mut self) -> Option<T> {
        use tokio::sync::broadcast::error::RecvError;
        loop {
            match self.0.recv().await {
                Ok(beat) => return Some(beat),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Any replica that serves the view.
    View(ViewId),
    /// Any replica that knows the view, whatever its state: it says why it does not serve it, or
    /// answers to who accepts old news.
    Fallback(ViewId),
    /// Any watcher, for a live read.
    Live,
    /// One replica.
    Replica {
        /// Which.
        replica: String,
        /// The view asked.
        view: ViewId,
    },
}

/// A request, as it travels.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request's own encoding.
    pub body: Bytes,
    /// How long the caller will wait, for the server to give up in time.
    pub deadline: Duration,
    /// The caller's span.
    pub trace: Option<TraceContext>,
}

/// A call that arrived, to be answered once. Dropping it unanswered leaves the caller to its
/// timeout.
#[derive(Debug)]
pub struct Incoming {
    /// The call; its `deadline` is what was left when it was sent.
    pub call: Call,
    pub(crate) reply: Box<dyn Reply>,
}

#[async_trait]
pub(crate) trait Reply: Debug + Send + Sync {
    async fn send(self: Box<Self>, body: Bytes) -> Result<(), BusError>;
}

impl Incoming {
    /// Answers.
    pub async fn answer(self, body: Bytes) -> Result<(), BusError> {
        self.reply.send(body).await
    }
}

/// A place at an address. Dropped, it is left at once; drained, it is left without losing a call
/// that was already on its way.
///
/// What has to be done for it is done in [`Serving::next`]: a place that nobody reads is not left before
/// it is dropped, and refuses nothing.
pub struct Serving {
    /// Goes on to say that there is no more, once it has said so.
    pub(crate) incoming: BoxStream<'static, Result<Incoming, anteroom_wire::WireError>>,
    pub(crate) drain: tokio_util::sync::CancellationToken,
}

impl Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl Serving {
    /// The next call; `None` once drained, or when the bus was closed. An error is a call that
    /// could not be read (another protocol version, a bad header): it has been answered as such.
    pub async fn next(&mut self) -> Option<Result<Incoming, anteroom_wire::WireError>> {
        self.incoming.next().await
    }

    /// Takes no new calls; those on their way still arrive at [`Serving::next`], then `None`.
    pub fn drain(&self) {
        self.drain.cancel();
    }
}

/// Why an operation of the bus failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BusError {
    /// Nobody has made the log yet.
    #[error("the log does not exist yet: the watcher makes it")]
    NoLog,
    /// The bus cannot be reached, or did not answer in time.
    #[error("the bus is out of reach: {message}")]
    Unavailable {
        /// What the transport said.
        message: String,
    },
    /// The bus refuses, and will again.
    #[error("the bus refuses: {message}")]
    Refused {
        /// What it said.
        message: String,
    },
    /// Larger than its limit.
    #[error("a message of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

/// Why nothing was appended.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Somebody else has the lease: stop writing at once.
    #[error("the lease has gone to another writer")]
    Fenced,
    /// It is unknown whether the batch was appended. Writing the same state again is harmless.
    #[error("unknown whether it was appended: {message}")]
    Unknown {
        /// What the transport said.
        message: String,
    },
    /// It was not appended.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Why a request has no reply.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Nobody serves the address: known at once.
    #[error("nobody serves this address")]
    NoResponders,
    /// No reply within the timeout.
    #[error("no reply within {timeout_ms} ms")]
    TimedOut {
        /// The timeout.
        timeout_ms: u64,
    },
    /// The request never left.
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl Scope {
    /// Whether records of `view` are in scope, of whatever kind.
    pub fn holds(&self, view: &ViewId) -> bool {
        match self {
            Self::All | Self::Controls => true,
            Self::Views(views) => views.contains(view),
        }
    }

    /// Whether this record is in scope.
    pub fn reads(&self, record: &Record) -> bool {
        let of_kind = *self != Self::Controls || matches!(record, Record::Control(_));
        of_kind && self.holds(record.view())
    }
}

impl RequestError {
    pub(crate) fn timed_out(timeout: Duration) -> Self {
        Self::TimedOut {
            timeout_ms: timeout.as_millis().try_into().unwrap_or(u64::MAX),
        }
    }
}
