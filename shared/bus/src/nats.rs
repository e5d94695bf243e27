//! The bus over NATS: JetStream for the log, core pub/sub for signals and requests.
//!
//! | module | content |
//! |---|---|
//! | `args` | the options of the command line |
//! | `config` | how to connect, and how the log is kept |
//! | `login` | how a client logs in |
//! | `link` | whether NATS is within reach |
//! | `leave` | when a server is left for another one |
//! | `earlier` | ends of the log that are earlier than what is known |
//! | `mux` | requests through one inbox |
//! | `api` | JetStream's API |
//! | `stream` | the stream that is the log |
//! | `append` | the lease, and fenced batches |
//! | `consumer`, `follow`, `verify`, `index` | reading the log |
//! | `serve`, `signals` | core pub/sub |
//!
//! Three facts about the server shape this module:
//!
//! - `NumPending` of 0 does not prove that a consumer has read everything: the server subtracts a superseded
//!   message before it adds its successor. The proof is the log's last position, asked for after the record
//!   arrived, or the position that an idle heartbeat names.
//! - The client's `drain()` loses calls that are on their way. A subscription is left by an unsubscribe that
//!   the server has confirmed, and only then is its queue closed.
//! - A subscription has no acknowledgement, so each new one is confirmed by a round trip. One round trip
//!   confirms all subscriptions before it.

mod api;
mod append;
mod args;
mod config;
mod consumer;
mod earlier;
mod follow;
mod index;
mod leave;
mod link;
mod login;
mod mux;
mod serve;
mod signals;
mod stream;
mod verify;

use std::{collections::HashMap, sync::Arc, time::Duration};

use anteroom_model::{Group, Incarnation, Revision, ViewId, ViewState, limits::MESSAGE_BYTES_MAX};
use anteroom_wire::{
    call,
    envelope::{Envelope, TraceContext},
    lease,
    subject::Subjects,
};
use async_nats::{Client, Event, HeaderMap};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, broadcast::Receiver, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use args::NatsArgs;
pub use config::{Credentials, NatsConfig, NatsConfigError, Tls};

use api::Api;
use leave::Signs;
use link::Link;
use mux::{Mux, Unanswered};

use crate::{
    Address, AppendError, Bus, BusError, Call, Channel, Connection, Counters, EarlierEnd, Fence,
    Follower, Lease, LogHead, LogIndex, LogScope, LogSize, LogStorage, RequestError, Serving,
    batch, counters::CounterCells,
};

/// The most requests of this process that wait for a reply. A further request waits for its turn, within its own
/// timeout.
const REQUESTS_MAX: usize = 4096;

/// The client's events that wait to be looked at; more are lost, which the link makes up for.
const EVENTS_MAX: usize = 128;

/// Appends that may be under way at once: one of each group.
const APPEND_LANES: usize = 1 + Group::SHARDS as usize;

/// The time limit of closing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The bus over NATS.
#[derive(Debug)]
pub struct NatsBus {
    shared: Arc<ClientState>,
    connection: watch::Receiver<Connection>,
    /// Appends of one group go one after the other, so that they reach the log in the order of the calls.
    /// Appends of different groups do not wait for each other.
    appending: [tokio::sync::Mutex<()>; APPEND_LANES],
    _stop: DropGuard,
}

/// The state that all parts of a client share.
#[derive(Debug)]
struct ClientState {
    config: NatsConfig,
    subjects: Subjects,
    client: Client,
    link: watch::Receiver<Link>,
    mux: Mux,
    api: Api,
    signs: Arc<Signs>,
    /// The log seems to end before a lease that was taken here.
    earlier: Mutex<EarlierEnd>,
    requests: Semaphore,
    refusals: Arc<Semaphore>,
    echo: serve::Echo,
    counters: Arc<CounterCells>,
    /// The fences that were taken here, with the log that each was taken in.
    fences: Mutex<HashMap<Group, (Fence, Incarnation)>>,
    no_log_notice: follow::NoLogNotice,
    closed: CancellationToken,
}

impl NatsBus {
    /// A client, whether or not NATS is there: it keeps trying to connect, for ever.
    ///
    /// # Errors
    /// Only what no waiting mends: an address or a name that is none, a file that is missing.
    pub async fn connect(config: NatsConfig) -> Result<Self, NatsConfigError> {
        config.check()?;
        let subjects = Subjects::new(&config.cluster)?;
        let counters = Arc::new(CounterCells::default());
        let (events, event_queue) = mpsc::channel(EVENTS_MAX);
        let seen = Arc::new(Notices {
            counters: Arc::clone(&counters),
            last_trouble: Mutex::default(),
        });
        let options = config.options().await?.event_callback(move |event| {
            let (events, seen) = (events.clone(), Arc::clone(&seen));
            async move {
                seen.notice(&event);
                // Full, the link looks for itself soon enough.
                let _ = events.try_send(event);
            }
        });
        let client = options
            .connect(config.addresses()?)
            .await
            .map_err(|error| NatsConfigError::Server {
                address: config.servers.join(","),
                source: std::io::Error::other(error),
            })?;
        let closed = CancellationToken::new();
        let (link_sender, link) = watch::channel(Link::down());
        let signs = Arc::<Signs>::default();
        let (connection_sender, connection) = watch::channel(Connection::Down);
        tokio::spawn(link::watch(
            client.clone(),
            event_queue,
            link_sender,
            connection_sender,
            Arc::clone(&signs),
            closed.clone(),
        ));
        let mux = Mux::open(client.clone(), link.clone(), closed.clone())
            .await
            .map_err(|error| NatsConfigError::Inbox {
                prefix: config.inbox_prefix.clone(),
                source: error,
            })?;
        let shared = ClientState {
            api: Api::new(mux.clone(), &subjects, Arc::clone(&signs)),
            signs,
            earlier: Mutex::default(),
            subjects,
            client,
            link,
            mux,
            requests: Semaphore::new(REQUESTS_MAX),
            refusals: Arc::new(Semaphore::new(serve::REFUSALS_MAX)),
            echo: serve::Echo::default(),
            counters,
            fences: Mutex::default(),
            no_log_notice: follow::NoLogNotice::default(),
            closed: closed.clone(),
            config,
        };
        Ok(Self {
            shared: Arc::new(shared),
            connection,
            appending: Default::default(),
            _stop: closed.drop_guard(),
        })
    }

    /// Requests of any kind that wait for a reply now.
    pub fn requests_waiting(&self) -> usize {
        self.shared.mux.waiting()
    }
}

/// Logs the events of the connection, and counts the losses.
struct Notices {
    counters: Arc<CounterCells>,
    /// The last error of the client since the last connection. The client tries every second or
    /// two, and mostly fails for the same reason.
    last_trouble: Mutex<Option<String>>,
}

impl Notices {
    fn notice(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.counters.connected();
                *self.last_trouble.lock() = None;
                tracing::info!("connection to NATS established");
            }
            Event::SlowConsumer(subscription) => {
                self.counters.dropped();
                tracing::warn!(
                    subscription,
                    "message dropped by the NATS client: the subscription's queue is full"
                );
            }
            Event::Disconnected => {
                tracing::warn!("connection to NATS lost: the client connects again by itself");
            }
            Event::ServerError(_) => tracing::warn!(%event, "error reported by the NATS server"),
            Event::ClientError(_) if self.is_repeated(event.to_string()) => {
                tracing::debug!(%event, "same error of the NATS client again");
            }
            Event::LameDuckMode | Event::Draining | Event::Closed | Event::ClientError(_) => {
                tracing::info!(%event, "event reported by the NATS client");
            }
        }
    }

    /// Returns true if the client's last error was the same, and keeps `trouble` as the last one.
    fn is_repeated(&self, trouble: String) -> bool {
        let mut last = self.last_trouble.lock();
        let repeated = last.as_deref() == Some(trouble.as_str());
        *last = Some(trouble);
        repeated
    }
}

impl ClientState {
    fn subject(&self, address: &Address) -> String {
        match address {
            Address::View(view) => self.subjects.query(view),
            Address::Fallback(view) => self.subjects.fallback(view),
            Address::Live => self.subjects.live(),
            Address::Write => self.subjects.write(),
            Address::Status => self.subjects.status(),
            Address::Replica { replica, view } => self.subjects.direct(replica, view),
        }
    }

    /// The position of the last lease that was taken here in this log; 0: there is none.
    fn last_lease(&self, log: &Incarnation) -> Revision {
        let fences = self.fences.lock();
        let of_log = fences
            .values()
            .filter(|(_, incarnation)| incarnation == log);
        of_log.map(|(fence, _)| fence.at).max().unwrap_or_default()
    }

    /// The log that `fence` is a position of; the current one if it was not taken here.
    async fn log_of(&self, fence: Fence) -> Result<Incarnation, BusError> {
        let known = self.fences.lock().get(&fence.group).cloned();
        match known {
            Some((taken, incarnation)) if taken == fence => Ok(incarnation),
            _ => Ok(self.api.head().await?.incarnation),
        }
    }

    /// Returns the group's lease as it is stored in the log of this incarnation.
    async fn stored_lease(
        &self,
        incarnation: &Incarnation,
        group: Group,
    ) -> Result<Option<(Bytes, Fence)>, BusError> {
        let subject = self.subjects.lease(incarnation, group);
        let stored = self.api.last(&subject).await?;
        Ok(stored.map(|stored| {
            let at = Revision(stored.sequence);
            (stored.payload, Fence { group, at })
        }))
    }

    /// Returns the lease of this body. One that cannot be decoded has no holder, so that the next candidate takes it,
    /// unless it is of a later version, whose writer is waited for. It has the last term that is known from the log, so
    /// that no term repeats.
    async fn decode_lease(&self, group: Group, body: &[u8]) -> Result<Lease, BusError> {
        match lease::decode(body) {
            Ok((term, holder)) => Ok(Lease { term, holder }),
            Err(error) => {
                let term = index::read(self).await?.term_max;
                tracing::warn!(
                    %group,
                    %error,
                    term,
                    "lease of a group not decoded: a watcher takes it over, of a later version once its holder is silent; \
                     find out who wrote it"
                );
                let holder = lease::unknown_holder(&error);
                Ok(Lease { term, holder })
            }
        }
    }

    async fn purge(&self, fence: Fence, view: &ViewId) -> Result<(), AppendError> {
        self.api.head().await?;
        let incarnation = self.log_of(fence).await?;
        match self.stored_lease(&incarnation, fence.group).await? {
            Some((_, current)) if current == fence => {}
            _ => return Err(AppendError::Fenced),
        }
        // The server cannot fence a purge. It removes only what stands before the view's `Dropped`
        // record instead: a successor that has since made the view anew wrote behind it.
        match index::control(self, view).await? {
            Some((dropped_at, record)) if record.state == ViewState::Dropped => {
                let objects = self.subjects.objects(view);
                let purged = self.api.purge(&objects, dropped_at).await;
                Ok(purged.map_err(BusError::from)?)
            }
            _ => Err(AppendError::Bus(batch::not_dropped(view))),
        }
    }

    async fn ask(
        &self,
        to: &Address,
        call: Call,
        deadline: Instant,
    ) -> Result<Bytes, RequestOutcome> {
        let _turn = match tokio::time::timeout_at(deadline, self.requests.acquire()).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) | Err(_) => return Err(RequestOutcome::TimedOut),
        };
        let Call {
            body,
            deadline: given,
            trace,
        } = call;
        let (headers, body) = match call::prefixed(given, trace.as_ref(), &body) {
            Some(prefixed) => (None, prefixed),
            None => (Some(headers(given, trace.as_ref())), body),
        };
        let subject = self.subject(to);
        let asked = self.mux.request(subject, headers, body, deadline).await;
        match asked {
            Ok(reply) => Ok(reply.payload),
            Err(Unanswered::NoResponders) => {
                Err(RequestOutcome::Failed(RequestError::NoResponders))
            }
            Err(Unanswered::TimedOut) => Err(RequestOutcome::TimedOut),
            Err(Unanswered::NotSent(message)) => {
                let error = BusError::Unavailable { message };
                Err(RequestOutcome::Failed(RequestError::NotSent(error)))
            }
            Err(why @ Unanswered::ConnectionLost) => {
                let message = why.to_string();
                let error = BusError::Unavailable { message };
                Err(RequestOutcome::Failed(RequestError::Bus(error)))
            }
        }
    }
}

fn headers(deadline: Duration, trace: Option<&TraceContext>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in call::encode(deadline, trace) {
        headers.insert(name, value.as_str());
    }
    headers
}

enum RequestOutcome {
    TimedOut,
    Failed(RequestError),
}

#[async_trait]
impl Bus for NatsBus {
    fn connection(&self) -> watch::Receiver<Connection> {
        self.connection.clone()
    }

    fn message_bytes_max(&self) -> usize {
        append::message_bytes_max(&self.shared)
    }

    async fn ensure_log(&self) -> Result<LogHead, BusError> {
        let shared = &*self.shared;
        let (has, wants) = (shared.client.max_payload(), MESSAGE_BYTES_MAX);
        if has < wants {
            tracing::warn!(
                "message limit of the NATS server too low: it is {has} bytes, and larger objects cannot be published; \
                 set `max_payload: {wants}` in its configuration"
            );
        }
        stream::ensure(&shared.api, &shared.subjects, &shared.config).await
    }

    async fn head(&self) -> Result<LogHead, BusError> {
        self.shared.api.head().await
    }

    async fn remake_log(&self, incarnation: &Incarnation) -> Result<(), BusError> {
        stream::remake(&self.shared.api, incarnation).await
    }

    async fn log_size(&self) -> Result<LogSize, BusError> {
        self.shared.api.size().await
    }

    async fn log_storage(&self) -> Result<LogStorage, BusError> {
        let shared = &*self.shared;
        let info = shared.api.info().await?;
        Ok(LogStorage {
            size: api::size(&info),
            faults: stream::faults(&info, &shared.subjects, &shared.config),
        })
    }

    async fn lease(&self, group: Group) -> Result<Option<(Lease, Fence)>, BusError> {
        let head = self.shared.api.head().await?;
        let shared = &*self.shared;
        let Some((body, fence)) = shared.stored_lease(&head.incarnation, group).await? else {
            return Ok(None);
        };
        Ok(Some((shared.decode_lease(group, &body).await?, fence)))
    }

    async fn take_lease(
        &self,
        group: Group,
        lease: Lease,
        expected: Option<Fence>,
    ) -> Result<Fence, AppendError> {
        if expected.is_some_and(|fence| fence.group != group) {
            return Err(AppendError::Fenced);
        }
        let shared = &*self.shared;
        let incarnation = shared.api.head().await?.incarnation;
        let body = lease::encode(lease.term, &lease.holder).map_err(|error| BusError::Refused {
            message: error.to_string(),
        })?;
        let subject = shared.subjects.lease(&incarnation, group);
        let at = append::store_lease(shared, subject, body, expected).await?;
        let fence = Fence { group, at };
        shared.fences.lock().insert(group, (fence, incarnation));
        Ok(fence)
    }

    async fn append(&self, fence: Fence, batch: Vec<Envelope>) -> Result<Revision, AppendError> {
        batch::check(&batch)?;
        let lane = usize::from(fence.group.0) % APPEND_LANES;
        let _turn = self.appending[lane].lock().await;
        let incarnation = self.shared.log_of(fence).await?;
        let lease_subject = self.shared.subjects.lease(&incarnation, fence.group);
        append::append(&self.shared, &lease_subject, fence, &batch).await
    }

    async fn purge(&self, fence: Fence, view: &ViewId) -> Result<(), AppendError> {
        self.shared.purge(fence, view).await
    }

    async fn index(&self) -> Result<LogIndex, BusError> {
        index::read(&self.shared).await
    }

    fn follow(&self, scope: LogScope) -> Follower {
        follow::follow(Arc::clone(&self.shared), &scope)
    }

    async fn publish(&self, channel: Channel, message: Bytes) -> Result<(), BusError> {
        signals::publish(&self.shared, channel, message).await
    }

    async fn subscribe(&self, channel: Channel) -> Result<Receiver<Bytes>, BusError> {
        signals::subscribe(&self.shared, channel).await
    }

    async fn request(
        &self,
        to: &Address,
        call: Call,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        batch::check_message(call.body.len())?;
        let asked = self.shared.ask(to, call, Instant::now() + timeout).await;
        asked.map_err(|outcome| match outcome {
            RequestOutcome::TimedOut => RequestError::timed_out(timeout),
            RequestOutcome::Failed(error) => error,
        })
    }

    async fn serve(&self, at: &Address) -> Result<Serving, BusError> {
        serve::serve(Arc::clone(&self.shared), at).await
    }

    fn counters(&self) -> Counters {
        self.shared.counters.read()
    }

    async fn close(&self) {
        // What is buffered goes out, if NATS is there to take it.
        if self.shared.link.borrow().is_up() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.shared.client.flush()).await;
        }
        self.shared.closed.cancel();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.shared.client.drain()).await;
    }
}
