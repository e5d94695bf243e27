//! The webhook's heartbeat: its liveness, and the log position up to which it enforces policies.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, BusExt as _};
use anteroom_engine::catalog::{Catalogs, LogPosition};
use anteroom_model::{Revision, ViewId, limits::WEBHOOK_BEAT_INTERVAL_MS};
use anteroom_runtime::Shutdown;
use anteroom_wire::webhook_beat::WebhookBeat;
use futures::future::select_all;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::registration::ProvenPosition;

/// Limit for the last beat: the bus may be away.
const LEAVING_MAX: Duration = Duration::from_millis(500);

/// Publishes the position up to which this webhook enforces the log, every `WEBHOOK_BEAT_INTERVAL_MS` and whenever
/// the position changes.
pub(crate) struct Beats {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) webhook: String,
    pub(crate) catalogs: Catalogs,
    /// The positions of the configurations, one for each. Empty if another program keeps the configurations, and
    /// ensures that the API server calls this webhook.
    pub(crate) proven: Vec<watch::Receiver<ProvenPosition>>,
    /// The furthest position of a log that was compiled, of the last log that was read.
    pub(crate) furthest: LogPosition,
    /// The system views that the log contradicts.
    pub(crate) contradicted: watch::Receiver<Vec<ViewId>>,
}

impl Beats {
    /// Beats until shutdown, from before anything was read: the coordinator, which decides when a policy is
    /// enforced, has to know of a webhook that is about to write its configuration. Then says that it leaves.
    pub(crate) async fn run(mut self, shutdown: Shutdown) -> anyhow::Result<()> {
        let stop = shutdown.token();
        stop.run_until_cancelled(self.beating()).await;
        let last = WebhookBeat {
            leaving: true,
            ..self.beat()
        };
        let sent = timeout(LEAVING_MAX, self.bus.send(&last)).await;
        if !matches!(sent, Ok(Ok(()))) {
            tracing::debug!(
                "last heartbeat not sent: policies wait for this webhook until its silence is noticed"
            );
        }
        Ok(())
    }

    async fn beating(&mut self) {
        let mut connection = self.bus.connection();
        let mut due = interval(Duration::from_millis(WEBHOOK_BEAT_INTERVAL_MS));
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = due.tick() => {}
                Ok(()) = connection.changed() => {}
                Ok(()) = self.catalogs.changed() => {}
                Ok(()) = changed(&mut self.proven) => {}
            }
            let beat = self.beat();
            if let Err(error) = self.bus.send(&beat).await {
                tracing::debug!(%error, "heartbeat not sent: the next one follows");
            }
        }
    }

    fn beat(&mut self) -> WebhookBeat {
        let compiled = self.catalogs.borrow_and_update().clone();
        let proven = self.proven.iter_mut();
        let proven = proven.map(|proven| proven.borrow_and_update().clone());
        let proven = proven.reduce(|one, other| one.and(&other));
        let compiled = compiled.map(|catalog| catalog.position.clone());
        note_furthest(&mut self.furthest, compiled.clone().unwrap_or_default());
        WebhookBeat {
            furthest: self.furthest.revision,
            contradicted: self.contradicted.borrow().clone(),
            ..beat(&self.webhook, compiled, proven.as_ref())
        }
    }
}

/// Notes how far the log was compiled. A log that lost its last records is compiled anew from its begin.
fn note_furthest(furthest: &mut LogPosition, compiled: LogPosition) {
    if compiled.incarnation == furthest.incarnation {
        furthest.revision = furthest.revision.max(compiled.revision);
    } else {
        *furthest = compiled;
    }
}

/// Waits for a change of the called positions; for ever, if there are none.
async fn changed(
    proven: &mut [watch::Receiver<ProvenPosition>],
) -> Result<(), watch::error::RecvError> {
    let changes = proven.iter_mut().map(|proven| Box::pin(proven.changed()));
    let changes: Vec<_> = changes.collect();
    match changes.is_empty() {
        true => std::future::pending().await,
        false => select_all(changes).await.0,
    }
}

fn beat(
    webhook: &str,
    compiled: Option<LogPosition>,
    proven: Option<&ProvenPosition>,
) -> WebhookBeat {
    let compiled = compiled.unwrap_or_default();
    let enforced = match proven {
        None => compiled.revision,
        // Positions of different logs say nothing of each other, nor do those of before and after a loss of records.
        Some(proven) if !proven.position.is_comparable_to(&compiled) => Revision(0),
        Some(proven) => proven.position.revision.min(compiled.revision),
    };
    let LogPosition {
        incarnation,
        revision,
        ..
    } = compiled;
    WebhookBeat {
        webhook: webhook.to_owned(),
        leaving: false,
        incarnation,
        compiled: revision,
        enforced,
        trouble: proven.and_then(|proven| proven.trouble.clone()),
        furthest: revision,
        contradicted: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Failure, Incarnation};

    use super::*;

    #[test]
    fn a_webhook_tells_the_furthest_position_of_the_log_that_it_reads() {
        let mut furthest = LogPosition::default();
        for (log, compiled, expected) in [("a", 7, 7), ("a", 5, 7), ("b", 2, 2), ("b", 3, 3)] {
            let compiled = LogPosition {
                incarnation: Incarnation(log.into()),
                revision: Revision(compiled),
                ..LogPosition::default()
            };
            note_furthest(&mut furthest, compiled);
            assert_eq!(furthest.revision, Revision(expected));
        }
    }

    #[test]
    fn a_webhook_beat_claims_only_policies_compiled_and_called_for() {
        let at = |log: &str, revision| LogPosition {
            incarnation: Incarnation(log.into()),
            revision: Revision(revision),
            ..LogPosition::default()
        };
        let anew = |revision| LogPosition {
            shortened: 1,
            ..at("a", revision)
        };
        let proven = |position| ProvenPosition {
            position,
            trouble: Some(Failure::new("X", "why")),
        };
        for (compiled, proven_for, expected) in [
            (None, Some(proven(LogPosition::default())), ("", 0, 0)),
            (Some(at("a", 7)), None, ("a", 7, 7)),
            (Some(at("a", 7)), Some(proven(at("a", 5))), ("a", 7, 5)),
            (Some(at("a", 7)), Some(proven(at("a", 9))), ("a", 7, 7)),
            (Some(at("b", 2)), Some(proven(at("a", 9))), ("b", 2, 0)),
            (Some(anew(5)), Some(proven(at("a", 9))), ("a", 5, 0)),
            (Some(anew(5)), Some(proven(anew(4))), ("a", 5, 4)),
        ] {
            let said = beat("w", compiled, proven_for.as_ref());
            let (log, compiled, enforced) = expected;
            assert_eq!(said.incarnation, Incarnation(log.into()));
            assert_eq!(
                (said.compiled, said.enforced),
                (Revision(compiled), Revision(enforced))
            );
            assert_eq!(said.trouble.is_some(), proven_for.is_some());
        }
    }
}
