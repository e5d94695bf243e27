//! Tells the reporter about requests that violate rules, so that the reporter writes Events.
//!
//! A decision never waits for the reporter: a violation that finds the queue full is dropped and counted. The next
//! scan finds the violations of stored objects again.

use std::sync::Arc;

use anteroom_bus::{Bus, BusExt as _};
use anteroom_runtime::Shutdown;
use anteroom_wire::violation::Violation;
use tokio::sync::mpsc;

use crate::recorder::SharedRecorder;

/// Violations that wait to be sent.
const WAITING_MAX: usize = 256;

/// A bounded queue of violations for the reporter. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Violations {
    queue: mpsc::Sender<Violation>,
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
        let sending = send(bus, waiting, Arc::clone(&recorder), shutdown);
        (Self { queue, recorder }, sending)
    }

    /// Hands over a violation, and waits for nothing.
    pub fn send(&self, violation: Violation) {
        if self.queue.try_send(violation).is_err() {
            self.recorder.violation("dropped");
        }
    }
}

async fn send(
    bus: Arc<dyn Bus>,
    mut waiting: mpsc::Receiver<Violation>,
    recorder: SharedRecorder,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    loop {
        let violation = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            violation = waiting.recv() => violation,
        };
        let Some(violation) = violation else {
            stop.cancelled().await; // Nobody tells any more: the server has ended.
            return Ok(());
        };
        let sent = bus.send(&violation).await;
        recorder.violation(if sent.is_ok() { "sent" } else { "failed" });
        if let Err(error) = sent {
            tracing::debug!(%error, "violation not published");
        }
    }
}
