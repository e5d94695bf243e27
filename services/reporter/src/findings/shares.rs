//! The part of the findings that each namespace takes, and the objects beyond it.
//!
//! At the limits, the namespace that takes the most leaves out its last objects. So a tenant with many objects, or with
//! long messages, has none of another namespace left out. Since the part of a namespace only shrinks
//! as others grow, the same objects are left out in whatever order they are met.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// The part of a namespace.
#[derive(Debug, Default)]
struct Share {
    /// The objects with findings.
    uids: BTreeSet<Arc<str>>,
    bytes: usize,
    /// Objects of this UID, and of all that come after it, are left out.
    horizon: Option<Arc<str>>,
}

/// The parts of all namespaces. Cluster-scoped objects have a part too, that of the empty name.
#[derive(Debug, Default)]
pub(super) struct Shares {
    of: HashMap<Arc<str>, Share>,
    by_bytes: BTreeSet<(usize, Arc<str>)>,
}

impl Shares {
    /// Adds an object with the bytes of its findings.
    pub(super) fn add(&mut self, namespace: &Arc<str>, uid: &Arc<str>, bytes: usize) {
        let share = self.of.entry(Arc::clone(namespace)).or_default();
        share.uids.insert(Arc::clone(uid));
        let before = share.bytes;
        share.bytes += bytes;
        let after = share.bytes;
        self.sort(namespace, before, after);
    }

    /// Removes an object that was added with so many bytes.
    pub(super) fn remove(&mut self, namespace: &Arc<str>, uid: &str, bytes: usize) {
        let Some(share) = self.of.get_mut(namespace) else {
            return;
        };
        share.uids.remove(uid);
        let before = share.bytes;
        share.bytes = share.bytes.saturating_sub(bytes);
        let after = share.bytes;
        if share.uids.is_empty() && share.horizon.is_none() {
            self.of.remove(namespace);
        }
        self.sort(namespace, before, after);
    }

    fn sort(&mut self, namespace: &Arc<str>, before: usize, after: usize) {
        self.by_bytes.remove(&(before, Arc::clone(namespace)));
        if after > 0 {
            self.by_bytes.insert((after, Arc::clone(namespace)));
        }
    }

    /// Leaves out the last object of the namespace that takes the most, and all that come after it. The caller removes
    /// the object. `None`: there is none.
    pub(super) fn leave_out_last(&mut self) -> Option<Arc<str>> {
        let (_, namespace) = self.by_bytes.last()?;
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
}
