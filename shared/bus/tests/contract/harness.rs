//! A bus to test, and what can be done to it.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{
    Bus, Connection,
    local::LocalBus,
    nats::{NatsBus, NatsConfig},
    testing::NatsServer,
};

use parking_lot::Mutex;

use crate::support::within;

/// A bus to test, and what can be done to it.
pub(crate) trait Harness {
    /// A client that is connected, and that lives as long as this.
    async fn client(&self) -> Arc<dyn Bus>;

    /// Stops the broker, as a crash would.
    async fn stop(&mut self);

    /// Starts it again, with what it had stored.
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

/// What was opened through a client ends with it, so somebody must hold it.
type Clients = Mutex<Vec<Arc<dyn Bus>>>;

fn keep(clients: &Clients, client: Arc<dyn Bus>) -> Arc<dyn Bus> {
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

/// The cluster's name in every test on NATS.
pub(crate) const CLUSTER: &str = "test";

pub(crate) struct Nats {
    pub(crate) server: NatsServer,
    clients: Clients,
}

impl Nats {
    pub(crate) async fn start() -> Self {
        Self {
            server: NatsServer::start().await.unwrap(),
            clients: Clients::default(),
        }
    }

    pub(crate) fn config(&self) -> NatsConfig {
        NatsConfig {
            log_bytes_max: 256 * 1024 * 1024,
            ..NatsConfig::new([self.server.url()], CLUSTER)
        }
    }

    /// A client of the bus, as its own type.
    pub(crate) async fn bus(&self, config: NatsConfig) -> NatsBus {
        let bus = NatsBus::connect(config).await.unwrap();
        until(&bus, Connection::Up).await;
        bus
    }

    /// A client of the server that knows nothing of the bus.
    pub(crate) async fn stranger(&self) -> async_nats::Client {
        within(async_nats::connect(self.server.url()))
            .await
            .unwrap()
    }
}

impl Harness for Nats {
    async fn client(&self) -> Arc<dyn Bus> {
        let bus = self.bus(self.config()).await;
        keep(&self.clients, Arc::new(bus))
    }

    async fn stop(&mut self) {
        self.server.kill().unwrap();
    }

    async fn restart(&mut self) {
        self.server.restart().await.unwrap();
    }

    async fn delete_log(&mut self) {
        let mut jetstream = async_nats::jetstream::new(self.stranger().await);
        jetstream.set_timeout(Duration::from_secs(10));
        let deleted = jetstream.delete_stream(format!("anteroom-{CLUSTER}")).await;
        assert!(deleted.unwrap().success);
    }
}
