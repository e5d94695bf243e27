//! A webhook's heartbeat: its liveness, and the log position up to which it enforces policies.

use anteroom_model::{Failure, Incarnation, Revision, ViewId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    WireError,
    frame::{self, is_zero},
};

/// Sent by every webhook on a core subject every `WEBHOOK_BEAT_INTERVAL_MS`, and at once when what it
/// says changes; never stored.
///
/// It names no policy: the log has one order, so a position says of every policy whether it is in force, and a beat
/// is as small for a thousand policies as for one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookBeat {
    /// The webhook's name: the same after a restart in the same place.
    pub webhook: String,
    /// The webhook stops: nobody should wait for it any more.
    #[serde(default)]
    pub leaving: bool,
    /// The log that the positions below are of; empty: it has not read any yet.
    #[serde(default)]
    pub incarnation: Incarnation,
    /// Entries, kinds and policies are compiled and decided by, up to here. 0: none is.
    #[serde(default)]
    pub compiled: Revision,
    /// The API server calls the webhook for all of them, up to here. Never more than `compiled`.
    #[serde(default)]
    pub enforced: Revision,
    /// Why the API server does not call it yet for what is compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Failure>,
    /// The furthest position of this log that was ever compiled, also before the log lost its last records. 0: none was,
    /// or it is not told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub furthest: Revision,
    /// The system views that the log contradicts, as in
    /// [`ReplicaBeat::contradicted`](crate::replica_beat::ReplicaBeat::contradicted).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contradicted: Vec<ViewId>,
}

/// A beat as a message.
///
/// # Errors
/// [`WireError::Limit`] if its texts are larger than a message.
pub fn encode(beat: &WebhookBeat) -> Result<Bytes, WireError> {
    frame::encode(beat)
}

/// A message as a beat.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode(bytes: &[u8]) -> Result<WebhookBeat, WireError> {
    frame::decode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_beat_survives_encoding() {
        let beat = WebhookBeat {
            webhook: "w".into(),
            leaving: true,
            incarnation: Incarnation("i".into()),
            compiled: Revision(7),
            enforced: Revision(5),
            trouble: Some(Failure::new("NotCalled", "not yet")),
            furthest: Revision(8),
            contradicted: vec![ViewId::new("v")],
        };
        assert_eq!(decode(&encode(&beat).unwrap()), Ok(beat));
        let first = WebhookBeat::default();
        assert_eq!(decode(&encode(&first).unwrap()), Ok(first));
    }
}
