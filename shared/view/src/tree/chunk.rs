//! A chunk: a run of adjacent objects.

use anteroom_model::KeyBytes;

use super::Object;
use crate::pack::is_loose;

/// The most objects of one chunk. A change beside a snapshot copies that many slots; a change alone
/// moves half as many.
pub(super) const CHUNK_OBJECTS_MAX: usize = 64;

/// The fewest objects that a chunk has room for, so that a small view stays small.
pub(super) const CHUNK_ROOM_MIN: usize = 4;

/// The size of a chunk beside its slots: its counters, its own head, and its slot in the list, of which
/// half may be unused.
pub(super) const CHUNK_BYTES: usize = 48 + 2 * size_of::<usize>();

/// Objects in order.
#[derive(Debug, Default)]
pub(super) struct Chunk(pub(super) Vec<Object>);

impl Clone for Chunk {
    /// Clones the chunk with the same capacity, so that the next insertion does not double the memory.
    fn clone(&self) -> Self {
        let mut objects = Vec::with_capacity(self.0.capacity());
        objects.extend_from_slice(&self.0);
        Self(objects)
    }
}

impl Chunk {
    pub(super) fn is_before(&self, key: KeyBytes<'_>) -> bool {
        self.0.first().is_some_and(|first| first.key() <= key)
    }

    /// Finds the position of the object of this key, or the one where it would be.
    pub(super) fn search(&self, key: KeyBytes<'_>) -> Result<usize, usize> {
        self.0.binary_search_by(|held| held.key().cmp(&key))
    }

    pub(super) fn insert(&mut self, at: usize, object: Object) {
        let room = (self.0.len() + 1).next_power_of_two().max(CHUNK_ROOM_MIN);
        self.0.reserve_exact(room - self.0.len());
        self.0.insert(at, object);
    }

    /// The bytes of the chunk's objects that may be packed.
    pub(super) fn loose_bytes(&self) -> usize {
        let loose = self.0.iter().filter(|object| is_loose(object));
        loose.map(Object::len).sum()
    }

    /// Returns true if enough of its objects have an allocation of their own for packing to be worth
    /// it.
    pub(super) fn has_loose(&self) -> bool {
        let loose = self.0.iter().filter(|object| object.is_alone());
        loose.count() * 8 > self.0.len()
    }
}
