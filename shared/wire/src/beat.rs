//! The writer's heartbeat: that it lives, and how old its news is.

use anteroom_model::{Epoch, Group, Incarnation, Revision, ViewId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{WireError, frame};

/// Sent by the writer on a core subject every `BEAT_INTERVAL_MS`; never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The log that the revisions below are positions of.
    pub incarnation: Incarnation,
    /// Of which group this is the writer.
    #[serde(default)]
    pub group: Group,
    /// The writer's term.
    pub term: u32,
    /// Who it is, for people.
    pub holder: String,
    /// Every view that the writer keeps.
    pub views: Vec<ViewBeat>,
}

/// The news of one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewBeat {
    /// The view.
    pub view: ViewId,
    /// The tenure.
    pub epoch: Epoch,
    /// The last position of the log at which this view was written: a reader that has applied it
    /// is as new as this beat.
    pub revision: Revision,
    /// How long ago, on the writer's monotonic clock, the source was last heard from (an event, a
    /// bookmark, the start of a watch), plus how long the oldest delta not yet in the log has
    /// waited. `u64::MAX` where it was never heard from.
    pub news_age_ms: u64,
}

/// A beat as a message.
///
/// # Errors
/// [`WireError::Limit`] if it names so many views that it is larger than a message.
pub fn encode(beat: &Beat) -> Result<Bytes, WireError> {
    frame::encode(beat)
}

/// A message as a beat.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode(bytes: &[u8]) -> Result<Beat, WireError> {
    frame::decode(bytes)
}
