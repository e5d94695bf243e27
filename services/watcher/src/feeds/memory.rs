//! The memory of all feeders of a process, in bytes, against the limit.
//!
//! The rule: a part of the limit is for the process itself ([`PROCESS_BYTES`]), and a fixed amount for each entry and
//! each reference of a policy ([`ENTRY_BYTES`]). Bodies that wait for a write take at most a quarter of the limit;
//! then reading from the API server waits. Keys and versions cannot wait. If they take more than the rest, the
//! largest view of the process is stopped and fails with `MemoryLimit`, one view a second, until the others fit. Views
//! that only policies of namespaces need are stopped before all others. Once there is room again, the stopped views are
//! fed again, one by one: [`shed_views`] chooses the view and the time.

mod shed_views;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anteroom_model::{Failure, ViewId, own_reason};
use parking_lot::Mutex;
use tokio::time::Instant;

use shed_views::{MemoryBudget, ShedViews};

use crate::log_writer::publish::ViewSize;

/// Memory of a watcher beside its views: code, connections, pages and batches under way, and freed memory that the
/// allocator keeps for a while. Measured at lists of 50,000 objects of 2 KB.
const PROCESS_BYTES: u64 = 32 * 1024 * 1024;

/// Memory of an entry, or of a reference of a policy, in a coordinator: its manifest, resolution, status and record.
/// Measured at 20,000 and at 100,000 of them, half in entries and half in policies: 6.5 to 7.4 KB each.
const ENTRY_BYTES: u64 = 7 * 1024;

/// The least limit that leaves room for anything.
pub(crate) const LIMIT_MIN: u64 = 2 * PROCESS_BYTES;

/// The ledger of a process: the memory that feeders and the coordinator take. Clones share the ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    ledger: Arc<Mutex<Ledger>>,
    next: Arc<AtomicU64>,
}

/// The memory of each feeder and the coordinator, and the views that were stopped for lack of memory.
#[derive(Debug, Default)]
struct Ledger {
    accounts: HashMap<u64, Usage>,
    shed: ShedViews,
}

/// The bytes that a feeder takes, or the coordinator.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// The bytes of everything.
    pub(super) bytes: u64,
    /// The feeder's view that is stopped first, and its size.
    pub(super) first: Option<(ViewId, ViewSize)>,
    /// The feeder can feed stopped views again. Until it can, it holds up no view of another feeder.
    pub(super) can_resume: bool,
}

/// The account of one feeder, or of the coordinator, until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryAccount {
    memory: Memory,
    id: u64,
}

/// The next thing that a feeder has to do about the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MemoryStep {
    /// Stop this view: the limit is exceeded.
    Shed(ViewId),
    /// Feed this view again: there is room.
    Resume(ViewId),
}

impl Memory {
    pub(crate) fn account(&self) -> MemoryAccount {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        MemoryAccount {
            memory: self.clone(),
            id,
        }
    }
}

impl MemoryAccount {
    /// Notes the memory that this many entries and references take.
    pub(crate) fn keeps(&self, entries: usize) {
        let usage = Usage {
            bytes: (entries as u64).saturating_mul(ENTRY_BYTES),
            ..Usage::default()
        };
        self.memory.ledger.lock().accounts.insert(self.id, usage);
    }

    /// Notes the memory that the feeder takes. Returns the feeder's next step for a limit of `bytes_max`.
    pub(super) fn step(&self, bytes_max: u64, usage: Usage, now: Instant) -> Option<MemoryStep> {
        let mut ledger = self.memory.ledger.lock();
        ledger.shed.forget_stayed(now);
        let own_first = usage.first.clone();
        ledger.accounts.insert(self.id, usage);
        let accounts = ledger.accounts.values();
        let budget = MemoryBudget {
            bytes_max: bytes_max.saturating_sub(PROCESS_BYTES),
            bytes: accounts.clone().map(|usage| usage.bytes).sum(),
        };
        if !budget.is_exceeded() {
            let can_resume = |account: u64| {
                let usage = ledger.accounts.get(&account);
                usage.is_some_and(|usage| usage.can_resume)
            };
            let next = ledger.shed.next(budget, can_resume, now);
            let (_, view) = next.filter(|(account, _)| *account == self.id)?;
            return Some(MemoryStep::Resume(view));
        }
        // A resuming view is stopped first, since served views keep their memory.
        if let Some((account, view)) = ledger.shed.resuming(now) {
            return (account == self.id).then(|| MemoryStep::Shed(view.clone()));
        }
        let firsts = accounts.filter_map(|usage| usage.first.as_ref());
        let first = firsts.map(|(_, size)| *size).max();
        let (view, size) = own_first?;
        (first == Some(size)).then_some(MemoryStep::Shed(view))
    }

    /// Notes that the view of this size is stopped.
    pub(super) fn shed(&self, view: &ViewId, size: ViewSize, now: Instant) {
        let mut ledger = self.memory.ledger.lock();
        ledger.shed.stop(self.id, view, size, now);
    }

    /// The view is fed again.
    pub(super) fn resume(&self, view: &ViewId, now: Instant) {
        self.memory.ledger.lock().shed.resume(view, now);
    }

    /// Returns the resuming view, if the view is this feeder's.
    pub(super) fn resuming(&self, now: Instant) -> Option<ViewId> {
        let ledger = self.memory.ledger.lock();
        let (account, view) = ledger.shed.resuming(now)?;
        (account == self.id).then(|| view.clone())
    }

    /// The source of a view that resumes was read, or refuses to be.
    pub(super) fn end_resume(&self, view: &ViewId, now: Instant) {
        self.memory.ledger.lock().shed.end_resume(view, now);
    }

    /// Nobody needs the view any more.
    pub(super) fn forget(&self, view: &ViewId) {
        self.memory.ledger.lock().shed.forget(view);
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        let mut ledger = self.memory.ledger.lock();
        ledger.accounts.remove(&self.id);
        ledger.shed.forget_account(self.id);
    }
}

/// Returns the failure of a view that was stopped at this size; it may be larger.
pub(super) fn failure(bytes: u64, bytes_max: u64) -> Failure {
    Failure::new(
        own_reason::MEMORY_LIMIT,
        format!(
            "the watcher's memory limit (`--watcher-memory-limit`) of {bytes_max} bytes has no room for this view, \
             whose keys and waiting changes take {bytes} bytes or more. It is read again by itself once there is \
             room: delete objects or entries, narrow this one by namespace or selector, or raise the limit"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn view(name: &str) -> ViewId {
        ViewId::new(name)
    }

    fn of_cluster(bytes: u64) -> ViewSize {
        ViewSize {
            in_quota: false,
            bytes,
        }
    }

    fn usage(bytes: u64, largest: &str, largest_bytes: u64) -> Usage {
        Usage {
            bytes,
            first: Some((view(largest), of_cluster(largest_bytes))),
            can_resume: true,
        }
    }

    fn shed(name: &str) -> Option<MemoryStep> {
        Some(MemoryStep::Shed(view(name)))
    }

    /// Over the limit the largest view goes, whoever has it, and at the limit none.
    #[test]
    fn over_the_memory_limit_the_largest_view_goes() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (one, other) = (memory.account(), memory.account());
        let hundred = PROCESS_BYTES + 100;
        assert_eq!(one.step(hundred, usage(60, "a", 50), now), None);
        let at_the_limit = other.step(hundred, usage(40, "b", 10), now);
        assert_eq!(at_the_limit, None);
        let is_smaller = other.step(hundred, usage(41, "b", 41), now);
        assert_eq!(is_smaller, None);
        assert_eq!(one.step(hundred, usage(60, "a", 50), now), shed("a"));
        drop(other);
        assert_eq!(one.step(hundred, usage(60, "a", 50), now), None);
    }

    #[test]
    fn over_the_memory_limit_a_tenants_view_goes_before_a_larger_one_of_the_cluster() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (one, other) = (memory.account(), memory.account());
        let limit = PROCESS_BYTES + 100;
        let tenants = ViewSize {
            in_quota: true,
            bytes: 1,
        };
        let of_tenant = Usage {
            first: Some((view("b"), tenants)),
            ..usage(1, "b", 1)
        };
        assert_eq!(one.step(limit, usage(100, "a", 100), now), None);
        assert_eq!(other.step(limit, of_tenant, now), shed("b"));
        assert_eq!(one.step(limit, usage(100, "a", 100), now), None);
        other.shed(&view("b"), tenants, now);
        one.shed(&view("a"), of_cluster(20), now);
        let later = now + Duration::from_secs(5);
        let room = || Usage {
            can_resume: true,
            ..Usage::default()
        };
        let resumed = one.step(limit, room(), later);
        assert_eq!(resumed, Some(MemoryStep::Resume(view("a"))));
        let smaller = other.step(limit, room(), later);
        assert_eq!(smaller, None, "the cluster's view comes first");
    }

    /// Memory for entries leaves less for views, until the entries are gone.
    #[test]
    fn entries_count_towards_the_memory_limit_but_never_go() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (coordinator, feeder) = (memory.account(), memory.account());
        let limit = PROCESS_BYTES + 10 * ENTRY_BYTES;
        let step = || feeder.step(limit, usage(ENTRY_BYTES, "a", ENTRY_BYTES), now);
        coordinator.keeps(9);
        assert_eq!(step(), None);
        coordinator.keeps(10);
        assert_eq!(step(), shed("a"));
        let entries = Usage {
            bytes: 11 * ENTRY_BYTES,
            ..Usage::default()
        };
        assert_eq!(coordinator.step(limit, entries, now), None);
        drop(coordinator);
        assert_eq!(step(), None);
    }

    #[test]
    fn a_view_that_was_stopped_is_fed_again_by_its_own_feeder() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (one, other) = (memory.account(), memory.account());
        let limit = PROCESS_BYTES + 1_000;
        one.shed(&view("a"), of_cluster(300), now);
        let later = now + Duration::from_secs(5);
        assert_eq!(one.step(limit, usage(601, "c", 601), later), None);
        let resume = Some(MemoryStep::Resume(view("a")));
        assert_eq!(one.step(limit, usage(600, "c", 600), later), resume);
        assert_eq!(other.step(limit, Usage::default(), later), None);
        one.forget(&view("a"));
        assert_eq!(one.step(limit, usage(600, "c", 600), later), None);
    }

    #[test]
    fn a_feeder_that_cannot_feed_views_again_yet_holds_up_no_other() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (unsettled, other) = (memory.account(), memory.account());
        let limit = PROCESS_BYTES + 1_000;
        unsettled.shed(&view("a"), of_cluster(100), now);
        other.shed(&view("b"), of_cluster(200), now);
        let later = now + Duration::from_secs(5);
        let waits = Usage {
            can_resume: false,
            ..usage(0, "c", 0)
        };
        let resume = |name| Some(MemoryStep::Resume(view(name)));
        assert_eq!(unsettled.step(limit, waits, later), None);
        assert_eq!(other.step(limit, usage(0, "d", 0), later), resume("b"));
        let settled = unsettled.step(limit, usage(0, "c", 0), later);
        assert_eq!(settled, resume("a"), "the smallest of all");
        assert_eq!(other.step(limit, usage(0, "d", 0), later), None);
    }

    #[test]
    fn a_view_that_resumes_goes_before_larger_ones_until_it_is_read() {
        let (memory, now) = (Memory::default(), Instant::now());
        let (one, other) = (memory.account(), memory.account());
        let limit = PROCESS_BYTES + 1_000;
        one.shed(&view("a"), of_cluster(300), now);
        one.resume(&view("a"), now);
        assert_eq!(other.step(limit, usage(900, "b", 900), now), None);
        assert_eq!(one.step(limit, usage(200, "a", 200), now), shed("a"));
        let others = other.step(limit, usage(900, "b", 900), now);
        assert_eq!(others, None, "the view that resumes is stopped first");
        assert_eq!(other.resuming(now), None);
        assert_eq!(one.resuming(now), Some(view("a")));
        one.end_resume(&view("a"), now);
        assert_eq!(one.step(limit, usage(200, "a", 200), now), None);
        assert_eq!(other.step(limit, usage(900, "b", 900), now), shed("b"));
    }

    #[test]
    fn a_failure_says_the_limit_the_size_and_what_to_do() {
        let failure = failure(300, 1_000);
        assert_eq!(failure.reason, own_reason::MEMORY_LIMIT);
        for part in [
            "`--watcher-memory-limit`) of 1000 bytes",
            "300 bytes or more",
            "narrow this one by namespace or selector, or raise the limit",
        ] {
            assert!(failure.message.contains(part), "{failure}");
        }
    }
}
