//! The coordinator's status of policies and entries, for operators: a request and its reply.

use anteroom_model::Incarnation;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{WireError, frame};

/// Objects of one reply, those first that are not ready; the rest are counted.
pub const OBJECTS_MAX: usize = 2_000;

/// The length of a condition's message in a reply.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// A request for the coordinator's [`StatusReply`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRequest {}

/// The statuses that the coordinator keeps, and the size of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReply {
    /// The coordinator's name.
    pub coordinator: String,
    /// The log that it writes.
    pub incarnation: Incarnation,
    /// Bytes of the log; `None`: not known yet.
    pub log_bytes: Option<u64>,
    /// Its limit; `None`: there is none, or it is not known yet.
    pub log_bytes_max: Option<u64>,
    /// Policies and entries, at most [`OBJECTS_MAX`].
    pub objects: Vec<ObjectStatus>,
    /// Objects beyond these.
    #[serde(default)]
    pub left_out: u64,
    /// The faults of the log's storage; `None`: they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_faults: Option<LogFaults>,
}

/// The faults of the log's storage, as a watcher finds them: lines for people. None of them stops the log by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFaults {
    /// Settings that differ from the needs of services.
    pub settings: Vec<String>,
    /// Copies of the log that are missing, or behind.
    pub copies: Vec<String>,
}

/// The `Ready` condition of a policy or an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// Its kind, as in `ClusterPolicy`.
    pub kind: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `True`, `False` or `Unknown`.
    pub ready: String,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message, for people; at most [`MESSAGE_BYTES_MAX`].
    pub message: String,
    /// The view of an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
}

/// A request as a message's body.
///
/// # Errors
/// None that can happen: it is of a fixed size.
pub fn encode_request(request: &StatusRequest) -> Result<Bytes, WireError> {
    frame::encode(request)
}

/// A message's body as a request.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode_request(body: &[u8]) -> Result<StatusRequest, WireError> {
    frame::decode(body)
}

/// A reply as a message's body.
///
/// # Errors
/// [`WireError::Limit`] if it is larger than a message.
pub fn encode_reply(reply: &StatusReply) -> Result<Bytes, WireError> {
    frame::encode(reply)
}

/// A message's body as a reply.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode_reply(body: &[u8]) -> Result<StatusReply, WireError> {
    frame::decode(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reply_survives_encoding() {
        assert_eq!(
            decode_request(&encode_request(&StatusRequest {}).unwrap()),
            Ok(StatusRequest {})
        );
        let later = crate::body::encode(&(crate::PROTOCOL_VERSION + 1, StatusRequest {})).unwrap();
        assert!(matches!(
            decode_request(&later),
            Err(WireError::Protocol { .. })
        ));
        let reply = StatusReply {
            coordinator: "w".into(),
            incarnation: Incarnation("i".into()),
            log_bytes: Some(5),
            log_bytes_max: None,
            objects: vec![ObjectStatus {
                kind: "ClusterPolicy".into(),
                name: "p".into(),
                ready: "True".into(),
                ..ObjectStatus::default()
            }],
            left_out: 1,
            log_faults: Some(LogFaults {
                settings: vec!["max_age is 1h, and should be unlimited".into()],
                copies: Vec::new(),
            }),
        };
        assert_eq!(decode_reply(&encode_reply(&reply).unwrap()), Ok(reply));
    }
}
