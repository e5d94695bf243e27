//! Objects in order, in chunks that several states of a view share.
//!
//! A snapshot holds a state for as long as somebody reads it, and updates go on beside it. So a
//! change copies one chunk and the list of chunks where a snapshot holds them, and nothing else: what
//! it costs does not grow with the objects but by a word for every hundred of them.

mod changes;

use std::{iter::FlatMap, slice, sync::Arc};

use crate::object::Object;

pub use changes::Change;

/// The most objects of one chunk. A change beside a snapshot copies that many slots; a change alone
/// moves half as many.
const CHUNK_OBJECTS_MAX: usize = 128;

/// The fewest objects that a chunk has room for, so that a small view stays small.
const CHUNK_ROOM_MIN: usize = 4;

/// What a chunk takes beside its slots: its counters, its own head, and its place in the list, of
/// which half may be room.
const CHUNK_BYTES: usize = 48 + 2 * size_of::<usize>();

/// A key: namespace, then name.
pub(crate) type Parts<'k> = (&'k [u8], &'k [u8]);

/// Objects by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// In order; none is empty.
    chunks: Vec<Arc<Chunk>>,
    len: usize,
    /// Slots that there is room for in all chunks.
    slots: usize,
}

#[derive(Debug, Default)]
struct Chunk(Vec<Object>);

impl Clone for Chunk {
    /// With the same room, so that the next object does not double it.
    fn clone(&self) -> Self {
        let mut objects = Vec::with_capacity(self.0.capacity());
        objects.extend_from_slice(&self.0);
        Self(objects)
    }
}

impl Chunk {
    fn is_before(&self, key: Parts<'_>) -> bool {
        self.0.first().is_some_and(|first| first.order(key).is_le())
    }
}

type InChunk<'a> = fn(&'a Arc<Chunk>) -> slice::Iter<'a, Object>;

/// The objects of a view in order.
#[derive(Clone, Debug)]
pub struct Objects<'a> {
    objects: FlatMap<slice::Iter<'a, Arc<Chunk>>, slice::Iter<'a, Object>, InChunk<'a>>,
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

    /// What it takes but for what its objects point at.
    pub(crate) fn bytes(&self) -> usize {
        self.slots * size_of::<Object>() + self.chunks.len() * CHUNK_BYTES
    }

    pub(crate) fn iter(&self) -> Objects<'_> {
        let of_chunk: InChunk<'_> = in_order;
        Objects {
            objects: self.chunks.iter().flat_map(of_chunk),
            left: self.len,
        }
    }

    /// The object at this place.
    pub(crate) fn nth(&self, mut index: usize) -> Option<&Object> {
        for chunk in &self.chunks {
            match index.checked_sub(chunk.0.len()) {
                Some(further) => index = further,
                None => return chunk.0.get(index),
            }
        }
        None
    }

    /// Objects from this key on.
    pub(crate) fn from(&self, key: Parts<'_>) -> impl Iterator<Item = &Object> {
        let at = self.chunk_of(key);
        let (within, behind) = match self.chunks.get(at) {
            Some(chunk) => {
                let skipped = chunk.0.partition_point(|held| held.order(key).is_lt());
                (&chunk.0[skipped..], &self.chunks[at + 1..])
            }
            None => (&[][..], &[][..]),
        };
        within.iter().chain(behind.iter().flat_map(in_order))
    }

    pub(crate) fn get(&self, key: Parts<'_>) -> Option<&Object> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let found = chunk.0.binary_search_by(|held| held.order(key)).ok()?;
        chunk.0.get(found)
    }

    /// Puts an object in; returns the one that it replaces.
    pub(crate) fn replace(&mut self, object: Object) -> Option<Object> {
        let at = self.chunk_of(object.key());
        let Some(chunk) = self.chunks.get(at) else {
            self.insert(0, 0, object);
            return None;
        };
        match chunk.0.binary_search_by(|held| held.order(object.key())) {
            Ok(found) => self.edit(at, |chunk| {
                chunk
                    .get_mut(found)
                    .map(|held| std::mem::replace(held, object))
            }),
            Err(place) => {
                self.insert(at, place, object);
                None
            }
        }
    }

    /// Takes an object out.
    pub(crate) fn take(&mut self, key: Parts<'_>) -> Option<Object> {
        let at = self.chunk_of(key);
        let chunk = self.chunks.get(at)?;
        let found = chunk.0.binary_search_by(|held| held.order(key)).ok()?;
        let taken = self.edit(at, |chunk| chunk.remove(found));
        self.len -= 1;
        self.join(at);
        Some(taken)
    }

    /// Takes out all that `void` holds of.
    pub(crate) fn take_all(&mut self, void: impl Fn(&Object) -> bool) -> Vec<Object> {
        if !self.iter().any(&void) {
            return Vec::new();
        }
        let (taken, kept): (Vec<_>, Vec<_>) = self.iter().cloned().partition(void);
        *self = kept.into_iter().collect();
        taken
    }

    /// Lays the objects out anew where much of the room is not used: chunks that grew object by
    /// object are two thirds full.
    pub(crate) fn compact(&mut self) {
        if self.slots > CHUNK_ROOM_MIN && self.slots > self.len + self.len / 4 {
            // Chunk by chunk, so that there are never two of all slots.
            let chunks = std::mem::take(&mut self.chunks).into_iter();
            *self = chunks
                .flat_map(|chunk| Arc::unwrap_or_clone(chunk).0)
                .collect();
        }
    }

    /// Where the object of this key is, if it is anywhere.
    fn chunk_of(&self, key: Parts<'_>) -> usize {
        let behind = self.chunks.partition_point(|chunk| chunk.is_before(key));
        behind.saturating_sub(1)
    }

    fn insert(&mut self, at: usize, place: usize, object: Object) {
        self.len += 1;
        let Some(chunk) = self.chunks.get(at) else {
            self.chunks.push(Arc::default());
            return self.fill(at, 0, object);
        };
        if chunk.0.len() < CHUNK_OBJECTS_MAX {
            return self.fill(at, place, object);
        }
        // Objects that come in order fill their chunks.
        let split_at = match at + 1 == self.chunks.len() && place == CHUNK_OBJECTS_MAX {
            true => CHUNK_OBJECTS_MAX,
            false => CHUNK_OBJECTS_MAX / 2,
        };
        let behind = self.edit(at, |chunk| chunk.split_off(split_at));
        self.slots += behind.capacity();
        self.chunks.insert(at + 1, Arc::new(Chunk(behind)));
        if place < split_at {
            self.fill(at, place, object);
        } else {
            self.fill(at + 1, place - split_at, object);
        }
    }

    fn fill(&mut self, at: usize, place: usize, object: Object) {
        self.edit(at, |chunk| {
            let room = (chunk.len() + 1).next_power_of_two().max(CHUNK_ROOM_MIN);
            chunk.reserve_exact(room - chunk.len());
            chunk.insert(place, object);
        });
    }

    /// Frees a chunk that is empty, or joins it with the next where both are nearly so.
    fn join(&mut self, at: usize) {
        let objects = |at: usize| self.chunks.get(at).map(|chunk| chunk.0.len());
        match (objects(at), objects(at + 1)) {
            (Some(0), _) => self.slots -= self.chunks.remove(at).0.capacity(),
            (Some(here), Some(next)) if here + next <= CHUNK_OBJECTS_MAX / 2 => {
                let next = self.chunks.remove(at + 1);
                self.slots -= next.0.capacity();
                self.edit(at, |chunk| chunk.extend_from_slice(&next.0));
            }
            _ => {}
        }
    }

    fn edit<R>(&mut self, at: usize, edit: impl FnOnce(&mut Vec<Object>) -> R) -> R {
        let slot = &mut self.chunks[at];
        let before = slot.0.capacity();
        let chunk = Arc::make_mut(slot);
        let result = edit(&mut chunk.0);
        self.slots = self.slots + chunk.0.capacity() - before;
        result
    }
}

/// From objects in order.
impl FromIterator<Object> for Tree {
    fn from_iter<T: IntoIterator<Item = Object>>(objects: T) -> Self {
        let mut tree = Self::default();
        for object in objects {
            let last = tree.chunks.len().saturating_sub(1);
            let place = tree.chunks.last().map_or(0, |chunk| chunk.0.len());
            tree.insert(last, place, object);
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Epoch, ObjectKey, ResourceVersion};
    use proptest::prelude::*;

    use super::*;

    fn object(n: u16) -> Object {
        // Three namespaces of which one begins as another does.
        let namespace = ["a", "a-b", "b"][usize::from(n % 3)];
        let key = ObjectKey::new(namespace, format!("{n:05}"));
        Object::new(&key, Epoch(1), &ResourceVersion::new("1"), b"\xc0").unwrap()
    }

    fn check(tree: &Tree) {
        assert_eq!(tree.len(), tree.iter().count());
        assert_eq!(tree.iter().len(), tree.len());
        assert!(tree.iter().is_sorted_by(|one, next| one < next));
        assert!(tree.iter().rev().is_sorted_by(|one, next| one > next));
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
        fn it_is_a_sorted_set_and_a_clone_stays_as_it_was(
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

    #[test]
    fn a_tree_that_shrank_gives_its_room_back() {
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
