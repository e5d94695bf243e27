//! The term of a group of collections and objects: hands the desired state to the group's feeder.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anteroom_bus::{Bus, BusExt as _, Signals};
use anteroom_model::{Group, Source, ViewId};
use anteroom_wire::replica_beat::ReplicaBeat;

use super::Context;
use crate::{
    feeds::{FeedTools, Feeder},
    log_writer::{desired_state::DesiredChange, log_snapshot::LogSnapshot, publish::Publisher},
};

/// The wait before heartbeats are subscribed to again, where the bus refused.
const BEATS_RETRY: Duration = Duration::from_millis(500);

/// Feeds the group's views until the term ends.
///
/// # Errors
/// If a task of the feeder ended by itself, which none should.
pub(super) async fn run(
    context: Context,
    group: Group,
    publisher: Publisher,
    snapshot: LogSnapshot,
) -> anyhow::Result<()> {
    let tools = FeedTools {
        api: context.api.clone(),
        publisher,
        metrics: context.metrics.feeds.clone(),
        source_metrics: context.metrics.source.clone(),
        served: context.desired_state.served.clone(),
        options: context.feeds.clone(),
    };
    let mut feeder = Feeder::new(tools, snapshot);
    let mut changes = context.desired_state.subscribe(group);
    let mut beats = None;
    // Views of single objects, which replicas say something of.
    let mut objects = HashSet::new();
    loop {
        tokio::select! {
            error = feeder.drive() => return Err(error),
            changes = changes.next() => {
                for change in changes {
                    take(&mut feeder, &mut objects, change);
                }
            }
            beat = next_beat(&context.bus, &mut beats) => {
                let own = |(view, _): &&(ViewId, _)| objects.contains(view);
                for (view, object) in beat.asked.iter().chain(&beat.read).filter(own) {
                    feeder.read(view, object);
                }
            }
        }
    }
}

fn take(feeder: &mut Feeder, objects: &mut HashSet<ViewId>, change: DesiredChange) {
    match change {
        DesiredChange::View(view, desired) => {
            match &desired.info.source {
                Source::Objects { .. } => {
                    objects.insert(view.clone());
                }
                Source::Collection(_) | Source::ApiCall { .. } | Source::System { .. } => {}
            }
            feeder.desire(&view, *desired);
        }
        DesiredChange::ViewGone(view) => {
            objects.remove(&view);
            feeder.undesire(&view);
        }
        DesiredChange::Object(reference) => feeder.refer(&reference),
        DesiredChange::ObjectGone(reference) => feeder.unrefer(&reference),
        DesiredChange::Settled => feeder.settled(),
    }
}

/// The next beat of a replica, however often the bus has to be asked for them.
pub(super) async fn next_beat(
    bus: &Arc<dyn Bus>,
    beats: &mut Option<Signals<ReplicaBeat>>,
) -> ReplicaBeat {
    loop {
        match beats {
            Some(heard) => match heard.next().await {
                Some(beat) => return beat,
                None => *beats = None,
            },
            None => match bus.signals::<ReplicaBeat>().await {
                Ok(heard) => *beats = Some(heard),
                Err(error) => tracing::debug!(
                    %error,
                    "heartbeats of replicas not subscribed yet: tried again"
                ),
            },
        }
        if beats.is_none() {
            tokio::time::sleep(BEATS_RETRY).await;
        }
    }
}
