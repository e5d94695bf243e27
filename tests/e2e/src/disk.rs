//! A small disk of a program's own, which a test can fill.
//!
//! It is a file system in memory, mounted where only the programs see it that are started by [`Disk::command`]: that takes no
//! rights on the machine. It outlives these programs.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use crate::{process::Process, wait};

/// The bytes that are written at once to fill a disk, of the smallest last.
const PIECE_BYTES: [usize; 2] = [1 << 20, 1 << 12];

/// A disk, until it is dropped.
#[derive(Debug)]
pub struct Disk {
    /// The process in whose mount namespace the disk is.
    holder: Process,
    at: PathBuf,
}

impl Disk {
    /// Returns why there can be none on this machine; `None`: there can.
    pub fn lack() -> Option<String> {
        let tried = Command::new("unshare")
            .args(["--mount", "--map-root-user", "true"])
            .output();
        match tried {
            Err(error) => Some(format!("unshare: {error}")),
            Ok(output) if !output.status.success() => {
                Some(String::from_utf8_lossy(&output.stderr).trim().to_owned())
            }
            Ok(_) => None,
        }
    }

    /// Mounts a disk at this folder, which is made. The logs of the process that holds it lie in `logs`.
    pub async fn new(name: &str, at: &Path, bytes: u64, logs: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(at)?;
        let script = "mount -t tmpfs -o size=\"$1\" tmpfs \"$2\" && : >\"$2/mounted\" && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]);
        command.arg(bytes.to_string()).arg(at);
        let mut disk = Self {
            holder: Process::start(&format!("{name}-disk"), &mut command, logs)?,
            at: at.to_owned(),
        };
        wait::until("a disk to be mounted", async || {
            disk.holder.check()?;
            anyhow::Ok(fs::metadata(disk.seen_from_here().join("mounted"))?)
        })
        .await?;
        Ok(disk)
    }

    /// Returns a command of a program that sees the disk.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--preserve-credentials", "--user", "--mount", "--target"])
            .arg(self.holder.id().to_string())
            .arg(program);
        command
    }

    /// Leaves no room on it.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.filling())?;
        for bytes in PIECE_BYTES {
            let piece = vec![0; bytes];
            loop {
                match file.write_all(&piece) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => bail!("cannot fill {}: {error}", self.at.display()),
                }
            }
        }
        ensure!(file.metadata()?.len() > 0, "there was no room to be taken");
        Ok(())
    }

    /// Takes back what [`Disk::fill`] wrote.
    pub fn free(&self) -> anyhow::Result<()> {
        fs::remove_file(self.filling()).context("it was filled")
    }

    fn filling(&self) -> PathBuf {
        self.seen_from_here().join("filling")
    }

    /// The disk's root, by a path that leads through the holder's mounts.
    fn seen_from_here(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.at.strip_prefix("/").unwrap_or(&self.at))
    }
}
