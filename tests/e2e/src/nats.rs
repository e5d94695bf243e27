//! Real nats-servers with JetStream on files, configured as they are deployed.

mod config;
mod server;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anteroom_bus::nats::{Credentials, NatsConfig, Tls};
use anteroom_keys::{AUTHORITY, NatsKeys, SEED, files, names_in_cluster};
use anteroom_runtime::wall_clock;
use anyhow::Context;
use futures::future::try_join_all;
use jiff::SignedDuration;
use serde_json::Value;

use crate::{disk::Disk, process::Process, proxy::Proxy, wait};

use config::{KEYS, Routes};
use server::Server;

/// The servers of a NATS. The default is what `deploy/` has: three, over TLS.
#[derive(Clone, Copy, Debug)]
pub struct NatsPlan {
    /// The number of servers, each of which has a copy of the log.
    pub servers: usize,
    /// True: over TLS.
    pub is_encrypted: bool,
    /// True: what servers say to each other goes through proxies, so that they can be cut off: see [`Nats::cut_off`].
    pub is_cuttable: bool,
    /// The size of each server's disk; `None`: they have the machine's.
    pub disk_bytes: Option<u64>,
}

impl Default for NatsPlan {
    fn default() -> Self {
        Self {
            servers: 3,
            is_encrypted: true,
            is_cuttable: false,
            disk_bytes: None,
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
    servers: Vec<Server>,
    /// The ways between servers: by the number of who connects and of whom it connects to.
    ways: Vec<(usize, usize, Proxy)>,
}

/// The servers' addresses, and the keys of their logins. Cheap enough to clone.
#[derive(Clone, Debug)]
pub struct NatsLogins {
    urls: Vec<String>,
    keys: PathBuf,
    is_encrypted: bool,
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
        if self.is_encrypted {
            let authority = own.join(AUTHORITY).display().to_string();
            env.push(("ANTEROOM_NATS_TLS", "true".to_owned()));
            env.push(("ANTEROOM_NATS_CA_FILE", authority));
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
        let day = SignedDuration::from_hours(24);
        let keys = NatsKeys::new(&names_in_cluster("anteroom"), day, wall_clock::now())?;
        files::write(&keys, &folder.join(KEYS))?;
        let servers = (0..plan.servers).map(|number| Server::new(number, folder));
        let mut nats = Self {
            plan,
            folder: folder.to_owned(),
            servers: servers.collect::<anyhow::Result<_>>()?,
            ways: Vec::new(),
        };
        nats.make_ways().await?;
        if let Some(bytes) = plan.disk_bytes {
            for server in &mut nats.servers {
                server.mount(bytes).await?;
            }
        }
        for (number, server) in nats.servers.iter().enumerate() {
            server.configure(folder, plan.is_encrypted, &nats.routes(number))?;
        }
        nats.start_again().await?;
        Ok(nats)
    }

    async fn make_ways(&mut self) -> anyhow::Result<()> {
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

    /// Returns the server that the client with this name is connected to.
    pub async fn server_of(&self, client: &str) -> anyhow::Result<usize> {
        for (number, server) in self.servers.iter().enumerate() {
            let said: Value = serde_json::from_str(&server.ask("/connz").await?)?;
            let mut connections = said["connections"].as_array().into_iter().flatten();
            if connections.any(|of| of["name"] == client) {
                return Ok(number);
            }
        }
        anyhow::bail!("{client} is connected to no server")
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

    /// Keeps a copy of their files as they are. Call it while they are killed.
    pub fn keep_files(&self) -> anyhow::Result<()> {
        self.servers.iter().try_for_each(Server::keep_files)
    }

    /// Puts back the files that were kept, as after disks were restored. Call it while they are killed.
    pub fn put_files_back(&self) -> anyhow::Result<()> {
        self.servers.iter().try_for_each(Server::put_files_back)
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
        NatsLogins {
            urls: self.servers.iter().map(Server::url).collect(),
            keys: self.folder.join(KEYS),
            is_encrypted: self.plan.is_encrypted,
        }
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
                identity: None,
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
