//! Keeps to a replica's share as others come and go.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, BusExt as _};
use anteroom_mirror::{HeldViewFilter, Mirror};
use anteroom_model::{
    ViewId,
    limits::{REPLICA_BEAT_INTERVAL_MS, REPLICA_SILENCE_MAX_MS},
};
use anteroom_runtime::Check;
use anteroom_wire::replica_beat::{HeldViews, ReplicaBeat};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::owners;

/// The interval at which a replica checks which replicas live.
const LOOK: Duration = Duration::from_millis(250);

/// The time for which a replica listens to the others before it takes its first share. Each of them has sent two
/// heartbeats by then.
const LISTEN: Duration = Duration::from_millis(2 * REPLICA_BEAT_INTERVAL_MS + 500);

/// The longest time for which a view is held for its new owners. A view that they have not loaded until then fails
/// there too.
const HANDOVER_MAX: Duration = Duration::from_secs(60);

/// The wait before beats are subscribed to again, after the bus refused.
const BEATS_RETRY: Duration = Duration::from_millis(500);

/// Holds the replica's views by rendezvous hashing, and views to hand over until their new replica holds them.
pub(crate) struct Keeper {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) replica: String,
    pub(crate) factor: usize,
    pub(crate) check: Check,
}

/// The last beat of each other replica.
#[derive(Debug, Default)]
struct Others(BTreeMap<String, Other>);

#[derive(Debug)]
struct Other {
    heard: Instant,
    views: HeldViews,
}

/// The replicas that share the views, and the views that are held for their new owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Share {
    members: Vec<String>,
    /// Views of different replicas, held until those replicas have loaded them.
    kept: BTreeSet<ViewId>,
}

impl Others {
    fn hear(&mut self, now: Instant, own: &str, beat: ReplicaBeat) {
        if beat.replica == own {
            return;
        }
        if beat.leaving {
            self.0.remove(&beat.replica);
            return;
        }
        let other = self.0.entry(beat.replica).or_insert_with(|| Other {
            heard: now,
            views: HeldViews::default(),
        });
        other.heard = now;
        other.views.take_page(beat.page, beat.views);
    }

    fn forget_silent(&mut self, now: Instant) {
        let silence_max = Duration::from_millis(REPLICA_SILENCE_MAX_MS);
        self.0.retain(|_, other| now - other.heard <= silence_max);
    }

    /// Returns whether the replica answers for the view, be it with its error.
    fn answers(&self, replica: &str, view: &ViewId) -> bool {
        let state = self
            .0
            .get(replica)
            .and_then(|other| other.views.state(view));
        matches!(state, Some("synced" | "failed"))
    }
}

impl Share {
    fn owns(&self, own: &str, view: &ViewId, factor: usize) -> bool {
        owners(view, self.members.iter().map(String::as_str), factor).contains(&own)
    }

    fn hold(&self, own: &str, factor: usize) -> HeldViewFilter {
        let (share, own) = (self.clone(), own.to_owned());
        HeldViewFilter::new(move |view| {
            view.is_system() || share.kept.contains(view) || share.owns(&own, view, factor)
        })
    }
}

impl Keeper {
    /// Keeps to the share until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        stop.run_until_cancelled(self.keep()).await;
        Ok(())
    }

    async fn keep(&self) {
        let begun = Instant::now();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut others = Others::default();
        let mut share = None;
        let mut handing = HashMap::new();
        loop {
            let mut beats = match self.bus.signals::<ReplicaBeat>().await {
                Ok(beats) => beats,
                Err(error) => {
                    tracing::debug!(
                        %error,
                        "heartbeats of other replicas not subscribed yet: tried again"
                    );
                    tokio::time::sleep(BEATS_RETRY).await;
                    continue;
                }
            };
            loop {
                tokio::select! {
                    beat = beats.next() => match beat {
                        Some(beat) => others.hear(Instant::now(), &self.replica, beat),
                        None => break,
                    },
                    _ = look.tick() => {
                        others.forget_silent(Instant::now());
                        if begun.elapsed() >= LISTEN {
                            self.take(&others, &mut share, &mut handing);
                        }
                    }
                }
            }
            tokio::time::sleep(BEATS_RETRY).await;
        }
    }

    fn take(
        &self,
        others: &Others,
        share: &mut Option<Share>,
        handing: &mut HashMap<ViewId, Instant>,
    ) {
        let held: BTreeSet<_> = self.mirror.views().borrow().keys().cloned().collect();
        let next = self.next(Instant::now(), others, held, handing);
        if share.as_ref() == Some(&next) {
            return;
        }
        tracing::info!(
            replicas = next.members.len(),
            handing_over = next.kept.len(),
            "share of the views changed: the live replicas divide the views among them"
        );
        self.mirror.hold(next.hold(&self.replica, self.factor));
        self.check.ready();
        *share = Some(next);
    }

    /// Returns the next share. `held` are the views that are held now; `handing` has the time since when some of them
    /// belong to other replicas.
    fn next(
        &self,
        now: Instant,
        others: &Others,
        held: BTreeSet<ViewId>,
        handing: &mut HashMap<ViewId, Instant>,
    ) -> Share {
        let own = std::iter::once(&self.replica);
        let mut members: Vec<_> = others.0.keys().chain(own).cloned().collect();
        members.sort_unstable();
        let mut share = Share {
            members,
            kept: BTreeSet::new(),
        };
        handing.retain(|view, _| held.contains(view));
        for view in held {
            let names = share.members.iter().map(String::as_str);
            let owners = owners(&view, names, self.factor);
            if view.is_system() || owners.contains(&self.replica.as_str()) {
                handing.remove(&view);
                continue;
            }
            let since = *handing.entry(view.clone()).or_insert(now);
            let taken = owners.iter().all(|owner| others.answers(owner, &view));
            if taken || now - since > HANDOVER_MAX {
                continue;
            }
            share.kept.insert(view);
        }
        share
    }
}
