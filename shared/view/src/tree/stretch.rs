//! Parts of a view that are known again in its later states.

use std::{
    hash::{Hash, Hasher},
    sync::{Arc, Weak},
};

use super::chunk::Chunk;
use crate::Object;

/// A run of adjacent objects of a view, in order, which states of the view may share.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a>(&'a Arc<Chunk>);

/// Remembers a [`Stretch`], without keeping its objects.
#[derive(Clone, Debug)]
pub struct StretchMark(Weak<Chunk>);

impl<'a> Stretch<'a> {
    pub(super) fn new(chunk: &'a Arc<Chunk>) -> Self {
        Self(chunk)
    }

    /// Its objects; some.
    pub fn objects(self) -> &'a [Object] {
        &self.0.0
    }

    /// A mark by which the stretch is recognised in another state.
    pub fn mark(self) -> StretchMark {
        StretchMark(Arc::downgrade(self.0))
    }
}

/// Equal marks belong to the identical stretch, with identical objects: a change makes a new stretch. While a mark
/// exists, its stretch stays allocated, so no new stretch gets the same address.
impl PartialEq for StretchMark {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for StretchMark {}

impl Hash for StretchMark {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use anteroom_model::{Epoch, ObjectKey, ResourceVersion};

    use super::*;
    use crate::tree::Tree;

    fn object(n: usize, version: &str) -> Object {
        let key = ObjectKey::new("a", format!("{n:05}"));
        Object::new(&key, Epoch(1), &ResourceVersion::new(version), b"\xc0").unwrap()
    }

    fn marks(tree: &Tree) -> HashSet<StretchMark> {
        tree.stretches().map(Stretch::mark).collect()
    }

    #[test]
    fn a_stretch_keeps_its_mark_until_it_changes() {
        for held in [true, false] {
            let mut tree: Tree = (0..2_000).map(|n| object(n, "1")).collect();
            let before = marks(&tree);
            let [first, second] = [0, 1].map(|at| tree.stretches().nth(at).unwrap().mark());
            assert!(first != second && first == first.clone());
            let snapshot = held.then(|| tree.clone());
            assert!(
                tree.stretches()
                    .all(|stretch| before.contains(&stretch.mark()))
            );
            tree.replace(object(700, "2"));
            let changed: Vec<_> = tree
                .stretches()
                .filter(|stretch| !before.contains(&stretch.mark()))
                .collect();
            let [changed] = changed[..] else {
                panic!("{changed:?}");
            };
            let names =
                |stretch: Stretch<'_>| stretch.objects().iter().any(|o| o.name() == "00700");
            assert!(names(changed));
            tree.take(object(3, "").key());
            tree.replace(object(9_999, "1"));
            let now: usize = tree
                .stretches()
                .map(|stretch| stretch.objects().len())
                .sum();
            assert_eq!(now, 2_000);
            assert!(marks(&tree).intersection(&before).count() >= before.len() - 3);
            drop(snapshot);
        }
    }
}
