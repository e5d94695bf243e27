//! The wall clock, for times that people, certificates, leases of Kubernetes and policies read.
//!
//! Waits are durations of `Instant`, and ages are counted by [`age_clock`](crate::age_clock). Clippy forbids other
//! readings of the wall clock, so that every one is found by the name of [`now`].

use jiff::Timestamp;

/// Returns the time of the machine's wall clock, which may jump. Never subtract it from another machine's.
#[expect(
    clippy::disallowed_methods,
    reason = "everybody else reads the wall clock here"
)]
pub fn now() -> Timestamp {
    Timestamp::now()
}
