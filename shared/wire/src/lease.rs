//! The record of a group's writer in the log.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{PROTOCOL_VERSION, WireError, frame};

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

/// Term and holder, also of a later version that still has both.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Body`].
pub fn decode(bytes: &[u8]) -> Result<(u32, String), WireError> {
    frame::decode_later(bytes).map(|Lease { term, holder }| (term, holder))
}

/// The holder of a lease that could not be decoded, for people: of a later version it is somebody, who is waited for like
/// any holder. Otherwise it is empty.
pub fn unknown_holder(error: &WireError) -> String {
    match error {
        WireError::Protocol { found } if found.parse().is_ok_and(|found: u64| is_later(found)) => {
            format!("a watcher of protocol version {found}")
        }
        _ => String::new(),
    }
}

fn is_later(version: u64) -> bool {
    version > u64::from(PROTOCOL_VERSION)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::body;

    #[test]
    fn a_lease_of_a_later_version_has_its_holder() {
        let of = |version: u16, lease: serde_json::Value| body::encode(&(version, lease)).unwrap();
        let later = PROTOCOL_VERSION + 1;
        let known = of(later, json!({"term": 7, "holder": "w", "zone": "a"}));
        assert_eq!(decode(&known), Ok((7, "w".to_owned())));
        for (version, expected) in [
            (later, format!("a watcher of protocol version {later}")),
            (PROTOCOL_VERSION, String::new()),
            (PROTOCOL_VERSION - 1, String::new()),
        ] {
            let error = decode(&of(version, json!({"era": 7}))).unwrap_err();
            assert_eq!(unknown_holder(&error), expected, "{version}");
            let is_malformed = matches!(error, WireError::Body { .. });
            assert_eq!(is_malformed, version == PROTOCOL_VERSION, "{error}");
        }
    }
}
