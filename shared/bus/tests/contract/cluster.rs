//! The bus over three nats-servers, each of which has a copy of the log, and what can be done to them.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_bus::{
    Bus, Connection,
    nats::{NatsBus, NatsConfig},
    testing::NatsCluster,
};
use async_nats::jetstream::{self, stream};
use tokio::sync::Mutex;

use crate::{
    faults,
    harness::{Clients, Harness, keep, until},
    patient::Patient,
    support::within,
};

/// Copies of the log.
const COPIES: usize = 3;

/// The size of a log: the servers have room for those of all tests.
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The servers of the tests that leave them alone. They take seconds to start, and end with the last of the tests that run at
/// the same time.
static SHARED: Mutex<Weak<NatsCluster>> = Mutex::const_new(Weak::new());

/// The servers of a test.
enum Servers {
    /// Other tests have them too.
    Shared(Arc<NatsCluster>),
    /// The test may kill them.
    Own(NatsCluster),
}

pub(crate) struct ThreeServers {
    servers: Servers,
    /// The cluster's name: of each test another, so that the test has a log of its own.
    name: String,
    clients: Clients,
}

impl ThreeServers {
    /// Servers that other tests have too.
    pub(crate) async fn start() -> Self {
        let mut shared = SHARED.lock().await;
        let servers = match shared.upgrade() {
            Some(servers) => servers,
            None => {
                let servers = Arc::new(started().await);
                *shared = Arc::downgrade(&servers);
                servers
            }
        };
        Self::of(Servers::Shared(servers))
    }

    /// Servers that no other test has.
    async fn own() -> Self {
        Self::of(Servers::Own(started().await))
    }

    fn of(servers: Servers) -> Self {
        static TESTS: AtomicUsize = AtomicUsize::new(0);
        Self {
            servers,
            name: format!("test{}", TESTS.fetch_add(1, Ordering::Relaxed)),
            clients: Clients::default(),
        }
    }

    fn servers(&self) -> &NatsCluster {
        match &self.servers {
            Servers::Shared(servers) => servers,
            Servers::Own(servers) => servers,
        }
    }

    fn own_servers(&mut self) -> &mut NatsCluster {
        match &mut self.servers {
            Servers::Own(servers) => servers,
            Servers::Shared(_) => panic!("other tests have these servers too"),
        }
    }
}

/// Starts three servers, and waits until they keep a stream together.
async fn started() -> NatsCluster {
    let servers = NatsCluster::start().await.unwrap();
    let jetstream = jetstream(&servers, Duration::from_millis(500)).await;
    let wanted = stream::Config {
        name: "ready".to_owned(),
        subjects: vec!["ready".to_owned()],
        num_replicas: COPIES,
        ..stream::Config::default()
    };
    within(async {
        // Without a leader, no server answers.
        while jetstream.create_stream(wanted.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    servers
}

/// A client that knows nothing of the bus.
async fn jetstream(servers: &NatsCluster, timeout: Duration) -> jetstream::Context {
    let server = servers.urls().next().unwrap();
    let client = within(async_nats::connect(server)).await.unwrap();
    let mut jetstream = jetstream::new(client);
    jetstream.set_timeout(timeout);
    jetstream
}

impl Harness for ThreeServers {
    async fn client(&self) -> Arc<dyn Bus> {
        let config = NatsConfig {
            replicas: COPIES,
            log_bytes_max: LOG_BYTES_MAX,
            ..NatsConfig::new(self.servers().urls(), &self.name)
        };
        let bus = NatsBus::connect(config).await.unwrap();
        until(&bus, Connection::Up).await;
        keep(&self.clients, Arc::new(Patient(bus)))
    }

    async fn stop(&mut self) {
        self.own_servers().kill().unwrap();
    }

    async fn restart(&mut self) {
        self.own_servers().restart().await.unwrap();
    }

    async fn delete_log(&mut self) {
        let jetstream = jetstream(self.servers(), Duration::from_secs(10)).await;
        let stream = format!("anteroom-{}", self.name);
        within(async {
            loop {
                match jetstream.delete_stream(&stream).await {
                    Ok(deleted) => return assert!(deleted.success),
                    // By an earlier attempt, which was not answered.
                    Err(error) if error.to_string().contains("stream not found") => return,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_goes_on_after_an_outage_of_three_servers() {
    faults::a_follower_goes_on_after_an_outage(ThreeServers::own().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_three_servers_that_is_made_anew_is_noticed() {
    faults::a_log_made_anew_is_noticed(ThreeServers::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_three_servers_is_made_anew_once() {
    let harness = ThreeServers::start().await;
    faults::a_log_is_made_anew_once_for_those_who_found_it_shortened(harness).await;
}
