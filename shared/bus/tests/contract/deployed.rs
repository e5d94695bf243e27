//! A real server with the TLS and the accounts that are deployed.

use std::path::Path;

use anteroom_bus::{
    nats::{Credentials, NatsConfig, Tls},
    testing::NatsServer,
};
use anteroom_keys::{AUTHORITY, NatsKeys, SEED, files, names_in_cluster};
use anteroom_runtime::wall_clock;
use async_nats::ConnectOptions;
use jiff::SignedDuration;

/// A server with the TLS and the accounts of `deploy/chart/files/nats.conf`, and what its clients log in with.
pub(crate) struct Deployed {
    pub(crate) server: NatsServer,
    pub(crate) keys: NatsKeys,
    folder: tempfile::TempDir,
}

pub(crate) async fn deployed() -> Deployed {
    deployed_with(|config| config).await
}

/// Starts the deployed server with the configuration that `change` returns.
pub(crate) async fn deployed_with(change: impl FnOnce(String) -> String) -> Deployed {
    let folder = tempfile::tempdir().unwrap();
    let keys = new_keys(folder.path());
    let config = change(config(&keys, folder.path()));
    Deployed {
        server: NatsServer::start_with(&config).await.unwrap(),
        keys,
        folder,
    }
}

/// Makes all keys anew, over those that the folder has.
fn new_keys(folder: &Path) -> NatsKeys {
    let day = SignedDuration::from_hours(24);
    let keys = NatsKeys::new(&names_in_cluster("anteroom"), day, wall_clock::now()).unwrap();
    files::write(&keys, folder).unwrap();
    keys
}

fn config(keys: &NatsKeys, folder: &Path) -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/chart/files/nats.conf"
    );
    let deployed = std::fs::read_to_string(path).unwrap();
    let of = |block: &str, end: &str| {
        let (_, rest) = deployed.split_once(&format!("\n{block} {{")).unwrap();
        let (inner, _) = rest.split_once(end).unwrap_or((rest, ""));
        format!("{block} {{{inner}{end}\n")
    };
    let config = format!(
        "{}{}{}",
        keys.public_keys(),
        of("tls", "\n}"),
        of("accounts", "\nsystem_account: SYS"),
    );
    let server = folder.join(files::SERVER);
    config.replace("/etc/nats-keys", &server.display().to_string())
}

impl Deployed {
    /// Replaces all keys, the certificate and its authority, and starts the server again, which does not run.
    pub(crate) async fn replace_keys(&mut self) {
        self.keys = new_keys(self.folder.path());
        let config = config(&self.keys, self.folder.path());
        self.server.restart_with(&config).await.unwrap();
    }

    /// The configuration of a client of this login, for a service with this inbox.
    pub(crate) fn login(&self, user: &str, service: &str) -> NatsConfig {
        let own = self.folder.path().join(user);
        NatsConfig {
            credentials: Credentials::NkeySeed(own.join(SEED)),
            tls: Tls {
                required: true,
                ca: Some(own.join(AUTHORITY)),
                identity: None,
            },
            inbox_prefix: format!("_INBOX_{service}"),
            log_bytes_max: 64 * 1024 * 1024,
            ..NatsConfig::new([self.server.url()], "default")
        }
    }

    /// The options of a plain client of this login.
    pub(crate) fn options(&self, user: &str) -> ConnectOptions {
        let login = self.keys.logins.iter().find(|login| login.name == user);
        self.trusting(ConnectOptions::with_nkey(login.unwrap().seed.clone()))
    }

    /// Returns the options of a client that trusts the server's authority.
    pub(crate) fn trusting(&self, options: ConnectOptions) -> ConnectOptions {
        let authority = self.folder.path().join("watcher").join(AUTHORITY);
        options.require_tls(true).add_root_certificates(authority)
    }
}
