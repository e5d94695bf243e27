//! Newer versions of objects whose indexed values did not change.

use std::collections::{HashMap, VecDeque};

use anteroom_view::Object;

/// The most objects with a noted newer version. For one more, the oldest noted object is inserted into the index
/// anew.
pub(super) const NEWEST_MAX: usize = 1_024;

/// The most bytes of allocations that only these notes keep alive: objects in the version that was inserted into the
/// index. For more, the oldest noted objects are inserted anew.
pub(super) const NEWEST_BYTES_MAX: usize = 1024 * 1024;

/// Maps an object of the index to its newest version, as long as no field that the index reads has
/// changed. So its keys need not be found again. Most changes of an object are small (a state, a
/// heartbeat), and many.
#[derive(Debug, Default)]
pub(super) struct NewestVersions {
    /// Newest versions, by the object that was put into the index.
    newest: HashMap<Object, Object>,
    /// The keys of `newest` in the order of their notes, and keys whose note is gone. Those are removed when their
    /// turn comes. Keys that stay noted have changed a short while ago.
    order: VecDeque<Object>,
    /// The bytes of all objects that are held.
    held_bytes: usize,
}

impl NewestVersions {
    /// Notes that `new` replaces `old`. Returns false for an object that shares its allocation, since a note would
    /// keep the whole allocation alive. The index then inserts the object anew, in an allocation of its own.
    pub(super) fn note(&mut self, old: &Object, new: &Object) -> bool {
        if let Some(noted) = self.newest.get_mut(old) {
            *noted = new.clone();
            return true;
        }
        if old.is_alone() {
            self.held_bytes += old.allocation_bytes();
            self.newest.insert(old.clone(), new.clone());
            self.order.push_back(old.clone());
        }
        old.is_alone()
    }

    /// Drops the note about an object's newest version.
    pub(super) fn forget(&mut self, object: &Object) {
        self.newest.remove(object);
    }

    /// Returns the newest version of an object of the index.
    pub(super) fn version_of<'o>(&'o self, object: &'o Object) -> &'o Object {
        self.newest.get(object).unwrap_or(object)
    }

    /// Takes an object that has to be inserted into the index anew, if there are too many notes; its note is removed.
    pub(super) fn take_one_over(&mut self) -> Option<Object> {
        while self.order.len() > NEWEST_MAX || self.held_bytes > NEWEST_BYTES_MAX {
            let first = self.order.pop_front()?;
            self.held_bytes -= first.allocation_bytes();
            // One that came again since is put anew as well: that is never wrong.
            if let Some(newest) = self.newest.remove(&first) {
                return Some(newest);
            }
        }
        None
    }

    /// The bytes of memory in use, including the objects held.
    pub(super) fn bytes(&self) -> usize {
        let slots = self.newest.capacity() * (2 * size_of::<Object>() + 1);
        self.held_bytes + slots + self.order.capacity() * size_of::<Object>()
    }
}
