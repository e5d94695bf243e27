//! Objects that changed in nothing that an index reads.

use std::collections::{HashMap, hash_map::Entry};

use anteroom_view::Object;

/// Objects that are noted at once. With one more, one of them is put into the index anew.
pub(super) const RENEWED_MAX: usize = 1_024;

/// Bytes of bodies that are held for nothing but that: as they were when they were put into the index.
/// With more, objects are put into it anew.
pub(super) const RENEWED_BYTES_MAX: usize = 1024 * 1024;

/// What an index holds of an object as it was, and what that is now: the same to the index, so that it
/// need not be worked out by what the object is found. What changes often changes in little (a state, a
/// heartbeat), and many times.
#[derive(Debug, Default)]
pub(super) struct Renewed {
    /// By the object as it was put into the index.
    newest: HashMap<Object, Object>,
    held_bytes: usize,
}

impl Renewed {
    /// `old` is `new` now.
    pub(super) fn note(&mut self, old: &Object, new: &Object) {
        match self.newest.entry(old.clone()) {
            Entry::Occupied(mut noted) => {
                noted.insert(new.clone());
            }
            Entry::Vacant(place) => {
                place.insert(new.clone());
                self.held_bytes += old.body().len();
            }
        }
    }

    /// The object of this key is not in the index as it was any more.
    pub(super) fn forget(&mut self, object: &Object) {
        if let Some((old, _)) = self.newest.remove_entry(object) {
            self.held_bytes -= old.body().len();
        }
    }

    /// What an object of the index is now.
    pub(super) fn newest<'o>(&'o self, object: &'o Object) -> &'o Object {
        self.newest.get(object).unwrap_or(object)
    }

    /// One that is to be put into the index anew, where there are too many; it is noted no more.
    pub(super) fn take_one_over(&mut self) -> Option<Object> {
        if self.newest.len() <= RENEWED_MAX && self.held_bytes <= RENEWED_BYTES_MAX {
            return None;
        }
        let one = self.newest.values().next().cloned()?;
        self.forget(&one);
        Some(one)
    }

    /// What it takes, and holds.
    pub(super) fn bytes(&self) -> usize {
        self.held_bytes + self.newest.capacity() * (2 * size_of::<Object>() + 1)
    }
}
