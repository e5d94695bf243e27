//! A replica's heartbeat: that it lives, and what it holds.

use anteroom_model::{ObjectKey, ViewId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{WireError, frame};

/// Sent by every replica on a core subject every `REPLICA_BEAT_INTERVAL_MS`, and when the state of
/// one of its views changes; never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaBeat {
    /// The replica's name.
    pub replica: String,
    /// It stops: nobody should count on it any more.
    #[serde(default)]
    pub leaving: bool,
    /// Bytes of all views, as it accounts them.
    pub bytes: u64,
    /// Its limit; `None`: there is none.
    #[serde(default)]
    pub bytes_max: Option<u64>,
    /// Every view of its share.
    pub views: Vec<ReplicaView>,
    /// Ages of the calls' responses that it holds, in milliseconds: all that a new writer
    /// that reaches no endpoint knows of data that it has not read itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ages_ms: Vec<(ViewId, u64)>,
    /// Idle references that were asked for since the last beat, for the watcher to watch them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<(ViewId, ObjectKey)>,
    /// References that were read since the last beat that named any, at most
    /// [`READ_KEYS_MAX`]: the watcher stops to watch those that nobody reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<(ViewId, ObjectKey)>,
}

/// References that one beat names as read.
pub const READ_KEYS_MAX: usize = 1_000;

/// One view of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// The view.
    pub view: ViewId,
    /// The state, as in `synced`, `stale`, `failed`, `evicted`.
    pub state: String,
    /// Bytes, as the replica accounts them.
    pub bytes: u64,
}

/// A beat as a message.
///
/// # Errors
/// [`WireError::Limit`] if it names so many views that it is larger than a message.
pub fn encode(beat: &ReplicaBeat) -> Result<Bytes, WireError> {
    frame::encode(beat)
}

/// A message as a beat.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode(bytes: &[u8]) -> Result<ReplicaBeat, WireError> {
    frame::decode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_beat_survives_encoding() {
        let beat = ReplicaBeat {
            replica: "r".into(),
            bytes: 5,
            bytes_max: Some(7),
            views: vec![ReplicaView {
                view: ViewId::new("v"),
                state: "evicted".into(),
                bytes: 0,
            }],
            ages_ms: vec![(ViewId::new("v"), 9)],
            asked: vec![(ViewId::new("o"), ObjectKey::new("a", "b"))],
            ..ReplicaBeat::default()
        };
        assert_eq!(decode(&encode(&beat).unwrap()), Ok(beat));
    }
}
