//! The heartbeats of writers, replicas and webhooks, and what webhooks find: core pub/sub, never stored.

use std::sync::Arc;

use anteroom_wire::{
    WireError,
    beat::{self, Beat},
    replica_beat::{self, ReplicaBeat},
    violation::{self, Violation},
    webhook_beat::{self, WebhookBeat},
};
use bytes::Bytes;
use futures::StreamExt;
use tokio::{sync::broadcast, time::Instant};

use super::{Shared, append};
use crate::{Beats, BusError, Heard};

/// Pages of beats that wait for a listener; one more replaces the oldest.
const BEATS_MAX: usize = 256;

/// Pages of replicas' beats that wait for a listener; one more replaces the oldest.
const REPLICA_BEATS_MAX: usize = 1_024;

/// Webhooks' beats that wait for a listener; one more replaces the oldest.
const WEBHOOK_BEATS_MAX: usize = 256;

/// Violations that wait for a listener. One more replaces the oldest, and the listener learns how many it missed.
const VIOLATIONS_MAX: usize = 256;

fn unavailable(error: &dyn std::fmt::Display) -> BusError {
    BusError::Unavailable {
        message: error.to_string(),
    }
}

pub(super) async fn send(shared: &Shared, beat: &Beat) -> Result<(), BusError> {
    publish(shared, shared.subjects.beat(), beat::encode(beat)).await
}

pub(super) async fn send_replica(shared: &Shared, beat: &ReplicaBeat) -> Result<(), BusError> {
    let subject = shared.subjects.replica_beat();
    publish(shared, subject, replica_beat::encode(beat)).await
}

pub(super) async fn send_webhook(shared: &Shared, beat: &WebhookBeat) -> Result<(), BusError> {
    let subject = shared.subjects.webhook_beat();
    publish(shared, subject, webhook_beat::encode(beat)).await
}

pub(super) async fn send_violation(shared: &Shared, violation: &Violation) -> Result<(), BusError> {
    let subject = shared.subjects.violation();
    publish(shared, subject, violation::encode(violation)).await
}

async fn publish(
    shared: &Shared,
    subject: String,
    body: Result<Bytes, WireError>,
) -> Result<(), BusError> {
    // A beat that waits for the connection would be old when it is heard.
    shared.link.borrow().require_up()?;
    let body = body.map_err(|error| BusError::Refused {
        message: error.to_string(),
    })?;
    let bytes_max = append::message_bytes_max(shared);
    if body.len() > bytes_max {
        let bytes = body.len();
        return Err(BusError::TooLarge { bytes, bytes_max });
    }
    let sent = shared.client.publish(subject, body).await;
    sent.map_err(|error| unavailable(&error))
}

pub(super) async fn listen(shared: &Shared) -> Result<Beats, BusError> {
    let signs = Arc::clone(&shared.signs);
    let decode = move |body: &[u8]| {
        signs.watcher(Instant::now());
        beat::decode(body)
    };
    hear(shared, shared.subjects.beat(), BEATS_MAX, decode).await
}

pub(super) async fn listen_replicas(shared: &Shared) -> Result<Beats<ReplicaBeat>, BusError> {
    let subject = shared.subjects.replica_beat();
    let signs = Arc::clone(&shared.signs);
    let decode = move |body: &[u8]| {
        signs.replica(Instant::now());
        replica_beat::decode(body)
    };
    hear(shared, subject, REPLICA_BEATS_MAX, decode).await
}

pub(super) async fn listen_webhooks(shared: &Shared) -> Result<Beats<WebhookBeat>, BusError> {
    let subject = shared.subjects.webhook_beat();
    hear(shared, subject, WEBHOOK_BEATS_MAX, webhook_beat::decode).await
}

pub(super) async fn listen_violations(
    shared: &Shared,
) -> Result<broadcast::Receiver<Heard>, BusError> {
    let subject = shared.subjects.violation();
    let Beats(found) = hear(shared, subject, VIOLATIONS_MAX, heard).await?;
    Ok(found)
}

/// One that cannot be read is one that is missed.
fn heard(message: &[u8]) -> Result<Heard, WireError> {
    Ok(match violation::decode(message) {
        Ok(violation) => Heard::Violation(Box::new(violation)),
        Err(error) => {
            tracing::warn!(%error, "cannot decode a webhook's violation: counts it as missed");
            Heard::Missed(1)
        }
    })
}

async fn hear<T: Clone + Send + 'static>(
    shared: &Shared,
    subject: String,
    beats_max: usize,
    decode: impl Fn(&[u8]) -> Result<T, WireError> + Send + 'static,
) -> Result<Beats<T>, BusError> {
    let subscribed = shared.client.subscribe(subject).await;
    let mut subscriber = subscribed.map_err(|error| unavailable(&error))?;
    let (beats, receiver) = broadcast::channel(beats_max);
    let closed = shared.closed.clone();
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = subscriber.next() => message,
                () = closed.cancelled() => None,
                () = beats.closed() => None,
            };
            let Some(message) = message else { return };
            match decode(&message.payload) {
                // An error says that the listener is gone: the next turn ends.
                Ok(beat) => drop(beats.send(beat)),
                Err(error) => tracing::warn!(%error, "cannot decode a heartbeat: ignores it"),
            }
        }
    });
    Ok(Beats(receiver))
}
