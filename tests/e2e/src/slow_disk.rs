//! A slow disk of a program's own: strace delays the calls that write to files, which takes no rights on the machine.
//!
//! What goes to sockets is written by other calls, and is as fast as before. The kernel stops the program at the delayed calls
//! alone, so the rest of it is not slowed down.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use crate::skip::{LIBUNWIND, Lack, STRACE, skip};

/// The calls: writes at a position of a file, and the waits until they are on the disk.
const CALLS: &str = "pwrite64,fsync,fdatasync";

/// A disk on which each of these calls takes so much longer.
#[derive(Clone, Debug)]
pub struct SlowDisk {
    strace: PathBuf,
    /// A library that strace takes.
    libunwind: PathBuf,
    delay: Duration,
}

impl SlowDisk {
    /// Returns a disk whose calls take this much longer. `None`: there can be none, and the story is left out.
    ///
    /// # Errors
    /// There can be none, and what it takes is required here.
    pub fn find(delay: Duration) -> anyhow::Result<Option<Self>> {
        let (Some(strace), Some(libunwind)) = (STRACE.find()?, LIBUNWIND.find()?) else {
            return Ok(None);
        };
        let disk = Self {
            strace,
            libunwind,
            delay,
        };
        let why = match disk.strace().arg("true").output() {
            Ok(Output { status, .. }) if status.success() => return Ok(Some(disk)),
            Ok(Output { stderr, .. }) => String::from_utf8_lossy(&stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        skip(Lack::Right, &format!("strace may not trace here: {why}"))?;
        Ok(None)
    }

    /// Returns a command of a program that writes to the disk.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.strace();
        // The program is the process that is started, and strace ends with it.
        command.arg("--daemonize").arg(program);
        command
    }

    fn strace(&self) -> Command {
        let trace = format!("trace={CALLS}");
        let delay = self.delay.as_micros();
        let inject = format!("inject={CALLS}:delay_enter={delay}");
        let mut command = Command::new(&self.strace);
        command.args(["--follow-forks", "--seccomp-bpf", "--quiet=all"]);
        command.args(["--output=/dev/null", "-e", &trace, "-e", &inject]);
        if let Some(folder) = self.libunwind.parent() {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command
    }
}
