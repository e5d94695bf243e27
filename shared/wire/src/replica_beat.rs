//! The heartbeat of a replica, with the state of each of its views.

use std::collections::{HashMap, HashSet};

use anteroom_model::{Incarnation, ObjectKey, Revision, ViewId, limits::BEAT_VIEWS_MAX};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    WireError,
    frame::{self, is_zero},
};

/// Sent by every replica on a core subject every `REPLICA_BEAT_INTERVAL_MS`, and when the state of
/// one of its views changes; never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaBeat {
    /// The replica's name.
    pub replica: String,
    /// The replica stops: nobody should count on it any more.
    #[serde(default)]
    pub leaving: bool,
    /// Bytes of all views, as it accounts them.
    pub bytes: u64,
    /// Its limit; `None`: there is none.
    #[serde(default)]
    pub bytes_max: Option<u64>,
    /// The place of this page among the messages of a beat; `None`: the beat has a single message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// The views of the replica's share: all, or the part on this page.
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
    /// The version of the CEL that it evaluates: see [`CEL_VERSION`](crate::query::CEL_VERSION). 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cel: u32,
    /// Times since the replica's start that a view was proven to differ from the log. Each was mended at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub digest_mismatches: u64,
    /// The log that it reads, and the furthest position that it ever read there, also before the log lost its last
    /// records; `None`: it has not read any yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub furthest: Option<(Incarnation, Revision)>,
    /// Views whose objects in the log, read from its start, are not those of which their writer told the digest: at most
    /// [`CONTRADICTED_VIEWS_MAX`]. Their writer compares the log with the source again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contradicted: Vec<ViewId>,
}

/// The place of a message among those of one beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The number of the beat. It differs from that of the beat before.
    pub round: u64,
    /// The number of this page, from 0.
    pub index: u32,
    /// The number of pages of this beat.
    pub count: u32,
}

impl ReplicaBeat {
    /// Divides the beat into messages that are small enough. `round` differs from that of the beat before.
    pub fn pages(mut self, round: u64) -> Vec<Self> {
        let mut views = std::mem::take(&mut self.views).into_iter();
        let mut ages_ms = std::mem::take(&mut self.ages_ms).into_iter();
        let mut asked = std::mem::take(&mut self.asked).into_iter();
        let mut read = std::mem::take(&mut self.read).into_iter();
        let mut contradicted = std::mem::take(&mut self.contradicted).into_iter();
        let lengths = [views.len(), ages_ms.len(), asked.len(), read.len()];
        let longest = lengths.into_iter().max().unwrap_or_default();
        let count = longest.div_ceil(BEAT_VIEWS_MAX).max(1);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let pages = (0..count).map(|index| Self {
            page: (count > 1).then_some(Page {
                round,
                index,
                count,
            }),
            views: views.by_ref().take(BEAT_VIEWS_MAX).collect(),
            ages_ms: ages_ms.by_ref().take(BEAT_VIEWS_MAX).collect(),
            asked: asked.by_ref().take(BEAT_VIEWS_MAX).collect(),
            read: read.by_ref().take(BEAT_VIEWS_MAX).collect(),
            contradicted: contradicted.by_ref().take(BEAT_VIEWS_MAX).collect(),
            ..self.clone()
        });
        pages.collect()
    }
}

/// The views of one replica, put together from the pages of its beats. A view that a page names is known by
/// it; one is forgotten once a whole beat did not name it.
#[derive(Clone, Debug, Default)]
pub struct HeldViews {
    /// The state of each view, and the beat that named it last.
    states: HashMap<ViewId, (String, u64)>,
    round: u64,
    heard: HashSet<u32>,
}

impl HeldViews {
    /// Takes a page in. Returns the views whose state changed by it.
    pub fn take_page(&mut self, page: Option<Page>, views: Vec<ReplicaView>) -> Vec<ViewId> {
        // A new beat with a single page counts as a new round too.
        let Page {
            round,
            index,
            count,
        } = page.unwrap_or(Page {
            round: self.round.wrapping_add(1),
            index: 0,
            count: 1,
        });
        if self.round != round {
            self.round = round;
            self.heard.clear();
        }
        let mut changed = Vec::new();
        for ReplicaView { view, state, .. } in views {
            let before = self.states.get(&view).map(|(state, _)| state);
            if before != Some(&state) {
                changed.push(view.clone());
            }
            self.states.insert(view, (state, round));
        }
        self.heard.insert(index);
        if self.heard.len() >= count as usize {
            let gone = self.states.extract_if(|_, (_, named)| *named != round);
            changed.extend(gone.map(|(view, _)| view));
        }
        changed
    }

    /// Returns the state of a view; `None`: the replica does not hold it.
    pub fn state(&self, view: &ViewId) -> Option<&str> {
        self.states.get(view).map(|(state, _)| state.as_str())
    }

    /// Returns all views, with their states.
    pub fn iter(&self) -> impl Iterator<Item = (&ViewId, &str)> {
        let states = self.states.iter();
        states.map(|(view, (state, _))| (view, state.as_str()))
    }
}

/// References that one beat names as read.
pub const READ_KEYS_MAX: usize = 1_000;

/// Contradicted views that one beat names. Where there are more, the others are named once these are repaired.
pub const CONTRADICTED_VIEWS_MAX: usize = 16;

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

    fn views(names: std::ops::Range<usize>, state: &str) -> Vec<ReplicaView> {
        let view = |n| ReplicaView {
            view: ViewId::new(format!("view-{n}")),
            state: state.into(),
            bytes: 1,
        };
        names.map(view).collect()
    }

    fn beat(names: std::ops::Range<usize>, state: &str) -> ReplicaBeat {
        ReplicaBeat {
            replica: "r".into(),
            views: views(names, state),
            ..ReplicaBeat::default()
        }
    }

    #[test]
    fn a_replica_beat_of_many_views_is_divided_into_pages() {
        let small = beat(0..500, "synced");
        assert_eq!(small.clone().pages(1), [small], "as it always was");
        let mut large = beat(0..40_000, "synced");
        let object = |n| (ViewId::new("o"), ObjectKey::new("a", format!("{n}")));
        large.read = (0..READ_KEYS_MAX).map(object).collect();
        large.contradicted = vec![ViewId::new("view-7")];
        let pages = large.clone().pages(1);
        assert_eq!(pages.len(), 80);
        let mut held = HeldViews::default();
        for page in &pages {
            assert_eq!(decode(&encode(page).unwrap()).as_ref(), Ok(page));
            held.take_page(page.page, page.views.clone());
        }
        assert_eq!(held.iter().count(), 40_000);
        let contradicted = pages.iter().flat_map(|page| &page.contradicted);
        assert_eq!(contradicted.count(), 1, "said once");
        let read = pages.into_iter().flat_map(|page| page.read);
        assert_eq!(read.collect::<Vec<_>>(), large.read);
    }

    #[test]
    fn a_view_is_forgotten_once_a_whole_beat_did_not_name_it() {
        let mut held = HeldViews::default();
        let hear = |held: &mut HeldViews, beat: ReplicaBeat, round, lost: Option<usize>| {
            let pages = beat.pages(round).into_iter().enumerate();
            for (_, page) in pages.filter(|(at, _)| Some(*at) != lost) {
                held.take_page(page.page, page.views);
            }
        };
        hear(&mut held, beat(0..1_200, "synced"), 1, None);
        assert_eq!(held.iter().count(), 1_200);
        hear(&mut held, beat(0..1_100, "stale"), 2, Some(0));
        let (first, last) = (ViewId::new("view-0"), ViewId::new("view-1150"));
        assert_eq!(held.state(&first), Some("synced"), "its page was lost");
        assert_eq!(held.state(&last), Some("synced"), "it may be on that page");
        hear(&mut held, beat(0..1_100, "stale"), 3, None);
        assert_eq!(held.state(&first), Some("stale"));
        assert_eq!(held.state(&last), None);
        hear(&mut held, beat(0..10, "stale"), 4, None);
        assert_eq!(held.iter().count(), 10, "a beat of one page is whole");
    }

    #[test]
    fn a_beat_changes_views_that_are_new_or_otherwise_or_gone() {
        let ids = |names: std::ops::Range<usize>| {
            let ids = names.map(|n| ViewId::new(format!("view-{n}")));
            ids.collect::<Vec<_>>()
        };
        let mut held = HeldViews::default();
        for (page, expected) in [
            (views(0..3, "synced"), ids(0..3)),
            (views(0..3, "synced"), ids(0..0)),
            (
                [views(0..1, "synced"), views(1..2, "stale")].concat(),
                ids(1..3),
            ),
        ] {
            let mut changed = held.take_page(None, page);
            changed.sort();
            assert_eq!(changed, expected);
        }
    }

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
            digest_mismatches: 3,
            furthest: Some((Incarnation("i".into()), Revision(9))),
            contradicted: vec![ViewId::new("v")],
            ..ReplicaBeat::default()
        };
        assert_eq!(decode(&encode(&beat).unwrap()), Ok(beat));
    }
}
