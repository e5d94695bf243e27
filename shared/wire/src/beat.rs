//! The writer's heartbeat: its liveness, and the age of its news.

use anteroom_model::{
    Epoch, Failure, Group, Incarnation, Revision, ViewId, limits::BEAT_VIEWS_MAX,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    WireError,
    frame::{self, is_zero},
};

/// Sent by the writer on a core subject every `BEAT_INTERVAL_MS`; never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The log that the revisions below are positions of.
    pub incarnation: Incarnation,
    /// The group of the writer. [`Group::NONE`]: the watcher leads no group, and stands for election.
    #[serde(default)]
    pub group: Group,
    /// The writer's term. Of [`Group::NONE`]: 1 while it stands for election, 0 once it withdraws.
    pub term: u32,
    /// The writer's name, for people.
    pub holder: String,
    /// The number of this page: a writer of many views says of [`BEAT_VIEWS_MAX`] at a time how they are.
    #[serde(default, skip_serializing_if = "is_first")]
    pub page: u32,
    /// The time from the begin of the term to the moment at which the beat was sent, on the writer's clock, suspends included.
    /// `None`: an older writer, or a beat without news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ms: Option<u64>,
    /// The views of the writer: all, or the part on this page.
    pub views: Vec<ViewBeat>,
}

impl Beat {
    /// Divides the beat into messages that are small enough. Each says that the writer lives.
    pub fn pages(mut self) -> Vec<Self> {
        let views = std::mem::take(&mut self.views);
        let mut rest = views.into_iter();
        let mut pages = Vec::new();
        for page in 0.. {
            let views: Vec<_> = rest.by_ref().take(BEAT_VIEWS_MAX).collect();
            if views.is_empty() && page > 0 {
                break;
            }
            pages.push(Self {
                page,
                views,
                ..self.clone()
            });
        }
        pages
    }
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
    /// The age of the source's news: how long ago it was last heard from, plus how long the oldest delta not
    /// yet in the log has waited. Both are on the writer's monotonic clock. An event, a bookmark and the start
    /// of a watch count as heard. `u64::MAX` where it was never heard from.
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
fn is_first(page: &u32) -> bool {
    *page == 0
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

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(views: usize) -> Beat {
        let view = |n| ViewBeat {
            view: ViewId::new(format!("view-{n}")),
            epoch: Epoch(1),
            revision: Revision(9),
            news_age_ms: 0,
            objects: 0,
            bytes: 0,
            skipped: 0,
            trouble: None,
        };
        Beat {
            incarnation: Incarnation("i".into()),
            group: Group(1),
            term: 7,
            holder: "w".into(),
            page: 0,
            sent_ms: None,
            views: (0..views).map(view).collect(),
        }
    }

    #[test]
    fn a_beat_of_many_views_is_divided_into_pages() {
        for (views, pages) in [(0, 1), (1, 1), (500, 1), (501, 2), (40_000, 80)] {
            let whole = beat(views);
            let divided = whole.clone().pages();
            assert_eq!(divided.len(), pages, "{views}");
            assert!(divided.iter().zip(0..).all(|(page, at)| page.page == at));
            assert!(divided.iter().all(|page| encode(page).is_ok()));
            assert!(divided.iter().all(|page| page.term == 7));
            let again = divided.into_iter().flat_map(|page| page.views);
            assert_eq!(again.collect::<Vec<_>>(), whole.views);
        }
    }
}
