//! A real nats-server with JetStream on files.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anteroom_bus::nats::{Credentials, NatsConfig};
use anyhow::ensure;

use crate::{
    process::{Process, free_address, real_part},
    wait,
};

/// The users of the deployed configuration.
const USERS: [&str; 5] = ["watcher", "replica", "webhook", "reporter", "system"];

/// A nats-server, configured as it is deployed, that can be killed and started again over the same files, at the same address.
#[derive(Debug)]
pub struct Nats {
    address: SocketAddr,
    folder: PathBuf,
    config: PathBuf,
    process: Option<Process>,
}

impl Nats {
    /// Starts one whose files lie under `folder`.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        let address = free_address()?;
        let config = folder.join("nats.conf");
        std::fs::write(&config, deployed_config(address, &folder.join("nats"))?)?;
        let mut nats = Self {
            address,
            folder: folder.to_owned(),
            config,
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
                .arg(&self.config)
                .envs(USERS.map(|user| (password_variable(user), password(user)))),
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

    /// Its process; `None` while it is killed.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Returns its URL, as in `nats://127.0.0.1:4222`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// The configuration of a client in this process that may do what a webhook may.
    pub fn config_of_webhook(&self) -> NatsConfig {
        NatsConfig {
            credentials: Credentials::Password {
                user: "webhook".to_owned(),
                password: password("webhook"),
            },
            inbox_prefix: "_INBOX_webhook".to_owned(),
            ..NatsConfig::new([self.url()], "default")
        }
    }
}

/// The password of a user of the deployed configuration, in tests.
pub fn password(user: &str) -> String {
    format!("password-of-{user}")
}

fn password_variable(user: &str) -> String {
    format!("NATS_PASSWORD_{}", user.to_uppercase())
}

/// Returns the deployed configuration, permissions included, with other ports and files.
fn deployed_config(address: SocketAddr, store: &Path) -> anyhow::Result<String> {
    let deployed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/nats.conf");
    let mut text = std::fs::read_to_string(&deployed)?;
    for (deployed, here) in [
        ("port: 4222\n", format!("listen: \"{address}\"\n")),
        ("http_port: 8222\n", String::new()),
        (
            "store_dir: /data",
            format!("store_dir: \"{}\"", store.display()),
        ),
    ] {
        ensure!(
            text.matches(deployed).count() >= 1,
            "nats.conf has no {deployed:?}"
        );
        text = text.replacen(deployed, &here, 1);
    }
    Ok(text)
}
