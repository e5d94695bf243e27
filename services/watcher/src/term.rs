//! A term as a group's leader, from the reading of the log's index to its end.

mod coordinator;
mod feeder;

use std::{collections::HashSet, sync::Arc, time::Duration};

use anteroom_bus::{Bus, BusError, BusExt as _, LogSize};
use anteroom_model::{Group, ViewId, ViewState, limits::BEAT_INTERVAL_MS};
use anteroom_runtime::{Shutdown, age_clock::BootInstant, supervise::Tasks};
use anteroom_wire::{beat::Beat, status::LogFaults};
use tokio::time::Instant;
use tokio::{sync::watch, time::interval};

use crate::{
    checks::Checks,
    coordinator::Options,
    feeds::FeedOptions,
    gateway::calls::Caller,
    log_writer::{
        desired_state::DesiredStateReader,
        highest::HighestPosition,
        index::Index,
        lead::Leadership,
        members::Members,
        metrics::LogMetrics,
        publish::{End, Publisher, ViewStats, WriteQueue},
    },
    metrics::WatcherMetrics,
    source::apiserver::ApiServer,
};

/// The interval at which the log's incarnation is checked.
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The time that changes which came before the end of a term have to be written.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// The interval at which the metrics of written views are set.
const FIGURES_INTERVAL: Duration = Duration::from_secs(1);

/// The wait of a heartbeat, to cover all views that are read at about the same time.
const BEAT_GATHER: Duration = Duration::from_millis(20);

/// The reason why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TermOutcome {
    /// The term is over: the group has to be led again, or stood by.
    Over(End),
    /// The group belongs with another watcher. The lease was handed back.
    HandedOver,
    /// The process stops. The lease was handed back.
    Shutdown,
}

/// The process's own things, which stay the same from term to term and from group to group. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    /// The bus that holds the log.
    pub bus: Arc<dyn Bus>,
    /// The API server that is watched.
    pub api: ApiServer,
    /// Counters and gauges.
    pub metrics: WatcherMetrics,
    /// The checks of readiness.
    pub checks: Arc<Checks>,
    /// Asks the process to stop.
    pub shutdown: Shutdown,
    /// The other watchers.
    pub members: Members,
    /// Reads the log's index.
    pub index: Index,
    /// Reads the desired views and objects.
    pub desired_state: DesiredStateReader,
    /// The size of the log, as it was last looked at.
    pub log_size: watch::Sender<LogSize>,
    /// The faults of the log's storage, as they were last looked at; `None`: nobody has looked yet.
    pub log_faults: watch::Sender<Option<LogFaults>>,
    /// Options of feeders.
    pub feeds: FeedOptions,
    /// Options of the coordinator.
    pub coordinator: Options,
    /// Makes the API calls of entries and policies.
    pub caller: Caller,
    /// The namespace in which exceptions are read; `*`: all of them. `None`: exceptions are not read.
    pub exception_namespace: Option<Arc<str>>,
}

/// Leads until the term is over.
///
/// # Errors
/// If one of its tasks ended by itself, which none should.
pub(crate) async fn lead(
    context: &Context,
    leadership: &Leadership,
) -> anyhow::Result<TermOutcome> {
    let Context {
        bus,
        shutdown,
        metrics,
        ..
    } = context;
    let publisher = Publisher::new(leadership.term);
    publisher.with(|queue| queue.limit_messages(bus.message_bytes_max()));
    let size = *context.log_size.borrow();
    publisher.with(|queue| queue.set_room(size));
    let highest = context.members.highest();
    let write = publisher.run(&**bus, leadership, &context.members, &metrics.log.batches);
    tokio::pin!(write);
    let mut tasks = Tasks::of_part(shutdown.clone());
    // Readers learn at once that somebody leads; of views, once there are any.
    tasks.spawn(
        "heartbeat",
        beat(
            Arc::clone(bus),
            publisher.clone(),
            leadership.clone(),
            metrics.log.clone(),
        ),
    );
    let snapshot = tokio::select! {
        snapshot = context.index.snapshot(leadership.group) => snapshot,
        // There may be none to read any more, and only whoever stands for election makes one.
        () = log_remade(&**bus, leadership, highest, &publisher) => return Ok(TermOutcome::Over(End::LogRemade)),
        () = shutdown.triggered() => {
            leadership.release(&**bus).await;
            return Ok(TermOutcome::Shutdown);
        }
    };
    let room = keep_room(context.log_size.subscribe(), publisher.clone());
    tasks.spawn_until_shutdown("room of the log", room);
    tasks.spawn(
        "figures",
        figures(context.clone(), publisher.clone(), leadership.group),
    );
    if leadership.group == Group::COORDINATOR {
        coordinator::spawn(context, leadership, &publisher, snapshot, &tasks);
    } else {
        let group = leadership.group;
        tasks.spawn(
            "feeds",
            feeder::run(context.clone(), group, publisher.clone(), snapshot),
        );
    }
    let writes = |view: &ViewId| publisher.read(|queue| queue.writes(view));
    let outcome = tokio::select! {
        end = &mut write => TermOutcome::Over(end),
        () = log_remade(&**bus, leadership, highest, &publisher) => TermOutcome::Over(End::LogRemade),
        () = context.members.superseded(leadership.group, leadership.term) => {
            TermOutcome::Over(End::Fenced)
        }
        () = context.members.contradictions().repair_due(leadership.group, writes) => {
            TermOutcome::Over(End::Contradicted)
        }
        () = shutdown.triggered() => TermOutcome::Shutdown,
        () = context.members.better_placed(leadership.group) => TermOutcome::HandedOver,
        error = tasks.failed() => {
            let group = leadership.group;
            return Err(error.context(format!("the term of group {group} failed")));
        }
    };
    tasks.stop().await; // Nothing more is read; what was read is written.
    if !matches!(outcome, TermOutcome::Over(_)) {
        tokio::select! {
            _ = &mut write => {}
            () = publisher.drained() => leadership.release(&**bus).await,
            () = tokio::time::sleep(DRAIN_MAX) => leadership.release(&**bus).await,
        }
    }
    publisher.read(|queue| {
        let stats = queue.stats(Instant::now());
        stats.iter().for_each(|stats| metrics.forget(&stats.view));
    });
    Ok(outcome)
}

async fn beat(
    bus: Arc<dyn Bus>,
    publisher: Publisher,
    leadership: Leadership,
    metrics: LogMetrics,
) -> anyhow::Result<()> {
    let mut sends = true;
    let begun = BootInstant::now();
    let mut control_changes = publisher.control_changes();
    let mut interval = interval(Duration::from_millis(BEAT_INTERVAL_MS));
    loop {
        // A view of which there was no news yet is not answered from: readers hear of one at once
        // that was just read, and of several that were read at about the same time together.
        tokio::select! {
            _ = interval.tick() => {}
            _ = control_changes.changed() => tokio::time::sleep(BEAT_GATHER).await,
        }
        control_changes.mark_unchanged();
        let beat = Beat {
            incarnation: leadership.incarnation.clone(),
            group: leadership.group,
            term: leadership.term,
            holder: leadership.holder.clone(),
            page: 0,
            // Before the ages are measured: a wait between the two makes them no younger.
            sent_ms: u64::try_from(begun.elapsed().as_millis()).ok(),
            views: publisher.read_now(WriteQueue::beats),
        };
        let sent = send(&*bus, beat).await;
        if let Err(error) = &sent {
            metrics.beat_unsent();
            // Once: the bus may be away for long.
            if sends {
                let group = leadership.group;
                tracing::warn!(
                    %group,
                    %error,
                    "heartbeat not sent: the next one follows; check NATS if this repeats"
                );
            }
        }
        sends = sent.is_ok();
    }
}

/// Sends a beat, page by page.
async fn send(bus: &dyn Bus, beat: Beat) -> Result<(), BusError> {
    for page in beat.pages() {
        bus.send(&page).await?;
    }
    Ok(())
}

/// Keeps metrics and readiness in step with the views that are written here. Readiness waits for a view until it is
/// synced, or until its source has refused it.
async fn figures(context: Context, publisher: Publisher, group: Group) -> anyhow::Result<()> {
    let mut control_changes = publisher.control_changes();
    let mut wanted = context.desired_state.settled();
    let mut interval = interval(FIGURES_INTERVAL);
    let mut measured = HashSet::new();
    loop {
        let stats = publisher.read_now(WriteQueue::stats);
        stats
            .iter()
            .for_each(|stats| context.metrics.log.view(stats));
        let written: HashSet<_> = stats.iter().map(|stats| stats.view.clone()).collect();
        let gone = measured.difference(&written);
        gone.for_each(|view| context.metrics.forget(view));
        measured = written;
        let waits = match group != Group::COORDINATOR && !*wanted.borrow_and_update() {
            true => Some("the list of desired views to be read".to_owned()),
            false => views_to_be_read(&stats),
        };
        context.checks.views.set(group, waits);
        tokio::select! {
            _ = control_changes.changed() => {}
            _ = wanted.changed() => {}
            _ = interval.tick() => {}
        }
    }
}

/// Returns the number of the views whose sources have yet to be read, for people; `None`: there is none. Views of the
/// system have no source.
fn views_to_be_read(stats: &[ViewStats]) -> Option<String> {
    let read = |reported: &Option<ViewState>| {
        matches!(reported, Some(ViewState::Synced | ViewState::Failed { .. }))
    };
    let views = stats.iter().filter(|stats| !stats.view.is_system());
    let mut unread = views.clone().filter(|stats| !read(&stats.reported_state));
    let first = unread.next()?;
    Some(format!(
        "{} of {} views to be read, the first is {}",
        1 + unread.count(),
        views.count(),
        first.view
    ))
}

/// Keeps the writer in step with the size of the log.
async fn keep_room(mut size: watch::Receiver<LogSize>, publisher: Publisher) {
    loop {
        let now = *size.borrow_and_update();
        publisher.with(|queue| queue.set_room(now));
        if size.changed().await.is_err() {
            return std::future::pending().await; // The process ends.
        }
    }
}

/// Returns when the log is another one, which a quiet writer would not notice. If the log seems to end before a known
/// position, a control record is written: its position proves whether the log was shortened.
async fn log_remade(
    bus: &dyn Bus,
    leadership: &Leadership,
    highest: &HighestPosition,
    publisher: &Publisher,
) {
    let mut interval = interval(LOG_CHECK_INTERVAL);
    loop {
        interval.tick().await;
        match bus.head().await {
            Ok(head) if head.incarnation != leadership.incarnation => return,
            Ok(head) if head.last < highest.position_in(&head.incarnation) => {
                publisher.with(WriteQueue::append_any_control_record);
            }
            Err(BusError::NoLog) => return,
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
