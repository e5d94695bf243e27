//! The chunks of a tree, in groups.
//!
//! A state that is written beside a snapshot copies the list of groups, one group and one chunk: each is
//! short, so a change costs nearly the same in a view of a thousand objects and in one of a million.

use std::{iter::FlatMap, slice, sync::Arc};

use super::{Parts, chunk::Chunk};

/// The most chunks of one group.
pub(super) const GROUP_CHUNKS_MAX: usize = 64;

/// What a group takes beside its chunks: its counters, its own head, and its place in the list.
const GROUP_BYTES: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Group(pub(super) Vec<Arc<Chunk>>);

impl Group {
    fn is_before(&self, key: Parts<'_>) -> bool {
        self.0.first().is_some_and(|chunk| chunk.is_before(key))
    }
}

/// Chunks in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// None is empty.
    groups: Vec<Arc<Group>>,
    len: usize,
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    group: usize,
    at: usize,
}

type InGroup<'a> = fn(&'a Arc<Group>) -> slice::Iter<'a, Arc<Chunk>>;

/// All chunks in order.
pub(super) type Iter<'a> =
    FlatMap<slice::Iter<'a, Arc<Group>>, slice::Iter<'a, Arc<Chunk>>, InGroup<'a>>;

fn in_group(group: &Arc<Group>) -> slice::Iter<'_, Arc<Chunk>> {
    group.0.iter()
}

impl Chunks {
    /// What it takes, but for what is in the chunks.
    pub(super) fn bytes(&self) -> usize {
        self.groups.len() * GROUP_BYTES
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        let of_group: InGroup<'_> = in_group;
        self.groups.iter().flat_map(of_group)
    }

    /// Where the object of this key is, if it is anywhere; `None`: there is no chunk.
    pub(super) fn find(&self, key: Parts<'_>) -> Option<Place> {
        let behind = self.groups.partition_point(|group| group.is_before(key));
        let group = behind.saturating_sub(1);
        let chunks = &self.groups.get(group)?.0;
        let at = chunks.partition_point(|chunk| chunk.is_before(key));
        Some(Place {
            group,
            at: at.saturating_sub(1),
        })
    }

    pub(super) fn get(&self, place: Place) -> Option<&Arc<Chunk>> {
        self.groups.get(place.group)?.0.get(place.at)
    }

    /// The chunk there, and no other state's.
    pub(super) fn edit(&mut self, place: Place) -> Option<&mut Chunk> {
        let group = Arc::make_mut(self.groups.get_mut(place.group)?);
        group.0.get_mut(place.at).map(Arc::make_mut)
    }

    /// Chunks behind this place.
    pub(super) fn behind(&self, place: Place) -> impl Iterator<Item = &Arc<Chunk>> {
        let within = self.groups.get(place.group);
        let within = within.and_then(|group| group.0.get(place.at + 1..));
        let groups = self.groups.get(place.group + 1..).unwrap_or_default();
        let of_groups = groups.iter().flat_map(in_group);
        within.unwrap_or_default().iter().chain(of_groups)
    }

    /// The place of the first chunk.
    pub(super) fn first(&self) -> Option<Place> {
        let first = Place { group: 0, at: 0 };
        self.get(first).map(|_| first)
    }

    /// The place of the last chunk.
    pub(super) fn last(&self) -> Option<Place> {
        let group = self.groups.len().checked_sub(1)?;
        let at = self.groups[group].0.len().checked_sub(1)?;
        Some(Place { group, at })
    }

    pub(super) fn next(&self, place: Place) -> Option<Place> {
        let Place { group, at } = place;
        let next = match at + 1 < self.groups.get(group)?.0.len() {
            true => Place { group, at: at + 1 },
            false => Place {
                group: group + 1,
                at: 0,
            },
        };
        self.get(next).map(|_| next)
    }

    pub(super) fn previous(&self, place: Place) -> Option<Place> {
        let Place { group, at } = place;
        match at.checked_sub(1) {
            Some(at) => Some(Place { group, at }),
            None => {
                let group = group.checked_sub(1)?;
                let at = self.groups.get(group)?.0.len() - 1;
                Some(Place { group, at })
            }
        }
    }

    /// Puts a chunk behind the one at `place` (`None`: there is none). Returns its place; that of the
    /// one before it may be another now.
    pub(super) fn insert_behind(&mut self, place: Option<Place>, chunk: Chunk) -> Place {
        self.len += 1;
        let chunk = Arc::new(chunk);
        let Some(Place { mut group, mut at }) = place else {
            self.groups.insert(0, Arc::new(Group(vec![chunk])));
            return Place { group: 0, at: 0 };
        };
        at += 1;
        let chunks = self.groups[group].0.len();
        if chunks >= GROUP_CHUNKS_MAX {
            // Chunks that come in order fill their groups.
            let split_at = match at == chunks {
                true => chunks,
                false => chunks / 2,
            };
            let behind = Arc::make_mut(&mut self.groups[group]).0.split_off(split_at);
            self.groups.insert(group + 1, Arc::new(Group(behind)));
            if at >= split_at {
                (group, at) = (group + 1, at - split_at);
            }
        }
        Arc::make_mut(&mut self.groups[group]).0.insert(at, chunk);
        Place { group, at }
    }

    /// Takes the chunk out that is there; joins what is left of its group with the next where both are
    /// small.
    pub(super) fn remove(&mut self, place: Place) -> Option<Arc<Chunk>> {
        let Place { group, at } = place;
        let here = self.groups.get_mut(group)?;
        if at >= here.0.len() {
            return None;
        }
        let removed = Arc::make_mut(here).0.remove(at);
        self.len -= 1;
        let left = self.groups[group].0.len();
        let next = self.groups.get(group + 1).map(|next| next.0.len());
        if left == 0 {
            self.groups.remove(group);
        } else if next.is_some_and(|next| left + next <= GROUP_CHUNKS_MAX / 2) {
            let next = self.groups.remove(group + 1);
            let here = Arc::make_mut(&mut self.groups[group]);
            here.0.extend_from_slice(&next.0);
        }
        Some(removed)
    }

    /// All chunks, one after the other; what is passed is freed.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Arc<Chunk>> {
        let groups = self.groups.into_iter();
        groups.flat_map(|group| Arc::unwrap_or_clone(group).0)
    }
}
