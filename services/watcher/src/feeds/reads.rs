//! A pace for reads of single objects beside a watch, so that they stay few.

use std::time::Duration;

use tokio::time::Instant;

/// The period in which as many single objects are read as may be read at once.
const READS_PERIOD: Duration = Duration::from_millis(50);

/// The most lists beside one watch at a time. For more, the watch lists again, on behalf of all.
pub(super) const JOINS_MAX: usize = 8;

/// The reads that began of late.
#[derive(Debug, Default)]
pub(super) struct Reads {
    since: Option<Instant>,
    count: usize,
}

impl Reads {
    /// Counts a read, if the read may begin. `free`: the number of reads that may run beside the running reads.
    pub(super) fn may_begin(&mut self, free: usize) -> bool {
        let over = |since: Instant| since.elapsed() >= READS_PERIOD;
        if self.since.is_none_or(over) {
            (self.since, self.count) = (Some(Instant::now()), 0);
        }
        let may = free > 0 && self.count < JOINS_MAX;
        self.count += usize::from(may);
        may
    }
}
