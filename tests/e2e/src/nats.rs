//! Real nats-servers with JetStream on files, configured as they are deployed.

mod config;
mod keys;
mod server;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anteroom_bus::{
    Bus as _, Connection,
    nats::{Credentials, NatsBus, NatsConfig, Tls},
};
use anteroom_keys::{AUTHORITY, SEED};
use anteroom_runtime::wall_clock;
use anyhow::Context;
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    certificates, disk::Disk, network::Direction, process::Process, proxy::Proxy,
    slow_disk::SlowDisk, wait,
};

use config::{KEYS, Routes};
use keys::Keys;
use server::Server;

/// The time within which a server takes a client that it knows.
const TAKES_WITHIN: Duration = Duration::from_secs(3);

/// The servers of a NATS. The default is what `deploy/` has: three, over TLS.
#[derive(Clone, Copy, Debug)]
pub struct NatsPlan {
    /// The number of servers, each of which has a copy of the log.
    pub servers: usize,
    /// True: over TLS.
    pub is_encrypted: bool,
    /// True: clients present certificates too.
    pub are_clients_verified: bool,
    /// True: what servers say to each other goes through proxies, so that they can be cut off: see [`Nats::cut_off`].
    pub is_cuttable: bool,
    /// True: clients come to each server through a proxy: see [`Nats::ways_of_clients`].
    pub are_clients_proxied: bool,
    /// The size of each server's disk; `None`: they have the machine's.
    pub disk_bytes: Option<u64>,
    /// The time that each write to a server's disk takes more; `None`: it is the machine's.
    pub write_delay: Option<Duration>,
}

impl Default for NatsPlan {
    fn default() -> Self {
        Self {
            servers: 3,
            is_encrypted: true,
            are_clients_verified: false,
            is_cuttable: false,
            are_clients_proxied: false,
            disk_bytes: None,
            write_delay: None,
        }
    }
}

impl NatsPlan {
    /// One server.
    pub fn one() -> Self {
        Self {
            servers: 1,
            ..Self::default()
        }
    }
}

/// The servers of one NATS. Each can be killed and started again over the same files, at the same address.
#[derive(Debug)]
pub struct Nats {
    plan: NatsPlan,
    folder: PathBuf,
    keys: Keys,
    servers: Vec<Server>,
    /// The ways between servers: by the number of who connects and of whom it connects to.
    ways: Vec<(usize, usize, Proxy)>,
    /// The ways of clients, by the number of the server; none if they come directly.
    ways_of_clients: Vec<Proxy>,
}

/// The servers' addresses, and the keys of their logins. Cheap enough to clone.
#[derive(Clone, Debug)]
pub struct NatsLogins {
    urls: Vec<String>,
    keys: PathBuf,
    plan: NatsPlan,
}

impl NatsLogins {
    /// Returns the environment variables of a service that logs in as `user`.
    pub fn env(&self, user: &str) -> Vec<(&'static str, String)> {
        let own = self.keys.join(user);
        let mut env = vec![
            ("ANTEROOM_NATS_URL", self.urls.join(",")),
            ("ANTEROOM_NATS_REPLICAS", self.urls.len().to_string()),
            (
                "ANTEROOM_NATS_NKEY_FILE",
                own.join(SEED).display().to_string(),
            ),
        ];
        let path = |name: &str| own.join(name).display().to_string();
        if self.plan.is_encrypted {
            env.push(("ANTEROOM_NATS_TLS", "true".to_owned()));
            env.push(("ANTEROOM_NATS_CA_FILE", path(AUTHORITY)));
        }
        if self.plan.are_clients_verified {
            env.push(("ANTEROOM_NATS_CERT_FILE", path(certificates::CHAIN)));
            env.push(("ANTEROOM_NATS_KEY_FILE", path(certificates::KEY)));
        }
        env
    }

    /// Returns the addresses of all servers but this one, as `ANTEROOM_NATS_URL` takes them.
    pub fn urls_without(&self, server: usize) -> String {
        let mut urls = self.urls.clone();
        urls.remove(server);
        urls.join(",")
    }
}

impl Nats {
    /// Starts them, with files under `folder`, and waits until they take connections. They may still elect their leaders:
    /// that is a state that must work too.
    pub async fn start(plan: NatsPlan, folder: &Path) -> anyhow::Result<Self> {
        let servers = (0..plan.servers).map(|number| Server::new(number, folder));
        let mut nats = Self {
            plan,
            folder: folder.to_owned(),
            keys: Keys::make(&folder.join(KEYS))?,
            servers: servers.collect::<anyhow::Result<_>>()?,
            ways: Vec::new(),
            ways_of_clients: Vec::new(),
        };
        nats.make_ways().await?;
        let slow_disk = match plan.write_delay {
            Some(delay) => Some(SlowDisk::find(delay)?.context("no slow disk here")?),
            None => None,
        };
        for server in &mut nats.servers {
            server.slow_disk.clone_from(&slow_disk);
            if let Some(bytes) = plan.disk_bytes {
                server.mount(bytes).await?;
            }
        }
        for (number, server) in nats.servers.iter().enumerate() {
            server.configure(folder, &plan, &nats.routes(number))?;
        }
        nats.start_again().await?;
        Ok(nats)
    }

    async fn make_ways(&mut self) -> anyhow::Result<()> {
        if self.plan.are_clients_proxied {
            let before = self
                .servers
                .iter()
                .map(|server| Proxy::start(server.address));
            self.ways_of_clients = try_join_all(before).await?;
        }
        if !self.plan.is_cuttable {
            return Ok(());
        }
        for from in 0..self.servers.len() {
            for to in (0..self.servers.len()).filter(|to| *to != from) {
                let way = Proxy::start(self.servers[to].routes_at).await?;
                self.ways.push((from, to, way));
            }
        }
        Ok(())
    }

    /// The routes of a server; none of a lone one.
    fn routes(&self, number: usize) -> Routes {
        let direct = || self.servers.iter().map(|server| server.routes_at).collect();
        let of_it = self.ways.iter().filter(|(from, ..)| *from == number);
        Routes {
            own: self.servers[number].routes_at,
            to: match (self.servers.len(), self.plan.is_cuttable) {
                (1, _) => Vec::new(),
                (_, false) => direct(),
                (_, true) => of_it.map(|(.., way)| way.address()).collect(),
            },
            is_advertised: !self.plan.is_cuttable,
        }
    }

    /// Starts those that were killed, over the same files, and waits until they take connections.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        try_join_all(self.servers.iter_mut().map(Server::start)).await?;
        Ok(())
    }

    /// Starts this server, and waits until it takes connections.
    pub async fn start_one(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].start().await
    }

    /// Kills all servers with `kill -9`.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.servers.iter_mut().try_for_each(Server::kill)
    }

    /// Kills this server with `kill -9`.
    pub fn kill_one(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].kill()
    }

    /// Asks this server to end, and waits until it has.
    pub async fn stop_one(&mut self, number: usize) -> anyhow::Result<()> {
        let process = self.servers[number].process.take();
        process.context("it runs")?.terminate().await?;
        Ok(())
    }

    /// Returns the server's own disk, if the plan gives it one: see [`NatsPlan::disk_bytes`].
    pub fn disk(&self, number: usize) -> anyhow::Result<&Disk> {
        self.servers[number].disk.as_ref().context("no own disk")
    }

    /// Sends this server a signal by name, as in `STOP`.
    pub fn signal(&self, number: usize, signal: &str) -> anyhow::Result<()> {
        let process = self.servers[number].process.as_ref();
        process.context("it runs")?.signal(signal)
    }

    /// Cuts this server off from the others, or lets it come back: nothing that either side sends comes through, and no
    /// connection is closed. Clients still reach it.
    pub fn cut_off(&self, number: usize, is_cut: bool) {
        for (from, to, way) in &self.ways {
            if *from == number || *to == number {
                way.silence(is_cut);
            }
        }
    }

    /// Cuts the routes of this server in one direction, or mends them: [`Direction::ToServer`] is what peers say, and
    /// [`Direction::FromServer`] what the server says.
    pub fn cut_off_one_way(&self, number: usize, direction: Direction, is_cut: bool) {
        for (from, to, way) in &self.ways {
            if *to == number {
                way.silence_one_way(direction, is_cut);
            } else if *from == number {
                way.silence_one_way(direction.reversed(), is_cut);
            }
        }
    }

    /// Returns the ways between servers, if the plan says that there are such: see [`NatsPlan::is_cuttable`].
    pub fn ways_between(&self) -> impl Iterator<Item = &Proxy> {
        self.ways.iter().map(|(.., way)| way)
    }

    /// Returns the clients' ways to the servers, if the plan says that there are such: see
    /// [`NatsPlan::are_clients_proxied`].
    pub fn ways_of_clients(&self) -> impl Iterator<Item = &Proxy> {
        self.ways_of_clients.iter()
    }

    /// Replaces the certificates of the servers and of their clients in the files. Servers read them when they start, and
    /// clients when they connect.
    pub fn certify_until(&self, not_after: Timestamp) -> anyhow::Result<()> {
        self.keys.certify_until(not_after)
    }

    /// Does the same, for as long as certificates of this NATS are valid in the beginning.
    pub fn certify(&self) -> anyhow::Result<()> {
        self.certify_until(wall_clock::now() + keys::VALIDITY)
    }

    /// Replaces all keys in the files, and the authority with all certificates, as `anteroom init` does once its Secrets
    /// are deleted.
    pub fn replace_keys(&mut self) -> anyhow::Result<()> {
        self.keys = Keys::make(&self.folder.join(KEYS))?;
        Ok(())
    }

    /// Returns true if a new client of the webhook's login gets a connection to this server.
    pub async fn takes_clients(&self, number: usize) -> anyhow::Result<bool> {
        let config = NatsConfig {
            servers: vec![self.url_for_clients(number)],
            ..self.config_of_webhook()
        };
        let bus = NatsBus::connect(config).await?;
        let mut connection = bus.connection();
        let up = connection.wait_for(|is| *is == Connection::Up);
        let is_taken = matches!(tokio::time::timeout(TAKES_WITHIN, up).await, Ok(Ok(_)));
        bus.close().await;
        Ok(is_taken)
    }

    /// Waits until the server is in step with the cluster, and serves all of its streams.
    pub async fn healthy(&self, number: usize) -> anyhow::Result<()> {
        let what = format!("NATS server {number} to be healthy");
        wait::until(&what, async || {
            self.servers[number].ask("/healthz").await.map(drop)
        })
        .await
    }

    /// Waits until all of them are healthy.
    pub async fn all_healthy(&self) -> anyhow::Result<()> {
        for number in 0..self.servers.len() {
            self.healthy(number).await?;
        }
        Ok(())
    }

    /// Returns the server that leads the log's stream, once there is one.
    pub async fn leader(&self) -> anyhow::Result<usize> {
        wait::until("the log's stream to have a leader", async || {
            let mut problem = None;
            for server in self
                .servers
                .iter()
                .filter(|server| server.process.is_some())
            {
                match server.ask("/jsz?streams=true").await {
                    Ok(said) => {
                        if let Some(leader) = leader_by(&serde_json::from_str(&said)?) {
                            return Ok(leader);
                        }
                    }
                    Err(error) => problem = Some(error),
                }
            }
            anyhow::bail!("no server knows one: {problem:?}")
        })
        .await
    }

    /// Returns the server that the client with this name is connected to, once there is one: a client may be on its way from
    /// one server to another.
    pub async fn server_of(&self, client: &str) -> anyhow::Result<usize> {
        let what = format!("{client} to be connected to a server");
        wait::until(&what, async || {
            for (number, server) in self.servers.iter().enumerate() {
                let said: Value = serde_json::from_str(&server.ask("/connz").await?)?;
                let mut connections = said["connections"].as_array().into_iter().flatten();
                if connections.any(|of| of["name"] == client) {
                    return Ok(number);
                }
            }
            anyhow::bail!("to none")
        })
        .await
    }

    /// Returns this server's address for clients.
    pub fn address(&self, number: usize) -> SocketAddr {
        self.servers[number].address
    }

    /// Returns figures that this server tells of itself, as at `/varz`.
    pub async fn figures(&self, number: usize, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(
            &self.servers[number].ask(path).await?,
        )?)
    }

    /// Returns the bytes of this server's files.
    pub fn stored_bytes(&self, number: usize) -> anyhow::Result<u64> {
        self.servers[number].stored_bytes()
    }

    /// Keeps a copy of this server's files as they are. Call it while the server is killed.
    pub fn keep_files(&self, number: usize) -> anyhow::Result<()> {
        self.servers[number].keep_files()
    }

    /// Puts back this server's files that were kept, as after its disk was restored. Call it while the server is killed.
    pub fn put_files_back(&self, number: usize) -> anyhow::Result<()> {
        self.servers[number].put_files_back()
    }

    /// Removes this server's files, as after its disk was replaced. Call it while the server is killed.
    pub fn lose_files(&self, number: usize) -> anyhow::Result<()> {
        self.servers[number].lose_files()
    }

    /// The processes that run.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        let running = self.servers.iter().map(|server| server.process.as_ref());
        running.flatten()
    }

    /// Returns the number of servers.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Returns what services log in with.
    pub fn logins(&self) -> NatsLogins {
        let numbers = 0..self.servers.len();
        NatsLogins {
            urls: numbers.map(|number| self.url_for_clients(number)).collect(),
            keys: self.folder.join(KEYS),
            plan: self.plan,
        }
    }

    fn url_for_clients(&self, number: usize) -> String {
        let way = self.ways_of_clients.get(number).map(Proxy::address);
        format!("nats://{}", way.unwrap_or(self.address(number)))
    }

    /// The configuration of a client in this process that may do what a webhook may.
    pub fn config_of_webhook(&self) -> NatsConfig {
        let own = self.folder.join(KEYS).join("webhook");
        let is_encrypted = self.plan.is_encrypted;
        NatsConfig {
            credentials: Credentials::NkeySeed(own.join(SEED)),
            tls: Tls {
                required: is_encrypted,
                ca: is_encrypted.then(|| own.join(AUTHORITY)),
                identity: self
                    .plan
                    .are_clients_verified
                    .then(|| (own.join(certificates::CHAIN), own.join(certificates::KEY))),
            },
            inbox_prefix: "_INBOX_webhook".to_owned(),
            ..NatsConfig::new(self.logins().urls, "default")
        }
    }
}

/// Reads the number of the log's leader from what a server tells of its streams.
fn leader_by(said: &Value) -> Option<usize> {
    let accounts = said["account_details"].as_array()?.iter();
    let mut streams = accounts
        .filter_map(|account| account["stream_detail"].as_array())
        .flatten();
    let log = streams.find(|stream| stream["name"] == "anteroom-default")?;
    server::number_of(log["cluster"]["leader"].as_str()?)
}
