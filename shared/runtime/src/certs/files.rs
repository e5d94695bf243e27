//! Certificates from files that somebody else keeps, as in a mounted Secret.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use super::{CertError, Certificates, Pair, Pem};
use crate::wall_clock;
pub use crate::watched_file::POLL_INTERVAL;

/// Options that name the files of a certificate.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TLS")]
pub struct TlsFileArgs {
    /// The certificate chain to serve with, in PEM; read again every 10 seconds.
    #[arg(long, env = "ANTEROOM_TLS_CERT_FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// Its private key, in PEM.
    #[arg(long, env = "ANTEROOM_TLS_KEY_FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
}

impl TlsFileArgs {
    /// Both files, if they are given.
    pub fn files(&self) -> Option<(&Path, &Path)> {
        Some((
            self.tls_cert_file.as_deref()?,
            self.tls_key_file.as_deref()?,
        ))
    }
}

/// Reads the two files now and then again every `interval`, and offers what it finds to
/// `certificates` whenever it is not what was found before. Never ends; drop it to stop.
pub async fn follow(
    chain: &Path,
    key: &Path,
    certificates: &Certificates,
    interval: Duration,
) -> std::convert::Infallible {
    let mut before = None;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let found = read(chain, key).await;
        // A file that cannot be read is said once, not every ten seconds.
        let now = found.as_ref().map_err(ToString::to_string).cloned();
        if before.as_ref() != Some(&now) {
            before = Some(now);
            certificates.offer(found.and_then(|pem| Pair::parse(&pem, wall_clock::now())));
        }
    }
}

async fn read(chain: &Path, key: &Path) -> Result<Pem, CertError> {
    Ok(Pem {
        chain: read_file(chain).await?,
        key: read_file(key).await?,
    })
}

async fn read_file(path: &Path) -> Result<String, CertError> {
    tokio::fs::read_to_string(path)
        .await
        .map_err(|source| CertError::Read {
            path: path.display().to_string(),
            source,
        })
}
