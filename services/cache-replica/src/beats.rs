//! The replica's heartbeat: its liveness, its views, and the references that webhooks asked for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Bus, BusError, BusExt as _};
use anteroom_mirror::{Mirror, MirrorMetrics, ViewSet};
use anteroom_model::{ViewId, limits::REPLICA_BEAT_INTERVAL_MS};
use anteroom_wire::{
    query::CEL_VERSION,
    replica_beat::{CONTRADICTED_VIEWS_MAX, ReplicaBeat, ReplicaView},
};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{metrics::QueryMetrics, references::References};

/// The interval at which the views are looked at. A change is sent this much later at most.
const LOOK: Duration = Duration::from_millis(100);

/// The longest wait for the last beat: the bus may be away.
const LEAVING_MAX: Duration = Duration::from_millis(500);

/// Publishes the views that the replica holds, every `REPLICA_BEAT_INTERVAL_MS` and whenever they change.
pub(crate) struct Beats {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) replica: String,
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) mirrored: MirrorMetrics,
    pub(crate) references: Arc<References>,
    pub(crate) bytes_max: Option<u64>,
    pub(crate) metrics: QueryMetrics,
    /// Dropped once the replica has sent a last beat that it leaves, received or not: then endpoints may close.
    pub(crate) leaving: DropGuard,
}

/// The state of each view. A change of one makes a heartbeat due.
type States = BTreeMap<ViewId, &'static str>;

impl Beats {
    /// Beats until `stop`; then says that the replica leaves.
    pub(crate) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        stop.run_until_cancelled(self.beating()).await;
        let last = ReplicaBeat {
            replica: self.replica.clone(),
            leaving: true,
            ..ReplicaBeat::default()
        };
        if timeout(LEAVING_MAX, self.bus.send(&last)).await.is_err() {
            tracing::debug!(
                "last heartbeat not sent: others learn of this replica's end by its silence"
            );
        }
        drop(self.leaving);
        Ok(())
    }

    async fn beating(&self) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut told, mut told_at) = (None, Instant::now());
        // Another replica of this name may have been heard before.
        let mut round: u64 = rand::random();
        let mut sends = true;
        loop {
            let asked = tokio::select! {
                () = self.references.wait_until_asked() => true,
                _ = look.tick() => false,
            };
            let states = self.states();
            let due = told_at.elapsed() >= Duration::from_millis(REPLICA_BEAT_INTERVAL_MS);
            if !asked && !due && told.as_ref() == Some(&states) {
                continue;
            }
            // What could not be sent is asked for again by whoever asks next.
            round = round.wrapping_add(1);
            let sent = self.send(round).await;
            told_at = Instant::now();
            if let Err(error) = &sent {
                self.metrics.beat_unsent();
                // Once: the bus may be away for long.
                if std::mem::replace(&mut sends, false) {
                    tracing::warn!(
                        %error,
                        "heartbeat not sent: the next one follows; check NATS if this repeats"
                    );
                }
            } else {
                (told, sends) = (Some(states), true);
            }
        }
    }

    /// Sends a beat, page by page.
    async fn send(&self, round: u64) -> Result<(), BusError> {
        for page in self.beat().pages(round) {
            self.bus.send(&page).await?;
        }
        Ok(())
    }

    fn states(&self) -> States {
        let views = Arc::clone(&self.mirror.views().borrow());
        let states = views.iter().map(|(id, view)| {
            let name = view.status().borrow().state.name();
            (id.clone(), name)
        });
        states.collect()
    }

    fn beat(&self) -> ReplicaBeat {
        let held = Arc::clone(&self.mirror.views().borrow());
        let views = held.iter().map(|(id, view)| {
            let status = view.status();
            let status = status.borrow();
            ReplicaView {
                view: id.clone(),
                state: status.state.name().to_owned(),
                bytes: status.bytes,
            }
        });
        let views: Vec<_> = views.collect();
        ReplicaBeat {
            replica: self.replica.clone(),
            leaving: false,
            bytes: views.iter().map(|view| view.bytes).sum(),
            bytes_max: self.bytes_max,
            page: None,
            views,
            ages_ms: ages_ms(&held),
            asked: self.references.take_asked(),
            read: self.references.take_read(),
            cel: CEL_VERSION,
            digest_mismatches: self.mirrored.digest_mismatches(),
            furthest: self.mirror.furthest(),
            contradicted: self.mirror.contradicted(CONTRADICTED_VIEWS_MAX),
        }
    }
}

/// The ages of the responses of API calls that are held here, also of those that are too old to be
/// served.
fn ages_ms(held: &ViewSet) -> Vec<(ViewId, u64)> {
    let calls = held.iter().filter(|(id, _)| id.is_of_a_call());
    let held = calls.filter(|(_, view)| view.status().borrow().state.answers());
    let ages = held.map(|(id, view)| (id.clone(), view.age_ms()));
    ages.filter(|(_, age_ms)| *age_ms != u64::MAX).collect()
}
