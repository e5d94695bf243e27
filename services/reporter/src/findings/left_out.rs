//! The objects that are left out, as far as they are counted.

use std::{
    collections::{BTreeSet, HashSet},
    hash::BuildHasher,
    sync::Arc,
};

use xxhash_rust::xxh3::{Xxh3DefaultBuilder, xxh3_64};

use super::PolicyScan;

/// The limit of pairs of scan and object that are remembered. Beyond it they are not counted.
const COUNTED_MAX: usize = 1_000_000;

/// Objects that are left out, by hashes: only their number is needed.
#[derive(Debug, Default)]
pub(super) struct LeftOutObjects {
    /// Hashes of an object's UID and of a scan on it.
    of: BTreeSet<(u64, u64)>,
    objects: usize,
}

impl LeftOutObjects {
    pub(super) fn put(&mut self, uid: &str, scan: &PolicyScan) {
        if self.of.len() >= COUNTED_MAX {
            return;
        }
        let uid = hash(uid);
        let is_known = self.has(uid);
        if self.of.insert((uid, scan_hash(scan))) && !is_known {
            self.objects += 1;
        }
    }

    pub(super) fn remove(&mut self, uid: &str, scan: &PolicyScan) {
        if self.of.is_empty() {
            return;
        }
        let uid = hash(uid);
        if self.of.remove(&(uid, scan_hash(scan))) && !self.has(uid) {
            self.objects -= 1;
        }
    }

    /// Forgets the left-out results of the scans `gone`.
    pub(super) fn retain(&mut self, gone: &HashSet<Arc<PolicyScan>>) {
        let gone: HashSet<u64> = gone.iter().map(|scan| scan_hash(scan)).collect();
        self.of.retain(|(_, scan)| !gone.contains(scan));
        let mut uids: Vec<u64> = self.of.iter().map(|(uid, _)| *uid).collect();
        uids.dedup(); // They are in order.
        self.objects = uids.len();
    }

    /// The number of objects, or that many at least.
    pub(super) fn objects(&self) -> usize {
        self.objects
    }

    fn has(&self, uid: u64) -> bool {
        self.of.range((uid, 0)..=(uid, u64::MAX)).next().is_some()
    }
}

fn hash(uid: &str) -> u64 {
    xxh3_64(uid.as_bytes())
}

fn scan_hash(scan: &PolicyScan) -> u64 {
    Xxh3DefaultBuilder::new().hash_one(scan)
}
