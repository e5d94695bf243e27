//! The writer's heartbeat: that it lives, and how old its news is.

use anteroom_model::{Epoch, Failure, Group, Incarnation, Revision, ViewId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{WireError, frame};

/// Sent by the writer on a core subject every `BEAT_INTERVAL_MS`; never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The log that the revisions below are positions of.
    pub incarnation: Incarnation,
    /// The group that this writes. [`Group::NONE`]: none, it stands for election.
    #[serde(default)]
    pub group: Group,
    /// The writer's term. Of [`Group::NONE`]: 1 while it stands for election, 0 once it withdraws.
    pub term: u32,
    /// The writer's name, for people.
    pub holder: String,
    /// Every view that the writer keeps.
    pub views: Vec<ViewBeat>,
}

/// The news of one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewBeat {
    /// The view.
    pub view: ViewId,
    /// The view's epoch.
    pub epoch: Epoch,
    /// The last position of the log at which this view was written: a reader that has applied it
    /// is as new as this beat.
    pub revision: Revision,
    /// The time since the source was last heard from, on the writer's monotonic clock (an event, a
    /// bookmark, the start of a watch), plus how long the oldest delta not yet in the log has
    /// waited. `u64::MAX` where it was never heard from.
    pub news_age_ms: u64,
    /// Its objects at the source.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub objects: u64,
    /// Bytes of the bodies of its objects, as published.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Malformed objects without a name that were passed over since the last list began.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Why its source cannot be heard right now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Failure>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn is_zero(n: &u64) -> bool {
    *n == 0
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
