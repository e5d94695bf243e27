//! Keys that change under their users' hands, as a mounted Secret does.

use std::{path::Path, sync::Arc, time::Duration};

use anteroom_model::{ObjectKey, ViewId};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::{Answering, AskedOf, KeyRing, KeysError, QuestionSecret, SealError, asking, body};

/// The interval at which the file is read again. A Secret's files are symbolic links that are swapped, which
/// file notifications see unreliably; reading a small file costs nothing.
pub const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The keys as they are now, shared by whoever seals and opens. Cloned, it is the same.
#[derive(Clone, Debug)]
pub struct Keys(Arc<KeysState>);

#[derive(Debug)]
struct KeysState {
    ring: ArcSwapOption<KeyRing>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

impl Keys {
    /// No keys: nothing is sealed, and nothing can be opened.
    pub fn none() -> Self {
        Self(Arc::new(KeysState {
            ring: ArcSwapOption::empty(),
            changes: watch::Sender::new(0),
        }))
    }

    /// Shared keys that begin as `ring`.
    pub fn new(ring: KeyRing) -> Self {
        let keys = Self::none();
        keys.replace(ring);
        keys
    }

    /// A new key that nobody else will ever have: where one process seals and opens, and nothing
    /// outlives it.
    ///
    /// # Errors
    /// [`SealError::Library`].
    pub fn ephemeral() -> Result<Self, SealError> {
        Ok(Self::new(KeyRing::ephemeral()?))
    }

    /// The keys of a file.
    ///
    /// # Errors
    /// The file cannot be read, or one of its lines is wrong: the first such line is told.
    pub async fn read(path: &Path) -> Result<Self, KeysError> {
        Ok(Self::new(KeyRing::parse(&text(path).await?)?))
    }

    /// Takes other keys from now on, and tells [`Keys::changes`].
    pub fn replace(&self, ring: KeyRing) {
        self.0.ring.store(Some(Arc::new(ring)));
        self.0.changes.send_modify(|changes| *changes += 1);
    }

    /// Counts the changes: what could not be opened may be tried again after one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Seals an object's body with the first key, for this place in the log alone. Its first byte is
    /// [`MAGIC`](crate::MAGIC); no two results are alike.
    ///
    /// # Errors
    /// [`SealError::NoKey`], or [`SealError::Library`].
    pub fn seal(&self, view: &ViewId, key: &ObjectKey, plain: &[u8]) -> Result<Bytes, SealError> {
        let ring = self.0.ring.load();
        body::seal(ring.as_deref().ok_or(SealError::NoKey)?, view, key, plain)
    }

    /// Opens what [`Keys::seal`] sealed for this place.
    ///
    /// # Errors
    /// [`SealError::NoKey`], [`SealError::UnknownKey`], [`SealError::Malformed`] or [`SealError::Refused`]; nothing in it
    /// tells what is inside.
    pub fn open(&self, view: &ViewId, key: &ObjectKey, sealed: &[u8]) -> Result<Bytes, SealError> {
        let ring = self.0.ring.load();
        body::open(ring.as_deref().ok_or(SealError::NoKey)?, view, key, sealed)
    }

    /// Asks something: the question as it travels, and what opens the answers. The first key asks.
    ///
    /// # Errors
    /// [`SealError::NoAskerKey`], or [`SealError::Library`].
    pub fn ask(&self, of: AskedOf<'_>, plain: &[u8]) -> Result<(Bytes, QuestionSecret), SealError> {
        let ring = self.0.ring.load();
        asking::ask(ring.as_deref().ok_or(SealError::NoAskerKey)?, of, plain)
    }

    /// Hears a question: what was asked, and what seals the answers.
    ///
    /// # Errors
    /// [`SealError::NoAskerKey`], [`SealError::UnknownAsker`], [`SealError::Malformed`], [`SealError::Refused`] where it
    /// was changed, or put to something else, or [`SealError::Library`].
    pub fn open_question(
        &self,
        of: AskedOf<'_>,
        question: &[u8],
    ) -> Result<(Bytes, Answering), SealError> {
        let ring = self.0.ring.load();
        asking::open_question(ring.as_deref().ok_or(SealError::NoAskerKey)?, of, question)
    }

    /// Returns whether there are any.
    pub fn are_there(&self) -> bool {
        self.0.ring.load().is_some()
    }

    /// Reads the file now and then again every `interval`, and takes its keys whenever they are not
    /// what they were. A file that cannot be read, or is wrong, leaves the keys as they are. Never
    /// ends; drop it to stop.
    pub async fn follow(self, path: &Path, interval: Duration) -> std::convert::Infallible {
        let mut before: Option<Result<Zeroizing<String>, KeysError>> = None;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let found = text(path).await;
            if before.as_ref() == Some(&found) {
                continue;
            }
            match found
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|text| KeyRing::parse(text))
            {
                Ok(ring) => {
                    tracing::info!(path = %path.display(), keys = ?ring, "keys read");
                    self.replace(ring);
                }
                Err(error) => tracing::error!(
                    %error,
                    code = %error.code(),
                    path = %path.display(),
                    "file of keys refused: the keys stay as they were; correct the file"
                ),
            }
            before = Some(found);
        }
    }
}

async fn text(path: &Path) -> Result<Zeroizing<String>, KeysError> {
    let read = tokio::fs::read_to_string(path).await;
    read.map(Zeroizing::new).map_err(|error| KeysError::Read {
        path: path.display().to_string(),
        message: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    use super::*;
    use crate::KEY_BYTES;

    fn file(keys: &[(&str, u8)]) -> String {
        keys.iter()
            .map(|(id, byte)| format!("{id} {}\n", BASE64_STANDARD.encode([*byte; KEY_BYTES])))
            .collect()
    }

    #[test]
    fn without_keys_nothing_is_sealed_and_nothing_opened() {
        let (view, key) = (ViewId::new("v"), ObjectKey::new("", "a"));
        let keys = Keys::none();
        assert!(!keys.are_there());
        assert_eq!(keys.seal(&view, &key, b"x"), Err(SealError::NoKey));
        assert_eq!(keys.open(&view, &key, b"x"), Err(SealError::NoKey));
    }

    #[test]
    fn two_ephemeral_keys_do_not_open_each_other() {
        let (view, key) = (ViewId::new("v"), ObjectKey::new("", "a"));
        let (one, two) = (Keys::ephemeral().unwrap(), Keys::ephemeral().unwrap());
        assert!(one.are_there());
        let sealed = one.seal(&view, &key, b"x").unwrap();
        assert_eq!(one.open(&view, &key, &sealed).unwrap(), &b"x"[..]);
        assert!(two.open(&view, &key, &sealed).is_err());
    }

    /// The keys' file is read again, and a broken one takes no key away.
    #[tokio::test]
    async fn a_changed_key_file_is_taken_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        tokio::fs::write(&path, file(&[("a", 1)])).await.unwrap();
        let keys = Keys::read(&path).await.unwrap();
        let (view, key) = (ViewId::new("v"), ObjectKey::new("", "a"));
        let sealed = keys.seal(&view, &key, b"x").unwrap();
        let mut changes = keys.changes();
        let follower = {
            let (keys, path) = (keys.clone(), path.clone());
            tokio::spawn(async move { keys.follow(&path, Duration::from_millis(1)).await })
        };
        changes.changed().await.unwrap();
        tokio::fs::write(&path, "broken").await.unwrap();
        // A file is not written at once: the last state of it is what is waited for.
        tokio::fs::write(&path, file(&[("b", 2), ("a", 1)]))
            .await
            .unwrap();
        while !format!("{keys:?}").contains(r#""b""#) {
            changes.changed().await.unwrap();
            let opened = keys.open(&view, &key, &sealed);
            assert!(opened.is_ok(), "a broken file takes nothing away");
        }
        assert_eq!(keys.open(&view, &key, &sealed).unwrap(), &b"x"[..]);
        follower.abort();
    }

    #[tokio::test]
    async fn a_missing_key_file_is_named_in_the_error() {
        let error = Keys::read(Path::new("/nonexistent/keys"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("/nonexistent/keys"), "{error}");
        assert_eq!(error.code().as_str(), "AR701");
    }
}
