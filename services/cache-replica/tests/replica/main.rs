//! A replica on the in-process bus, with a writer of the log beside it.

#![allow(
    clippy::unwrap_used,
    reason = "clippy does not see that the helpers of a test are part of it"
)]

mod cel;
mod counts;
mod failures;
mod fallback;
mod harness;
mod indexes;
mod lifecycle;
mod local;
mod memory;
mod queries;
mod retained;
mod scans;
mod sealed;
mod selections;
mod shares;
