//! Changes on their way to the log.

use anteroom_model::{Delta, Op, ResourceVersion};
use bytes::Bytes;
use tokio::time::Instant;
use tracing::Span;

use super::{log_space, work::ChangeOrigin};

/// A change that is not in the log yet.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) version: ResourceVersion,
    pub(super) op: Op<Bytes>,
    /// The version of the key that the log has.
    pub(super) logged: Option<ResourceVersion>,
    /// The bytes of its body, as far as they are known.
    pub(super) logged_bytes: usize,
    pub(super) since: Instant,
    pub(super) origin: ChangeOrigin,
}

/// The outcome for a change that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// The change waits for its turn.
    New,
    /// The change took the place of an older change of its key.
    Coalesced,
    /// There is nothing to write.
    Nothing,
}

/// A change, taken for a batch.
#[derive(Debug)]
pub(super) struct BatchedChange {
    /// `None`: the object came and went without being written.
    pub(super) delta: Option<Delta<Bytes>>,
    pub(super) body_bytes: usize,
    /// See [`Change::growth`].
    pub(super) growth: u64,
    pub(super) since: Instant,
    pub(super) span: Span,
}

impl Change {
    /// The bytes by which the log grows, about.
    pub(super) fn growth(&self) -> u64 {
        let bytes = |bytes: usize| log_space::bytes_in_log(1, bytes as u64);
        match (&self.op, &self.logged) {
            (Op::Put(body), None) => bytes(body.len()),
            (Op::Put(body), Some(_)) => bytes(body.len()).saturating_sub(bytes(self.logged_bytes)),
            (Op::Delete, _) => 0,
        }
    }

    pub(super) fn body_bytes(&self) -> usize {
        match &self.op {
            Op::Put(body) => body.len(),
            Op::Delete => 0,
        }
    }
}
