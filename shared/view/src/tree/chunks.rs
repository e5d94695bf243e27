//! The chunks of a tree, in groups.
//!
//! A state that is written beside a snapshot copies the list of groups, one group and one chunk: each is
//! short, so a change costs nearly the same in a view of a thousand objects and in one of a million.

use std::{iter::FlatMap, slice, sync::Arc};

use anteroom_model::KeyBytes;

use super::chunk::Chunk;

/// The most chunks of one group.
pub(super) const GROUP_CHUNKS_MAX: usize = 64;

/// The size of a group beside its chunks: its counters, its own head, and its slot in the list.
const GROUP_BYTES: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct ChunkGroup(pub(super) Vec<Arc<Chunk>>);

impl ChunkGroup {
    fn is_before(&self, key: KeyBytes<'_>) -> bool {
        self.0.first().is_some_and(|chunk| chunk.is_before(key))
    }
}

/// Chunks in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// None is empty.
    groups: Vec<Arc<ChunkGroup>>,
    len: usize,
}

/// The position of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkPosition {
    group: usize,
    at: usize,
}

type InGroup<'a> = fn(&'a Arc<ChunkGroup>) -> slice::Iter<'a, Arc<Chunk>>;

/// All chunks in order.
pub(super) type Iter<'a> =
    FlatMap<slice::Iter<'a, Arc<ChunkGroup>>, slice::Iter<'a, Arc<Chunk>>, InGroup<'a>>;

fn in_group(group: &Arc<ChunkGroup>) -> slice::Iter<'_, Arc<Chunk>> {
    group.0.iter()
}

impl Chunks {
    /// Its size in memory without the content of the chunks.
    pub(super) fn bytes(&self) -> usize {
        self.groups.len() * GROUP_BYTES
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn groups(&self) -> &[Arc<ChunkGroup>] {
        &self.groups
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        let of_group: InGroup<'_> = in_group;
        self.groups.iter().flat_map(of_group)
    }

    /// Finds the chunk that holds the object of this key, if any does; `None`: there is no chunk.
    pub(super) fn find(&self, key: KeyBytes<'_>) -> Option<ChunkPosition> {
        let behind = self.groups.partition_point(|group| group.is_before(key));
        let group = behind.saturating_sub(1);
        let chunks = &self.groups.get(group)?.0;
        let at = chunks.partition_point(|chunk| chunk.is_before(key));
        Some(ChunkPosition {
            group,
            at: at.saturating_sub(1),
        })
    }

    pub(super) fn get(&self, position: ChunkPosition) -> Option<&Arc<Chunk>> {
        self.groups.get(position.group)?.0.get(position.at)
    }

    /// The chunk there, and no other state's.
    pub(super) fn edit(&mut self, position: ChunkPosition) -> Option<&mut Chunk> {
        let group = Arc::make_mut(self.groups.get_mut(position.group)?);
        group.0.get_mut(position.at).map(Arc::make_mut)
    }

    /// Chunks behind this position.
    pub(super) fn behind(&self, position: ChunkPosition) -> impl Iterator<Item = &Arc<Chunk>> {
        let within = self.groups.get(position.group);
        let within = within.and_then(|group| group.0.get(position.at + 1..));
        let groups = self.groups.get(position.group + 1..).unwrap_or_default();
        let of_groups = groups.iter().flat_map(in_group);
        within.unwrap_or_default().iter().chain(of_groups)
    }

    /// The position of the first chunk.
    pub(super) fn first(&self) -> Option<ChunkPosition> {
        let first = ChunkPosition { group: 0, at: 0 };
        self.get(first).map(|_| first)
    }

    /// The position of the last chunk.
    pub(super) fn last(&self) -> Option<ChunkPosition> {
        let group = self.groups.len().checked_sub(1)?;
        let at = self.groups[group].0.len().checked_sub(1)?;
        Some(ChunkPosition { group, at })
    }

    pub(super) fn next(&self, position: ChunkPosition) -> Option<ChunkPosition> {
        let ChunkPosition { group, at } = position;
        let next = match at + 1 < self.groups.get(group)?.0.len() {
            true => ChunkPosition { group, at: at + 1 },
            false => ChunkPosition {
                group: group + 1,
                at: 0,
            },
        };
        self.get(next).map(|_| next)
    }

    pub(super) fn previous(&self, position: ChunkPosition) -> Option<ChunkPosition> {
        let ChunkPosition { group, at } = position;
        match at.checked_sub(1) {
            Some(at) => Some(ChunkPosition { group, at }),
            None => {
                let group = group.checked_sub(1)?;
                let at = self.groups.get(group)?.0.len() - 1;
                Some(ChunkPosition { group, at })
            }
        }
    }

    /// Inserts a chunk behind the chunk at `position` (`None`: the tree is empty). Returns the position of the new
    /// chunk; the position of the chunk before may change.
    pub(super) fn insert_behind(
        &mut self,
        position: Option<ChunkPosition>,
        chunk: Chunk,
    ) -> ChunkPosition {
        self.len += 1;
        let chunk = Arc::new(chunk);
        let Some(ChunkPosition { mut group, mut at }) = position else {
            self.groups.insert(0, Arc::new(ChunkGroup(vec![chunk])));
            return ChunkPosition { group: 0, at: 0 };
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
            self.groups.insert(group + 1, Arc::new(ChunkGroup(behind)));
            if at >= split_at {
                (group, at) = (group + 1, at - split_at);
            }
        }
        Arc::make_mut(&mut self.groups[group]).0.insert(at, chunk);
        ChunkPosition { group, at }
    }

    /// Takes the chunk out that is there; joins what is left of its group with the next where both are
    /// small.
    pub(super) fn remove(&mut self, position: ChunkPosition) -> Option<Arc<Chunk>> {
        let ChunkPosition { group, at } = position;
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

    /// Returns all chunks in order; iteration frees each group behind it.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Arc<Chunk>> {
        let groups = self.groups.into_iter();
        groups.flat_map(|group| Arc::unwrap_or_clone(group).0)
    }
}
