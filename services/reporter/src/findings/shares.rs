//! The part of the findings that each namespace takes, and the objects beyond it.
//!
//! At a limit, the namespace that takes the most of it leaves out its last objects: the one with most objects, or the
//! one whose objects take most bytes. So a tenant with many objects, or with long messages, has none of another
//! namespace left out. Since the part of a namespace only shrinks as others grow, the same objects are left out in
//! whatever order they are met.
//!
//! A namespace counts each of its results once, whether or not other namespaces have the same result. So the objects of
//! other namespaces never change its bytes. If results of several namespaces counted for none of them, two namespaces
//! with the same long messages could fill the memory, and others would lose their objects.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::interned::Interned;
use crate::result::RuleResult;

/// A limit that does not hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Exceeded {
    Objects,
    Bytes,
}

/// The part of a namespace.
#[derive(Debug, Default)]
struct Share {
    /// The objects with findings.
    uids: BTreeSet<Arc<str>>,
    /// The bytes of these objects, without the results.
    object_bytes: usize,
    /// The results on these objects.
    results: Interned<RuleResult>,
    /// Objects of this UID, and of all that come after it, are left out.
    horizon: Option<Arc<str>>,
}

impl Share {
    fn bytes(&self) -> usize {
        self.object_bytes + self.results.bytes()
    }
}

/// Namespaces in the order of how much they take; without those that take nothing.
type Order = BTreeSet<(usize, Arc<str>)>;

/// The parts of all namespaces. Cluster-scoped objects have a part too, that of the empty name.
#[derive(Debug, Default)]
pub(super) struct Shares {
    of: HashMap<Arc<str>, Share>,
    by_objects: Order,
    by_bytes: Order,
    /// Each result once, however many namespaces have it.
    results: Interned<RuleResult>,
}

impl Shares {
    /// Adds an object, with its bytes without the results.
    pub(super) fn add(&mut self, namespace: &Arc<str>, uid: &Arc<str>, bytes: usize) {
        self.change(namespace, |share, _| {
            share.uids.insert(Arc::clone(uid));
            share.object_bytes += bytes;
        });
    }

    /// Removes an object that was added with so many bytes. Its results stay until they are [released](Self::release).
    pub(super) fn remove(&mut self, namespace: &Arc<str>, uid: &str, bytes: usize) {
        self.change(namespace, |share, _| {
            share.uids.remove(uid);
            share.object_bytes = share.object_bytes.saturating_sub(bytes);
        });
    }

    /// Returns the shared result. An object of the namespace holds the result until [`Self::release`].
    pub(super) fn hold(
        &mut self,
        namespace: &Arc<str>,
        result: &Arc<RuleResult>,
    ) -> Arc<RuleResult> {
        self.change(namespace, |share, all| {
            let shared = all.take(result);
            share.results.take(&shared)
        })
    }

    /// Removes the result from an object of the namespace.
    pub(super) fn release(&mut self, namespace: &Arc<str>, result: &RuleResult) {
        self.change(namespace, |share, all| {
            share.results.release(result);
            all.release(result);
        });
    }

    /// Returns the results of all namespaces.
    pub(super) fn results(&self) -> &Interned<RuleResult> {
        &self.results
    }

    /// Changes the part of a namespace and the results of all, and sorts the namespace anew.
    fn change<T>(
        &mut self,
        namespace: &Arc<str>,
        change: impl FnOnce(&mut Share, &mut Interned<RuleResult>) -> T,
    ) -> T {
        let share = self.of.entry(Arc::clone(namespace)).or_default();
        let (objects, bytes) = (share.uids.len(), share.bytes());
        let changed = change(share, &mut self.results);
        let (objects_after, bytes_after) = (share.uids.len(), share.bytes());
        if bytes_after == 0 && share.horizon.is_none() {
            self.of.remove(namespace);
        }
        sort(&mut self.by_objects, namespace, objects, objects_after);
        sort(&mut self.by_bytes, namespace, bytes, bytes_after);
        changed
    }

    /// Leaves out the last object of the namespace that takes the most of the exceeded limit, and all that come after
    /// it. The caller removes the object and its results. `None`: there is none.
    pub(super) fn leave_out_last(&mut self, exceeded: Exceeded) -> Option<Arc<str>> {
        let order = match exceeded {
            Exceeded::Objects => &self.by_objects,
            Exceeded::Bytes => &self.by_bytes,
        };
        let (_, namespace) = order.last()?;
        let share = self.of.get_mut(namespace)?;
        let last = share.uids.last()?;
        share.horizon = Some(Arc::clone(last));
        share.horizon.clone()
    }

    /// Returns whether the object is left out.
    pub(super) fn is_beyond(&self, namespace: &str, uid: &str) -> bool {
        let share = self.of.get(namespace);
        let horizon = share.and_then(|share| share.horizon.as_deref());
        horizon.is_some_and(|horizon| uid >= horizon)
    }

    /// Returns whether some objects may be left out.
    pub(super) fn has_horizon(&self) -> bool {
        self.of.values().any(|share| share.horizon.is_some())
    }

    /// Leaves out no object any more.
    pub(super) fn reopen(&mut self) {
        self.of.values_mut().for_each(|share| share.horizon = None);
        self.of.retain(|_, share| !share.uids.is_empty());
    }

    /// Returns the namespaces in the order of their objects, and of their bytes.
    #[cfg(test)]
    pub(super) fn orders(&self) -> [Vec<(usize, Arc<str>)>; 2] {
        [&self.by_objects, &self.by_bytes].map(|order| order.iter().cloned().collect())
    }
}

/// Moves the namespace to its place.
fn sort(order: &mut Order, namespace: &Arc<str>, before: usize, after: usize) {
    if before == after {
        return;
    }
    order.remove(&(before, Arc::clone(namespace)));
    if after > 0 {
        order.insert((after, Arc::clone(namespace)));
    }
}
