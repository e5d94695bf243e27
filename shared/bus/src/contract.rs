//! The interface of both buses, and its types.

use std::{collections::HashMap, fmt::Debug, time::Duration};

use anteroom_model::{
    Epoch, Group, Incarnation, ObjectKey, ResourceVersion, Revision, ViewId, ViewRecord,
    limits::MESSAGE_BYTES_MAX,
};
use anteroom_wire::{
    envelope::{Envelope, Record, TraceContext},
    status::LogFaults,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use thiserror::Error;
use tokio::sync::{broadcast::Receiver, watch};

use crate::Channel;

/// A message bus: the log, heartbeats and requests.
///
/// # The log
/// One log for all views, in one total order, that keeps the last record of every object and every
/// view's last control record. A tombstone is kept for `TOMBSTONE_TTL_MS`. Reading it from its start
/// is enough to build every view; nobody else is asked.
///
/// # Writing
/// One writer at a time for each [`Group`] of views. It takes the group's lease by compare-and-swap. Every
/// batch is conditional on that lease still being its own, so a writer that was paused can never write after
/// its successor.
#[async_trait]
pub trait Bus: Debug + Send + Sync + 'static {
    /// Returns a receiver of the connection's state: its current value, and every change.
    fn connection(&self) -> watch::Receiver<Connection>;

    /// Creates the log if there is none (with a new [`Incarnation`]) and returns its head. The
    /// writer calls this; readers use [`Bus::head`].
    async fn ensure_log(&self) -> Result<LogHead, BusError>;

    /// Returns the log's incarnation and last position, or [`BusError::NoLog`] if there is no log.
    async fn head(&self) -> Result<LogHead, BusError>;

    /// Returns how large the log is, and how large it may become, or [`BusError::NoLog`].
    async fn log_size(&self) -> Result<LogSize, BusError>;

    /// Returns how the log is stored: its size, and the faults that its servers show. A bus in memory has none.
    async fn log_storage(&self) -> Result<LogStorage, BusError> {
        Ok(LogStorage {
            size: self.log_size().await?,
            faults: LogFaults::default(),
        })
    }

    /// Returns the group's current lease with its fence; `None` if nobody ever took it. A lease that cannot be decoded
    /// has no holder, unless it is of a later version, and the highest term of any record in the log.
    async fn lease(&self, group: Group) -> Result<Option<(Lease, Fence)>, BusError>;

    /// Takes the group's lease by compare-and-swap: only if its fence is still `expected` (`None`:
    /// never taken). A fence of another group is [`AppendError::Fenced`].
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

    /// Empties the log and gives it a new incarnation, if its present incarnation is `incarnation`. Used when the log
    /// has lost acknowledged records. Afterwards every lease is free, and every reader begins again.
    async fn remake_log(&self, incarnation: &Incarnation) -> Result<(), BusError>;

    /// Returns the log's content without bodies. A new writer compares the source with it.
    ///
    /// It is complete for the groups whose lease the caller took before. In a group that somebody
    /// else writes meanwhile, the records written during the call may be missing.
    async fn index(&self) -> Result<LogIndex, BusError>;

    /// Reads the log from its start and then follows it, through every reconnect. Returns at once;
    /// everything, the first read included, arrives as events.
    fn follow(&self, scope: LogScope) -> Follower;

    /// Sends a message to the current subscribers of a channel. It is never stored, and lost while the bus is out of
    /// reach. [`BusExt::send`](crate::BusExt::send) takes it by its type.
    async fn publish(&self, channel: Channel, message: Bytes) -> Result<(), BusError>;

    /// The messages of a channel, from now on. A slow reader loses the oldest.
    /// [`BusExt::signals`](crate::BusExt::signals) gives them by their type.
    async fn subscribe(&self, channel: Channel) -> Result<Receiver<Bytes>, BusError>;

    /// Sends a request to the queue group of `to`. One of its members answers.
    async fn request(
        &self,
        to: &Address,
        call: Call,
        timeout: Duration,
    ) -> Result<Bytes, RequestError>;

    /// Serves `at` until the returned handle is drained or dropped. Of several that serve one
    /// address, each call reaches one.
    async fn serve(&self, at: &Address) -> Result<Serving, BusError>;

    /// Returns this client's counters, for metrics.
    fn counters(&self) -> crate::Counters {
        crate::Counters::default()
    }

    /// Sends what is still buffered and closes. Nothing may be called after it.
    async fn close(&self);
}

/// The state of a client's connection to the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Requests and writes go through.
    Up,
    /// The client is trying to reconnect, for ever.
    Down,
}

/// The identity of the log and its last position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// The incarnation of the log: a log that was deleted and created again has another one.
    pub incarnation: Incarnation,
    /// The position of its last record; 0 if it is empty.
    pub last: Revision,
}

/// The size of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Bytes that its records take.
    pub bytes: u64,
    /// Above it, appends are refused with [`BusError::Full`]; `None`: there is no limit.
    pub bytes_max: Option<u64>,
}

/// The storage of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStorage {
    /// The size of the log.
    pub size: LogSize,
    /// Settings and copies of the log that are not as services need them.
    pub faults: LogFaults,
}

/// The lease of a group: its holder is the group's only writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Grows by one with every taking.
    pub term: u32,
    /// The name of the process that took the lease, such as the name of its pod.
    pub holder: String,
}

/// Proof of having taken a group's lease: the position at which it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The group whose lease was taken.
    pub group: Group,
    /// The position of the lease's record in the log.
    pub at: Revision,
}

/// The part of the log that a follower reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogScope {
    /// Every view.
    All,
    /// Some views, by their ids.
    Views(Vec<ViewId>),
    /// The control records of every view, and no objects.
    Controls,
}

/// An index of the log: the control record of every view, and the key and version of every object,
/// without bodies.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogIndex {
    /// The incarnation of the log that was read.
    pub incarnation: Incarnation,
    /// The last control record of every view.
    pub views: HashMap<ViewId, ViewRecord>,
    /// Live objects of every view; tombstones are left out.
    pub objects: HashMap<ViewId, HashMap<ObjectKey, (Epoch, ResourceVersion)>>,
    /// The highest term of any record, tombstones included; 0: there is no record. A log that lost its last records may
    /// have objects of a term without a control record of it.
    pub term_max: u32,
}

impl LogIndex {
    pub(crate) fn note_term(&mut self, epoch: Epoch) {
        self.term_max = self.term_max.max(epoch.term());
    }
}

/// An event that a [`Follower`] delivers.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// The read begins (again) from the start of the log: until [`LogEvent::CaughtUp`], mark what
    /// is delivered; then sweep what was not.
    Restart {
        /// The incarnation of the log that is read from now on.
        incarnation: Incarnation,
        /// The reason for the new read.
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
    /// The reader, which was caught up, lags: records before this position were superseded on their way. What superseded
    /// them follows, and then [`LogEvent::CaughtUp`]. In [`LogScope::All`] it is sent for each gap; elsewhere gaps cannot be
    /// seen, and it is sent once records may have been superseded.
    Superseded {
        /// The position of the next record, or of a lease.
        before: Revision,
    },
    /// Everything that the log holds in this scope has been delivered. Sent once after each
    /// [`LogEvent::Restart`], after each time that the reader was away and resumed, and after
    /// [`LogEvent::Superseded`].
    CaughtUp {
        /// The log's position, at least: nothing in scope up to here is missing.
        revision: Revision,
    },
    /// The log is out of reach; what was delivered stays true, and grows old.
    Away {
        /// The cause, in words for a log line.
        reason: String,
    },
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct Unreadable {
    /// The view of the record; `None` where its subject cannot be parsed either: it may belong to
    /// any view.
    pub view: Option<ViewId>,
    /// The object of the record; `None` for a control record, and where the subject cannot be
    /// parsed.
    pub key: Option<ObjectKey>,
    /// The error of the decoder.
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

/// A reader of the log. Its queue is bounded: while nobody reads it, the source waits.
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

/// The address of a request: its servers form one queue group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Any replica that serves the view.
    View(ViewId),
    /// Any replica that knows the view, whatever the view's state. It says why it does not serve
    /// the view, or answers callers that accept stale facts.
    Fallback(ViewId),
    /// Any watcher, for a live read.
    Live,
    /// Any watcher, for a write of an existing object.
    Write,
    /// The coordinator, for the statuses of policies and entries.
    Status,
    /// One replica.
    Replica {
        /// The replica's name.
        replica: String,
        /// The view asked.
        view: ViewId,
    },
}

/// A request with its deadline and trace.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request's own encoding.
    pub body: Bytes,
    /// The time that the caller will wait. The server gives up when it is over.
    pub deadline: Duration,
    /// The caller's span.
    pub trace: Option<TraceContext>,
}

/// A call that arrived, to be answered once. Dropping it unanswered leaves the caller to its
/// timeout.
#[derive(Debug)]
pub struct Incoming {
    /// The call. Its `deadline` is the time that was left when the call was sent.
    pub call: Call,
    pub(crate) reply: Box<dyn Reply>,
}

#[async_trait]
pub(crate) trait Reply: Debug + Send + Sync {
    async fn send(self: Box<Self>, body: Bytes) -> Result<(), BusError>;
}

impl Incoming {
    /// Sends `body` to the caller as the reply.
    pub async fn answer(self, body: Bytes) -> Result<(), BusError> {
        self.reply.send(body).await
    }
}

/// A server's subscription in the queue group of an address. Dropped, it ends at once; drained, it
/// ends without losing a call that was already on its way.
///
/// All its work is done in [`Serving::next`]. While nobody calls that, unreadable calls are not
/// refused, and a drain may not take effect.
pub struct Serving {
    /// The calls. After its end, the stream goes on to return `None`.
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
pub enum BusError {
    /// No watcher has created the log yet.
    #[error("the log does not exist yet: a watcher creates it")]
    NoLog,
    /// The bus cannot be reached, or did not answer in time.
    #[error("the bus is out of reach: {message}")]
    Unavailable {
        /// The transport's error.
        message: String,
    },
    /// The bus refuses, and will again.
    #[error("the bus refused the request, and would again: {message}")]
    Refused {
        /// The reason that the bus gave.
        message: String,
    },
    /// The log has no room for it. Nothing that the log holds is dropped to make some.
    #[error("the log is full: {message}")]
    Full {
        /// The transport's error.
        message: String,
    },
    /// Larger than its limit.
    #[error("a message of {bytes} bytes is over the limit of {bytes_max} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

/// Why nothing was appended.
#[derive(Clone, Debug, Error)]
pub enum AppendError {
    /// Another writer has the lease: stop writing at once.
    #[error("another writer has taken the lease: this one must stop writing")]
    Fenced,
    /// It is unknown whether the batch was appended, or still will be while the lease is the same. Writing the same state
    /// again is harmless. Before another state is written, the lease has to be taken again.
    #[error("it is unknown whether the batch was appended: {message}")]
    Unknown {
        /// The transport's error.
        message: String,
    },
    /// The batch was not appended.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Why a request has no reply.
#[derive(Clone, Debug, Error)]
pub enum RequestError {
    /// No process serves the address. The caller learns it at once.
    #[error("no replica or watcher serves this address")]
    NoResponders,
    /// No reply within the timeout.
    #[error("no reply within {timeout_ms} ms")]
    TimedOut {
        /// The timeout.
        timeout_ms: u64,
    },
    /// The request never left: nobody has received it.
    #[error(transparent)]
    NotSent(BusError),
    /// The bus refuses the request, or the connection was lost before a reply came. Somebody may have received it.
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl LogScope {
    /// Returns true if the scope covers records of `view`, of at least one kind.
    pub fn holds(&self, view: &ViewId) -> bool {
        match self {
            Self::All | Self::Controls => true,
            Self::Views(views) => views.contains(view),
        }
    }

    /// Returns true if a follower with this scope reads `record`.
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
