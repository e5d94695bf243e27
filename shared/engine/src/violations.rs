//! Tells the reporter about requests that violate rules, so that the reporter writes Events.
//!
//! A decision never waits for the reporter: a violation that finds the queue full is dropped and counted. The next
//! scan finds the violations of stored objects again. Namespaces share the queue: a flood of one drops its own.

use std::sync::Arc;

use anteroom_bus::{Bus, BusExt as _};
use anteroom_runtime::{
    Shutdown,
    fair_quota::{FairPermit, FairQuota},
};
use anteroom_wire::violation::Violation;
use tokio::sync::mpsc;

use crate::recorder::SharedRecorder;

/// Violations that wait to be sent.
const WAITING_MAX: usize = 256;

/// Violations of one namespace that wait to be sent. Those outside of namespaces have so many together.
const WAITING_PER_NAMESPACE_MAX: usize = WAITING_MAX / 4;

/// A violation in the queue, and its place there.
type Waiting = (Violation, FairPermit<String>);

/// A bounded queue of violations for the reporter. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Violations {
    queue: mpsc::Sender<Waiting>,
    /// The places in the queue, by namespace.
    places: Arc<FairQuota<String>>,
    recorder: SharedRecorder,
}

impl Violations {
    /// Returns the queue, and the future that sends its violations until shutdown.
    pub fn new(
        bus: Arc<dyn Bus>,
        recorder: SharedRecorder,
        shutdown: Shutdown,
    ) -> (Self, impl Future<Output = anyhow::Result<()>> + use<>) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let places = FairQuota::new(WAITING_MAX as u64, WAITING_PER_NAMESPACE_MAX as u64);
        let sending = send(bus, waiting, Arc::clone(&recorder), shutdown);
        let violations = Self {
            queue,
            places,
            recorder,
        };
        (violations, sending)
    }

    /// Hands over a violation, and waits for nothing.
    pub fn send(&self, violation: Violation) {
        let place = self.places.try_take(violation.namespace.clone(), 1);
        let is_put = place.is_ok_and(|place| self.queue.try_send((violation, place)).is_ok());
        if !is_put {
            self.recorder.violation("dropped");
        }
    }
}

async fn send(
    bus: Arc<dyn Bus>,
    mut waiting: mpsc::Receiver<Waiting>,
    recorder: SharedRecorder,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    loop {
        let next = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            next = waiting.recv() => next,
        };
        let Some((violation, place)) = next else {
            stop.cancelled().await; // Nobody tells any more: the server has ended.
            return Ok(());
        };
        drop(place);
        let sent = bus.send(&violation).await;
        recorder.violation(if sent.is_ok() { "sent" } else { "failed" });
        if let Err(error) = sent {
            tracing::debug!(%error, "violation not published");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anteroom_bus::local::LocalBus;

    use super::*;
    use crate::recorder::Recorder;

    /// Counts violations that are dropped.
    #[derive(Debug, Default)]
    struct Dropped(AtomicUsize);

    impl Recorder for Dropped {
        fn violation(&self, outcome: &'static str) {
            assert_eq!(outcome, "dropped");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_flood_of_violations_of_one_namespace_drops_none_of_another() {
        let dropped = Arc::new(Dropped::default());
        let recorder = Arc::<Dropped>::clone(&dropped);
        let bus = Arc::new(LocalBus::new());
        // Nothing is sent meanwhile.
        let (violations, _sending) = Violations::new(bus, recorder, Shutdown::new());
        let found = |namespace: &str, count: usize| {
            for _ in 0..count {
                violations.send(Violation {
                    namespace: namespace.to_owned(),
                    ..Violation::default()
                });
            }
            dropped.0.load(Ordering::Relaxed)
        };
        assert_eq!(found("busy", WAITING_PER_NAMESPACE_MAX), 0);
        assert_eq!(found("busy", 2), 2);
        assert_eq!(found("other", WAITING_PER_NAMESPACE_MAX), 2);
        assert_eq!(found("", 1), 2);
    }
}
