//! The turns in which changed manifests of namespaces are compiled, where a set of them is built again and again.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
};

use anteroom_model::ObjectKey;
use bytes::Bytes;

/// The turns of namespaces. One that changes many manifests, or one in a loop, lets the others wait for one manifest.
#[derive(Debug, Default)]
pub(crate) struct CompileTurns {
    /// Counts the sets that were built.
    sets: u64,
    /// The namespace that had the last turn.
    last: Box<str>,
    /// The manifests that wait to be compiled, by the number of the set that they were changed in.
    waiting: HashMap<ObjectKey, u64>,
}

/// The changed manifests of one set: by namespace, and in it by the number of the set that they were changed in.
#[derive(Debug, Default)]
pub(crate) struct ChangedManifests(BTreeMap<Box<str>, BTreeMap<(u64, ObjectKey), Bytes>>);

impl CompileTurns {
    /// Returns the keys whose present version waits to be compiled, after the last set was built.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &ObjectKey> {
        self.waiting.keys()
    }

    /// Returns whether any manifest waits to be compiled.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Begins to build a set.
    pub(crate) fn begin(&mut self) {
        self.sets += 1;
    }

    /// Adds a manifest that is to be compiled for the set.
    pub(crate) fn add(&self, changed: &mut ChangedManifests, key: ObjectKey, body: Bytes) {
        let since = self.waiting.get(&key).copied().unwrap_or(self.sets);
        let of_namespace = changed.0.entry(key.namespace.clone()).or_default();
        of_namespace.insert((since, key), body);
    }

    /// Compiles the changed manifests of the cluster, and those of namespaces only while `goes_on` is true, but one in any
    /// case. The others wait.
    pub(crate) fn compile_while(
        &mut self,
        mut changed: ChangedManifests,
        mut compile: impl FnMut(ObjectKey, Bytes),
        mut goes_on: impl FnMut() -> bool,
    ) {
        for ((_, key), body) in changed.0.remove("").unwrap_or_default() {
            compile(key, body);
        }
        let mut is_first = true;
        while is_first || goes_on() {
            is_first = false;
            let Some((key, body)) = self.take(&mut changed) else {
                break;
            };
            compile(key, body);
        }
        let waiting = changed.0.into_values().flat_map(BTreeMap::into_keys);
        self.waiting = waiting.map(|(since, key)| (key, since)).collect();
    }

    /// Takes the manifest with the next turn.
    fn take(&mut self, changed: &mut ChangedManifests) -> Option<(ObjectKey, Bytes)> {
        let changed = &mut changed.0;
        let range = (Bound::Excluded(&*self.last), Bound::<&str>::Unbounded);
        let next = changed.range::<str, _>(range).next();
        let (namespace, _) = next.or_else(|| changed.first_key_value())?;
        self.last.clone_from(namespace);
        let of_namespace = changed.get_mut(&*self.last)?;
        let ((_, key), body) = of_namespace.pop_first()?;
        if of_namespace.is_empty() {
            changed.remove(&*self.last);
        }
        Some((key, body))
    }
}
