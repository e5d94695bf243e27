//! Counters of a client of the bus.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a client of the bus since it started. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections made, the first one included.
    pub connects: u64,
    /// Messages that were dropped because a queue of this process was full. Records among them are
    /// read again; a call's caller times out.
    pub dropped: u64,
    /// Times that a follower lost the log and went on.
    pub resumes: u64,
    /// Calls that could not be read.
    pub calls_unreadable: u64,
}

#[derive(Debug, Default)]
pub(crate) struct CounterCells {
    connects: AtomicU64,
    dropped: AtomicU64,
    resumes: AtomicU64,
    calls_unreadable: AtomicU64,
}

impl CounterCells {
    pub(crate) fn connected(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn resumed(&self) {
        self.resumes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_unreadable_call(&self) {
        self.calls_unreadable.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Counters {
            connects: read(&self.connects),
            dropped: read(&self.dropped),
            resumes: read(&self.resumes),
            calls_unreadable: read(&self.calls_unreadable),
        }
    }
}
