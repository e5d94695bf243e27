//! A bus to test, and what can be done to it.

use std::sync::Arc;

use anteroom_bus::{Bus, Connection, local::LocalBus};
use parking_lot::Mutex;

use crate::support::within;

/// A bus to test, and what can be done to it.
pub(crate) trait Harness {
    /// Returns a connected client, which lives as long as the harness.
    async fn client(&self) -> Arc<dyn Bus>;

    /// Stops the broker, as a crash would.
    async fn stop(&mut self);

    /// Starts the server again with the data that the server had stored.
    async fn restart(&mut self);

    /// Deletes the log behind everybody's back.
    async fn delete_log(&mut self);
}

/// Waits until a client is connected, or is not.
pub(crate) async fn until(bus: &dyn Bus, wanted: Connection) {
    let mut connection = bus.connection();
    within(connection.wait_for(|is| *is == wanted))
        .await
        .unwrap();
}

/// The clients that a harness keeps open: a client's subscriptions end when it is dropped.
pub(crate) type Clients = Mutex<Vec<Arc<dyn Bus>>>;

pub(crate) fn keep(clients: &Clients, client: Arc<dyn Bus>) -> Arc<dyn Bus> {
    clients.lock().push(Arc::clone(&client));
    client
}

pub(crate) struct Local {
    bus: LocalBus,
    clients: Clients,
}

impl Local {
    pub(crate) async fn start() -> Self {
        Self {
            bus: LocalBus::new(),
            clients: Clients::default(),
        }
    }
}

impl Harness for Local {
    async fn client(&self) -> Arc<dyn Bus> {
        keep(&self.clients, Arc::new(self.bus.join()))
    }

    async fn stop(&mut self) {
        self.bus.faults().stop();
    }

    async fn restart(&mut self) {
        self.bus.faults().start();
    }

    async fn delete_log(&mut self) {
        self.bus.faults().delete_log();
    }
}
