//! Time, to the microsecond.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// Time since a run's start. A seam: in tests time goes by as a stub says.
pub(crate) trait Clock {
    /// Returns the time since the clock began.
    fn now(&self) -> Duration;
    /// Returns at `at`, or at once where that is past.
    fn wait_until(&self, at: Duration);
}

/// The machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    pub(crate) start: Instant,
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait_until(&self, at: Duration) {
        while let Some(left) = at.checked_sub(self.now()).filter(|left| !left.is_zero()) {
            // Timers of the async runtime are a millisecond coarse, several times what is measured.
            thread::park_timeout(left);
        }
    }
}

/// Asks the kernel to wake this thread when it is due rather than up to 50 µs later. Where it does not
/// listen, requests are sent that much later than they are due, which counts as their latency.
pub(crate) fn wake_in_time() {
    let id = fs::read_link("/proc/thread-self");
    let id = id.ok().and_then(|path| Some(path.file_name()?.to_owned()));
    if let Some(id) = id {
        let path = std::path::Path::new("/proc").join(id).join("timerslack_ns");
        let _ = fs::write(path, "1");
    }
}

/// CPU time that this thread took so far; zero where the kernel does not tell.
pub(crate) fn thread_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let on_cpu_ns = stat
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok());
    Duration::from_nanos(on_cpu_ns.unwrap_or_default())
}
