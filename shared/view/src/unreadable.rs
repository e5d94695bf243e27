//! The objects of a view that are there and cannot be shown: those of which the log has a stub.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anteroom_model::ObjectKey;

use crate::size::allocated;

/// The names of these objects by namespace. Views have none, mostly: then it costs a null pointer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unreadable(Option<Arc<UnreadableNames>>);

#[derive(Clone, Debug, Default)]
struct UnreadableNames {
    by_namespace: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    bytes: usize,
}

impl Unreadable {
    /// The object of this key came; `is_stub`: as a stub.
    pub(crate) fn put(&mut self, key: &ObjectKey, is_stub: bool) {
        if !is_stub {
            return self.remove(key);
        }
        let names = Arc::make_mut(self.0.get_or_insert_default());
        let namespace = names.by_namespace.entry(key.namespace.clone()).or_default();
        if namespace.insert(key.name.clone()) {
            names.bytes += bytes_of(key);
        }
    }

    /// The object of this key is gone, or can be shown.
    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        if !self.has(key) {
            return;
        }
        let Some(names) = self.0.as_mut().map(Arc::make_mut) else {
            return;
        };
        names.bytes -= bytes_of(key);
        if let Some(namespace) = names.by_namespace.get_mut(&key.namespace) {
            namespace.remove(&key.name);
            if namespace.is_empty() {
                names.by_namespace.remove(&key.namespace);
            }
        }
        if names.by_namespace.is_empty() {
            self.0 = None;
        }
    }

    /// Returns true if every object can be shown.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if the object of this key cannot be shown.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        let names = self.0.as_ref();
        let names = names.and_then(|names| names.by_namespace.get(&key.namespace));
        names.is_some_and(|names| names.contains(&key.name))
    }

    /// Namespace and name of those of a namespace (empty: all), in order.
    pub(crate) fn within<'s>(
        &'s self,
        namespace: &'s str,
    ) -> impl Iterator<Item = (&'s str, &'s str)> {
        let all = self.0.iter().flat_map(|names| &names.by_namespace);
        all.filter(move |(of, _)| namespace.is_empty() || ***of == *namespace)
            .flat_map(|(of, names)| names.iter().map(move |name| (&**of, &**name)))
    }

    /// Its size in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |names| names.bytes)
    }
}

/// Two texts and their slots in a tree that may be half empty.
fn bytes_of(key: &ObjectKey) -> usize {
    let names = allocated(key.namespace.len()) + allocated(key.name.len());
    2 * (names + 2 * size_of::<Box<str>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go_with_their_bytes() {
        let mut unreadable = Unreadable::default();
        let keys = ["a/x", "a/y", "b/x"].map(|key| {
            let (namespace, name) = key.split_once('/').unwrap();
            ObjectKey::new(namespace, name)
        });
        for key in keys.iter().chain(&keys) {
            unreadable.put(key, true);
        }
        let shown = |of: &Unreadable, namespace: &str| -> Vec<String> {
            let names = of
                .within(namespace)
                .map(|(of, name)| format!("{of}/{name}"));
            names.collect()
        };
        assert_eq!(shown(&unreadable, ""), ["a/x", "a/y", "b/x"]);
        assert_eq!(shown(&unreadable, "b"), ["b/x"]);
        assert!(unreadable.has(&keys[0]) && unreadable.bytes() > 0);
        let bytes = unreadable.bytes();
        unreadable.put(&keys[0], false);
        unreadable.remove(&keys[0]);
        assert!(unreadable.bytes() < bytes);
        assert_eq!(shown(&unreadable, "a"), ["a/y"]);
        unreadable.remove(&keys[1]);
        unreadable.remove(&keys[2]);
        assert!(unreadable.is_empty() && unreadable.bytes() == 0);
    }
}
