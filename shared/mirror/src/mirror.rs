//! The mirror itself: the machine, fed by a task.

use std::{
    collections::BTreeMap, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration,
};

use anteroom_bus::{Bus, Follower, LogEvent, LogScope, RestartCause};
use anteroom_model::{Incarnation, Revision, ViewId};
use anteroom_wire::envelope::{Envelope, Record, TraceContext};
use prometheus_client::metrics::counter::Counter;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Span;

use crate::{
    Changes, HeldViewFilter, MirrorConfig, MirrorMetrics, MirrorReadiness, RereadCause, ViewHandle,
    ViewSet,
    beats::{self, Beats},
    demand::{Demand, Demands},
    effect::MirrorEffect,
    freshness::Moment,
    handle::{self, Clock},
    machine::{Machine, SharedView},
    readiness,
    silence::Writers,
};

/// The interval at which ages are looked at: a stale view is noticed this much later at most.
const TICK: Duration = Duration::from_millis(250);

/// A process without an event for so long stood still, since there is one each [`TICK`]: the process was stopped, or its
/// machine was suspended.
const STANDSTILL_MIN: Duration = TICK.saturating_mul(4);

/// Views kept in step with the log. Dropping it stops it; its views grow old then, and say so.
#[derive(Debug)]
pub struct Mirror {
    views: watch::Receiver<ViewSet>,
    complete_to: watch::Receiver<Revision>,
    furthest: watch::Receiver<(Incarnation, Revision)>,
    shortened: watch::Receiver<u64>,
    readiness: watch::Receiver<MirrorReadiness>,
    demands: Demands,
    ended: CancellationToken,
    _stop: DropGuard,
}

impl Mirror {
    /// Follows the log in `scope`, until `shutdown` is cancelled or the mirror is dropped.
    pub fn start(
        bus: Arc<dyn Bus>,
        scope: LogScope,
        config: MirrorConfig,
        metrics: MirrorMetrics,
        shutdown: &CancellationToken,
    ) -> Self {
        let stop = shutdown.child_token();
        let ended = CancellationToken::new();
        let follower = bus.follow(scope.clone());
        let heard = Beats::default();
        tokio::spawn(beats::listen(Arc::clone(&bus), heard.clone(), stop.clone()));
        let demands = Demands::default();

        let required = readiness::required(&scope);
        let silence_max = Duration::from_millis(config.beat_silence_max_ms);
        let outlets = Outlets::new(required, silence_max, metrics);
        let mirror = Self {
            views: outlets.views.subscribe(),
            complete_to: outlets.complete_to.subscribe(),
            furthest: outlets.furthest.subscribe(),
            shortened: outlets.shortened.subscribe(),
            readiness: outlets.readiness.subscribe(),
            demands: demands.clone(),
            ended: ended.clone(),
            _stop: stop.clone().drop_guard(),
        };
        let task = Task {
            changes: config.changes.clone(),
            machine: Machine::new(scope, config),
            clock: outlets.clock,
            last_event: outlets.clock.now(),
            outlets,
            bus,
            follower,
            loads: BTreeMap::new(),
            reading: None,
        };
        tokio::spawn(async move {
            // Dropped when the task ends, by whatever road.
            let _ended = ended.drop_guard();
            stop.run_until_cancelled(task.run(heard, demands)).await;
        });
        mirror
    }

    /// A view, if the log has it.
    pub fn view(&self, id: &ViewId) -> Option<ViewHandle> {
        self.views.borrow().get(id).cloned()
    }

    /// All views, and changes of which there are.
    pub fn views(&self) -> watch::Receiver<ViewSet> {
        self.views.clone()
    }

    /// The position up to which every record of the log has been read, or what superseded the record. A reader that lags
    /// behind writes may have read further.
    pub fn complete_to(&self) -> watch::Receiver<Revision> {
        self.complete_to.clone()
    }

    /// Returns the log that is read, and the furthest position that was ever read there, also before the log lost its last
    /// records. `None`: nothing was read yet.
    pub fn furthest(&self) -> Option<(Incarnation, Revision)> {
        let furthest = self.furthest.borrow().clone();
        Some(furthest).filter(|(_, position)| *position > Revision(0))
    }

    /// Returns how often the log ended before what had been read. Positions of before and after say nothing of each other.
    pub fn shortened(&self) -> u64 {
        *self.shortened.borrow()
    }

    /// Tells if the mirror is ready: the log was read to its end, the system views (or those of its
    /// scope) have been seen, and every view is synced or failed. A source that fails does not make a
    /// reader of others unready.
    pub fn readiness(&self) -> watch::Receiver<MirrorReadiness> {
        self.readiness.clone()
    }

    /// Frees a view's objects: it answers *evicted* from then on, until it is loaded. Returns at
    /// once; the view's status says when it is done.
    pub fn evict(&self, view: &ViewId) {
        self.demands.put(Demand::Evict(view.clone()));
    }

    /// Reads a view again that was evicted, from the log and beside everything else. Returns at once.
    pub fn load(&self, view: &ViewId) {
        self.demands.put(Demand::Load(view.clone()));
    }

    /// From now on these views are held. Others are freed and are no more among
    /// [`Mirror::views`]; those that are held newly are loaded. Returns at once.
    pub fn hold(&self, hold: HeldViewFilter) {
        self.demands.put(Demand::Hold(hold));
    }

    /// From now on, the log is read for these views alone: from its start, beside what is served. Other views are freed
    /// and are no more among [`Mirror::views`]. Returns at once.
    pub fn follow(&self, views: Vec<ViewId>) {
        self.demands.put(Demand::Follow(views));
    }

    /// The keys have changed: views whose bodies could not be opened are loaded again. Returns at
    /// once.
    pub fn reopen(&self) {
        self.demands.put(Demand::Reopen);
    }

    /// The size of all views in memory, in bytes, with the objects that are gathered.
    pub fn bytes(&self) -> u64 {
        let views = Arc::clone(&self.views.borrow());
        views.values().map(ViewHandle::bytes).sum()
    }

    /// The views that are [contradicted](crate::ViewStatus::is_contradicted), the first `views_max` of them.
    pub fn contradicted(&self, views_max: usize) -> Vec<ViewId> {
        handle::contradicted(&self.views.borrow(), views_max)
    }

    /// Waits until it follows the log no more: it was stopped, or the bus was closed.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

struct Task {
    machine: Machine,
    changes: Option<Changes>,
    clock: Clock,
    /// The moment of the last event.
    last_event: Moment,
    bus: Arc<dyn Bus>,
    follower: Follower,
    /// Readers of one view each.
    loads: BTreeMap<ViewId, Follower>,
    outlets: Outlets,
    /// While the log is read from its start.
    reading: Option<Bootstrap>,
}

/// One read of the whole log from its start, traced as a single span.
struct Bootstrap {
    span: Span,
    records: u64,
}

impl Task {
    async fn run(mut self, beats: Beats, demands: Demands) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // Waited for all the while, not anew for each record.
        let (mut beat, mut demand) = (pin!(beats.next()), pin!(demands.next()));
        loop {
            let effects = tokio::select! {
                event = self.follower.next() => match event {
                    Some(event) => self.log(event),
                    None => return,
                },
                heard = &mut beat => {
                    beat.set(beats.next());
                    let now = self.now();
                    self.machine.beat(now, &heard)
                }
                (view, event) = next_of(&mut self.loads) => match event {
                    Some(event) => {
                        let now = self.now();
                        self.machine.load_log(now, &view, event)
                    }
                    None => return, // The bus was closed.
                },
                asked = &mut demand => {
                    demand.set(demands.next());
                    self.demanded(asked)
                }
                _ = tick.tick() => {
                    let now = self.now();
                    self.machine.tick(now)
                }
            };
            for effect in effects {
                self.take(effect);
            }
            self.outlets.advance(&self.machine);
        }
    }

    /// Returns the moment of an event. If the process stood still since the event before, the machine learns it first.
    fn now(&mut self) -> Moment {
        let now = self.clock.now();
        let before = std::mem::replace(&mut self.last_event, now);
        let stood = now.saturating_sub(before);
        if stood >= STANDSTILL_MIN {
            tracing::info!(
                seconds = stood.as_secs(),
                "process or machine stood still, or was busy: views are as much older, until their watchers are heard again"
            );
            self.machine.woke(now);
        }
        now
    }

    fn demanded(&mut self, demand: Demand) -> Vec<MirrorEffect> {
        match demand {
            Demand::Follow(views) => {
                let scope = LogScope::Views(views);
                self.follower = self.bus.follow(scope.clone());
                self.machine.follow(scope)
            }
            Demand::Hold(hold) => self.machine.hold(hold),
            Demand::Reopen => self.machine.reopen(),
            Demand::Evict(view) => self.machine.evict(&view),
            Demand::Load(view) => self.machine.load(&view),
        }
    }

    fn log(&mut self, event: LogEvent) -> Vec<MirrorEffect> {
        if let Some(changes) = &self.changes {
            changes.take(&event);
        }
        let span = self.span(&event);
        let caught_up = matches!(event, LogEvent::CaughtUp { .. });
        let now = self.now();
        let effects = span.in_scope(|| self.machine.log(now, event));
        if caught_up && let Some(bootstrap) = self.reading.take() {
            bootstrap.span.record("records", bootstrap.records);
            bootstrap.span.in_scope(|| {
                let records = bootstrap.records;
                let position = self.machine.position().0;
                tracing::info!(records, position, "log read to its end");
            });
        }
        effects
    }

    /// The span in which an event is taken in.
    fn span(&mut self, event: &LogEvent) -> Span {
        match event {
            LogEvent::Restart { cause, incarnation } => {
                let cause = cause_name(*cause);
                let span = tracing::info_span!(
                    "read log",
                    otel.kind = "consumer",
                    cause,
                    %incarnation,
                    records = tracing::field::Empty,
                );
                self.outlets.metrics.resync(cause);
                self.reading = Some(Bootstrap { span, records: 0 });
            }
            LogEvent::Record { revision, envelope } => {
                if let Some(bootstrap) = &mut self.reading {
                    bootstrap.records += 1;
                } else if let Ok(envelope) = envelope {
                    return process_span(*revision, envelope);
                }
            }
            // While no watcher has created the log yet: every installation begins so.
            LogEvent::Away { reason } if !self.machine.caught_up_once() => {
                tracing::info!(
                    reason,
                    "log not readable yet: no view has its objects before the log was read once"
                );
            }
            LogEvent::Away { reason } => {
                tracing::warn!(
                    reason,
                    "log out of reach: views keep their objects, which age, until the bus is back; check NATS"
                );
            }
            LogEvent::Superseded { .. } | LogEvent::CaughtUp { .. } => {}
        }
        match &self.reading {
            Some(bootstrap) => bootstrap.span.clone(),
            None => Span::none(),
        }
    }

    fn take(&mut self, effect: MirrorEffect) {
        match effect {
            MirrorEffect::AskAgain(cause) => self.ask_again(cause),
            MirrorEffect::Load(view) => {
                tracing::info!(%view, "reading of the log for this view started");
                self.outlets.metrics.load();
                let scope = LogScope::Views(vec![view.clone()]);
                self.loads.insert(view, self.bus.follow(scope));
            }
            MirrorEffect::LoadEnded(view) => {
                self.loads.remove(&view);
            }
            effect => self.outlets.take(effect),
        }
    }

    fn ask_again(&self, cause: RereadCause) {
        tracing::warn!(
            cause = cause.as_str(),
            "reading of the whole log started again"
        );
        self.follower.restart();
    }
}

/// The next event of any of these readers; never, while there is none.
async fn next_of(loads: &mut BTreeMap<ViewId, Follower>) -> (ViewId, Option<LogEvent>) {
    poll_fn(|context| {
        for (view, follower) in &mut *loads {
            if let Poll::Ready(event) = pin!(follower.next()).poll(context) {
                return Poll::Ready((view.clone(), event));
            }
        }
        Poll::Pending
    })
    .await
}

/// Returns the span in which a live change is applied: a child of the span that published the change. So a trace
/// shows a change from the watch event to every reader that has applied it.
fn process_span(revision: Revision, envelope: &Envelope) -> Span {
    let (Some(trace), Record::Delta { view, delta }) = (&envelope.trace, &envelope.record) else {
        return Span::none();
    };
    let span = tracing::info_span!(
        "process",
        otel.kind = "consumer",
        "messaging.operation.type" = "process",
        view = view.as_str(),
        object = %delta.key,
        version = %delta.version,
        revision = revision.0,
    );
    let TraceContext {
        traceparent,
        tracestate,
    } = trace;
    anteroom_runtime::telemetry::set_parent(&span, traceparent, tracestate);
    span
}

/// The channels and metrics through which others see a mirror.
struct Outlets {
    clock: Clock,
    required: Vec<ViewId>,
    writers: Writers,
    /// See [`MirrorConfig::beat_silence_max_ms`].
    silence_max: Duration,
    views: watch::Sender<ViewSet>,
    complete_to: watch::Sender<Revision>,
    /// See [`Mirror::furthest`].
    furthest: watch::Sender<(Incarnation, Revision)>,
    /// See [`Mirror::shortened`].
    shortened: watch::Sender<u64>,
    readiness: watch::Sender<MirrorReadiness>,
    caught_up_once: bool,
    metrics: MirrorMetrics,
    /// Counters for each view: of deltas that changed nothing, and of those that did.
    deltas: [BTreeMap<ViewId, Counter>; 2],
}

impl Outlets {
    fn new(required: Vec<ViewId>, silence_max: Duration, metrics: MirrorMetrics) -> Self {
        let views = ViewSet::default();
        let readiness = readiness::judge(&required, false, &views);
        Self {
            clock: Clock::start(),
            required,
            writers: Writers::default(),
            silence_max,
            views: watch::Sender::new(views),
            complete_to: watch::Sender::new(Revision(0)),
            furthest: watch::Sender::new((Incarnation::default(), Revision(0))),
            shortened: watch::Sender::new(0),
            readiness: watch::Sender::new(readiness),
            caught_up_once: false,
            metrics,
            deltas: Default::default(),
        }
    }

    fn take(&mut self, effect: MirrorEffect) {
        match effect {
            MirrorEffect::Added(id, kept) => self.added(id, kept),
            MirrorEffect::Removed(id) => self.removed(&id),
            MirrorEffect::Changed(id) => {
                if let Some(view) = self.views.borrow().get(&id) {
                    view.refresh();
                }
            }
            MirrorEffect::AllChanged => self.refresh(),
            MirrorEffect::Heard => self.judge_after_beat(),
            MirrorEffect::Delta { view, changed } => self.count(view, changed),
            MirrorEffect::Undecodable { revision, view } => {
                self.metrics.undecodable();
                let view = view.as_ref().map_or("any view's", ViewId::as_str);
                tracing::error!(
                    revision = revision.0,
                    view,
                    "record of the log not decoded: its view does not answer until its digest agrees with the \
                     watcher's; check that all services have the same version"
                );
            }
            MirrorEffect::Unopened(view, reason) => {
                tracing::error!(
                    %view,
                    reason,
                    "sealed bodies of the view not opened: check this replica's file of keys"
                );
            }
            // Counted by whoever evicts, who knows why.
            MirrorEffect::Evicted(view) => {
                tracing::info!(%view, "objects of an evicted view freed");
            }
            MirrorEffect::Hole => self.metrics.superseded(),
            MirrorEffect::DigestMismatch(id) => {
                self.metrics.digest_mismatch(&id);
                tracing::error!(
                    view = %id,
                    "digest of the view differs from the watcher's: it does not answer until the log was read again"
                );
            }
            // The task's own.
            MirrorEffect::AskAgain(_) | MirrorEffect::Load(_) | MirrorEffect::LoadEnded(_) => {}
        }
    }

    fn added(&self, id: ViewId, kept: SharedView) {
        let handle = ViewHandle::new(id.clone(), kept, self.complete_to.subscribe(), self.clock);
        self.change(|views| {
            views.insert(id, handle);
        });
    }

    fn removed(&mut self, id: &ViewId) {
        let mut removed = None;
        self.change(|views| removed = views.remove(id));
        if let Some(handle) = removed {
            handle.refresh();
        }
        self.metrics.removed(id);
        for counters in &mut self.deltas {
            counters.remove(id);
        }
    }

    fn count(&mut self, view: ViewId, changed: bool) {
        let counters = &mut self.deltas[usize::from(changed)];
        if let Some(counter) = counters.get(&view) {
            counter.inc();
            return;
        }
        let counter = self.metrics.deltas(&view, changed);
        counter.inc();
        counters.insert(view, counter);
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<ViewId, ViewHandle>)) {
        let mut views = BTreeMap::clone(&self.views.borrow());
        change(&mut views);
        self.views.send_replace(Arc::new(views));
    }

    fn refresh(&mut self) {
        let views = Arc::clone(&self.views.borrow());
        for (id, view) in views.iter() {
            let status = view.refresh();
            self.metrics.view(id, &status, view.age_ms());
        }
        self.look_at_writers(&views);
        self.judge(&views);
    }

    fn look_at_writers(&mut self, views: &ViewSet) {
        let now = self.clock.now();
        let heard = views.values().filter_map(ViewHandle::writer);
        for group in self.writers.take(now, heard) {
            self.metrics.writer_gone(group);
        }
        for (group, silence) in self.writers.silences(now) {
            self.metrics.writer_silent(group, silence);
        }
    }

    /// Beats come often, and change little: metrics are left to the next tick.
    fn judge_after_beat(&self) {
        let views = Arc::clone(&self.views.borrow());
        let changed = views.values().filter(|view| view.has_changed()).count();
        if changed > 0 {
            self.judge(&views);
        }
    }

    fn judge(&self, views: &ViewSet) {
        let mut readiness = readiness::judge(&self.required, self.caught_up_once, views);
        if readiness == MirrorReadiness::Ready
            && let Some(note) = self.writers.note(self.clock.now(), self.silence_max)
        {
            readiness = MirrorReadiness::ReadyBut(note);
        }
        self.readiness.send_if_modified(|last| {
            let modified = *last != readiness;
            *last = readiness;
            modified
        });
    }

    /// After every event: wakes those who wait for a position, once all effects have been taken in.
    fn advance(&mut self, machine: &Machine) {
        if machine.caught_up_once() && !self.caught_up_once {
            self.caught_up_once = true;
            self.refresh();
        }
        self.metrics.position(machine.position());
        send_if_new(&self.shortened, machine.shortened());
        self.furthest.send_if_modified(|last| {
            let (log, furthest) = machine.furthest();
            let modified = (&last.0, last.1) != (log, furthest);
            if last.0 != *log {
                last.0.clone_from(log);
            }
            last.1 = furthest;
            modified
        });
        send_if_new(&self.complete_to, machine.complete_to());
    }
}

fn send_if_new<T: Copy + PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|last| std::mem::replace(last, value) != value);
}

/// The name of a cause, as a label and for people.
fn cause_name(cause: RestartCause) -> &'static str {
    match cause {
        RestartCause::Start => "start",
        RestartCause::NewIncarnation => "new_incarnation",
        RestartCause::Truncated => "truncated",
        RestartCause::AwayTooLong => "away_too_long",
        RestartCause::Gap => "gap",
        RestartCause::Asked => "asked",
    }
}

#[cfg(test)]
mod tests;
