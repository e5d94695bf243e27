//! A bus in one process, for the demo, `anteroom serve` and tests.
//!
//! [`LocalBus::new`] makes a broker with its first client, [`LocalBus::join`] another client of the
//! same broker, as another process would be. Typed envelopes pass through without being encoded.
//! Nothing is stored beyond the process. [`Faults`] makes happen what happens to a real bus.

mod call;
mod faults;
mod follow;
mod hub;
mod link;
mod log;
mod sent;
mod witness;

use std::{collections::HashMap, sync::Arc, time::Duration};

use anteroom_model::{Group, Incarnation, Revision, ViewId, limits::TOMBSTONE_TTL_MS};
use anteroom_wire::envelope::Envelope;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{broadcast::Receiver, watch},
    time::Instant,
};

pub use faults::{APPEND_LATE_MAX, Chances, Faults};
use hub::Hub;
use link::Link;
use log::{Fenced, Log, NotPurged};
use sent::SentBatch;
pub use witness::WitnessedBatch;

use crate::{
    Address, AppendError, Bus, BusError, Call, Channel, Connection, Fence, Follower, Lease,
    LogHead, LogIndex, LogScope, LogSize, RequestError, Serving, batch,
};

/// Options of an in-process bus.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The seed of every random choice that the bus makes.
    pub seed: u64,
    /// The first part of the log's incarnation. What outlives the process, as the webhook configurations do, names positions of the
    /// log: a process whose log is new every time needs a new name every time.
    pub log_name: String,
    /// The time that a tombstone stays in the log.
    pub tombstone_ttl: Duration,
    /// The most events that wait for a follower's reader. At the limit, the follower's source waits.
    pub follower_events_max: usize,
    /// The most calls that wait for a server. A further call is dropped, and its caller times out.
    pub calls_max: usize,
    /// Signals of a channel that wait for one listener; one more replaces the oldest.
    pub signals_max: usize,
    /// The largest size of the log, as on NATS; `None`: there is no limit. [`Faults::limit_log`] changes it.
    pub log_bytes_max: Option<u64>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            log_name: "local".to_owned(),
            tombstone_ttl: Duration::from_millis(TOMBSTONE_TTL_MS),
            follower_events_max: 256,
            calls_max: 1024,
            signals_max: 256,
            log_bytes_max: None,
        }
    }
}

/// One client of an in-process bus.
#[derive(Debug)]
pub struct LocalBus {
    hub: Arc<Hub>,
    link: Arc<Link>,
    /// The fences that were taken here, with the log that each was taken in: a position of one log means
    /// nothing in another.
    fences: Mutex<HashMap<Group, (Fence, Incarnation)>>,
}

impl Default for LocalBus {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalBus {
    /// A new broker, and a client of it.
    pub fn new() -> Self {
        Self::with_options(LocalOptions::default())
    }

    /// A new broker, set up as `options` say, and a client of it.
    pub fn with_options(options: LocalOptions) -> Self {
        Self::client(Arc::new(Hub::new(options)))
    }

    /// Returns a further client of the same broker, like a client in a second process.
    #[must_use]
    pub fn join(&self) -> Self {
        Self::client(Arc::clone(&self.hub))
    }

    fn client(hub: Arc<Hub>) -> Self {
        let signals_max = hub.options.signals_max;
        let link = hub.with(|state| {
            let link = Arc::new(Link::new(state.next_client(), state.up, signals_max));
            state.links.retain(|link| link.strong_count() > 0);
            state.links.push(Arc::downgrade(&link));
            link
        });
        let fences = Mutex::default();
        Self { hub, link, fences }
    }

    /// Acts on the log as the holder of `fence`.
    fn as_holder<T>(
        &self,
        fence: Fence,
        act: impl FnOnce(&mut Log) -> T,
    ) -> Result<T, AppendError> {
        self.link.require_up()?;
        let taken_in = self.log_of(fence);
        let acted = self.hub.with_log(|log| match taken_in {
            Some(of) if of != log.head().incarnation => None,
            _ => Some(act(log)),
        })?;
        acted.ok_or(AppendError::Fenced)
    }

    /// Returns the log in which this fence was taken here.
    fn log_of(&self, fence: Fence) -> Option<Incarnation> {
        let fences = self.fences.lock();
        let (held, of) = fences.get(&fence.group)?;
        (*held == fence).then(|| of.clone())
    }

    /// Faults of this client and of the broker, on demand.
    pub fn faults(&self) -> Faults {
        Faults {
            hub: Arc::clone(&self.hub),
            link: Arc::clone(&self.link),
        }
    }
}

/// Ends every subscription, follower and server of this client, which a client of the real bus does
/// too.
impl Drop for LocalBus {
    fn drop(&mut self) {
        self.link.close();
    }
}

#[async_trait]
impl Bus for LocalBus {
    fn connection(&self) -> watch::Receiver<Connection> {
        self.link.connection()
    }

    async fn ensure_log(&self) -> Result<LogHead, BusError> {
        self.link.require_up()?;
        let head = self.hub.ensure_log();
        self.hub.notify();
        Ok(head)
    }

    async fn head(&self) -> Result<LogHead, BusError> {
        self.link.require_up()?;
        self.hub.with_log(|log| log.head())
    }

    async fn log_size(&self) -> Result<LogSize, BusError> {
        self.link.require_up()?;
        self.hub.with_log(|log| {
            log.expire(Instant::now());
            log.size()
        })
    }

    async fn lease(&self, group: Group) -> Result<Option<(Lease, Fence)>, BusError> {
        self.link.require_up()?;
        self.hub.with_log(|log| log.lease(group))
    }

    async fn take_lease(
        &self,
        group: Group,
        lease: Lease,
        expected: Option<Fence>,
    ) -> Result<Fence, AppendError> {
        self.link.require_up()?;
        if expected.is_some_and(|fence| fence.group != group) {
            return Err(AppendError::Fenced);
        }
        let (taken, incarnation) = self.hub.with_log(|log| {
            let taken = log.take_lease(group, lease, expected);
            (taken, log.head().incarnation)
        })?;
        let fence = taken.map_err(|Fenced| AppendError::Fenced)?;
        self.fences.lock().insert(group, (fence, incarnation));
        self.hub.notify();
        Ok(fence)
    }

    async fn append(&self, fence: Fence, batch: Vec<Envelope>) -> Result<Revision, AppendError> {
        batch::check(&batch)?;
        self.link.require_up()?;
        self.hub.delay().await;
        let lost = |what: &str| AppendError::Unknown {
            message: format!("the {what} was lost"),
        };
        let is_cut = !self.link.is_up() || self.link.fails_appends();
        if is_cut || self.hub.happens(|chances| chances.append_lost) {
            return Err(lost("batch"));
        }
        let batch = SentBatch {
            client: self.link.number,
            fence,
            log: self.log_of(fence),
            records: batch,
        };
        if self.hub.happens(|chances| chances.append_late) {
            batch.hold_up(&self.hub);
            return Err(lost("batch"));
        }
        let revision = self.hub.with(|state| batch.arrive(state))?;
        self.hub.notify();
        if self.hub.happens(|chances| chances.ack_lost) {
            return Err(lost("acknowledgement"));
        }
        Ok(revision)
    }

    async fn purge(&self, fence: Fence, view: &ViewId) -> Result<(), AppendError> {
        let purged = self.as_holder(fence, |log| log.purge(fence, view))?;
        purged.map_err(|why| match why {
            NotPurged::Fenced => AppendError::Fenced,
            NotPurged::NotDropped => AppendError::Bus(batch::not_dropped(view)),
        })
    }

    async fn remake_log(&self, incarnation: &Incarnation) -> Result<(), BusError> {
        self.link.require_up()?;
        self.hub.remake_log(incarnation)?;
        self.hub.notify();
        Ok(())
    }

    async fn index(&self) -> Result<LogIndex, BusError> {
        self.link.require_up()?;
        self.hub.with_log(|log| {
            log.expire(Instant::now());
            log.index()
        })
    }

    fn follow(&self, scope: LogScope) -> Follower {
        follow::follow(Arc::clone(&self.hub), Arc::clone(&self.link), scope)
    }

    async fn publish(&self, channel: Channel, message: Bytes) -> Result<(), BusError> {
        self.link.require_up()?;
        let links = self.hub.with(|state| state.links.clone());
        for link in links.iter().filter_map(std::sync::Weak::upgrade) {
            if link.is_up() && !self.hub.happens(|chances| chances.beat_lost) {
                let delay = self.hub.beat_delay();
                link.hear_after(self.link.number, delay, channel, &message);
            }
        }
        Ok(())
    }

    async fn subscribe(&self, channel: Channel) -> Result<Receiver<Bytes>, BusError> {
        let receiver = self.link.listen(channel);
        receiver.ok_or_else(|| BusError::Unavailable {
            message: "this client was closed".to_owned(),
        })
    }

    async fn request(
        &self,
        to: &Address,
        call: Call,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        let ask = call::ask(&self.hub, &self.link, to, call);
        match tokio::time::timeout(timeout, ask).await {
            Ok(answered) => answered,
            Err(_) => Err(RequestError::timed_out(timeout)),
        }
    }

    async fn serve(&self, at: &Address) -> Result<Serving, BusError> {
        if self.link.closed.is_cancelled() {
            self.link.require_up()?;
        }
        Ok(call::serve(Arc::clone(&self.hub), &self.link, at))
    }

    async fn close(&self) {
        self.link.close();
    }
}

#[cfg(test)]
mod tests;
