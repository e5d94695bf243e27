//! The state of the connection to NATS.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_nats::{Client, Event, connection::State};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::leave::{Departures, Signs};
use crate::{BusError, Connection};

/// The interval at which the client's state is checked, since the client may lose events (it sends them by
/// `try_send`).
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A connection, told apart from the one before it: a lost connection takes consumers, replies and
/// acknowledgements with it even if it is back before anybody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Connections made so far.
    pub(super) connects: u64,
}

impl Link {
    pub(super) fn down() -> Self {
        Self {
            connection: Connection::Down,
            connects: 0,
        }
    }

    pub(super) fn is_up(self) -> bool {
        self.connection == Connection::Up
    }

    /// Fails at once while NATS is out of reach. Otherwise the client would queue the message until
    /// its caller has given up.
    pub(super) fn require_up(self) -> Result<(), BusError> {
        if self.is_up() {
            return Ok(());
        }
        Err(not_connected())
    }
}

/// Fails at once while the client is not connected, whatever the link still says.
pub(super) fn require_connected(client: &Client) -> Result<(), BusError> {
    match client.connection_state() {
        State::Connected => Ok(()),
        State::Pending | State::Disconnected => Err(not_connected()),
    }
}

fn not_connected() -> BusError {
    BusError::Unavailable {
        message: "not connected to NATS".to_owned(),
    }
}

/// Waits until the connection numbered `connects` is lost, even if there is another by then.
pub(super) async fn lost(link: &mut watch::Receiver<Link>, connects: u64) {
    // An error says that the client was closed, which is a loss too.
    let _ = link
        .wait_for(|link| !link.is_up() || link.connects != connects)
        .await;
}

/// Keeps both views of the link current until `stop`, and leaves servers that are cut off: see [`super::leave`].
pub(super) async fn watch(
    client: Client,
    mut events: mpsc::Receiver<Event>,
    link: watch::Sender<Link>,
    connection: watch::Sender<Connection>,
    signs: Arc<Signs>,
    stop: CancellationToken,
) {
    let statistics = client.statistics();
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    let (mut departures, mut before) = (Departures::default(), Link::down());
    loop {
        let event = tokio::select! {
            event = events.recv() => match event {
                None => break,
                event => event,
            },
            _ = look.tick() => None,
            () = stop.cancelled() => break,
        };
        let now = Link {
            connection: match (event, client.connection_state()) {
                // The client sends `Connected` just before it changes its state.
                (Some(Event::Connected), _) | (_, State::Connected) => Connection::Up,
                // The state is newer than any event.
                (_, State::Pending | State::Disconnected) => Connection::Down,
            },
            connects: statistics.connects.load(Ordering::Relaxed),
        };
        publish(&link, now);
        publish(&connection, now.connection);
        if now.is_up() {
            let is_new = now.connects != before.connects;
            leave_if_cut_off(&client, &mut departures, &signs, is_new).await;
            before = now;
        }
    }
    publish(&link, Link::down());
    publish(&connection, Connection::Down);
}

/// Leaves the server if it seems to be cut off from the others of its cluster. A lone one has none.
async fn leave_if_cut_off(
    client: &Client,
    departures: &mut Departures,
    signs: &Signs,
    is_new: bool,
) {
    let server = client.server_info();
    if server.cluster.is_none_or(|cluster| cluster.is_empty()) {
        return;
    }
    let id = server.server_id;
    let now = Instant::now();
    let reason = match is_new && departures.connected(&id, signs, now) {
        true => Some("it is the one that was left"),
        false => departures.reason(&id, signs, now),
    };
    let Some(reason) = reason else { return };
    tracing::warn!(
        server = server.server_name,
        reason,
        "NATS server left: it seems to be cut off from the others"
    );
    if let Err(error) = client.force_reconnect().await {
        tracing::debug!(%error, "NATS client closed");
    }
}

fn publish<T: PartialEq>(to: &watch::Sender<T>, now: T) {
    to.send_if_modified(|was| {
        let changed = *was != now;
        *was = now;
        changed
    });
}
