//! Errors of bytes from outside.

use thiserror::Error;

/// A message that cannot be decoded. Readers count the error and go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Another protocol version.
    #[error(
        "protocol version {found:?} is not spoken here, only {}",
        crate::PROTOCOL_VERSION
    )]
    Protocol {
        /// The version that the message named.
        found: String,
    },
    /// A header is missing or malformed.
    #[error("header {name}: {problem}")]
    Header {
        /// The header's name.
        name: &'static str,
        /// The problem.
        problem: String,
    },
    /// A subject that no version of this crate writes.
    #[error("unknown subject {subject:?}")]
    Subject {
        /// The subject.
        subject: String,
    },
    /// A cluster's name that cannot be part of a subject.
    #[error(
        "cluster name {cluster:?}: it must be 1 to {} letters, digits, `_` or `-`",
        crate::subject::CLUSTER_BYTES_MAX
    )]
    Cluster {
        /// The name.
        cluster: String,
    },
    /// A body that cannot be decoded.
    #[error("body: {problem}")]
    Body {
        /// The problem.
        problem: String,
    },
    /// Larger or deeper than its limit.
    #[error("{what} over its limit of {limit}")]
    Limit {
        /// The thing that is too large.
        what: &'static str,
        /// The limit, in the unit that `what` names.
        limit: usize,
    },
}

impl WireError {
    pub(crate) fn body(problem: impl std::fmt::Display) -> Self {
        Self::Body {
            problem: problem.to_string(),
        }
    }
}
