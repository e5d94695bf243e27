//! The configuration of a client of NATS, and its errors.

use std::{
    fmt,
    future::ready,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anteroom_model::limits::MESSAGE_BYTES_MAX;
use anteroom_wire::WireError;
use async_nats::{ConnectOptions, ReconnectToServer, ServerAddr};
use rand::Rng;
use thiserror::Error;

use super::{leave::Turns, login};

/// The connection to NATS, and the settings of the stream that holds the log.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    /// Addresses of servers of one NATS cluster, like `nats://nats:4222` or `tls://…`. The client
    /// connects to one of them.
    pub servers: Vec<String>,
    /// The Kubernetes cluster's name. Every subject and the stream's name contain it.
    pub cluster: String,
    /// The client's name in the server's list of connections.
    pub name: String,
    /// The credentials that the client logs in with.
    pub credentials: Credentials,
    /// The settings of TLS. The client encrypts to a `tls://` server always, and trusts the
    /// system's roots unless others are given.
    pub tls: Tls,
    /// The prefix of this service's inboxes. With one for each service, permissions can keep
    /// services from reading each other's replies.
    pub inbox_prefix: String,
    /// Copies of the log: 3 in production, 1 in development.
    pub replicas: usize,
    /// The largest size of the log on disk. When it is full, writes are refused: nothing that it
    /// holds is ever dropped to make room.
    pub log_bytes_max: u64,
    /// Messages that wait for one subscription of this process. One more is dropped by the client,
    /// which is counted in [`crate::Counters`]: a call's caller times out, a record is read again.
    pub subscription_messages_max: usize,
    /// Records asked for at a time by one reader of the log.
    pub pull_records_max: usize,
}

impl NatsConfig {
    /// Returns the default configuration for the servers and the cluster.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, cluster: &str) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            cluster: cluster.to_owned(),
            name: "anteroom".to_owned(),
            credentials: Credentials::None,
            tls: Tls::default(),
            inbox_prefix: "_INBOX".to_owned(),
            replicas: 1,
            log_bytes_max: 2 * 1024 * 1024 * 1024,
            subscription_messages_max: 16 * 1024,
            pull_records_max: 1024,
        }
    }
}

/// The credentials that a client logs in with. Files are read for each connection.
#[derive(Clone, Default)]
pub enum Credentials {
    /// No login.
    #[default]
    None,
    /// A user's name and password.
    Password {
        /// The user's name.
        user: String,
        /// The password.
        password: String,
    },
    /// With an NKey: a file with its seed.
    NkeySeed(PathBuf),
    /// With a user's JWT and seed: a `.creds` file.
    Creds(PathBuf),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Password { user, .. } => write!(f, "Password({user}, …)"),
            Self::NkeySeed(path) => write!(f, "NkeySeed({})", path.display()),
            Self::Creds(path) => write!(f, "Creds({})", path.display()),
        }
    }
}

/// The settings of TLS. Files are read for each connection.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Refuses a server that does not encrypt.
    pub required: bool,
    /// PEM certificates to trust in place of the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate and key, both PEM, for a server that asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A configuration that cannot work (AR701). NATS being away is none: it is waited for.
#[derive(Debug, Error)]
pub enum NatsConfigError {
    /// No server is named.
    #[error("AR701: no NATS server is named: give at least one, as in nats://nats:4222")]
    NoServer,
    /// A server's address cannot be parsed.
    #[error("AR701: cannot use {address:?} as the address of a NATS server: {source}")]
    Server {
        /// The address.
        address: String,
        /// The parser's or the client's error.
        source: io::Error,
    },
    /// The cluster's name cannot be part of a subject.
    #[error("AR701: {0}")]
    Cluster(#[from] WireError),
    /// A file cannot be read.
    #[error("AR701: cannot read {what} {}: {source}", path.display())]
    File {
        /// The file's expected content.
        what: &'static str,
        /// The file's path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The inbox prefix cannot be part of a subject.
    #[error("AR701: inbox prefix {prefix:?} cannot be part of a subject: {source}")]
    Inbox {
        /// The prefix.
        prefix: String,
        /// The error of the subscription to the inbox.
        source: async_nats::SubscribeError,
    },
    /// A number is out of its range.
    #[error("AR701: {what} is {value}: it must be {range}")]
    Range {
        /// The name of the setting.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Its range.
        range: &'static str,
    },
}

/// The time limit of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval of pings to the server. Two missed answers mean that the connection is lost.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// Commands that wait for the connection's task; senders wait at the limit.
const COMMANDS_MAX: usize = 2048;

/// The longest pause between two attempts to connect in the first half minute: requests wait for that long.
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(250);

/// The longest pause after that.
const RECONNECT_DELAY_LATER_MAX: Duration = Duration::from_secs(2);

/// Attempts of the first half minute.
const RECONNECTS_SOON: usize = 150;

impl NatsConfig {
    pub(super) fn addresses(&self) -> Result<Vec<ServerAddr>, NatsConfigError> {
        if self.servers.is_empty() {
            return Err(NatsConfigError::NoServer);
        }
        let parse = |address: &String| {
            address.parse().map_err(|source| NatsConfigError::Server {
                address: address.clone(),
                source,
            })
        };
        self.servers.iter().map(parse).collect()
    }

    pub(super) fn check(&self) -> Result<(), NatsConfigError> {
        let range = |what, value, range| Err(NatsConfigError::Range { what, value, range });
        if !(1..=5).contains(&self.replicas) {
            return range("the log's replicas", self.replicas as u64, "1 to 5");
        }
        if self.log_bytes_max < MESSAGE_BYTES_MAX as u64
            || i64::try_from(self.log_bytes_max).is_err()
        {
            return range("the log's size", self.log_bytes_max, "at least 4 MiB");
        }
        if self.subscription_messages_max == 0 || self.pull_records_max == 0 {
            return range("a queue's length", 0, "at least 1");
        }
        Ok(())
    }

    pub(super) async fn options(&self) -> Result<ConnectOptions, NatsConfigError> {
        let turns = Turns::new();
        let mut options = login::options(&self.credentials)
            .await?
            .name(&self.name)
            .custom_inbox_prefix(&self.inbox_prefix)
            .retry_on_initial_connect()
            .connection_timeout(CONNECT_TIMEOUT)
            .ping_interval(PING_INTERVAL)
            .client_capacity(COMMANDS_MAX)
            .subscription_capacity(self.subscription_messages_max)
            .reconnect_delay_callback(reconnect_delay)
            .reconnect_to_server_callback(move |servers, _| {
                let addresses: Vec<_> = servers.into_iter().map(|server| server.addr).collect();
                ready(
                    turns
                        .next(&addresses)
                        .map(|addr| ReconnectToServer { addr, delay: None }),
                )
            })
            .require_tls(self.tls.required);
        if let Some(ca) = &self.tls.ca {
            read("the CA certificates", ca).await?;
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((certificate, key)) = &self.tls.identity {
            read("the client certificate", certificate).await?;
            read("the client key", key).await?;
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options)
    }
}

/// Read at start, so that a missing file is an error with a name and not a connection that never
/// comes up.
pub(super) async fn read(what: &'static str, path: &Path) -> Result<String, NatsConfigError> {
    tokio::fs::read_to_string(path)
        .await
        .map_err(|source| NatsConfigError::File {
            what,
            path: path.to_owned(),
            source,
        })
}

/// Doubles up to the limit, and is spread so that not all services come back in one moment. The
/// first attempt after a loss is nearly immediate: most losses are restarts.
fn reconnect_delay(attempts: usize) -> Duration {
    let steps = u32::try_from(attempts).unwrap_or(u32::MAX).clamp(1, 16) - 1;
    let delay_max = match attempts <= RECONNECTS_SOON {
        true => RECONNECT_DELAY_MAX,
        false => RECONNECT_DELAY_LATER_MAX,
    };
    let delay = Duration::from_millis(20 << steps).min(delay_max);
    delay.mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_nats_config_is_refused_at_start() {
        let good = NatsConfig::new(["nats://127.0.0.1:4222"], "c1");
        assert!(good.check().is_ok() && good.addresses().is_ok());
        let bad = |change: fn(&mut NatsConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().is_err() || config.addresses().is_err()
        };
        assert!(bad(|config| config.servers.clear()));
        assert!(bad(|config| config.servers = vec!["nats://:x".into()]));
        assert!(bad(|config| config.replicas = 0));
        assert!(bad(|config| config.replicas = 6));
        assert!(bad(|config| config.log_bytes_max = 1));
        assert!(bad(|config| config.log_bytes_max = u64::MAX));
        assert!(bad(|config| config.subscription_messages_max = 0));
    }

    #[test]
    fn secrets_are_not_printed() {
        let credentials = Credentials::Password {
            user: "watcher".into(),
            password: "hunter2".into(),
        };
        assert!(!format!("{credentials:?}").contains("hunter2"));
    }

    #[test]
    fn reconnect_delays_grow_and_are_bounded() {
        assert!(reconnect_delay(0) <= Duration::from_millis(20));
        assert!(reconnect_delay(1) <= Duration::from_millis(20));
        for (attempts, most) in [
            (12, RECONNECT_DELAY_MAX),
            (RECONNECTS_SOON, RECONNECT_DELAY_MAX),
            (1000, RECONNECT_DELAY_LATER_MAX),
            (usize::MAX, RECONNECT_DELAY_LATER_MAX),
        ] {
            let delay = reconnect_delay(attempts);
            assert!(delay <= most && delay >= most / 2, "{attempts}");
        }
    }
}
