//! Certificates: made by ourselves or read from files, and swapped while serving.
//!
//! [`Certificates`] is what a server holds. Whoever has a certificate for it sets it there:
//! [`files::follow`] from files, or a service that keeps its own, made with [`issue::Authority`].

pub mod clients;
pub mod files;
pub mod issue;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use thiserror::Error;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::{Metrics, watched_file::WatchedFileError};
use clients::Clients;

/// An error of a certificate.
#[derive(Debug, Error)]
pub enum CertError {
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file's path.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file that is read again cannot be read, or is too long.
    #[error(transparent)]
    File(#[from] WatchedFileError),
    /// Not PEM, or not of what is expected.
    #[error("the {what} is not PEM, or holds none")]
    Pem {
        /// `certificate` or `private key`.
        what: &'static str,
        /// The error of the parser.
        source: rustls_pki_types::pem::Error,
    },
    /// There is no certificate in the PEM.
    #[error("there is no certificate in the PEM")]
    Empty,
    /// The certificate is not one.
    #[error("the certificate cannot be parsed: {problem}")]
    Parse {
        /// The parser's message.
        problem: String,
    },
    /// The certificate is not valid any more.
    #[error("the certificate expired at {not_after}")]
    Expired {
        /// The end of its validity.
        not_after: Timestamp,
    },
    /// The key is not the certificate's, or of a kind that TLS has no use for.
    #[error("the private key does not fit the certificate")]
    Key(#[source] rustls::Error),
    /// A certificate could not be made.
    #[error("the certificate cannot be made")]
    Make(#[from] rcgen::Error),
}

/// A certificate chain and its key, as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The serving certificate, followed by the intermediate certificates up to its authority.
    pub chain: String,
    /// The private key, in PKCS#8, PKCS#1 or SEC1.
    pub key: String,
}

/// The key stays out of logs.
impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pem")
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

/// A chain with its key; both fit, and no certificate has expired.
#[derive(Clone, Debug)]
pub struct Pair {
    key: Arc<CertifiedKey>,
    not_after: Timestamp,
}

impl Pair {
    /// Parses and checks.
    pub fn parse(pem: &Pem, now: Timestamp) -> Result<Self, CertError> {
        let chain = CertificateDer::pem_slice_iter(pem.chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| CertError::Pem {
                what: "certificate",
                source,
            })?;
        let key =
            PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).map_err(|source| CertError::Pem {
                what: "private key",
                source,
            })?;
        let not_after = not_after(chain.first().ok_or(CertError::Empty)?)?;
        if now >= not_after {
            return Err(CertError::Expired { not_after });
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = CertifiedKey::from_der(chain, key, &provider).map_err(CertError::Key)?;
        Ok(Self {
            key: Arc::new(key),
            not_after,
        })
    }

    /// When it expires.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }
}

/// When a certificate expires.
pub fn not_after(certificate: &CertificateDer<'_>) -> Result<Timestamp, CertError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| CertError::Parse {
        problem: error.to_string(),
    })?;
    let seconds = parsed.validity().not_after.timestamp();
    Timestamp::from_second(seconds).map_err(|error| CertError::Parse {
        problem: error.to_string(),
    })
}

/// The certificate that a server uses now. Cheap to clone; all clones are one. Without a certificate yet,
/// handshakes fail.
#[derive(Clone, Debug)]
pub struct Certificates {
    shared: Arc<CertState>,
}

#[derive(Debug)]
struct CertState {
    current: ArcSwapOption<Pair>,
    attempts: watch::Sender<Attempts>,
    not_after: Gauge,
    reloads: Family<[(&'static str, &'static str); 1], Counter>,
}

/// Counts of the attempts to set a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Certificates that were accepted.
    pub accepted: u64,
    /// The number of refused certificates. After a refusal the certificate before stays.
    pub refused: u64,
    /// The reason of the last refusal.
    pub last_error: Option<String>,
}

impl Certificates {
    /// None yet. Registers the metrics `anteroom_certificate_not_after_timestamp_seconds` and
    /// `anteroom_certificate_reloads_total{outcome}`.
    pub fn new(metrics: &Metrics) -> Self {
        let shared = CertState {
            current: ArcSwapOption::empty(),
            attempts: watch::Sender::new(Attempts::default()),
            not_after: metrics.create(
                "anteroom_certificate_not_after_timestamp_seconds",
                "When the certificate that is served with expires, in seconds since 1970",
            ),
            reloads: metrics.create(
                "anteroom_certificate_reloads",
                "Certificates that were offered, by outcome",
            ),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Serves with `offered` from the next handshake on if it is good, and else goes on with what
    /// there is. Both are logged and counted.
    pub fn offer(&self, offered: Result<Pair, CertError>) {
        let shared = &self.shared;
        let outcome = match offered {
            Ok(pair) => {
                let not_after = pair.not_after;
                shared.not_after.set(not_after.as_second());
                shared.current.store(Some(Arc::new(pair)));
                tracing::info!(%not_after, "certificate loaded");
                Ok(())
            }
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                let kept = shared.current.load().is_some();
                tracing::error!(error, kept, "certificate refused");
                Err(error)
            }
        };
        let label = if outcome.is_ok() {
            "accepted"
        } else {
            "refused"
        };
        shared.reloads.get_or_create(&[("outcome", label)]).inc();
        shared.attempts.send_modify(|attempts| match outcome {
            Ok(()) => {
                attempts.accepted += 1;
                attempts.last_error = None;
            }
            Err(error) => {
                attempts.refused += 1;
                attempts.last_error = Some(error);
            }
        });
    }

    /// Returns the certificate that is used now.
    pub fn current(&self) -> Option<Arc<Pair>> {
        self.shared.current.load_full()
    }

    /// Returns a channel with the counts of certificates offered so far.
    pub fn attempts(&self) -> watch::Receiver<Attempts> {
        self.shared.attempts.subscribe()
    }

    /// TLS 1.2 and 1.3 with HTTP/2 and HTTP/1.1, with whatever certificate is current at each
    /// handshake. Without `clients`, whoever comes is taken.
    pub fn server_config(
        &self,
        clients: Option<Clients>,
    ) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = match clients {
            Some(clients) => config.with_client_cert_verifier(Arc::new(clients)),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shared.current.load().as_ref()?.key))
    }
}

#[cfg(test)]
mod tests;
