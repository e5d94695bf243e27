//! Objects in order, in chunks that several states of a view share.
//!
//! A snapshot holds a state for as long as somebody reads it, and updates go on beside it. So a
//! change copies one chunk, one branch of chunks and the list of branches where a snapshot holds them, and
//! nothing else: what it costs hardly grows with the objects.

mod changes;
mod chunk;
mod chunks;
mod stretch;

use std::{iter::FlatMap, slice, sync::Arc};

use anteroom_model::KeyBytes;

use crate::{object::Object, pack};
use chunk::{CHUNK_BYTES, CHUNK_OBJECTS_MAX, CHUNK_ROOM_MIN, Chunk};
use chunks::{ChunkPosition, Chunks};

pub use changes::Change;
pub use stretch::{Stretch, StretchMark};

/// Objects by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// In order; none is empty.
    chunks: Chunks,
    len: usize,
    /// Slots that there is room for in all chunks.
    slots: usize,
    /// The bytes that packing has saved, less those that moving out has cost, since somebody asked.
    saved: isize,
}

type InChunk<'a> = fn(&'a Arc<Chunk>) -> slice::Iter<'a, Object>;

/// The objects of a view in order.
#[derive(Clone, Debug)]
pub struct Objects<'a> {
    objects: FlatMap<chunks::Iter<'a>, slice::Iter<'a, Object>, InChunk<'a>>,
    left: usize,
}

impl<'a> Iterator for Objects<'a> {
    type Item = &'a Object;

    #[inline]
    fn next(&mut self) -> Option<&'a Object> {
        let next = self.objects.next()?;
        self.left -= 1;
        Some(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Objects<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let last = self.objects.next_back()?;
        self.left -= 1;
        Some(last)
    }
}

impl ExactSizeIterator for Objects<'_> {}

fn in_order(chunk: &Arc<Chunk>) -> slice::Iter<'_, Object> {
    chunk.0.iter()
}

impl Tree {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its size in memory without the objects' allocations.
    pub(crate) fn bytes(&self) -> usize {
        let chunks = self.chunks.len() * CHUNK_BYTES + self.chunks.bytes();
        self.slots * size_of::<Object>() + chunks
    }

    pub(crate) fn iter(&self) -> Objects<'_> {
        let of_chunk: InChunk<'_> = in_order;
        Objects {
            objects: self.chunks.iter().flat_map(of_chunk),
            left: self.len,
        }
    }

    /// The objects in order, stretch by stretch.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        self.chunks.iter().map(Stretch::new)
    }

    /// The object at this position.
    pub(crate) fn nth(&self, mut index: usize) -> Option<&Object> {
        for chunk in self.chunks.iter() {
            match index.checked_sub(chunk.0.len()) {
                Some(further) => index = further,
                None => return chunk.0.get(index),
            }
        }
        None
    }

    /// Objects from this key on.
    pub(crate) fn from(&self, key: KeyBytes<'_>) -> impl Iterator<Item = &Object> {
        let position = self.chunks.find(key);
        let chunk = position.and_then(|position| self.chunks.get(position));
        let within = chunk.map_or(&[][..], |chunk| {
            let skipped = chunk.0.partition_point(|held| held.key() < key);
            &chunk.0[skipped..]
        });
        let behind = position
            .into_iter()
            .flat_map(|position| self.chunks.behind(position));
        within.iter().chain(behind.flat_map(in_order))
    }

    pub(crate) fn get(&self, key: KeyBytes<'_>) -> Option<&Object> {
        let chunk = self.chunks.get(self.chunks.find(key)?)?;
        chunk.0.get(chunk.search(key).ok()?)
    }

    /// Inserts an object; returns the replaced object.
    pub(crate) fn replace(&mut self, object: Object) -> Option<Object> {
        let position = self.chunks.find(object.key());
        let Some((position, chunk)) =
            position.and_then(|position| Some((position, self.chunks.get(position)?)))
        else {
            self.insert(None, 0, object);
            return None;
        };
        match chunk.search(object.key()) {
            Ok(found) => self.edit(position, |chunk| {
                let held = chunk.0.get_mut(found)?;
                Some(std::mem::replace(held, object))
            })?,
            Err(at) => {
                self.insert(Some(position), at, object);
                None
            }
        }
    }

    /// Takes an object out.
    pub(crate) fn take(&mut self, key: KeyBytes<'_>) -> Option<Object> {
        let position = self.chunks.find(key)?;
        let found = self.chunks.get(position)?.search(key).ok()?;
        let taken = self.edit(position, |chunk| chunk.0.remove(found))?;
        self.len -= 1;
        self.join(position);
        Some(taken)
    }

    /// Takes out all that `void` holds of.
    pub(crate) fn take_all(&mut self, void: impl Fn(&Object) -> bool) -> Vec<Object> {
        if !self.iter().any(&void) {
            return Vec::new();
        }
        let (taken, kept): (Vec<_>, Vec<_>) = self.iter().cloned().partition(void);
        let saved = self.saved;
        *self = kept.into_iter().collect();
        self.saved += saved;
        taken
    }

    /// Lays the objects out anew where much of the room is not used: chunks that grew object by
    /// object are two thirds full.
    pub(crate) fn compact(&mut self) {
        if self.slots > CHUNK_ROOM_MIN && self.slots > self.len + self.len / 4 {
            let saved = self.saved;
            // Chunk by chunk, so that there are never two of all slots.
            let chunks = std::mem::take(&mut self.chunks).into_chunks();
            *self = chunks
                .flat_map(|chunk| Arc::unwrap_or_clone(chunk).0)
                .collect();
            self.saved += saved;
        }
    }

    /// Packs what nobody else holds: see `pack`.
    pub(crate) fn pack(&mut self) {
        let mut next = self.chunks.first();
        while let Some(position) = next {
            if self
                .chunks
                .get(position)
                .is_some_and(|chunk| chunk.has_loose())
            {
                self.pack_chunk(position);
            }
            next = self.chunks.next(position);
        }
        self.gather();
    }

    /// Packs some of the chunk that this key is in, once there is enough in it.
    pub(crate) fn pack_at(&mut self, key: KeyBytes<'_>) {
        let Some(position) = self.chunks.find(key) else {
            return;
        };
        let loose = self
            .chunks
            .get(position)
            .map_or(0, |chunk| chunk.loose_bytes());
        if loose >= pack::LOOSE_BYTES_MAX {
            let saved = self.edit(position, |chunk| pack::pack_best(&mut chunk.0));
            self.saved += saved.unwrap_or_default();
        }
    }

    /// Gives every chunk another allocation. Those that they had came between those of objects that are
    /// packed now, and would keep the pages that they are on from being freed.
    fn gather(&mut self) {
        let mut strewn = Vec::with_capacity(self.chunks.len());
        let mut next = self.chunks.first();
        while let Some(position) = next {
            if let Some(chunk) = self.chunks.get(position) {
                let mut copy = Chunk::clone(chunk);
                self.edit(position, |chunk| std::mem::swap(chunk, &mut copy));
                // Freed with the others: freed here, it would be the next one's.
                strewn.push(copy);
            }
            next = self.chunks.next(position);
        }
    }

    /// Moves what is left of an allocation out of it, from where this key stands, or stood. Returns the
    /// objects' bytes.
    pub(crate) fn move_out(&mut self, allocation: usize, key: KeyBytes<'_>) -> usize {
        let Some(here) = self.chunks.find(key) else {
            return 0;
        };
        // A chunk may have been split since it was packed.
        let around = [
            self.chunks.previous(here),
            Some(here),
            self.chunks.next(here),
        ];
        let (mut moved, mut saved) = (0, 0);
        for position in around.into_iter().flatten() {
            let held = |object: &Object| object.allocation() == allocation;
            if self
                .chunks
                .get(position)
                .is_some_and(|chunk| chunk.0.iter().any(held))
            {
                self.edit(position, |chunk| {
                    for object in chunk.0.iter_mut().filter(|object| held(object)) {
                        saved += object.spare_bytes().cast_signed();
                        object.move_out();
                        saved -= object.spare_bytes().cast_signed();
                        moved += object.len();
                    }
                });
            }
        }
        self.saved += saved;
        moved
    }

    /// Returns the bytes that packing has saved since this was last asked; less than nothing where
    /// objects have moved out.
    pub(crate) fn take_saved(&mut self) -> isize {
        std::mem::take(&mut self.saved)
    }

    fn pack_chunk(&mut self, position: ChunkPosition) {
        let saved = self.edit(position, |chunk| pack::pack(&mut chunk.0));
        self.saved += saved.unwrap_or_default();
    }

    fn insert(&mut self, position: Option<ChunkPosition>, at: usize, object: Object) {
        self.len += 1;
        let Some((position, objects)) =
            position.and_then(|position| Some((position, self.chunks.get(position)?.0.len())))
        else {
            let first = self.chunks.insert_behind(None, Chunk::default());
            return self.fill(first, 0, object);
        };
        if objects < CHUNK_OBJECTS_MAX {
            return self.fill(position, at, object);
        }
        self.pack_chunk(position);
        // Objects that come in order fill their chunks.
        let split_at = match self.chunks.next(position).is_none() && at == objects {
            true => objects,
            false => objects / 2,
        };
        let behind = self.edit(position, |chunk| chunk.0.split_off(split_at));
        let behind = Chunk(behind.unwrap_or_default());
        self.slots += behind.0.capacity();
        if at < split_at {
            // The object is inserted first, since inserting the second half may move the first half.
            self.fill(position, at, object);
            self.chunks.insert_behind(Some(position), behind);
        } else {
            let position = self.chunks.insert_behind(Some(position), behind);
            self.fill(position, at - split_at, object);
        }
    }

    fn fill(&mut self, position: ChunkPosition, at: usize, object: Object) {
        self.edit(position, |chunk| chunk.insert(at, object));
    }

    /// Frees a chunk that is empty, or joins it with the next where both are nearly so.
    fn join(&mut self, position: ChunkPosition) {
        let objects =
            |position: ChunkPosition| Some((position, self.chunks.get(position)?.0.len()));
        match (
            objects(position),
            self.chunks.next(position).and_then(objects),
        ) {
            (Some((_, 0)), _) => drop(self.remove(position)),
            (Some((_, here)), Some((next, behind))) if here + behind <= CHUNK_OBJECTS_MAX / 2 => {
                if let Some(chunk) = self.chunks.get(next).cloned() {
                    self.edit(position, |here| here.0.extend_from_slice(&chunk.0));
                    self.remove(next);
                }
            }
            _ => {}
        }
    }

    fn remove(&mut self, position: ChunkPosition) -> Option<Arc<Chunk>> {
        let removed = self.chunks.remove(position)?;
        self.slots -= removed.0.capacity();
        Some(removed)
    }

    fn edit<R>(
        &mut self,
        position: ChunkPosition,
        edit: impl FnOnce(&mut Chunk) -> R,
    ) -> Option<R> {
        let chunk = self.chunks.edit(position)?;
        let before = chunk.0.capacity();
        let result = edit(chunk);
        self.slots = self.slots + chunk.0.capacity() - before;
        Some(result)
    }
}

/// From objects in order.
impl FromIterator<Object> for Tree {
    fn from_iter<T: IntoIterator<Item = Object>>(objects: T) -> Self {
        let mut tree = Self::default();
        for object in objects {
            let last = tree.chunks.last();
            let chunk = last.and_then(|last| tree.chunks.get(last));
            let at = chunk.map_or(0, |chunk| chunk.0.len());
            tree.insert(last, at, object);
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Epoch, ObjectKey, ResourceVersion};
    use proptest::prelude::*;

    use super::chunks::BRANCH_CHUNKS_MAX;
    use super::*;

    fn object(n: u16) -> Object {
        // Three namespaces, with one a prefix of a second.
        let namespace = ["a", "a-b", "b"][usize::from(n % 3)];
        let key = ObjectKey::new(namespace, format!("{n:05}"));
        Object::new(&key, Epoch(1), &ResourceVersion::new("1"), b"\xc0").unwrap()
    }

    fn check(tree: &Tree) {
        assert_eq!(tree.len(), tree.iter().count());
        assert_eq!(tree.iter().len(), tree.len());
        assert!(tree.iter().is_sorted_by(|one, next| one < next));
        assert!(tree.iter().rev().is_sorted_by(|one, next| one > next));
        assert_eq!(tree.iter().rev().count(), tree.len());
        let mut rest = tree.iter();
        let taken = [rest.next(), rest.next_back()].into_iter().flatten();
        assert_eq!(taken.count() + rest.len(), tree.len());
        assert_eq!(tree.chunks.len(), tree.chunks.iter().count());
        let mut branches = tree.chunks.branches().iter();
        assert!(branches.all(|branch| (1..=BRANCH_CHUNKS_MAX).contains(&branch.0.len())));
        assert!(tree.chunks.iter().all(|chunk| !chunk.0.is_empty()));
        assert!(
            tree.chunks
                .iter()
                .all(|chunk| chunk.0.len() <= CHUNK_OBJECTS_MAX)
        );
        let slots: usize = tree.chunks.iter().map(|chunk| chunk.0.capacity()).sum();
        assert_eq!(tree.slots, slots);
        for (index, object) in tree.iter().enumerate().step_by(17) {
            assert_eq!(tree.nth(index), Some(object));
        }
        assert_eq!(tree.nth(tree.len()), None);
    }

    proptest! {
        #[test]
        fn a_tree_is_a_sorted_set_and_its_clone_stays_the_same(
            steps in prop::collection::vec((any::<bool>(), 0_u16..600), 0..1_500),
        ) {
            let (mut tree, mut set) = (Tree::default(), std::collections::BTreeSet::new());
            let half = steps.len() / 2;
            let mut held = None;
            for (at, (put, n)) in steps.into_iter().enumerate() {
                if at == half {
                    held = Some((tree.clone(), set.clone()));
                }
                if put {
                    prop_assert_eq!(tree.replace(object(n)).is_some(), !set.insert(object(n)));
                } else {
                    prop_assert_eq!(tree.take(object(n).key()).is_some(), set.remove(&object(n)));
                }
            }
            for (mut tree, set) in held.into_iter().chain([(tree, set)]) {
                check(&tree);
                prop_assert!(tree.iter().eq(&set));
                tree.compact();
                check(&tree);
                prop_assert!(tree.iter().eq(&set));
                for n in (0..600).step_by(7) {
                    prop_assert_eq!(tree.get(object(n).key()), set.get(&object(n)));
                    prop_assert!(tree.from(object(n).key()).eq(set.range(object(n)..)));
                }
            }
        }
    }

    #[test]
    fn a_change_beside_a_clone_copies_one_chunk() {
        let mut tree: Tree = (0..3_000).map(|n| n * 3).map(object).collect();
        let held = tree.clone();
        tree.replace(object(300));
        tree.replace(object(1));
        let copied = tree
            .chunks
            .iter()
            .filter(|chunk| !held.chunks.iter().any(|other| Arc::ptr_eq(chunk, other)));
        assert!(copied.count() <= 3);
        check(&tree);
        check(&held);
    }

    /// Chunks and branches are split on the way up, and joined on the way down.
    #[test]
    fn a_tree_of_several_branches_is_a_sorted_set() {
        // Every number below 9,000, in no order.
        let numbers = (0..9_000_u32).map(|n| u16::try_from(n * 5_563 % 9_000).unwrap());
        let (mut tree, mut set) = (Tree::default(), std::collections::BTreeSet::new());
        for n in numbers.clone() {
            tree.replace(object(n));
            set.insert(object(n));
        }
        check(&tree);
        assert!(tree.iter().eq(&set));
        for n in (0..9_000).step_by(97) {
            assert_eq!(tree.get(object(n).key()), set.get(&object(n)));
            assert!(tree.from(object(n).key()).eq(set.range(object(n)..)));
        }
        let (older, branches) = (tree.clone(), tree.chunks.branches().len());
        assert!(branches > 2, "{branches}");

        for n in numbers.filter(|n| n % 50 != 0) {
            tree.take(object(n).key());
            set.remove(&object(n));
        }
        check(&tree);
        assert!(tree.iter().eq(&set));
        assert!(tree.chunks.branches().len() < branches);
        assert!(tree.chunks.len() < 40, "{}", tree.chunks.len());
        let mut removed = 0;
        tree.changes_since(&older, |change| {
            assert!(matches!(change, Change::Removed(_)));
            removed += 1;
        });
        assert_eq!(removed, 9_000 - 180);
        tree.compact();
        check(&tree);
        assert!(tree.iter().eq(&set));
        assert!(tree.slots <= 3 * CHUNK_OBJECTS_MAX, "{}", tree.slots);
        check(&older);
    }

    #[test]
    fn a_tree_that_shrank_releases_its_slots() {
        let mut tree: Tree = (0..9_000).step_by(3).map(object).collect();
        assert!(tree.slots <= 3_000 + CHUNK_OBJECTS_MAX, "chunks are full");
        for n in (0..8_970).step_by(3) {
            tree.take(object(n).key());
        }
        assert_eq!(tree.len(), 10);
        assert!(tree.slots <= 2 * CHUNK_OBJECTS_MAX, "{}", tree.slots);
        check(&tree);
    }
}
