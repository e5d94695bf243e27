//! Signals: core pub/sub, never stored.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use tokio::{
    sync::broadcast::{self, Receiver},
    time::Instant,
};

use super::{ClientState, append, leave::Signs};
use crate::{BusError, Channel};

fn unavailable(error: &dyn std::fmt::Display) -> BusError {
    BusError::Unavailable {
        message: error.to_string(),
    }
}

pub(super) async fn publish(
    shared: &ClientState,
    channel: Channel,
    message: Bytes,
) -> Result<(), BusError> {
    // A signal that waits for the connection would be old when it is heard.
    shared.link.borrow().require_up()?;
    let bytes_max = append::message_bytes_max(shared);
    if message.len() > bytes_max {
        let bytes = message.len();
        return Err(BusError::TooLarge { bytes, bytes_max });
    }
    let subject = channel.subject(&shared.subjects);
    let sent = shared.client.publish(subject, message).await;
    sent.map_err(|error| unavailable(&error))
}

pub(super) async fn subscribe(
    shared: &ClientState,
    channel: Channel,
) -> Result<Receiver<Bytes>, BusError> {
    let subject = channel.subject(&shared.subjects);
    let subscribed = shared.client.subscribe(subject).await;
    let mut subscriber = subscribed.map_err(|error| unavailable(&error))?;
    let (signals, receiver) = broadcast::channel(channel.waiting_max());
    let closed = shared.closed.clone();
    let signs = Arc::clone(&shared.signs);
    tokio::spawn(async move {
        loop {
            let message = tokio::select! {
                message = subscriber.next() => message,
                () = closed.cancelled() => None,
                () = signals.closed() => None,
            };
            let Some(message) = message else { return };
            // Signals want no reply. A consumer's messages have a reply subject. Where NATS has one account for all services,
            // whoever reads the log can have them delivered here.
            if let Some(reply) = &message.reply {
                tracing::debug!(subject = %message.subject, %reply, "signal ignored: it has a reply subject");
                continue;
            }
            note(&signs, channel);
            // An error says that the listener is gone: the next turn ends.
            let _ = signals.send(message.payload);
        }
    });
    Ok(receiver)
}

/// Heartbeats tell that the connected server still reaches the others.
fn note(signs: &Signs, channel: Channel) {
    match channel {
        Channel::Writers => signs.watcher(Instant::now()),
        Channel::Replicas => signs.replica(Instant::now()),
        Channel::Webhooks | Channel::Violations | Channel::Taps | Channel::Tapped => {}
    }
}
