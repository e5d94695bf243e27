//! One nats-server.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    NatsPlan,
    config::{self, Routes},
};
use crate::{
    disk::Disk,
    folder,
    process::{Process, free_address, real_part},
    services,
    slow_disk::SlowDisk,
    wait,
};

/// One of the servers.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    /// The address for clients.
    pub(super) address: SocketAddr,
    /// The address for other servers.
    pub(super) routes_at: SocketAddr,
    /// The address of its own figures.
    monitor: SocketAddr,
    folder: PathBuf,
    pub(super) process: Option<Process>,
    /// The disk of its files; `None`: the machine's.
    pub(super) disk: Option<Disk>,
    /// A disk that is slow; `None`: it is as fast as the machine's.
    pub(super) slow_disk: Option<SlowDisk>,
}

/// The beginning of a server's name.
const NAME: &str = "nats-";

/// Returns the number of the server with this name.
pub(super) fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix(NAME)?.parse().ok()
}

impl Server {
    /// A server that does not run, whose files will lie under `folder`.
    pub(super) fn new(number: usize, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            name: format!("{NAME}{number}"),
            address: free_address()?,
            routes_at: free_address()?,
            monitor: free_address()?,
            folder: folder.to_owned(),
            process: None,
            disk: None,
            slow_disk: None,
        })
    }

    /// Writes its configuration.
    pub(super) fn configure(
        &self,
        folder: &Path,
        plan: &NatsPlan,
        routes: &Routes,
    ) -> anyhow::Result<()> {
        let text = config::text(
            folder,
            &self.files(),
            self.address,
            self.monitor,
            plan,
            routes,
        )?;
        std::fs::write(self.config(), text)?;
        Ok(())
    }

    /// Gives the server a disk of its own before the start.
    pub(super) async fn mount(&mut self, bytes: u64) -> anyhow::Result<()> {
        let disk = Disk::new(&self.name, &self.files(), bytes, &self.folder).await?;
        self.disk = Some(disk);
        Ok(())
    }

    /// Starts the server unless it runs, and waits until it takes connections.
    pub(super) async fn start(&mut self) -> anyhow::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let program = real_part("nats-server")?;
        let mut command = match (&self.disk, &self.slow_disk) {
            (Some(disk), _) => disk.command(&program),
            (None, Some(slow)) => slow.command(&program),
            (None, None) => Command::new(program),
        };
        command
            .arg("-c")
            .arg(self.config())
            .arg("--name")
            .arg(&self.name);
        let mut process = Process::start(&self.name, &mut command, &self.folder)?;
        wait::until(&format!("{} to take connections", self.name), async || {
            process.check()?;
            anyhow::Ok(tokio::net::TcpStream::connect(self.address).await?)
        })
        .await?;
        self.process = Some(process);
        Ok(())
    }

    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.process
            .take()
            .map_or(Ok(()), |mut process| process.kill())
    }

    /// Asks for its own figures.
    pub(super) async fn ask(&self, path: &str) -> anyhow::Result<String> {
        services::get(self.monitor, path).await
    }

    fn config(&self) -> PathBuf {
        self.folder.join(format!("{}.conf", self.name))
    }

    fn files(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn kept(&self) -> PathBuf {
        self.folder.join(format!("{}-kept", self.name))
    }

    /// Returns the bytes of its files.
    pub(super) fn stored_bytes(&self) -> anyhow::Result<u64> {
        folder::bytes(&self.files())
    }

    pub(super) fn keep_files(&self) -> anyhow::Result<()> {
        folder::copy(&self.files(), &self.kept())
    }

    pub(super) fn put_files_back(&self) -> anyhow::Result<()> {
        self.lose_files()?;
        folder::copy(&self.kept(), &self.files())
    }

    pub(super) fn lose_files(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_dir_all(self.files())?)
    }
}
