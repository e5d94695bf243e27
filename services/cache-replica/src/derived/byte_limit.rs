//! A limit of the memory of all indexes and counters, with a part for each namespace.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

/// The bytes that all structures together may take, and the bytes that they take. Those that the policies of one
/// namespace alone use may take a quarter, and those of all namespaces three quarters.
#[derive(Debug)]
pub(super) struct ByteLimit {
    bytes_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of_namespaces: usize,
    /// The bytes of each namespace that takes any.
    by_namespace: HashMap<Box<str>, usize>,
}

/// The bytes that one structure takes of a limit, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    limit: Arc<ByteLimit>,
    /// The namespace whose policies alone use the structure; empty: policies of the cluster use it. Locked while the
    /// bytes change.
    owner: Mutex<Box<str>>,
    bytes: AtomicUsize,
}

impl ByteLimit {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            taken: Mutex::default(),
        })
    }

    /// Returns the bytes that all structures take.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().all
    }

    /// Returns the bytes that are left to policies of `namespace` (empty: of the cluster).
    pub(super) fn left(&self, namespace: &str) -> usize {
        let left = self.taken.lock().left(self.bytes_max, namespace);
        left.unwrap_or(0)
    }

    /// Takes `after` bytes in place of `before`. Returns true if the owner has no more than its part then.
    fn change(&self, owner: &str, before: usize, after: usize) -> bool {
        let mut taken = self.taken.lock();
        taken.all = taken.all.saturating_sub(before).saturating_add(after);
        if !owner.is_empty() {
            let of_namespaces = taken.of_namespaces.saturating_sub(before);
            taken.of_namespaces = of_namespaces.saturating_add(after);
            let own = taken.by_namespace.get(owner).copied().unwrap_or(0);
            match own.saturating_sub(before).saturating_add(after) {
                0 => taken.by_namespace.remove(owner),
                own => taken.by_namespace.insert(owner.into(), own),
            };
        }
        taken.left(self.bytes_max, owner).is_some()
    }
}

impl Taken {
    /// The bytes that are left to an owner; `None`: it has more than its part.
    fn left(&self, bytes_max: usize, owner: &str) -> Option<usize> {
        let left = bytes_max.checked_sub(self.all)?;
        if owner.is_empty() {
            return Some(left);
        }
        let (quarter, own) = (bytes_max / 4, self.by_namespace.get(owner));
        let of_namespaces = (bytes_max - quarter).checked_sub(self.of_namespaces)?;
        let own = quarter.checked_sub(own.copied().unwrap_or(0))?;
        Some(left.min(of_namespaces).min(own))
    }
}

impl Charge {
    /// No bytes yet, for policies of `owner` (empty: of the cluster).
    pub(super) fn new(limit: Arc<ByteLimit>, owner: &str) -> Self {
        Self {
            limit,
            owner: Mutex::new(owner.into()),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Charges the structure's present size. Returns false if it has grown and its owner has more than its part now.
    pub(super) fn set(&self, bytes: usize) -> bool {
        if self.bytes.load(Ordering::Relaxed) == bytes {
            return true;
        }
        let owner = self.owner.lock();
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.limit.change(&owner, before, bytes) || bytes <= before
    }

    /// Makes the structure one that policies of the cluster use.
    pub(super) fn move_to_cluster(&self) {
        let mut owner = self.owner.lock();
        let bytes = self.bytes.load(Ordering::Relaxed);
        self.limit.change(&owner, bytes, 0);
        *owner = Box::default();
        self.limit.change(&owner, 0, bytes);
    }

    /// Returns the bytes that are left to the owner, beside the structure.
    pub(super) fn left(&self) -> usize {
        self.limit.left(&self.owner.lock())
    }

    /// Returns the namespace whose policies alone use the structure; empty: policies of the cluster use it.
    pub(super) fn owner(&self) -> Box<str> {
        self.owner.lock().clone()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_a_quarter_of_the_bytes_and_the_cluster_has_the_rest() {
        let limit = ByteLimit::new(100);
        let charge = |owner| Charge::new(Arc::clone(&limit), owner);
        let [a, more_of_a, b, c] = ["a", "a", "b", "c"].map(charge);
        assert_eq!((limit.left("a"), limit.left("")), (25, 100));
        assert!(a.set(20) && more_of_a.set(5));
        assert_eq!((a.left(), b.left()), (0, 25));
        assert!(!a.set(21), "a has 26");
        assert!(a.set(20), "it shrank");
        assert!(b.set(25) && c.set(25));
        assert_eq!((limit.left("d"), limit.left("")), (0, 25));

        let cluster = charge("");
        assert!(cluster.set(25) && !cluster.set(26));
        drop(cluster);
        a.move_to_cluster();
        assert_eq!((&*a.owner(), limit.taken()), ("", 75));
        assert_eq!((limit.left("a"), limit.left("")), (20, 25));
        drop((a, more_of_a, b, c));
        assert_eq!(limit.taken(), 0);
        assert!(limit.taken.lock().by_namespace.is_empty());
    }
}
