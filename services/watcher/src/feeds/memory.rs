//! The memory of all feeders of a process, in bytes, against the limit.
//!
//! The rule: a part of the limit is the process's own ([`PROCESS_BYTES`]), and so much for each entry
//! and each thing that a policy refers to ([`ENTRY_BYTES`]). Bodies that wait to be written take at
//! most a quarter of the limit; then reading from the API server waits. Keys and versions cannot wait:
//! where they come to more than the rest, the largest view of the process fails with `MemoryLimit`, one
//! a second, until what is left fits. It stays failed until it is wanted anew or another term begins.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anteroom_model::Failure;
use parking_lot::Mutex;

/// Memory that a watcher takes beside that: code, connections, pages and batches on their way, and what the
/// allocator keeps for a moment. Measured at lists of 50,000 objects of 2 KB.
const PROCESS_BYTES: u64 = 32 * 1024 * 1024;

/// Memory of an entry, or of a reference of a policy, in a coordinator: as it was read, resolved, told of
/// and published. Measured at 20,000 and at 100,000 of them, half in entries and half in policies: 6.5
/// to 7.4 KB each.
const ENTRY_BYTES: u64 = 7 * 1024;

/// The least limit that leaves room for anything.
pub(crate) const LIMIT_MIN: u64 = 2 * PROCESS_BYTES;

/// All that takes memory in a process by what is wanted of it. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    shares: Arc<Mutex<HashMap<u64, (u64, u64)>>>,
    next: Arc<AtomicU64>,
}

/// The share of one feeder, or of the coordinator, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Memory,
    id: u64,
}

impl Memory {
    pub(crate) fn share(&self) -> Share {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Share {
            memory: self.clone(),
            id,
        }
    }
}

impl Share {
    /// Takes down what so many entries and references take.
    pub(crate) fn keeps(&self, entries: usize) {
        let bytes = (entries as u64).saturating_mul(ENTRY_BYTES);
        self.memory.shares.lock().insert(self.id, (bytes, 0));
    }

    /// Takes down what the feeder takes, all and its largest view. Whether that view has to go.
    pub(super) fn over(&self, bytes_max: Option<u64>, bytes: u64, largest: u64) -> bool {
        let mut shares = self.memory.shares.lock();
        shares.insert(self.id, (bytes, largest));
        let all: u64 = shares.values().map(|(bytes, _)| bytes).sum();
        let most = shares.values().map(|(_, largest)| *largest).max();
        let room = |max: u64| max.saturating_sub(PROCESS_BYTES);
        bytes_max.is_some_and(|max| all > room(max)) && most == Some(largest) && largest > 0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.shares.lock().remove(&self.id);
    }
}

pub(super) fn failure(bytes: u64, bytes_max: Option<u64>) -> Failure {
    let bytes_max = bytes_max.unwrap_or_default();
    Failure::new(
        "MemoryLimit",
        format!(
            "the watcher is over its memory limit of {bytes_max} bytes, and this is its largest view, \
             whose keys take {bytes} bytes: narrow it by namespace or selector, or raise the limit"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over the limit the largest view goes, whoever has it, and at the limit none.
    #[test]
    fn over_the_memory_limit_the_largest_view_goes() {
        let memory = Memory::default();
        let (one, other) = (memory.share(), memory.share());
        let hundred = Some(PROCESS_BYTES + 100);
        assert!(!one.over(hundred, 60, 50));
        assert!(!other.over(hundred, 40, 10), "at the limit");
        assert!(!other.over(hundred, 41, 41), "the other's is larger");
        assert!(one.over(hundred, 60, 50));
        assert!(!one.over(None, 600, 500), "there is no limit");
        drop(other);
        assert!(!one.over(hundred, 60, 50));
    }

    /// Memory for entries leaves less for views, until the entries are gone.
    #[test]
    fn entries_count_towards_the_memory_limit_but_never_go() {
        let memory = Memory::default();
        let (coordinator, feeder) = (memory.share(), memory.share());
        let limit = Some(PROCESS_BYTES + 10 * ENTRY_BYTES);
        coordinator.keeps(9);
        assert!(!feeder.over(limit, ENTRY_BYTES, ENTRY_BYTES));
        coordinator.keeps(10);
        assert!(feeder.over(limit, ENTRY_BYTES, ENTRY_BYTES));
        assert!(!coordinator.over(limit, 11 * ENTRY_BYTES, 0));
        drop(coordinator);
        assert!(!feeder.over(limit, ENTRY_BYTES, ENTRY_BYTES));
    }
}
