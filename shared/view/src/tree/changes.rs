//! The difference between two states of a view.
//!
//! States that followed one another share all branches and chunks but those that changed. So finding the changes
//! costs a comparison of two pointers for each branch, and a walk through those that differ.

use std::{cmp::Ordering, sync::Arc};

use super::{Tree, chunk::Chunk, chunks::Branch};
use crate::object::Object;

/// An object that differs between two states.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// The object is only in the later state.
    Added(&'a Object),
    /// The object is only in the earlier state.
    Removed(&'a Object),
    /// The later state has a different version of the object.
    Replaced {
        /// The object before.
        old: &'a Object,
        /// The object now.
        new: &'a Object,
    },
}

/// A place in a tree.
struct Cursor<'a> {
    branches: &'a [Arc<Branch>],
    chunk: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(tree: &'a Tree) -> Self {
        Self {
            branches: tree.chunks.branches(),
            chunk: 0,
            at: 0,
        }
    }

    /// Objects of the chunk from here on.
    fn objects(&self) -> &'a [Object] {
        let chunk = self.chunks().first();
        chunk.map_or(&[], |chunk| chunk.0.get(self.at..).unwrap_or_default())
    }

    /// Returns the branch's chunks, starting with the chunk of this position.
    fn chunks(&self) -> &'a [Arc<Chunk>] {
        let branch = self.branches.first();
        branch.map_or(&[], |branch| branch.0.get(self.chunk..).unwrap_or_default())
    }

    fn pass_objects(&mut self, count: usize) {
        self.at += count;
        let chunk = self.chunks().first();
        if chunk.is_some_and(|chunk| self.at == chunk.0.len()) {
            self.pass_chunks(1);
        }
    }

    fn pass_chunks(&mut self, count: usize) {
        self.at = 0;
        self.chunk += count;
        let branch = self.branches.first();
        if branch.is_some_and(|branch| self.chunk == branch.0.len()) {
            self.pass_branches(1);
        }
    }

    fn pass_branches(&mut self, count: usize) {
        (self.at, self.chunk) = (0, 0);
        self.branches = self.branches.get(count..).unwrap_or_default();
    }

    fn begins_branch(&self) -> bool {
        (self.chunk, self.at) == (0, 0)
    }

    fn begins_chunk(&self) -> bool {
        self.at == 0
    }
}

/// The number of elements that both begin with.
fn common<T>(old: &[T], new: &[T], are_one: impl Fn(&T, &T) -> bool) -> usize {
    let pairs = old.iter().zip(new);
    pairs.take_while(|(old, new)| are_one(old, new)).count()
}

/// Passes over what both share from here on, as far as pointers alone show it. Returns whether there
/// was any.
fn pass_shared(before: &mut Cursor<'_>, after: &mut Cursor<'_>) -> bool {
    if before.begins_branch() && after.begins_branch() {
        let shared = common(before.branches, after.branches, Arc::ptr_eq);
        if shared > 0 {
            before.pass_branches(shared);
            after.pass_branches(shared);
            return true;
        }
    }
    if before.begins_chunk() && after.begins_chunk() {
        let shared = common(before.chunks(), after.chunks(), Arc::ptr_eq);
        if shared > 0 {
            before.pass_chunks(shared);
            after.pass_chunks(shared);
            return true;
        }
    }
    let shared = common(before.objects(), after.objects(), Object::shares_with);
    if shared > 0 {
        before.pass_objects(shared);
        after.pass_objects(shared);
    }
    shared > 0
}

impl Tree {
    /// Tells `each` how to come from `older` to this, in order.
    pub(crate) fn changes_since<'a>(&'a self, older: &'a Self, mut each: impl FnMut(Change<'a>)) {
        let (mut before, mut after) = (Cursor::new(older), Cursor::new(self));
        loop {
            if pass_shared(&mut before, &mut after) {
                continue;
            }
            let (old, new) = (before.objects().first(), after.objects().first());
            let order = match (old, new) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.key().cmp(&new.key()),
            };
            match (order, old, new) {
                (Ordering::Less, Some(old), _) => each(Change::Removed(old)),
                (Ordering::Greater, _, Some(new)) => each(Change::Added(new)),
                // A packed or moved object is at a different place.
                (_, Some(old), Some(new)) if !old.is_same_as(new) => {
                    each(Change::Replaced { old, new });
                }
                _ => {}
            }
            if order.is_le() {
                before.pass_objects(1);
            }
            if order.is_ge() {
                after.pass_objects(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anteroom_model::{Epoch, ObjectKey, ResourceVersion};
    use proptest::prelude::*;

    use super::*;

    fn object(n: u16, version: u32) -> Object {
        let key = ObjectKey::new(["a", "a-b", "b"][usize::from(n % 3)], format!("{n:05}"));
        let version = ResourceVersion::new(version.to_string());
        Object::new(&key, Epoch(1), &version, b"\xc0").unwrap()
    }

    fn texts(tree: &Tree) -> BTreeMap<String, String> {
        let text = |object: &Object| {
            let key = format!("{}/{}", object.namespace(), object.name());
            (key, object.version().to_string())
        };
        tree.iter().map(text).collect()
    }

    proptest! {
        #[test]
        fn changes_lead_from_one_tree_to_the_other(
            first in prop::collection::vec((any::<bool>(), 0_u16..900), 0..1_200),
            second in prop::collection::vec((any::<bool>(), 0_u16..900), 0..60),
        ) {
            let mut tree = Tree::default();
            let mut version = 0;
            let mut step = |tree: &mut Tree, (put, n)| {
                version += 1;
                if put {
                    tree.replace(object(n, version));
                } else {
                    tree.take(object(n, 0).key());
                }
            };
            first.into_iter().for_each(|change| step(&mut tree, change));
            let older = tree.clone();
            second.into_iter().for_each(|change| step(&mut tree, change));
            for (from, to) in [(&older, &tree), (&tree, &older)] {
                let mut made = texts(from);
                let key = |object: &Object| format!("{}/{}", object.namespace(), object.name());
                let mut seen = Vec::new();
                to.changes_since(from, |change| {
                    let (old, new) = match change {
                        Change::Added(new) => (None, Some(new)),
                        Change::Removed(old) => (Some(old), None),
                        Change::Replaced { old, new } => (Some(old), Some(new)),
                    };
                    if let Some(old) = old {
                        assert_eq!(made.remove(&key(old)), Some(old.version().to_string()));
                    }
                    if let Some(new) = new {
                        assert_eq!(made.insert(key(new), new.version().to_string()), None);
                    }
                    seen.push(change);
                });
                prop_assert_eq!(made, texts(to));
            }
        }
    }

    #[test]
    fn shared_chunks_are_skipped_when_trees_are_compared() {
        let mut tree: Tree = (0..3_000_u16)
            .flat_map(|n| (n % 3 == 0).then(|| object(n, 1)))
            .collect();
        let older = tree.clone();
        let mut changes = 0;
        tree.changes_since(&older, |_| changes += 1);
        assert_eq!(changes, 0);
        tree.replace(object(300, 2));
        tree.changes_since(&older, |change| {
            assert!(matches!(change, Change::Replaced { .. }));
            changes += 1;
        });
        assert_eq!(changes, 1);
    }

    #[test]
    fn an_equal_object_in_another_allocation_has_not_changed() {
        let mut tree: Tree = (0..300_u16).map(|n| object(n * 3, 1)).collect();
        let older = tree.clone();
        tree.replace(object(300, 1));
        tree.changes_since(&older, |change| panic!("{change:?}"));
    }
}
