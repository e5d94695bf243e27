//! A clock of the services' own, which a test can set while they run.
//!
//! It is libfaketime, which answers in place of the system's wall clock. Clocks that measure how long something takes go on
//! as they are, as on a machine whose time is set.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// The places of the library in Debian's package `libfaketime`.
const LIBRARY: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

/// The wall clock of the processes that are started with its [environment](Self::env).
#[derive(Debug)]
pub struct Clock {
    library: &'static str,
    file: PathBuf,
}

impl Clock {
    /// A clock that is right at first, with its file in `folder`; `None`: the library is not installed.
    pub fn new(folder: &Path) -> anyhow::Result<Option<Self>> {
        let mut installed = LIBRARY.into_iter();
        let Some(library) = installed.find(|path| Path::new(path).exists()) else {
            return Ok(None);
        };
        let file = folder.join("clock");
        let clock = Self { library, file };
        clock.set("+0")?;
        Ok(Some(clock))
    }

    /// Sets it to this much from the right time, as in `-90m` or `+2d`. Processes see it within a second.
    pub fn set(&self, offset: &str) -> anyhow::Result<()> {
        // At once: no process reads half of it.
        let next = self.file.with_extension("next");
        fs::write(&next, offset).context("the clock's file")?;
        fs::rename(&next, &self.file).context("the clock's file")
    }

    /// Returns the environment of a process that goes by it.
    pub fn env(&self) -> Vec<(String, String)> {
        let file = self.file.display().to_string();
        [
            ("LD_PRELOAD", self.library),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}
