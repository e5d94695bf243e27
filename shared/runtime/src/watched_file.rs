//! A file that is read again while the process runs, as one of a mounted Secret or ConfigMap.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;
use tokio::{fs::File, io::AsyncReadExt as _};

/// Interval between reads. The files of a mounted Secret or ConfigMap are symbolic links that are swapped, which
/// file notifications see unreliably; reading a small file costs nothing.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The reason why there is no text of a file.
#[derive(Debug, Error)]
pub enum WatchedFileError {
    /// The file cannot be read, or is no text.
    #[error("{path} cannot be read")]
    Read {
        /// The file's path.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is too long.
    #[error("{path} has more than {bytes_max} bytes")]
    TooLong {
        /// The file's path.
        path: String,
        /// The limit.
        bytes_max: u64,
    },
}

/// A file, and what was found in it last.
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    bytes_max: u64,
    /// The text, or the error as text; `None`: nothing was read yet.
    before: Option<Result<String, String>>,
}

impl WatchedFile {
    /// A file of at most so many bytes.
    pub fn new(path: PathBuf, bytes_max: u64) -> Self {
        Self {
            path,
            bytes_max,
            before: None,
        }
    }

    /// Reads the file. Returns its text, or why there is none, if that is not what was found before.
    pub async fn changed(&mut self) -> Option<Result<String, WatchedFileError>> {
        let found = self.text().await;
        let now = found.as_ref().cloned().map_err(ToString::to_string);
        if self.before.as_ref() == Some(&now) {
            return None;
        }
        self.before = Some(now);
        Some(found)
    }

    async fn text(&self) -> Result<String, WatchedFileError> {
        let path = || self.path.display().to_string();
        let unread = |source| WatchedFileError::Read {
            path: path(),
            source,
        };
        let file = File::open(&self.path).await.map_err(unread)?;
        let mut bytes = Vec::new();
        let mut within = file.take(self.bytes_max.saturating_add(1));
        let count = within.read_to_end(&mut bytes).await.map_err(unread)?;
        if u64::try_from(count).is_ok_and(|count| count > self.bytes_max) {
            return Err(WatchedFileError::TooLong {
                path: path(),
                bytes_max: self.bytes_max,
            });
        }
        String::from_utf8(bytes)
            .map_err(|error| unread(io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_changed_is_told_and_an_error_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = WatchedFile::new(path.clone(), 4);
        let said = async |file: &mut WatchedFile| {
            let found = file.changed().await?;
            Some(found.map_err(|error| match error {
                WatchedFileError::Read { .. } => "unread",
                WatchedFileError::TooLong { .. } => "long",
            }))
        };
        let text = |text: &str| Some(Ok(text.to_owned()));
        assert_eq!(said(&mut file).await, Some(Err("unread")));
        assert_eq!(said(&mut file).await, None);
        for (content, expected) in [
            (&b"abcd"[..], text("abcd")),
            (b"abcd", None),
            (b"abcde", Some(Err("long"))),
            (b"abcdef", None),
            // A limit in the middle of a character.
            ("abc\u{e4}".as_bytes(), None),
            (b"ab\xff", Some(Err("unread"))),
            (b"", text("")),
            (b"abcd", text("abcd")),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(said(&mut file).await, expected, "{content:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(said(&mut file).await, Some(Err("unread")));
    }

    /// A mounted ConfigMap is a link to a folder, and another folder takes the place of the first one.
    #[tokio::test]
    async fn a_link_that_leads_elsewhere_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (version, content) in [("1", "one"), ("2", "two")] {
            std::fs::create_dir(at(version)).unwrap();
            std::fs::write(at(version).join("file"), content).unwrap();
        }
        std::os::unix::fs::symlink("1", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/file", at("file")).unwrap();
        let mut file = WatchedFile::new(at("file"), 100);
        assert_eq!(file.changed().await.unwrap().unwrap(), "one");
        std::os::unix::fs::symlink("2", at("..new")).unwrap();
        std::fs::rename(at("..new"), at("..data")).unwrap();
        assert_eq!(file.changed().await.unwrap().unwrap(), "two");
    }
}
