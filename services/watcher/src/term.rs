//! One term as leader: from the log's index to whatever ends it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_bus::Bus;
use anteroom_model::{
    Collection, GroupVersionResource, ResourceVersion, limits::BEAT_INTERVAL_MS, system,
};
use anteroom_runtime::{Shutdown, backoff::Backoff};
use anteroom_wire::beat::Beat;
use anyhow::bail;
use tokio::{sync::mpsc, task::JoinSet, time::interval};

use crate::{
    apiserver::ApiServer,
    controller::{Controller, Feed, Tools},
    discovery::follow::Discovery,
    lead::Leadership,
    left::Left,
    metrics::WatcherMetrics,
    publish::{self, End, Publisher},
    reflect::{self, Target},
    sinks::{ForwardSink, NudgeSink},
    status::StatusWriter,
    watcher::Checks,
};

/// How often it is looked whether the log is still the one that is written.
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long what was heard before shutdown may take to be written.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Notes that wait for the controller; at the limit, reading them from the API server waits.
const NOTES_MAX: usize = 1_024;

/// Waits while the index cannot be read, in milliseconds.
const RETRY_BASE_MS: u64 = 200;
const RETRY_MAX_MS: u64 = 5_000;

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has to be led again, or stood by.
    Over(End),
    /// The process stops. The lease was handed back.
    Shutdown,
}

/// What does not change from term to term.
#[derive(Clone)]
pub(crate) struct Setting {
    /// Where it is written.
    pub bus: Arc<dyn Bus>,
    /// Where it is read.
    pub api: ApiServer,
    /// What is counted.
    pub metrics: WatcherMetrics,
    /// What is waited for.
    pub checks: Arc<Checks>,
    /// When to stop.
    pub shutdown: Shutdown,
}

/// Leads until the term is over.
///
/// # Errors
/// Where a part of it ended by itself, which none should.
pub(crate) async fn lead(setting: &Setting, leadership: &Leadership) -> anyhow::Result<Outcome> {
    let Setting {
        bus,
        shutdown,
        metrics,
        ..
    } = setting;
    let publisher = Publisher::new(leadership.term);
    let incarnation = &leadership.incarnation;
    let write = publisher.run(&**bus, leadership.fence, incarnation, &metrics.writer);
    tokio::pin!(write);
    let mut tasks = JoinSet::new();
    // Readers learn at once that somebody leads; of views, once there are any.
    tasks.spawn(beat(Arc::clone(bus), publisher.clone(), leadership.clone()));
    let left = tokio::select! {
        left = index(&**bus) => left,
        () = shutdown.triggered() => {
            leadership.release(&**bus).await;
            return Ok(Outcome::Shutdown);
        }
    };
    spawn_parts(setting, leadership, &publisher, left, &mut tasks);
    let outcome = tokio::select! {
        end = &mut write => Outcome::Over(end),
        () = log_remade(&**bus, leadership) => Outcome::Over(End::LogRemade),
        () = shutdown.triggered() => Outcome::Shutdown,
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => return Err(error),
            Some(Err(panic)) => bail!("a part of the watcher panicked: {panic}"),
            _ => bail!("a part of the watcher ended by itself"),
        },
    };
    if outcome == Outcome::Shutdown {
        tasks.abort_all(); // Nothing more is read; what was read is written.
        tokio::select! {
            _ = &mut write => {}
            () = publisher.drained() => leadership.release(&**bus).await,
            () = tokio::time::sleep(DRAIN_MAX) => leadership.release(&**bus).await,
        }
    }
    Ok(outcome)
}

fn spawn_parts(
    setting: &Setting,
    leadership: &Leadership,
    publisher: &Publisher,
    left: Left,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) {
    let Setting {
        api,
        metrics,
        checks,
        ..
    } = setting;
    let discovery = Discovery::default();
    let status = StatusWriter::new(api.clone(), metrics.clone());
    let tools = Tools {
        api: api.clone(),
        publisher: publisher.clone(),
        discovery: discovery.clone(),
        status: status.clone(),
        metrics: metrics.clone(),
        checks: Arc::clone(checks),
    };
    let (sender, notes) = mpsc::channel(NOTES_MAX);
    tasks.spawn(Controller::new(tools, left).run(notes));
    let holder = leadership.holder.clone();
    tasks.spawn(async move {
        status.run(&holder).await;
        Ok(())
    });
    for (feed, version, plural, view) in [
        (
            Feed::Entries,
            "v2alpha1",
            "cachedcontextentries",
            system::entries(),
        ),
        (
            Feed::ClusterPolicies,
            "v1",
            "clusterpolicies",
            system::policies(),
        ),
        (Feed::Policies, "v1", "policies", system::policies()),
    ] {
        let sink = ForwardSink {
            of: feed,
            to: sender.clone(),
        };
        let target = target("kyverno.io", version, plural, false);
        let (api, served) = (api.clone(), discovery.served.subscribe());
        let metrics = metrics.of_watch(&view);
        tasks.spawn(async move {
            reflect::run(api, target, sink, metrics, served).await;
            Ok(())
        });
    }
    // Definitions say that what is served may have changed. Where they may not be watched, the
    // catalog is asked for every so often.
    for (group, plural) in [
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
    ] {
        let sink = NudgeSink(Arc::clone(&discovery.nudge));
        let target = target(group, "v1", plural, true);
        let (api, served) = (api.clone(), discovery.served.subscribe());
        let metrics = metrics.of_watch(&system::kinds());
        tasks.spawn(async move {
            reflect::run(api, target, sink, metrics, served).await;
            Ok(())
        });
    }
    let api = api.clone();
    tasks.spawn(async move {
        discovery.run(&api).await;
        Ok(())
    });
}

fn target(group: &str, version: &str, plural: &str, metadata_only: bool) -> Target {
    let gvr = GroupVersionResource::new(group, version, plural);
    let left_at = ResourceVersion::default();
    Target {
        collection: Collection::all(gvr),
        left_at,
        metadata_only,
    }
}

async fn index(bus: &dyn Bus) -> Left {
    let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
    loop {
        match bus.index().await {
            Ok(index) => return Left::new(index),
            Err(error) => {
                tracing::warn!(%error, "the log's index cannot be read");
                tokio::time::sleep(backoff.next(rand::random())).await;
            }
        }
    }
}

async fn beat(
    bus: Arc<dyn Bus>,
    publisher: Publisher,
    leadership: Leadership,
) -> anyhow::Result<()> {
    let mut interval = interval(Duration::from_millis(BEAT_INTERVAL_MS));
    loop {
        interval.tick().await;
        let beat = Beat {
            incarnation: leadership.incarnation.clone(),
            group: anteroom_model::Group::COORDINATOR,
            term: leadership.term,
            holder: leadership.holder.clone(),
            views: publisher.look(|book| book.beats(Instant::now())),
        };
        if let Err(error) = bus.send_beat(&beat).await {
            tracing::debug!(%error, "a beat was not sent");
        }
    }
}

/// Returns when the log is another one, which a quiet writer would not notice.
async fn log_remade(bus: &dyn Bus, leadership: &Leadership) {
    let mut interval = interval(LOG_CHECK_INTERVAL);
    loop {
        interval.tick().await;
        if publish::log_was_remade(bus, &leadership.incarnation).await {
            return;
        }
    }
}
