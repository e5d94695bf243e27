//! A limit of the memory of all indexes and counters, with a part for each view and each namespace.
//!
//! The objects of a view make its structures large, whoever has made the objects. So where a part is full, the largest
//! structure in it is refused, and not the one that has just grown.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anteroom_model::ViewId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The bytes that all structures together may take, and the bytes that they take.
///
/// Those that the policies of one namespace alone use may take a quarter, and those of all namespaces three quarters.
/// The limit refuses structures in this order where all bytes are taken, the largest first:
///
/// 1. those of the namespace that takes most, until namespaces have a quarter together;
/// 2. the cluster's in a view that takes more than half;
/// 3. the cluster's.
#[derive(Debug)]
pub(super) struct ByteLimit {
    bytes_max: usize,
    taken: Mutex<Taken>,
    begun: Instant,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of_namespaces: usize,
    by_namespace: HashMap<Box<str>, usize>,
    by_view: HashMap<Box<str>, usize>,
    charges: Vec<Arc<Charged>>,
}

/// The bytes that one structure takes of a limit, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    limit: Arc<ByteLimit>,
    charged: Arc<Charged>,
}

/// A structure that takes bytes. Its fields change under the limit's lock alone.
#[derive(Debug)]
struct Charged {
    view: ViewId,
    namespace: Box<str>,
    /// Policies of the cluster use the structure.
    is_clusters: AtomicBool,
    bytes: AtomicUsize,
    refusal: OnceLock<Refusal>,
}

/// A decision not to hold a structure.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The time, in milliseconds since the limit was made.
    pub(super) at_ms: u64,
    /// The bytes that were too few.
    pub(super) bytes: usize,
}

impl ByteLimit {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            taken: Mutex::default(),
            begun: Instant::now(),
        })
    }

    /// Returns the milliseconds since the limit was made.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that all structures take.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().all
    }

    /// Returns the bytes that are left to policies of `namespace` (empty: of the cluster) for structures of `view`.
    pub(super) fn left(&self, namespace: &str, view: &ViewId) -> usize {
        self.taken.lock().left(self.bytes_max, namespace, view)
    }

    fn refuse(&self, taken: &mut Taken, charged: &Charged, bytes: usize) {
        let at_ms = self.now_ms();
        if charged.refusal.set(Refusal { at_ms, bytes }).is_ok() {
            // Others have the bytes from now on.
            taken.change(charged, 0);
            tracing::warn!(
                view = %charged.view,
                namespace = charged.owner(),
                bytes,
                "index or counter of the view takes more memory than it may: \
                 queries look through all objects instead"
            );
        }
    }
}

impl Taken {
    fn of_namespace(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or(0)
    }

    fn left(&self, bytes_max: usize, owner: &str, view: &ViewId) -> usize {
        let quarter = bytes_max / 4;
        // Others give way with what they have beyond their part.
        let others = self
            .by_view
            .iter()
            .filter(|(of, _)| ***of != *view.as_str());
        let largest = others.map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let beyond = largest.saturating_sub(bytes_max / 2);
        if owner.is_empty() {
            let beyond = beyond.max(self.of_namespaces.saturating_sub(quarter));
            return bytes_max.saturating_sub(self.all.saturating_sub(beyond));
        }
        let of_all = bytes_max.saturating_sub(self.all.saturating_sub(beyond));
        let of_namespaces = (bytes_max - quarter).saturating_sub(self.of_namespaces);
        let own = quarter.saturating_sub(self.of_namespace(owner));
        of_all.min(of_namespaces).min(own)
    }

    /// Returns the structure to refuse after one of `owner` has grown; `None`: none has more than its part.
    fn victim(&self, bytes_max: usize, owner: &str) -> Option<Arc<Charged>> {
        let quarter = bytes_max / 4;
        if self.of_namespace(owner) > quarter {
            return self.largest(|charged| charged.owner() == owner);
        }
        let is_full = self.all > bytes_max;
        let kept = if is_full {
            quarter
        } else {
            bytes_max - quarter
        };
        if self.of_namespaces > kept {
            let (namespace, _) = most(&self.by_namespace)?;
            return self.largest(|charged| charged.owner() == namespace);
        }
        if !is_full {
            return None;
        }
        let view = most(&self.by_view).filter(|(_, bytes)| *bytes > bytes_max / 2);
        self.largest(|charged| {
            let is_in_view = view.is_none_or(|(view, _)| charged.view.as_str() == view);
            charged.owner().is_empty() && is_in_view
        })
    }

    /// Returns the largest structure that meets the condition and takes any bytes.
    fn largest(&self, condition: impl Fn(&Charged) -> bool) -> Option<Arc<Charged>> {
        let charges = self.charges.iter();
        let candidates = charges.filter(|charged| charged.bytes() > 0 && condition(charged));
        candidates.max_by_key(|charged| charged.bytes()).cloned()
    }

    fn change(&mut self, charged: &Charged, after: usize) {
        let before = charged.bytes.swap(after, Ordering::Relaxed);
        let change = |sum: &mut usize| *sum = sum.saturating_sub(before).saturating_add(after);
        let change_of = |sums: &mut HashMap<Box<str>, usize>, of: &str| match sums.get_mut(of) {
            Some(sum) => change(sum),
            None => {
                sums.insert(of.into(), after);
            }
        };
        change(&mut self.all);
        change_of(&mut self.by_view, charged.view.as_str());
        let owner = charged.owner();
        if !owner.is_empty() {
            change(&mut self.of_namespaces);
            change_of(&mut self.by_namespace, owner);
        }
    }
}

/// Returns the view or namespace that takes most bytes.
fn most(sums: &HashMap<Box<str>, usize>) -> Option<(&str, usize)> {
    let most = sums.iter().max_by_key(|(_, bytes)| **bytes);
    most.map(|(of, bytes)| (&**of, *bytes))
}

impl Charged {
    fn owner(&self) -> &str {
        match self.is_clusters.load(Ordering::Relaxed) {
            true => "",
            false => &self.namespace,
        }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Charge {
    /// No bytes yet, for a structure of `view` and policies of `owner` (empty: of the cluster).
    pub(super) fn new(limit: Arc<ByteLimit>, view: &ViewId, owner: &str) -> Self {
        let charged = Arc::new(Charged {
            view: view.clone(),
            namespace: owner.into(),
            is_clusters: AtomicBool::new(owner.is_empty()),
            bytes: AtomicUsize::new(0),
            refusal: OnceLock::new(),
        });
        limit.taken.lock().charges.push(Arc::clone(&charged));
        Self { limit, charged }
    }

    /// Charges the structure's present size, unless it is refused. If it has grown, structures are refused until each
    /// part of the limit is kept.
    pub(super) fn set(&self, bytes: usize) {
        let Self { limit, charged } = self;
        if charged.bytes() == bytes {
            return;
        }
        let mut taken = limit.taken.lock();
        if charged.refusal.get().is_some() {
            return;
        }
        let has_grown = bytes > charged.bytes();
        taken.change(charged, bytes);
        while has_grown && let Some(victim) = taken.victim(limit.bytes_max, charged.owner()) {
            limit.refuse(&mut taken, &victim, victim.bytes());
        }
    }

    /// Refuses the structure: it takes more than `bytes`, or as many. Whoever holds the structure drops it.
    pub(super) fn refuse(&self, bytes: usize) {
        let mut taken = self.limit.taken.lock();
        self.limit.refuse(&mut taken, &self.charged, bytes);
    }

    /// Returns the refusal, if the structure is refused.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.charged.refusal.get()
    }

    /// Makes the structure one that policies of the cluster use.
    pub(super) fn move_to_cluster(&self) {
        let (mut taken, bytes) = (self.limit.taken.lock(), self.charged.bytes());
        taken.change(&self.charged, 0);
        self.charged.is_clusters.store(true, Ordering::Relaxed);
        taken.change(&self.charged, bytes);
    }

    /// Returns the bytes that are left to the owner, beside the structure.
    pub(super) fn left(&self) -> usize {
        let charged = &self.charged;
        self.limit.left(charged.owner(), &charged.view)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut taken = self.limit.taken.lock();
        taken.change(&self.charged, 0);
        taken.charges.retain(|it| !Arc::ptr_eq(it, &self.charged));
        taken.by_view.retain(|_, bytes| *bytes > 0);
        taken.by_namespace.retain(|_, bytes| *bytes > 0);
    }
}

#[cfg(test)]
mod tests;
