//! Real nats-servers for tests (feature `testing`).

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, BufReader, Read},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::future::try_join_all;
use parking_lot::Mutex;
use rand::Rng;
use tempfile::TempDir;
use thiserror::Error;
use tokio::sync::mpsc;

/// The time limit until a server is ready, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The environment variable with the directory of the built parts. By default, it is the
/// workspace's `target/real-parts`.
const PARTS_VARIABLE: &str = "ANTEROOM_REAL_PARTS";

/// Why there is no server.
#[derive(Debug, Error)]
pub enum TestingError {
    /// The nats-server was not built.
    #[error("no nats-server at {}: build it with `cargo xtask parts`", path.display())]
    NotBuilt {
        /// The path of the missing program.
        path: PathBuf,
    },
    /// The nats-server could not be started.
    #[error("nats-server could not be started: {0}")]
    Io(#[from] io::Error),
    /// The nats-server ended, or said nothing, before it was ready.
    #[error("nats-server was not ready within {READY_TIMEOUT:?}; it said:\n{log}")]
    NotReady {
        /// Its log.
        log: String,
    },
}

/// A nats-server with JetStream on a free port, with a directory of its own. Killed and gone when
/// this is dropped.
#[derive(Debug)]
pub struct NatsServer {
    child: Option<Child>,
    /// Chosen by the system at the first start, kept at the others.
    port: u16,
    dir: TempDir,
    extra: String,
}

impl NatsServer {
    /// Starts one, and waits until it is ready.
    ///
    /// # Errors
    /// [`TestingError`], whose message is meant for the reader of a failed test.
    pub async fn start() -> Result<Self, TestingError> {
        Self::start_with("").await
    }

    /// Does the same as [`NatsServer::start`], with more lines for the server's configuration file.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn start_with(extra: &str) -> Result<Self, TestingError> {
        let mut server = Self::prepare(extra)?;
        server.restart().await?;
        Ok(server)
    }

    /// A server that has a port but does not run until [`NatsServer::restart`].
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn absent() -> Result<Self, TestingError> {
        let mut server = Self::start().await?;
        server.kill()?;
        Ok(server)
    }

    fn prepare(extra: &str) -> Result<Self, TestingError> {
        Ok(Self {
            child: None,
            port: free_port()?,
            dir: TempDir::with_prefix("anteroom-nats-")?,
            extra: extra.to_owned(),
        })
    }

    /// Returns the URL that clients connect to.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Ends the process at once (SIGKILL), as a crash would. Its files stay.
    ///
    /// # Errors
    /// If the process can neither be ended nor waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        match self.child.take() {
            Some(mut child) => {
                child.kill()?;
                child.wait().map(drop)
            }
            None => Ok(()),
        }
    }

    /// Starts the server, again if it ran before: on the same port, with the same files.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn restart(&mut self) -> Result<(), TestingError> {
        self.kill()?;
        let config = self.dir.path().join("nats.conf");
        fs::write(&config, self.config())?;
        let mut child = Command::new(binary()?)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take();
        self.child = Some(child);
        let lines = read_lines(log);
        self.port = ready(lines).await?;
        Ok(())
    }

    /// Does the same as [`NatsServer::restart`], with these lines in place of those of [`NatsServer::start_with`].
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn restart_with(&mut self, extra: &str) -> Result<(), TestingError> {
        extra.clone_into(&mut self.extra);
        self.restart().await
    }

    fn config(&self) -> String {
        let store = self.dir.path().join("jetstream");
        let port = self.port;
        format!(
            "listen: \"127.0.0.1:{port}\"\n\
             max_payload: 4MB\n\
             jetstream {{ store_dir: {store:?}, max_mem: 64MB, max_file: 4GB }}\n\
             {}\n",
            self.extra
        )
    }
}

/// The number of servers of a [`NatsCluster`].
const SERVERS: usize = 3;

/// Three nats-servers that know each other, each as a [`NatsServer`].
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
}

impl NatsCluster {
    /// Starts them, and waits until each takes connections. They may still elect their leader.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn start() -> Result<Self, TestingError> {
        let ports = (0..SERVERS).map(|_| free_port());
        let ports: Vec<u16> = ports.collect::<io::Result<_>>()?;
        let routes = ports
            .iter()
            .map(|port| format!("\"nats://127.0.0.1:{port}\""));
        let routes = routes.collect::<Vec<_>>().join(", ");
        let servers = ports.iter().enumerate().map(|(number, port)| {
            NatsServer::prepare(&format!(
                "server_name: nats-{number}\n\
                 cluster {{ name: test, listen: \"127.0.0.1:{port}\", routes: [{routes}] }}"
            ))
        });
        let servers = servers.collect::<Result<_, _>>()?;
        let mut cluster = Self { servers };
        cluster.restart().await?;
        Ok(cluster)
    }

    /// Returns the URLs that clients connect to.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(NatsServer::url)
    }

    /// Ends all of them, as [`NatsServer::kill`] does.
    ///
    /// # Errors
    /// As [`NatsServer::kill`].
    pub fn kill(&mut self) -> io::Result<()> {
        self.servers.iter_mut().try_for_each(NatsServer::kill)
    }

    /// Starts all of them, again if they ran before: on the same ports, with the same files.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn restart(&mut self) -> Result<(), TestingError> {
        try_join_all(self.servers.iter_mut().map(NatsServer::restart)).await?;
        Ok(())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::error!(%error, "nats-server of a test not ended: its process may still run");
        }
    }
}

fn binary() -> Result<PathBuf, TestingError> {
    let parts = match std::env::var_os(PARTS_VARIABLE) {
        Some(parts) => PathBuf::from(parts),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/real-parts"),
    };
    let path = parts.join("nats-server");
    if path.is_file() {
        Ok(path)
    } else {
        Err(TestingError::NotBuilt { path })
    }
}

/// The lines of a log, as they come. The log is read to its end, so that its writer never waits.
fn read_lines(log: Option<impl Read + Send + 'static>) -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    if let Some(log) = log {
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                // Nobody listens once the server is ready.
                let _ = sender.send(line);
            }
        });
    }
    lines
}

/// Waits until the server logs that it is ready; returns the port for clients.
async fn ready(mut lines: mpsc::UnboundedReceiver<String>) -> Result<u16, TestingError> {
    let mut log = String::new();
    let mut port = None;
    let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
    while let Ok(Some(line)) = tokio::time::timeout_at(deadline, lines.recv()).await {
        if let Some((_, address)) = line.split_once("Listening for client connections on ") {
            port = address
                .rsplit(':')
                .next()
                .and_then(|port| port.parse().ok());
        }
        if line.contains("Server is ready")
            && let Some(port) = port
        {
            return Ok(port);
        }
        log.push_str(&line);
        log.push('\n');
    }
    Err(TestingError::NotReady { log })
}

/// Below where systems take the ports of outgoing connections from: while the server is away, no
/// client that tries to reach it can be given its port.
const PORTS: std::ops::Range<u16> = 10_000..16_384;

/// Returns a free port that no server of this process was given before.
fn free_port() -> io::Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock();
    let mut rng = rand::rng();
    for _ in PORTS {
        let port = rng.random_range(PORTS);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && given.insert(port) {
            return Ok(port);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("no port of {PORTS:?} is free"),
    ))
}
