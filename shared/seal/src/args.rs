//! Where the keys come from.

use std::path::PathBuf;

use clap::Args;

use crate::{Keys, KeysError};

/// Where the keys come from that Secrets are sealed with in the log.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sealing")]
pub struct SealArgs {
    /// The keys that Secrets are sealed with in the log: one `ID BASE64` of 32 bytes a line; the
    /// first seals, all of them open. Read again every 10 seconds. Mount it in watchers and replicas
    /// alone. Without it no Secret is kept
    #[arg(long, env = "ANTEROOM_SEAL_KEYS_FILE")]
    pub seal_keys_file: Option<PathBuf>,
}

impl SealArgs {
    /// The keys of the file, to be kept current with [`Keys::follow`]; [`Keys::none`] if no file is
    /// given.
    ///
    /// # Errors
    /// What is wrong with the file at start-up.
    pub async fn keys(&self) -> Result<Keys, KeysError> {
        match &self.seal_keys_file {
            Some(path) => Keys::read(path).await,
            None => Ok(Keys::none()),
        }
    }
}
