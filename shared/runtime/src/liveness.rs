//! The liveness of the runtime that does the work: if it still runs its tasks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// The interval at which the runtime runs a task to prove its liveness.
const TICK: Duration = Duration::from_secs(1);

/// A runtime that has run no task for so long is stuck: far longer than any work that holds up a thread.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The time at which the runtime last ran a task. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Liveness(Arc<Mutex<Instant>>);

impl Liveness {
    /// The runtime runs `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    /// Notes again and again that the runtime runs. Spawn it there. Never ends.
    pub(crate) async fn keep(self) -> std::convert::Infallible {
        loop {
            self.note(Instant::now());
            tokio::time::sleep(TICK).await;
        }
    }

    fn note(&self, now: Instant) {
        *self.0.lock() = now;
    }

    /// Returns for how long the runtime has run no task, if that is too long.
    pub(crate) fn stuck_for(&self, now: Instant) -> Option<Duration> {
        let last = *self.0.lock();
        let silent = now.saturating_duration_since(last);
        (silent > SILENCE_MAX).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_stuck_after_too_long_a_silence() {
        let begun = Instant::now();
        let liveness = Liveness::new(begun);
        assert_eq!(liveness.stuck_for(begun + SILENCE_MAX), None);
        let late = SILENCE_MAX + Duration::from_millis(1);
        assert_eq!(liveness.stuck_for(begun + late), Some(late));
        liveness.note(begun + late);
        assert_eq!(liveness.stuck_for(begun + late), None);
    }

    #[tokio::test]
    async fn a_running_runtime_reports_liveness() {
        let long_ago = Instant::now()
            .checked_sub(2 * SILENCE_MAX)
            .unwrap_or_else(Instant::now);
        let liveness = Liveness::new(long_ago);
        tokio::select! {
            biased;
            never = liveness.clone().keep() => match never {},
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(liveness.stuck_for(Instant::now()), None);
    }
}
