//! A clock of the services' own, which a test can set while they run.
//!
//! It is libfaketime, which answers in place of the system's wall clock. Clocks that measure how long something takes go on
//! as they are, as on a machine whose time is set.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::skip::FAKETIME;

/// The wall clock of the processes that are started with its [environment](Self::env).
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// A clock that is right at first, with its file in `folder`; `None`: there is no library, and the story is left out.
    ///
    /// # Errors
    /// There is no library, and tools are required here.
    pub fn new(folder: &Path) -> anyhow::Result<Option<Self>> {
        let Some(library) = FAKETIME.find()? else {
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
        let library = self.library.display().to_string();
        let file = self.file.display().to_string();
        [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}
