//! Mark and sweep for data that are read in passes: a list of the API server, or a reading of the log.
//!
//! Each entry is marked with the pass that last brought it. Once a pass is complete, the entries that it
//! did not bring are gone.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

/// A map whose entries know the pass that last brought them.
#[derive(Clone, Debug)]
pub(crate) struct Generations<K, V> {
    entries: HashMap<K, Marked<V>>,
    pass: u64,
}

#[derive(Clone, Debug)]
struct Marked<V> {
    seen_in: u64,
    value: V,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            pass: 0,
        }
    }
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// Begins a pass. Entries that no pass brings from here on are swept.
    pub(crate) fn begin(&mut self) {
        self.pass += 1;
    }

    /// Inserts a value of the present pass, and returns the value before.
    pub(crate) fn put(&mut self, key: K, value: V) -> Option<V> {
        let seen_in = self.pass;
        let before = self.entries.insert(key, Marked { seen_in, value });
        before.map(|before| before.value)
    }

    /// Replaces a value, and returns the value before. Its mark stays: the pass has not brought it thereby. A value that is new is of
    /// the present pass.
    pub(crate) fn replace(&mut self, key: K, value: V) -> Option<V> {
        match self.entries.get_mut(&key) {
            Some(marked) => Some(std::mem::replace(&mut marked.value, value)),
            None => self.put(key, value),
        }
    }

    /// Marks an entry as brought by the pass, with its present value. Does nothing if there is no such entry.
    pub(crate) fn touch<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(marked) = self.entries.get_mut(key) {
            marked.seen_in = self.pass;
        }
    }

    /// Removes an entry.
    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key).map(|marked| marked.value)
    }

    /// Returns the value of an entry.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|marked| &marked.value)
    }

    /// Returns all entries, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries
            .iter()
            .map(|(key, marked)| (key, &marked.value))
    }

    /// Returns all values, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|marked| &marked.value)
    }

    /// Removes and returns the entries that the pass did not bring. Call it once the pass is complete.
    pub(crate) fn sweep(&mut self) -> Vec<(K, V)> {
        self.sweep_void(|_| false)
    }

    /// Removes and returns the entries that the pass did not bring, and those that are void.
    pub(crate) fn sweep_void(&mut self, is_void: impl Fn(&V) -> bool) -> Vec<(K, V)> {
        let pass = self.pass;
        let gone = self
            .entries
            .extract_if(|_, marked| marked.seen_in != pass || is_void(&marked.value))
            .map(|(key, marked)| (key, marked.value));
        gone.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_what_the_pass_did_not_bring() {
        let mut map = Generations::default();
        map.begin();
        map.put("a", 1);
        map.put("b", 2);
        map.put("c", 3);
        assert_eq!(map.sweep(), []);
        map.begin();
        assert_eq!(map.put("b", 4), Some(2));
        map.touch("c");
        map.touch("d");
        assert_eq!(map.sweep(), [("a", 1)]);
        let mut left: Vec<_> = map.iter().collect();
        left.sort();
        assert_eq!(left, [(&"b", &4), (&"c", &3)]);
        assert_eq!(map.sweep_void(|value| *value < 4), [("c", 3)]);
    }

    #[test]
    fn an_item_put_between_two_passes_counts_for_the_one_before() {
        let mut map = Generations::default();
        map.begin();
        map.sweep();
        map.put("a", 1);
        assert_eq!(map.sweep(), []);
        map.begin();
        assert_eq!(map.sweep(), [("a", 1)]);
    }
}
