//! Objects that changed in nothing that an index reads.

use std::collections::{HashMap, VecDeque};

use anteroom_view::Object;

/// Objects that are noted at once. With one more, the first of them is put into the index anew.
pub(super) const RENEWED_MAX: usize = 1_024;

/// Bytes of allocations that are held for nothing but that: objects as they were when they were put into
/// the index. With more, the first of them are put into it anew.
pub(super) const RENEWED_BYTES_MAX: usize = 1024 * 1024;

/// What an index holds of an object as it was, and what that is now: the same to the index, so that it
/// need not be worked out by what the object is found. What changes often changes in little (a state, a
/// heartbeat), and many times.
#[derive(Debug, Default)]
pub(super) struct Renewed {
    /// By the object as it was put into the index.
    newest: HashMap<Object, Object>,
    /// The keys in the order in which they came, and some that are noted no more: what is held of those
    /// goes when it is their turn. Whoever stays noted has changed a short while ago.
    order: VecDeque<Object>,
    /// Of all that is in order.
    held_bytes: usize,
}

impl Renewed {
    /// `old` is `new` now. Returns whether that is noted: it is not of one that shares its allocation, since
    /// it alone would hold all that is packed with it. Put into the index anew, it is alone from then on.
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

    /// The object of this key is not in the index as it was any more.
    pub(super) fn forget(&mut self, object: &Object) {
        self.newest.remove(object);
    }

    /// What an object of the index is now.
    pub(super) fn newest<'o>(&'o self, object: &'o Object) -> &'o Object {
        self.newest.get(object).unwrap_or(object)
    }

    /// One that is to be put into the index anew, where there are too many; it is noted no more.
    pub(super) fn take_one_over(&mut self) -> Option<Object> {
        while self.order.len() > RENEWED_MAX || self.held_bytes > RENEWED_BYTES_MAX {
            let first = self.order.pop_front()?;
            self.held_bytes -= first.allocation_bytes();
            // One that came again since is put anew as well: that is never wrong.
            if let Some(newest) = self.newest.remove(&first) {
                return Some(newest);
            }
        }
        None
    }

    /// What it takes, and holds.
    pub(super) fn bytes(&self) -> usize {
        let slots = self.newest.capacity() * (2 * size_of::<Object>() + 1);
        self.held_bytes + slots + self.order.capacity() * size_of::<Object>()
    }
}
