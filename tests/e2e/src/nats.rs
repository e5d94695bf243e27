//! A real nats-server with JetStream on files.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    process::{Process, free_address, real_part},
    wait,
};

/// A nats-server that can be killed and started again over the same files, at the same address.
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
        std::fs::write(
            &config,
            format!(
                "listen: \"{address}\"\nmax_payload: 4MB\njetstream {{ store_dir: \"{}\" }}\n",
                folder.join("nats").display()
            ),
        )?;
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

    /// `kill -9`.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.take().map_or(Ok(()), Process::kill)
    }

    /// As in `nats://127.0.0.1:4222`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }
}
