//! Load at a pace: requests that are due at fixed times (open loop), or as soon as the one before is
//! answered (closed loop), by a client cheap enough to share two cores with what it measures.
//!
//! In an open loop a request's latency counts from when it was *due*, not from when a connection was
//! free to send it. So a stall of the server counts against every request that was due meanwhile, as
//! it does for whoever waits for an admission.

mod alarm;
mod clock;
mod drive;
mod glance;
mod http1;
mod http2;
mod question;
mod stalls;
mod tally;
mod template;
mod turns;

#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::ensure;

use crate::Target;

pub use question::{Case, Hosts, Questions};
pub use stalls::Stall;
pub use tally::{PacedReport, Spread};
pub use template::{Slot, Template};
pub use turns::Pace;

/// The protocol that reviews travel by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: each of `at_once` has a connection of its own, kept alive.
    Http1,
    /// HTTP/2: `at_once` streams on one connection.
    Http2,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Paced {
    /// The webhook that reviews are posted to.
    pub target: Target,
    /// The protocol that they travel by.
    pub protocol: Protocol,
    /// Reviews under way at most: connections, or streams. At least 1.
    pub at_once: usize,
    /// When each is due.
    pub pace: Pace,
    /// For how long reviews become due. One that is due before the end is posted after it, where the
    /// server was late, for as long again and [`Paced::GRACE`].
    pub lasts: Duration,
    /// The questions that are asked.
    pub questions: Questions,
}

impl Paced {
    /// The time by which a run may exceed its length, to post what was due.
    pub const GRACE: Duration = Duration::from_secs(5);

    /// Posts that open each connection or stream, and of which no latency counts.
    const WARM_UP_POSTS: usize = 10;

    /// The posts of a run that its report does not count. The measured cost of a run includes these posts.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        (Self::WARM_UP_POSTS * self.at_once) as u64
    }

    /// Posts as planned, on threads of its own, and waits for them: call it where blocking is allowed.
    ///
    /// # Errors
    /// The server cannot be reached at all. An answer that is missing or wrong is counted.
    pub fn run(&self) -> anyhow::Result<PacedReport> {
        ensure!(self.at_once > 0, "a run needs at least one connection");
        match self.protocol {
            Protocol::Http1 => http1::run(self),
            Protocol::Http2 => http2::run(self),
        }
    }
}
