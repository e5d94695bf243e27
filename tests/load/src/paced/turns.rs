//! When each request is due.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The rhythm of successive requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each worker's next is due when its last is answered.
    Closed,
    /// So many become due a second, evenly, whatever becomes of those before. More than 0.
    Open {
        /// Requests a second, over all workers.
        per_second: f64,
    },
}

/// Hands out turns to all workers of a run. Times are since the run's start.
#[derive(Debug)]
pub(crate) struct Turns {
    pace: Pace,
    /// No turn is due from then on.
    lasts: Duration,
    /// No turn is taken from then on, due or not.
    cut: Duration,
    next: AtomicU64,
}

impl Turns {
    pub(crate) fn new(pace: Pace, lasts: Duration, grace: Duration) -> Self {
        Self {
            pace,
            lasts,
            cut: lasts * 2 + grace,
            next: AtomicU64::new(0),
        }
    }

    /// When the next request is due, which is the caller's from now on; `None`: the run is over.
    pub(crate) fn next(&self, now: Duration) -> Option<Duration> {
        match self.pace {
            Pace::Closed => (now < self.lasts).then_some(now),
            Pace::Open { .. } if now >= self.cut => None,
            Pace::Open { .. } => self.due(self.next.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// When request `index` of an open loop is due; `None`: it never is.
    pub(crate) fn due(&self, index: u64) -> Option<Duration> {
        let Pace::Open { per_second } = self.pace else {
            return None;
        };
        let due = Duration::try_from_secs_f64(index as f64 / per_second).ok()?;
        (due < self.lasts).then_some(due)
    }

    /// Returns the number of requests that became due and that nobody took.
    pub(crate) fn left(&self) -> u64 {
        let Pace::Open { per_second } = self.pace else {
            return 0;
        };
        let all = (self.lasts.as_secs_f64() * per_second).ceil() as u64;
        all.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}
