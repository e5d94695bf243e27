//! The space in the log, as the writer of one group knows it. Pure.
//!
//! nats-server does not subtract the records that an atomic batch replaces, nor does it for any write of a replicated
//! stream. So this module keeps a part of the log free for deletions:
//!
//! | bytes of the log | written up to there |
//! |---|---|
//! | the limit, less two reserves | objects of tenants' views, and of views that take more than an eighth of the log |
//! | the limit, less one reserve | objects of all other views |
//! | the limit | tombstones, control records, leases, objects of system views |
//!
//! Tenants' views are those that only policies of namespaces need. The writers of other groups cannot suspend them, so
//! one reserve is beyond their reach.
//!
//! A reserve is a tenth of the limit, and [`RESERVE_BYTES_MAX`] at most. An object counts by the growth of the log:
//! an object that replaces one of the same size needs no room.

use anteroom_bus::LogSize;

/// The largest part of the log that is kept free for one of the two levels.
const RESERVE_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// A reserve is the limit divided by this.
const RESERVE_PART: u64 = 10;

/// A view that takes more than the limit divided by this is large.
const LARGE_PART: u64 = 8;

/// The bytes that the log keeps of a record beside its body, about: subject, headers and framing.
const RECORD_BYTES: u64 = 320;

/// Returns the bytes that this many objects take in the log, about.
pub(super) fn bytes_in_log(objects: u64, body_bytes: u64) -> u64 {
    body_bytes.saturating_add(objects.saturating_mul(RECORD_BYTES))
}

/// The size of the log at the last look, with the writes of this writer since then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogSpace {
    size: LogSize,
}

impl LogSpace {
    /// The log was looked at.
    pub(super) fn set(&mut self, size: LogSize) {
        self.size = size;
    }

    /// So many bytes are about to be written.
    pub(super) fn take(&mut self, bytes: u64) {
        self.size.bytes = self.size.bytes.saturating_add(bytes);
    }

    /// So many bytes are about to be removed.
    pub(super) fn free(&mut self, bytes: u64) {
        self.size.bytes = self.size.bytes.saturating_sub(bytes);
    }

    /// Returns whether a view of this size is large.
    pub(super) fn is_large(&self, view_bytes: u64) -> bool {
        let bytes_max = self.size.bytes_max;
        bytes_max.is_some_and(|bytes_max| view_bytes > bytes_max / LARGE_PART)
    }

    /// Returns whether objects of this size may be written. `stops_early`: their view leaves a reserve to other views.
    pub(super) fn holds(&self, bytes: u64, stops_early: bool) -> bool {
        let Some(bytes_max) = self.size.bytes_max else {
            return true;
        };
        let reserve = (bytes_max / RESERVE_PART).min(RESERVE_BYTES_MAX);
        let reserves = 1 + u64::from(stops_early);
        self.size.bytes.saturating_add(bytes) <= bytes_max - reserve * reserves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(bytes: u64, bytes_max: u64) -> LogSpace {
        let mut space = LogSpace::default();
        space.set(LogSize {
            bytes,
            bytes_max: Some(bytes_max),
        });
        space
    }

    #[test]
    fn a_log_without_a_limit_holds_everything() {
        let space = LogSpace::default();
        assert!(space.holds(u64::MAX, true));
        assert!(!space.is_large(u64::MAX));
    }

    #[test]
    fn a_view_that_stops_early_leaves_one_reserve_to_the_others() {
        let space = space(750, 1_000);
        assert!(space.holds(50, true));
        assert!(!space.holds(51, true));
        assert!(space.holds(150, false));
        assert!(!space.holds(151, false));
    }

    #[test]
    fn a_view_is_large_beyond_an_eighth_of_the_log() {
        let space = space(0, 1_000);
        assert!(!space.is_large(125));
        assert!(space.is_large(126));
    }

    #[test]
    fn a_reserve_is_limited() {
        const GIB: u64 = 1024 * 1024 * 1024;
        let space = space(0, 100 * GIB);
        assert!(space.holds(100 * GIB - RESERVE_BYTES_MAX, false));
        assert!(!space.holds(100 * GIB - RESERVE_BYTES_MAX + 1, false));
    }

    #[test]
    fn what_is_written_and_removed_counts_until_the_log_is_looked_at() {
        let mut space = space(0, 1_000);
        space.take(900);
        assert!(!space.holds(1, false));
        space.free(500);
        assert!(space.holds(500, false));
    }
}
