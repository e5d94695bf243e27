//! A real nats-server with JetStream on files.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anteroom_bus::nats::{Credentials, NatsConfig, Tls};
use anteroom_keys::{AUTHORITY, NatsKeys, SEED, files, names_in_cluster};
use anyhow::{Context, ensure};
use jiff::{SignedDuration, Timestamp};

use crate::{
    process::{Process, free_address, real_part},
    wait,
};

/// The folder with the keys of the server and of all logins.
const KEYS: &str = "nats-keys";

/// The folder with the server's files, and that with a copy of them.
const FILES: &str = "nats";
const KEPT_FILES: &str = "nats-kept";

/// A nats-server, configured as it is deployed, that can be killed and started again over the same files, at the same address.
#[derive(Debug)]
pub struct Nats {
    address: SocketAddr,
    folder: PathBuf,
    config: PathBuf,
    is_encrypted: bool,
    process: Option<Process>,
}

/// The server's address, and the keys of its logins. Cheap enough to clone.
#[derive(Clone, Debug)]
pub struct NatsLogins {
    url: String,
    keys: PathBuf,
    is_encrypted: bool,
}

impl NatsLogins {
    /// Returns the environment variables of a service that logs in as `user`.
    pub fn env(&self, user: &str) -> Vec<(&'static str, String)> {
        let own = self.keys.join(user);
        let mut env = vec![
            ("ANTEROOM_NATS_URL", self.url.clone()),
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
}

impl Nats {
    /// Starts one whose files lie under `folder`.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        Self::start_as(folder, true).await
    }

    /// Starts one without TLS, for benchmarks: what a decision costs is comparable with earlier figures then.
    pub async fn start_unencrypted(folder: &Path) -> anyhow::Result<Self> {
        Self::start_as(folder, false).await
    }

    async fn start_as(folder: &Path, is_encrypted: bool) -> anyhow::Result<Self> {
        let day = SignedDuration::from_hours(24);
        let keys = NatsKeys::new(&names_in_cluster("anteroom"), day, Timestamp::now())?;
        files::write(&keys, &folder.join(KEYS))?;
        let address = free_address()?;
        let config = folder.join("nats.conf");
        std::fs::write(&config, deployed_config(address, folder, is_encrypted)?)?;
        let mut nats = Self {
            address,
            folder: folder.to_owned(),
            config,
            is_encrypted,
            process: None,
        };
        nats.start_again().await?;
        Ok(nats)
    }

    /// Starts it (again, after [`Nats::kill`]) and waits until it takes connections.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let mut process = Process::start(
            "nats-server",
            Command::new(real_part("nats-server")?)
                .arg("-c")
                .arg(&self.config),
            &self.folder,
        )?;
        wait::until("nats-server to take connections", async || {
            process.check()?;
            anyhow::Ok(tokio::net::TcpStream::connect(self.address).await?)
        })
        .await?;
        self.process = Some(process);
        Ok(())
    }

    /// Kills the server with `kill -9`.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.take().map_or(Ok(()), Process::kill)
    }

    /// Keeps a copy of its files as they are. Call it while it is killed.
    pub fn keep_files(&self) -> anyhow::Result<()> {
        copy(&self.folder.join(FILES), &self.folder.join(KEPT_FILES))
    }

    /// Puts back the files that were kept, as after a disk was restored. Call it while it is killed.
    pub fn put_files_back(&self) -> anyhow::Result<()> {
        let files = self.folder.join(FILES);
        std::fs::remove_dir_all(&files)?;
        copy(&self.folder.join(KEPT_FILES), &files)
    }

    /// Its process; `None` while it is killed.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns its URL, as in `nats://127.0.0.1:4222`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Returns what services log in with.
    pub fn logins(&self) -> NatsLogins {
        NatsLogins {
            url: self.url(),
            keys: self.folder.join(KEYS),
            is_encrypted: self.is_encrypted,
        }
    }

    /// The configuration of a client in this process that may do what a webhook may.
    pub fn config_of_webhook(&self) -> NatsConfig {
        let own = self.folder.join(KEYS).join("webhook");
        NatsConfig {
            credentials: Credentials::NkeySeed(own.join(SEED)),
            tls: Tls {
                required: self.is_encrypted,
                ca: self.is_encrypted.then(|| own.join(AUTHORITY)),
                identity: None,
            },
            inbox_prefix: "_INBOX_webhook".to_owned(),
            ..NatsConfig::new([self.url()], "default")
        }
    }
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (from, to) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}

/// Returns the deployed configuration, permissions included, with other ports and files.
fn deployed_config(
    address: SocketAddr,
    folder: &Path,
    is_encrypted: bool,
) -> anyhow::Result<String> {
    let deployed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/nats.conf");
    let mut text = std::fs::read_to_string(&deployed)?;
    let server = folder.join(KEYS).join(files::SERVER);
    for (deployed, here) in [
        ("port: 4222\n", format!("listen: \"{address}\"\n")),
        ("http_port: 8222\n", String::new()),
        (
            "store_dir: /data",
            format!("store_dir: \"{}\"", folder.join(FILES).display()),
        ),
        ("../nats-keys/", format!("{KEYS}/{}/", files::SERVER)),
        ("/etc/nats-keys", server.display().to_string()),
        ("/etc/nats-keys", server.display().to_string()),
    ] {
        ensure!(
            text.matches(deployed).count() >= 1,
            "nats.conf has no {deployed:?}"
        );
        text = text.replacen(deployed, &here, 1);
    }
    if !is_encrypted {
        let (before, tls) = text.split_once("\ntls {").context("no TLS")?;
        let (_, after) = tls.split_once("\n}\n").context("no end of TLS")?;
        text = format!("{before}\n{after}");
    }
    Ok(text)
}
