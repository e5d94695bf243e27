//! The chunks of a tree, in branches.
//!
//! A state that is written beside a snapshot copies the list of branches, one branch and one chunk: each is
//! short, so a change costs nearly the same in a view of a thousand objects and in one of a million.

use std::{iter::FlatMap, slice, sync::Arc};

use anteroom_model::KeyBytes;

use super::chunk::Chunk;

/// The most chunks of one branch.
pub(super) const BRANCH_CHUNKS_MAX: usize = 64;

/// The size of a branch beside its chunks: its counters, its own head, and its slot in the list.
const BRANCH_BYTES: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Branch(pub(super) Vec<Arc<Chunk>>);

impl Branch {
    fn is_before(&self, key: KeyBytes<'_>) -> bool {
        self.0.first().is_some_and(|chunk| chunk.is_before(key))
    }
}

/// Chunks in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// None is empty.
    branches: Vec<Arc<Branch>>,
    len: usize,
}

/// The position of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkPosition {
    branch: usize,
    at: usize,
}

type InBranch<'a> = fn(&'a Arc<Branch>) -> slice::Iter<'a, Arc<Chunk>>;

/// All chunks in order.
pub(super) type Iter<'a> =
    FlatMap<slice::Iter<'a, Arc<Branch>>, slice::Iter<'a, Arc<Chunk>>, InBranch<'a>>;

fn in_branch(branch: &Arc<Branch>) -> slice::Iter<'_, Arc<Chunk>> {
    branch.0.iter()
}

impl Chunks {
    /// Its size in memory without the content of the chunks.
    pub(super) fn bytes(&self) -> usize {
        self.branches.len() * BRANCH_BYTES
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn branches(&self) -> &[Arc<Branch>] {
        &self.branches
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        let of_branch: InBranch<'_> = in_branch;
        self.branches.iter().flat_map(of_branch)
    }

    /// Finds the chunk that holds the object of this key, if any does; `None`: there is no chunk.
    pub(super) fn find(&self, key: KeyBytes<'_>) -> Option<ChunkPosition> {
        let behind = self
            .branches
            .partition_point(|branch| branch.is_before(key));
        let branch = behind.saturating_sub(1);
        let chunks = &self.branches.get(branch)?.0;
        let at = chunks.partition_point(|chunk| chunk.is_before(key));
        Some(ChunkPosition {
            branch,
            at: at.saturating_sub(1),
        })
    }

    pub(super) fn get(&self, position: ChunkPosition) -> Option<&Arc<Chunk>> {
        self.branches.get(position.branch)?.0.get(position.at)
    }

    /// The chunk there, and no other state's.
    pub(super) fn edit(&mut self, position: ChunkPosition) -> Option<&mut Chunk> {
        let branch = Arc::make_mut(self.branches.get_mut(position.branch)?);
        branch.0.get_mut(position.at).map(Arc::make_mut)
    }

    /// Chunks behind this position.
    pub(super) fn behind(&self, position: ChunkPosition) -> impl Iterator<Item = &Arc<Chunk>> {
        let within = self.branches.get(position.branch);
        let within = within.and_then(|branch| branch.0.get(position.at + 1..));
        let branches = self.branches.get(position.branch + 1..).unwrap_or_default();
        let of_branches = branches.iter().flat_map(in_branch);
        within.unwrap_or_default().iter().chain(of_branches)
    }

    /// The position of the first chunk.
    pub(super) fn first(&self) -> Option<ChunkPosition> {
        let first = ChunkPosition { branch: 0, at: 0 };
        self.get(first).map(|_| first)
    }

    /// The position of the last chunk.
    pub(super) fn last(&self) -> Option<ChunkPosition> {
        let branch = self.branches.len().checked_sub(1)?;
        let at = self.branches[branch].0.len().checked_sub(1)?;
        Some(ChunkPosition { branch, at })
    }

    pub(super) fn next(&self, position: ChunkPosition) -> Option<ChunkPosition> {
        let ChunkPosition { branch, at } = position;
        let next = match at + 1 < self.branches.get(branch)?.0.len() {
            true => ChunkPosition { branch, at: at + 1 },
            false => ChunkPosition {
                branch: branch + 1,
                at: 0,
            },
        };
        self.get(next).map(|_| next)
    }

    pub(super) fn previous(&self, position: ChunkPosition) -> Option<ChunkPosition> {
        let ChunkPosition { branch, at } = position;
        match at.checked_sub(1) {
            Some(at) => Some(ChunkPosition { branch, at }),
            None => {
                let branch = branch.checked_sub(1)?;
                let at = self.branches.get(branch)?.0.len() - 1;
                Some(ChunkPosition { branch, at })
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
        let Some(ChunkPosition { mut branch, mut at }) = position else {
            self.branches.insert(0, Arc::new(Branch(vec![chunk])));
            return ChunkPosition { branch: 0, at: 0 };
        };
        at += 1;
        let chunks = self.branches[branch].0.len();
        if chunks >= BRANCH_CHUNKS_MAX {
            // Chunks that come in order fill their branches.
            let split_at = match at == chunks {
                true => chunks,
                false => chunks / 2,
            };
            let behind = Arc::make_mut(&mut self.branches[branch])
                .0
                .split_off(split_at);
            self.branches.insert(branch + 1, Arc::new(Branch(behind)));
            if at >= split_at {
                (branch, at) = (branch + 1, at - split_at);
            }
        }
        Arc::make_mut(&mut self.branches[branch])
            .0
            .insert(at, chunk);
        ChunkPosition { branch, at }
    }

    /// Takes the chunk out that is there; joins what is left of its branch with the next where both are
    /// small.
    pub(super) fn remove(&mut self, position: ChunkPosition) -> Option<Arc<Chunk>> {
        let ChunkPosition { branch, at } = position;
        let here = self.branches.get_mut(branch)?;
        if at >= here.0.len() {
            return None;
        }
        let removed = Arc::make_mut(here).0.remove(at);
        self.len -= 1;
        let left = self.branches[branch].0.len();
        let next = self.branches.get(branch + 1).map(|next| next.0.len());
        if left == 0 {
            self.branches.remove(branch);
        } else if next.is_some_and(|next| left + next <= BRANCH_CHUNKS_MAX / 2) {
            let next = self.branches.remove(branch + 1);
            let here = Arc::make_mut(&mut self.branches[branch]);
            here.0.extend_from_slice(&next.0);
        }
        Some(removed)
    }

    /// Returns all chunks in order; iteration frees each branch behind it.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Arc<Chunk>> {
        let branches = self.branches.into_iter();
        branches.flat_map(|branch| Arc::unwrap_or_clone(branch).0)
    }
}
