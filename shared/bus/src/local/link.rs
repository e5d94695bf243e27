//! One client's connection to the in-process broker.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anteroom_model::Revision;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{BusError, Channel, Connection};

/// One client's connection.
#[derive(Debug)]
pub(super) struct Link {
    /// The number of the client. No two clients of a broker share a number.
    pub(super) number: u64,
    reach: Mutex<Reach>,
    connection: watch::Sender<Connection>,
    pub(super) closed: CancellationToken,
    /// Times that messages were lost on the way to this client's followers.
    gaps: AtomicU64,
    /// Times that this client's followers were moved to another copy of the log.
    moves: AtomicU64,
    /// The last position that the copy of this client's followers has; `None`: it has all.
    copy_end: Mutex<Option<Revision>>,
    /// Records that are yet to be lost in silence on the way to this client's followers.
    losses: Mutex<u64>,
    /// Batches of this client are lost on their way.
    fails_appends: AtomicBool,
    signals_max: usize,
    /// `None` once closed, which ends every subscription.
    signals: Mutex<Option<HashMap<Channel, broadcast::Sender<Bytes>>>>,
    /// Signals on their way to this client, by the number of the client that sent them.
    delayed: Mutex<BTreeMap<u64, Delayed>>,
}

/// The signals of one sender that are on their way.
#[derive(Debug, Default)]
struct Delayed {
    /// When the last one arrives.
    until: Option<Instant>,
    waiting: VecDeque<(Channel, Bytes)>,
}

#[derive(Debug)]
struct Reach {
    /// True while the broker runs.
    broker: bool,
    /// True while this client's own way to the broker is not cut.
    way: bool,
}

impl Link {
    pub(super) fn new(number: u64, broker_up: bool, signals_max: usize) -> Self {
        let link = Self {
            number,
            reach: Mutex::new(Reach {
                broker: broker_up,
                way: true,
            }),
            connection: watch::Sender::new(Connection::Down),
            closed: CancellationToken::new(),
            gaps: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            copy_end: Mutex::new(None),
            losses: Mutex::new(0),
            fails_appends: AtomicBool::new(false),
            signals_max,
            signals: Mutex::new(Some(HashMap::new())),
            delayed: Mutex::default(),
        };
        link.publish();
        link
    }

    pub(super) fn set_broker(&self, up: bool) {
        self.reach.lock().broker = up;
        self.publish();
    }

    pub(super) fn set_way(&self, whole: bool) {
        self.reach.lock().way = whole;
        self.publish();
    }

    fn publish(&self) {
        let reach = self.reach.lock();
        let up = reach.broker && reach.way && !self.closed.is_cancelled();
        let now = if up { Connection::Up } else { Connection::Down };
        self.connection.send_if_modified(|was| {
            let changed = *was != now;
            *was = now;
            changed
        });
    }

    pub(super) fn connection(&self) -> watch::Receiver<Connection> {
        self.connection.subscribe()
    }

    pub(super) fn is_up(&self) -> bool {
        *self.connection.borrow() == Connection::Up
    }

    /// Fails at once while the broker is out of reach: nothing is queued for later.
    pub(super) fn require_up(&self) -> Result<(), BusError> {
        if self.is_up() {
            return Ok(());
        }
        let message = if self.closed.is_cancelled() {
            "this client was closed"
        } else {
            "not connected"
        };
        Err(BusError::Unavailable {
            message: message.to_owned(),
        })
    }

    pub(super) fn gap(&self) {
        self.gaps.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    /// Moves this client's followers to a copy of the log that ends there.
    pub(super) fn lag(&self, copy_end: Revision) {
        *self.copy_end.lock() = Some(copy_end);
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// The copy of this client's followers has all again. Returns true if it lagged.
    pub(super) fn lag_no_more(&self) -> bool {
        self.copy_end.lock().take().is_some()
    }

    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Returns the position up to which this client's followers can read a log that ends at `last`.
    pub(super) fn readable_to(&self, last: Revision) -> Revision {
        let copy_end = *self.copy_end.lock();
        copy_end.map_or(last, |copy_end| copy_end.min(last))
    }

    /// The next `records` records are lost on the way to this client's followers, and nobody is told.
    pub(super) fn lose(&self, records: u64) {
        *self.losses.lock() = records;
    }

    /// Returns true if the record that is delivered next is lost.
    pub(super) fn loses_next(&self) -> bool {
        let mut losses = self.losses.lock();
        let is_lost = *losses > 0;
        *losses = losses.saturating_sub(1);
        is_lost
    }

    pub(super) fn fail_appends(&self, fail: bool) {
        self.fails_appends.store(fail, Ordering::Relaxed);
    }

    /// Returns true if batches of this client are lost.
    pub(super) fn fails_appends(&self) -> bool {
        self.fails_appends.load(Ordering::Relaxed)
    }

    /// Hands a signal to the listener of this client.
    pub(super) fn hear(&self, channel: Channel, message: &Bytes) {
        if let Some(signals) = self
            .signals
            .lock()
            .as_ref()
            .and_then(|all| all.get(&channel))
        {
            // An error says that nobody listens, which is no error.
            let _ = signals.send(message.clone());
        }
    }

    /// Hands a signal of the client `sender` to the listener of this client after `delay`, and behind those of the same
    /// sender that are on their way.
    pub(super) fn hear_after(
        self: &Arc<Self>,
        sender: u64,
        delay: Duration,
        channel: Channel,
        message: &Bytes,
    ) {
        let now = Instant::now();
        let until = {
            let mut delayed = self.delayed.lock();
            let of_sender = delayed.entry(sender).or_default();
            if delay.is_zero() && of_sender.waiting.is_empty() {
                drop(delayed);
                return self.hear(channel, message);
            }
            let before = of_sender.until.unwrap_or(now);
            let until = before.max(now + delay);
            of_sender.until = Some(until);
            of_sender.waiting.push_back((channel, message.clone()));
            until
        };
        let link = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            let mut delayed = link.delayed.lock();
            let next = delayed.get_mut(&sender);
            let next = next.and_then(|of_sender| of_sender.waiting.pop_front());
            drop(delayed);
            link.hear_if_up(next);
        });
    }

    /// All signals on their way arrive now.
    pub(super) fn hear_delayed(&self) {
        let delayed = std::mem::take(&mut *self.delayed.lock());
        for signal in delayed.into_values().flat_map(|delayed| delayed.waiting) {
            self.hear_if_up(Some(signal));
        }
    }

    fn hear_if_up(&self, signal: Option<(Channel, Bytes)>) {
        if let Some((channel, message)) = signal
            && self.is_up()
        {
            self.hear(channel, &message);
        }
    }

    /// A subscription to a channel; `None` once closed.
    pub(super) fn listen(&self, channel: Channel) -> Option<broadcast::Receiver<Bytes>> {
        let mut signals = self.signals.lock();
        let signals = signals.as_mut()?.entry(channel);
        let sender = signals.or_insert_with(|| broadcast::Sender::new(self.signals_max));
        Some(sender.subscribe())
    }

    pub(super) fn close(&self) {
        self.closed.cancel();
        self.signals.lock().take();
        self.publish();
    }
}
