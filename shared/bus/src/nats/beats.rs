//! The writer's heartbeats: core pub/sub, never stored.

use anteroom_wire::beat::{self, Beat};
use futures::StreamExt;
use tokio::sync::broadcast;

use super::{Shared, append};
use crate::{Beats, BusError};

/// Beats that wait for a listener; one more replaces the oldest.
const BEATS_MAX: usize = 16;

fn unavailable(error: &dyn std::fmt::Display) -> BusError {
    BusError::Unavailable {
        message: error.to_string(),
    }
}

pub(super) async fn send(shared: &Shared, beat: &Beat) -> Result<(), BusError> {
    // A beat that waits for the connection would be old when it is heard.
    shared.link.borrow().require_up()?;
    let body = beat::encode(beat).map_err(|error| BusError::Refused {
        message: error.to_string(),
    })?;
    let bytes_max = append::message_bytes_max(shared);
    if body.len() > bytes_max {
        let bytes = body.len();
        return Err(BusError::TooLarge { bytes, bytes_max });
    }
    let sent = shared.client.publish(shared.subjects.beat(), body).await;
    sent.map_err(|error| unavailable(&error))
}

pub(super) async fn listen(shared: &Shared) -> Result<Beats, BusError> {
    let subject = shared.subjects.beat();
    let subscribed = shared.client.subscribe(subject).await;
    let mut subscriber = subscribed.map_err(|error| unavailable(&error))?;
    let (beats, receiver) = broadcast::channel(BEATS_MAX);
    let closed = shared.closed.clone();
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = subscriber.next() => message,
                () = closed.cancelled() => None,
                () = beats.closed() => None,
            };
            let Some(message) = message else { return };
            match beat::decode(&message.payload) {
                // An error says that the listener is gone: the next turn ends.
                Ok(beat) => drop(beats.send(beat)),
                Err(error) => tracing::warn!(%error, "a beat that cannot be read"),
            }
        }
    });
    Ok(Beats(receiver))
}
