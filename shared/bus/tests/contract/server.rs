//! The bus over a real nats-server, and what can be done to it.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{
    Bus, Connection,
    nats::{NatsBus, NatsConfig},
    testing::NatsServer,
};

use crate::{
    harness::{Clients, Harness, keep, until},
    support::within,
};

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
