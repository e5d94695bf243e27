//! The record of a group's writer in the log.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{WireError, frame};

#[derive(Serialize, Deserialize)]
struct Lease {
    term: u32,
    holder: String,
}

/// The lease of `holder` in its `term`.
///
/// # Errors
/// [`WireError::Limit`] if `holder` is larger than a message.
pub fn encode(term: u32, holder: &str) -> Result<Bytes, WireError> {
    frame::encode(&Lease {
        term,
        holder: holder.into(),
    })
}

/// Term and holder.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Body`].
pub fn decode(bytes: &[u8]) -> Result<(u32, String), WireError> {
    frame::decode(bytes).map(|Lease { term, holder }| (term, holder))
}
