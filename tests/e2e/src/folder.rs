//! The folder of a story's files and logs.

use std::{
    fs,
    io::ErrorKind,
    ops::{Deref, DerefMut},
    path::Path,
};

use anyhow::Context;
use tempfile::TempDir;

use crate::process::tail;

/// A temporary folder that prints the ends of its logs when it goes. Of a test that succeeds nobody sees them;
/// of one that fails they are shown.
#[derive(Debug)]
pub struct Folder {
    dir: TempDir,
    is_silent: bool,
}

impl Folder {
    /// Makes one.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            dir: tempfile::tempdir()?,
            is_silent: false,
        })
    }

    /// Prints nothing when it goes: for programs that are no tests.
    pub fn silence(&mut self) {
        self.is_silent = true;
    }
}

impl Deref for Folder {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        &self.dir
    }
}

impl DerefMut for Folder {
    fn deref_mut(&mut self) -> &mut TempDir {
        &mut self.dir
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_silent {
            print_logs(self.dir.path());
        }
    }
}

#[expect(clippy::print_stdout, reason = "a test's output, shown where it fails")]
fn print_logs(folder: &Path) {
    /// Requests, a line of JSON each: the stories read them, people do not.
    const AUDIT: &str = "audit.log";

    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = item.path();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if is_log && item.file_name() != AUDIT {
            println!("# the end of {}\n{}", path.display(), tail(&path));
        }
    }
}

/// Returns the bytes of all files in a folder. A file may go meanwhile.
pub(crate) fn bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) => bytes += metadata.len(),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).context(entry.path().display().to_string()),
            }
        }
    }
    Ok(bytes)
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (from, to) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}
