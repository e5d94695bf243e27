//! The options that name the keys.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::{Keys, KeysError, keys::POLL_INTERVAL};

/// Options that say where the keys come from that Secrets are sealed with in the log.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sealing")]
pub struct SealArgs {
    /// The file of the keys that encrypt Secrets in the log: one `ID BASE64` a line, each key of 32
    /// bytes. The first key encrypts, and all of them decrypt. It is read again every 10 seconds.
    /// Mount it in watchers and replicas only. Without it, no Secret is kept
    #[arg(long, env = "ANTEROOM_SEAL_KEYS_FILE")]
    pub seal_keys_file: Option<PathBuf>,
}

/// Options that say where the keys come from that services ask each other with for Secrets.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sealing")]
pub struct AskerArgs {
    /// The file of the keys that services ask each other with for what policies read of Secrets: one
    /// `ID BASE64` a line, each key of 32 bytes. The first key asks, and all of them are answered. It is
    /// read again every 10 seconds. Mount the same file in watchers, replicas and webhooks. Without it,
    /// policies that read Secrets get an error
    #[arg(long, env = "ANTEROOM_ASKER_KEYS_FILE")]
    pub asker_keys_file: Option<PathBuf>,
}

impl SealArgs {
    /// The keys of the file, to be kept current with [`SealArgs::following`]. They are [`Keys::none`] if no
    /// file is given, or if it is not there yet, as where an optional Secret is mounted.
    ///
    /// # Errors
    /// The file cannot be used at start-up.
    pub async fn keys(&self) -> Result<Keys, KeysError> {
        keys_of(
            self.seal_keys_file.as_deref(),
            "no Secret is kept until it is",
        )
        .await
    }

    /// Does the work of a process and follows its key file in the same task, so that the work never goes on
    /// while the file is no longer followed.
    pub async fn following<T>(&self, keys: Keys, work: impl Future<Output = T>) -> T {
        following(self.seal_keys_file.as_deref(), keys, work).await
    }
}

impl AskerArgs {
    /// The keys of the file, as [`SealArgs::keys`].
    ///
    /// # Errors
    /// The file cannot be used at start-up.
    pub async fn keys(&self) -> Result<Keys, KeysError> {
        let file = self.asker_keys_file.as_deref();
        keys_of(file, "policies that read Secrets get an error until it is").await
    }

    /// Does the work of a process and follows its key file, as [`SealArgs::following`].
    pub async fn following<T>(&self, keys: Keys, work: impl Future<Output = T>) -> T {
        following(self.asker_keys_file.as_deref(), keys, work).await
    }
}

async fn keys_of(path: Option<&Path>, until_then: &str) -> Result<Keys, KeysError> {
    let Some(path) = path else {
        return Ok(Keys::none());
    };
    if let Ok(false) = tokio::fs::try_exists(path).await {
        tracing::warn!(path = %path.display(), "file of keys not there: {until_then}");
        return Ok(Keys::none());
    }
    Keys::read(path).await
}

async fn following<T>(path: Option<&Path>, keys: Keys, work: impl Future<Output = T>) -> T {
    let Some(path) = path else {
        return work.await;
    };
    tokio::select! {
        done = work => done,
        never = keys.follow(path, POLL_INTERVAL) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{ObjectKey, ViewId};

    use super::*;
    use crate::SealError;

    async fn has_none(args: &SealArgs) -> bool {
        let (view, key) = (ViewId::new("v"), ObjectKey::new("", "a"));
        let sealed = args.keys().await.unwrap().seal(&view, &key, b"x");
        sealed == Err(SealError::NoKey)
    }

    #[tokio::test]
    async fn a_missing_key_file_is_waited_for_and_a_broken_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let args = SealArgs {
            seal_keys_file: Some(path.clone()),
        };
        assert!(has_none(&args).await);
        tokio::fs::write(&path, "broken").await.unwrap();
        assert!(args.keys().await.is_err());
        assert!(has_none(&SealArgs::default()).await);
    }

    /// The file is read while there is work, and the work is what is waited for.
    #[tokio::test]
    async fn keys_are_followed_as_long_as_there_is_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let key = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, [1; 32]);
        tokio::fs::write(&path, format!("a {key}\n")).await.unwrap();
        let args = SealArgs {
            seal_keys_file: Some(path),
        };
        let keys = Keys::none();
        let mut changes = keys.changes();
        let done = args.following(keys.clone(), async move { changes.changed().await.is_ok() });
        assert!(done.await);
        assert!(format!("{keys:?}").contains(r#""a""#), "{keys:?}");
        let none = SealArgs::default();
        assert_eq!(none.following(keys, std::future::ready(7)).await, 7);
    }
}
