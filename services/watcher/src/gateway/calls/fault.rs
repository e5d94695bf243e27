//! Faults of a call between the watcher and an endpoint.

use std::time::Duration;

use anteroom_model::{Failure, source_reason};
use serde::Deserialize;
use thiserror::Error;

use crate::source::apiserver::{Fault, with_sources};

/// The longest part of an error document that a message repeats.
const PROBLEM_CHARS_MAX: usize = 512;

/// The reason why a call has no result. Its text has nothing that may be secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum CallFault {
    /// The endpoint answered with an error.
    #[error("{message}")]
    Status {
        /// The status code of the answer.
        code: u16,
        /// The server's own words, if any.
        message: String,
    },
    /// There was no connection, or it broke.
    #[error("the endpoint is out of reach: {message}")]
    Unreachable {
        /// The transport's own words.
        message: String,
    },
    /// The call took too long.
    #[error("no answer within {} ms", timeout.as_millis())]
    Slow {
        /// The time that it may take.
        timeout: Duration,
    },
    /// An answer over its limit.
    #[error("an answer over the limit of {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A redirect that is not followed.
    #[error("not followed: {problem}")]
    Redirected {
        /// The reason, for people.
        problem: String,
    },
    /// An answer that is not JSON, or not such as can be kept.
    #[error("the answer is not usable JSON: {problem}")]
    Unreadable {
        /// The reason, for people.
        problem: String,
    },
    /// A registry's answer that breaks the distribution specification.
    #[error("the registry's answer is not usable: {problem}")]
    Registry {
        /// The reason, for people.
        problem: String,
    },
    /// Files of registry credentials that cannot be read.
    #[error("the watcher cannot read its credentials for registries: its log says why")]
    Credentials,
    /// A policy names a Secret that the watcher does not have.
    #[error(
        "no Secret `{secret}` is mounted in the watcher: mount it as the folder `{secret}` of one that its \
         `--registry-config` names"
    )]
    NotMounted {
        /// The Secret's name.
        secret: String,
    },
    /// A host at an address that is not connected to.
    #[error("`{host}` is {refusal}")]
    NotAsked {
        /// The host, as `host:port` if the URL has a port.
        host: String,
        /// The network of the address, and the option by which an administrator can allow it.
        refusal: &'static str,
    },
    /// The bundle of certificates cannot be used.
    #[error("`caBundle` cannot be used: {problem}")]
    Bundle {
        /// The reason, for people.
        problem: String,
    },
}

/// The field of `metav1.Status` that a message repeats.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
}

impl CallFault {
    /// Returns the fault of an answer without success.
    pub(crate) fn status(code: u16, body: &[u8]) -> Self {
        let status: Status = serde_json::from_slice(body).unwrap_or_default();
        let mut message = status.message;
        if message.is_empty() {
            message = String::from_utf8_lossy(body).trim().to_owned();
        }
        let message: String = message.chars().take(PROBLEM_CHARS_MAX).collect();
        let message = if message.is_empty() {
            format!("HTTP {code}")
        } else {
            message
        };
        Self::Status { code, message }
    }

    pub(crate) fn unreachable(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Unreachable {
            message: with_sources(error),
        }
    }

    pub(crate) fn bundle(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Bundle {
            problem: with_sources(error),
        }
    }

    pub(crate) fn no_host() -> Self {
        Self::Unreachable {
            message: "the URL has no host that can be called".to_owned(),
        }
    }

    /// Returns the status code; 0: there was no answer.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Status { code, .. } => *code,
            _ => 0,
        }
    }

    /// Returns the label for the metric of errors: the status code, or a word for another fault.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Status { code, .. } => code.to_string(),
            Self::Unreachable { .. } => "unreachable".into(),
            Self::Slow { .. } => "slow".into(),
            Self::TooLarge { .. } => "too_large".into(),
            Self::Redirected { .. } => "redirected".into(),
            Self::Unreadable { .. } => "unreadable".into(),
            Self::Bundle { .. } => "bundle".into(),
            Self::Registry { .. } => "registry".into(),
            Self::NotAsked { .. } => "not_asked".into(),
            Self::Credentials => "credentials".into(),
            Self::NotMounted { .. } => "not_mounted".into(),
        }
    }

    /// Returns the failure that readers of the view get. `shown` is the endpoint, for people.
    pub(crate) fn failure(&self, method: &str, shown: &str) -> Failure {
        let (reason, denied) = match self {
            Self::Status {
                code: 401 | 403, ..
            } => (source_reason::FORBIDDEN, "permission denied: "),
            // Of a resource that nobody serves Kyverno's users read the same: clients match on it.
            Self::Status { code: 404, .. } if shown.starts_with('/') => {
                ("NotFound", "permission denied, or no such resource: ")
            }
            Self::Status { code: 404, .. } => ("NotFound", ""),
            Self::Status { .. } => ("CallFailed", ""),
            Self::Unreachable { .. } | Self::Slow { .. } => ("Unreachable", ""),
            Self::TooLarge { .. } => ("TooLarge", ""),
            Self::Redirected { .. } => ("Redirected", ""),
            Self::Unreadable { .. } => ("Unreadable", ""),
            Self::Bundle { .. } => ("InvalidBundle", ""),
            Self::Registry { .. } => ("InvalidAnswer", ""),
            Self::NotAsked { .. } => ("NotAsked", ""),
            Self::Credentials | Self::NotMounted { .. } => ("NoCredentials", ""),
        };
        Failure::new(
            reason,
            format!("failed to {method} resource with raw url: {shown}: {denied}{self}"),
        )
    }
}

impl From<Fault> for CallFault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::TooLarge { bytes_max } => Self::TooLarge { bytes_max },
            Fault::Silent { after } => Self::Slow { timeout: after },
            other => Self::Unreachable {
                message: other.to_string(),
            },
        }
    }
}
