//! One term as a group's leader: from the log's index to whatever ends it.

mod coordinator;
mod shard;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_bus::Bus;
use anteroom_model::{Group, ViewState, limits::BEAT_INTERVAL_MS};
use anteroom_runtime::Shutdown;
use anteroom_wire::beat::Beat;
use anyhow::bail;
use tokio::{task::JoinSet, time::interval};

use crate::{
    apiserver::ApiServer,
    checks::Checks,
    feeds::FeedOptions,
    index::Index,
    lead::Leadership,
    members::Members,
    metrics::WatcherMetrics,
    permits::{CacheApiCalls, SecretsReaders},
    publish::{self, Book, End, Publisher},
    wants::WantsReader,
};

/// How often it is looked whether the log is still the one that is written.
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long what was heard before the end of a term may take to be written.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// How often metrics of the views that are written are brought up to date.
const FIGURES_INTERVAL: Duration = Duration::from_secs(1);

/// How long a beat waits for other views that are read at about the same time: a beat speaks of all.
const BEAT_GATHER: Duration = Duration::from_millis(20);

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has to be led again, or stood by.
    Over(End),
    /// The group belongs with another watcher. The lease was handed back.
    HandedOver,
    /// The process stops. The lease was handed back.
    Shutdown,
}

/// What does not change from term to term, nor from group to group.
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
    /// The other watchers.
    pub members: Members,
    /// What the log holds.
    pub index: Index,
    /// What is wanted, as the log has it.
    pub wants: WantsReader,
    /// How views are fed.
    pub feeds: FeedOptions,
    /// Which calls of policies are kept.
    pub cache_api_calls: CacheApiCalls,
    /// Views are kept for background scans.
    pub background_scans: bool,
    /// The largest response of an API call.
    pub api_call_bytes_max: usize,
    /// Who may read Secrets.
    pub secrets: Arc<SecretsReaders>,
    /// Where exceptions are read; `*`: in all namespaces. `None`: nowhere.
    pub exception_namespace: Option<Arc<str>>,
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
    publisher.with(|book| book.limit_messages(bus.message_bytes_max()));
    let incarnation = &leadership.incarnation;
    let write = publisher.run(&**bus, leadership.fence, incarnation, &metrics.writer);
    tokio::pin!(write);
    let mut tasks = JoinSet::new();
    // Readers learn at once that somebody leads; of views, once there are any.
    tasks.spawn(beat(Arc::clone(bus), publisher.clone(), leadership.clone()));
    let left = tokio::select! {
        left = setting.index.of(leadership.group) => left,
        () = shutdown.triggered() => {
            leadership.release(&**bus).await;
            return Ok(Outcome::Shutdown);
        }
    };
    tasks.spawn(figures(
        setting.clone(),
        publisher.clone(),
        leadership.group,
    ));
    if leadership.group == Group::COORDINATOR {
        coordinator::spawn(setting, leadership, &publisher, left, &mut tasks);
    } else {
        let group = leadership.group;
        tasks.spawn(shard::run(setting.clone(), group, publisher.clone(), left));
    }
    let outcome = tokio::select! {
        end = &mut write => Outcome::Over(end),
        () = log_remade(&**bus, leadership) => Outcome::Over(End::LogRemade),
        () = setting.members.superseded(leadership.group, leadership.term) => {
            Outcome::Over(End::Fenced)
        }
        () = shutdown.triggered() => Outcome::Shutdown,
        () = setting.members.better_placed(leadership.group) => Outcome::HandedOver,
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => return Err(error),
            Some(Err(panic)) => bail!("a part of the watcher panicked: {panic}"),
            _ => bail!("a part of the watcher ended by itself"),
        },
    };
    tasks.shutdown().await; // Nothing more is read; what was read is written.
    if !matches!(outcome, Outcome::Over(_)) {
        tokio::select! {
            _ = &mut write => {}
            () = publisher.drained() => leadership.release(&**bus).await,
            () = tokio::time::sleep(DRAIN_MAX) => leadership.release(&**bus).await,
        }
    }
    publisher.look(|book| {
        let stats = book.stats(Instant::now());
        stats.iter().for_each(|stats| metrics.forget(&stats.view));
    });
    Ok(outcome)
}

async fn beat(
    bus: Arc<dyn Bus>,
    publisher: Publisher,
    leadership: Leadership,
) -> anyhow::Result<()> {
    let mut told = publisher.told();
    let mut interval = interval(Duration::from_millis(BEAT_INTERVAL_MS));
    loop {
        // A view of which there was no news yet is not answered from: readers hear of one at once
        // that was just read, and of several that were read at about the same time together.
        tokio::select! {
            _ = interval.tick() => {}
            _ = told.changed() => tokio::time::sleep(BEAT_GATHER).await,
        }
        told.mark_unchanged();
        let beat = Beat {
            incarnation: leadership.incarnation.clone(),
            group: leadership.group,
            term: leadership.term,
            holder: leadership.holder.clone(),
            views: publisher.look(|book| book.beats(Instant::now())),
        };
        if let Err(error) = bus.send_beat(&beat).await {
            tracing::debug!(%error, "a beat was not sent");
        }
    }
}

/// Keeps metrics and readiness in step with the views that are written here. A view is waited for
/// until it is synced, or until its source said that it never will be.
async fn figures(setting: Setting, publisher: Publisher, group: Group) -> anyhow::Result<()> {
    let mut told = publisher.told();
    let mut wanted = setting.wants.settled();
    let mut interval = interval(FIGURES_INTERVAL);
    loop {
        let stats = publisher.look(|book: &Book| book.stats(Instant::now()));
        stats.iter().for_each(|stats| setting.metrics.view(stats));
        let views = stats.iter().filter(|stats| !stats.view.is_system());
        let read = |told: &Option<ViewState>| {
            matches!(told, Some(ViewState::Synced | ViewState::Failed { .. }))
        };
        let unread: Vec<_> = views.filter(|stats| !read(&stats.told)).collect();
        let waits = match unread.as_slice() {
            _ if group != Group::COORDINATOR && !*wanted.borrow_and_update() => {
                Some("what is wanted to be known".to_owned())
            }
            [] => None,
            [first, ..] => Some(format!(
                "{} of {} views to be read, the first is {}",
                unread.len(),
                stats.len(),
                first.view
            )),
        };
        setting.checks.views.set(group, waits);
        tokio::select! {
            _ = told.changed() => {}
            _ = wanted.changed() => {}
            _ = interval.tick() => {}
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

#[cfg(test)]
mod tests;
