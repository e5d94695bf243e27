//! One client's connection to the in-process broker.

use std::sync::atomic::{AtomicU64, Ordering};

use anteroom_wire::{
    beat::Beat, replica_beat::ReplicaBeat, violation::Violation, webhook_beat::WebhookBeat,
};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{BusError, Connection, Heard};

/// One client's connection.
#[derive(Debug)]
pub(super) struct Link {
    reach: Mutex<Reach>,
    connection: watch::Sender<Connection>,
    pub(super) closed: CancellationToken,
    /// Times that messages were lost on the way to this client's followers.
    gaps: AtomicU64,
    /// `None` once closed, which ends every [`crate::Beats`].
    beats: Mutex<Option<broadcast::Sender<Beat>>>,
    replica_beats: Mutex<Option<broadcast::Sender<ReplicaBeat>>>,
    webhook_beats: Mutex<Option<broadcast::Sender<WebhookBeat>>>,
    violations: Mutex<Option<broadcast::Sender<Heard>>>,
}

#[derive(Debug)]
struct Reach {
    /// True while the broker runs.
    broker: bool,
    /// True while this client's own way to the broker is not cut.
    way: bool,
}

impl Link {
    pub(super) fn new(broker_up: bool, beats_max: usize) -> Self {
        let link = Self {
            reach: Mutex::new(Reach {
                broker: broker_up,
                way: true,
            }),
            connection: watch::Sender::new(Connection::Down),
            closed: CancellationToken::new(),
            gaps: AtomicU64::new(0),
            beats: Mutex::new(Some(broadcast::Sender::new(beats_max))),
            replica_beats: Mutex::new(Some(broadcast::Sender::new(beats_max))),
            webhook_beats: Mutex::new(Some(broadcast::Sender::new(beats_max))),
            violations: Mutex::new(Some(broadcast::Sender::new(beats_max))),
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

    /// Hands a beat to whoever listens at this client.
    pub(super) fn hear(&self, beat: &Beat) {
        if let Some(beats) = &*self.beats.lock() {
            // An error says that nobody listens, which is no error.
            let _ = beats.send(beat.clone());
        }
    }

    pub(super) fn beats(&self) -> Option<broadcast::Receiver<Beat>> {
        self.beats.lock().as_ref().map(broadcast::Sender::subscribe)
    }

    /// Hands a replica's beat to the listeners at this client.
    pub(super) fn hear_replica(&self, beat: &ReplicaBeat) {
        if let Some(beats) = &*self.replica_beats.lock() {
            let _ = beats.send(beat.clone());
        }
    }

    pub(super) fn replica_beats(&self) -> Option<broadcast::Receiver<ReplicaBeat>> {
        let beats = self.replica_beats.lock();
        beats.as_ref().map(broadcast::Sender::subscribe)
    }

    /// Hands a webhook's beat to the listeners at this client.
    pub(super) fn hear_webhook(&self, beat: &WebhookBeat) {
        if let Some(beats) = &*self.webhook_beats.lock() {
            let _ = beats.send(beat.clone());
        }
    }

    pub(super) fn webhook_beats(&self) -> Option<broadcast::Receiver<WebhookBeat>> {
        let beats = self.webhook_beats.lock();
        beats.as_ref().map(broadcast::Sender::subscribe)
    }

    /// Hands a violation to the listeners at this client.
    pub(super) fn hear_violation(&self, violation: &Violation) {
        if let Some(violations) = &*self.violations.lock() {
            let _ = violations.send(Heard::Violation(Box::new(violation.clone())));
        }
    }

    pub(super) fn violations(&self) -> Option<broadcast::Receiver<Heard>> {
        let violations = self.violations.lock();
        violations.as_ref().map(broadcast::Sender::subscribe)
    }

    pub(super) fn close(&self) {
        self.closed.cancel();
        self.beats.lock().take();
        self.replica_beats.lock().take();
        self.webhook_beats.lock().take();
        self.violations.lock().take();
        self.publish();
    }
}
