//! When a run stood still: the slow requests put together, and whether the machine itself did.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use super::{clock::wake_in_time, tally::Times};

/// A request that took as long is a part of a stall.
const SLOW_MIN: Duration = Duration::from_millis(10);

/// Slow requests that are kept, by each worker; of more than that the run is slow as a whole.
const SLOW_MAX: usize = 4_096;

/// Stalls that are reported, the longest.
const STALLS_MAX: usize = 5;

/// The interval at which the watch over the machine wakes up, and how late it must be to be told.
const WATCH_INTERVAL: Duration = Duration::from_millis(1);
const LATE_MIN: Duration = Duration::from_millis(5);

/// Slow requests whose times overlap.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// When the first of them was due, in milliseconds since the run's start.
    pub at_ms: f64,
    /// Until the last of them was answered.
    pub lasted_ms: f64,
    /// The number of requests that were late.
    pub requests: usize,
    /// The longest from when one was due to its being sent: connections were in use, or the generator
    /// was late.
    pub unsent_ms: f64,
    /// The longest from when one was sent to its answer.
    pub unanswered_ms: f64,
    /// The most that an idle thread of the generator was woken late meanwhile: the
    /// machine's cores were taken. 0: in time.
    pub machine_late_ms: f64,
}

/// A worker's slow requests.
#[derive(Debug, Default)]
pub(super) struct Slow {
    kept: Vec<Times>,
}

impl Slow {
    pub(super) fn record(&mut self, times: Times) {
        let slow = times.answered.saturating_sub(times.due) >= SLOW_MIN;
        if slow && self.kept.len() < SLOW_MAX {
            self.kept.push(times);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.kept.extend(other.kept);
    }

    /// The longest stalls, the longest first.
    pub(super) fn stalls(mut self, late: &[Late]) -> Vec<Stall> {
        self.kept.sort_by_key(|times| times.due);
        let mut groups: Vec<(Duration, Vec<Times>)> = Vec::new();
        for times in self.kept {
            match groups.last_mut() {
                Some((until, group)) if times.due <= *until => {
                    *until = times.answered.max(*until);
                    group.push(times);
                }
                _ => groups.push((times.answered, vec![times])),
            }
        }
        let stalls = groups
            .iter()
            .map(|(until, group)| stall(*until, group, late));
        let mut stalls: Vec<Stall> = stalls.collect();
        stalls.sort_by(|a, b| b.lasted_ms.total_cmp(&a.lasted_ms));
        stalls.truncate(STALLS_MAX);
        stalls
    }
}

fn stall(until: Duration, group: &[Times], late: &[Late]) -> Stall {
    let from = group.first().map_or(until, |times| times.due);
    let longest = |of: fn(&Times) -> Duration| ms(group.iter().map(of).max().unwrap_or_default());
    let meanwhile = late
        .iter()
        .filter(|late| late.woken >= from && late.due <= until)
        .map(|late| late.woken - late.due);
    Stall {
        at_ms: ms(from),
        lasted_ms: ms(until.saturating_sub(from)),
        requests: group.len(),
        unsent_ms: longest(|times| times.sent.saturating_sub(times.due)),
        unanswered_ms: longest(|times| times.answered.saturating_sub(times.sent)),
        machine_late_ms: ms(meanwhile.max().unwrap_or_default()),
    }
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e5).round() / 1e2
}

/// A time when a thread that has nothing else to do was woken late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    due: Duration,
    woken: Duration,
}

/// Watches over the machine while a run goes on.
#[derive(Debug)]
pub(super) struct MachineWatch {
    over: Arc<AtomicBool>,
    watching: Option<thread::JoinHandle<Vec<Late>>>,
}

impl Drop for MachineWatch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl MachineWatch {
    /// Begins. Times are since `start`.
    pub(super) fn begin(start: Instant) -> std::io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let watch = move || {
            wake_in_time();
            let mut late = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let due = start.elapsed() + WATCH_INTERVAL;
                thread::park_timeout(WATCH_INTERVAL);
                let woken = start.elapsed();
                if woken.saturating_sub(due) >= LATE_MIN {
                    late.push(Late { due, woken });
                }
            }
            late
        };
        let watching = thread::Builder::new()
            .name("load-watch".into())
            .spawn(watch)?;
        Ok(Self {
            over,
            watching: Some(watching),
        })
    }

    /// When it was woken late.
    pub(super) fn end(mut self) -> Vec<Late> {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.watching.take().map(thread::JoinHandle::join);
        // A watch that panicked saw nothing.
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(due: u64, sent: u64, answered: u64) -> Times {
        let ms = Duration::from_millis;
        Times {
            due: ms(due),
            sent: ms(sent),
            answered: ms(answered),
        }
    }

    #[test]
    fn requests_that_were_slow_together_are_one_stall() {
        let mut slow = Slow::default();
        for of in [
            times(1_000, 1_000, 1_009),
            times(100, 100, 160),
            times(150, 160, 161),
            times(500, 515, 520),
        ] {
            slow.record(of);
        }
        let mut other = Slow::default();
        other.record(times(110, 110, 160));
        slow.merge(other);
        let late = Late {
            due: Duration::from_millis(90),
            woken: Duration::from_millis(130),
        };
        let stalls = slow.stalls(&[late]);
        let longest = Stall {
            at_ms: 100.0,
            lasted_ms: 61.0,
            requests: 3,
            unsent_ms: 10.0,
            unanswered_ms: 60.0,
            machine_late_ms: 40.0,
        };
        assert_eq!(stalls[0], longest);
        assert_eq!((stalls[1].at_ms, stalls[1].machine_late_ms), (500.0, 0.0));
        assert_eq!(stalls.len(), 2);
    }
}
