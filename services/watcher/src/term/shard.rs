//! The term of a group of collections and objects: what is wanted of it, handed to its feeder.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anteroom_bus::{Beats, Bus};
use anteroom_model::{Group, Source, ViewId};
use anteroom_wire::replica_beat::ReplicaBeat;

use super::Setting;
use crate::{
    feeds::{FeedTools, Feeder},
    left::Left,
    publish::Publisher,
    wants::Want,
};

/// How long to wait before beats are asked for again, where the bus refuses them.
const BEATS_RETRY: Duration = Duration::from_millis(500);

/// Feeds the group's views until the term ends.
///
/// # Errors
/// Where a part of it ended by itself, which none should.
pub(super) async fn run(
    setting: Setting,
    group: Group,
    publisher: Publisher,
    left: Left,
) -> anyhow::Result<()> {
    let tools = FeedTools {
        api: setting.api.clone(),
        publisher,
        metrics: setting.metrics.clone(),
        served: setting.wants.served.clone(),
        options: setting.feeds.clone(),
    };
    let mut feeder = Feeder::new(tools, left);
    let mut feed = setting.wants.feed(group);
    let mut beats = None;
    // Views of single objects, which replicas say something of.
    let mut objects = HashSet::new();
    loop {
        tokio::select! {
            error = feeder.drive() => return Err(error),
            wants = feed.next() => {
                for want in wants {
                    take(&mut feeder, &mut objects, want);
                }
            }
            beat = heard(&setting.bus, &mut beats) => {
                let own = |(view, _): &&(ViewId, _)| objects.contains(view);
                for (view, object) in beat.asked.iter().filter(own) {
                    feeder.asked(view, object);
                }
                for (view, object) in beat.read.iter().filter(own) {
                    feeder.read(view, object);
                }
            }
        }
    }
}

fn take(feeder: &mut Feeder, objects: &mut HashSet<ViewId>, want: Want) {
    match want {
        Want::View(view, wanted) => {
            if matches!(wanted.info.source, Source::Objects { .. }) {
                objects.insert(view.clone());
            }
            feeder.want(&view, *wanted);
        }
        Want::NoView(view) => {
            objects.remove(&view);
            feeder.unwant(&view);
        }
        Want::Object(reference) => feeder.refer(&reference),
        Want::NoObject(reference) => feeder.unrefer(&reference),
        Want::Settled => feeder.settled(),
    }
}

/// The next beat of a replica, however often the bus has to be asked for them.
pub(super) async fn heard(
    bus: &Arc<dyn Bus>,
    beats: &mut Option<Beats<ReplicaBeat>>,
) -> ReplicaBeat {
    loop {
        match beats {
            Some(heard) => match heard.next().await {
                Some(beat) => return beat,
                None => *beats = None,
            },
            None => match bus.replica_beats().await {
                Ok(heard) => *beats = Some(heard),
                Err(error) => tracing::debug!(%error, "replicas cannot be heard yet"),
            },
        }
        if beats.is_none() {
            tokio::time::sleep(BEATS_RETRY).await;
        }
    }
}
