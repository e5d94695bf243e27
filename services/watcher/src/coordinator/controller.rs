//! The coordinator's task: hands events to the [`Reconciler`], and carries its effects out.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anteroom_bus::{Bus, BusExt as _, Connection, Follower, LogScope, Signal, Signals};
use anteroom_model::{Incarnation, ObjectKey};
use anteroom_runtime::{
    Check,
    off_thread::{off_thread, off_thread_if},
    wall_clock,
};
use anteroom_wire::{beat::Beat, replica_beat::ReplicaBeat, webhook_beat::WebhookBeat};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{
    call_pollers::CallPollers,
    effect::{CoordinatorEffect, SystemView, Write},
    note_channel::NoteReceiver,
    note_queue::TakenNote,
    policies_in_log,
    reconciler::Reconciler,
    resolver::Options,
    status::{server::Statuses, writer::StatusWriter},
    system_views::SystemViews,
};
use crate::{
    feeds::MemoryAccount,
    gateway::{
        calls::Caller,
        rights::{LackingRights, Need, WriterUser},
    },
    log_writer::{highest::HighestPosition, log_snapshot::LogSnapshot, publish::Publisher},
    source::{
        discovery::{ServedResources, follow::Discovery},
        metrics::SourceMetrics,
        reflect::Note,
    },
};

/// The interval at which the reconciler lets time pass.
const TICK: Duration = Duration::from_secs(1);

/// The time after which statuses are brought up to date although notes or policies wait.
const STATUSES_WAIT: Duration = Duration::from_secs(1);

/// The same as a multiple of the time that the last update took: while notes come, they have most of the controller's
/// time.
const STATUSES_PACE: u32 = 4;

/// The time limit of a question for the log's end. It is asked again after [`TICK`].
const END_TIMEOUT: Duration = Duration::from_millis(200);

/// The controller's dependencies.
pub(crate) struct Deps {
    /// Says how views fare.
    pub bus: Arc<dyn Bus>,
    /// The log that is written.
    pub incarnation: Incarnation,
    /// Knows the log's end.
    pub highest: HighestPosition,
    /// Writes the log.
    pub publisher: Publisher,
    /// Reads the kinds that the API server serves.
    pub discovery: Discovery,
    /// Writes statuses.
    pub status: StatusWriter,
    /// Keeps statuses for operators.
    pub statuses: Statuses,
    /// Makes API calls.
    pub caller: Caller,
    /// Counts the responses of API calls.
    pub source_metrics: SourceMetrics,
    /// Ready when entries can be read.
    pub entries_check: Arc<Check>,
    /// Ready when policies can be read.
    pub policies_check: Arc<Check>,
    /// Counts the memory that entries take.
    pub memory: MemoryAccount,
    /// Asks for this watcher's rights.
    pub rights: Rights,
    /// The choices of an administrator.
    pub options: Options,
}

/// The questions about this watcher's rights, and the answers.
pub(crate) struct Rights {
    /// The rights that policies need.
    pub needed: watch::Sender<Arc<Vec<Need>>>,
    /// Answers, as far as there are any.
    pub found: watch::Receiver<LackingRights>,
    /// The user as whom this watcher writes.
    pub user: watch::Receiver<WriterUser>,
}

/// The coordinator in one term.
pub(crate) struct Controller {
    deps: Deps,
    reconciler: Reconciler,
    system_views: SystemViews,
    /// Views in the log that were not begun in this term.
    snapshot: LogSnapshot,
    calls: CallPollers,
    /// The time at which statuses are brought up to date, whatever waits.
    statuses_due: Instant,
}

/// Events that come over the bus.
struct Inputs {
    log: Follower,
    leaders: Option<Signals<Beat>>,
    replicas: Option<Signals<ReplicaBeat>>,
    webhooks: Option<Signals<WebhookBeat>>,
}

impl Controller {
    /// Begins a term, with the state of its views in the log.
    pub(crate) fn new(deps: Deps, mut snapshot: LogSnapshot) -> Self {
        let (log, options) = (deps.incarnation.clone(), deps.options.clone());
        Self {
            reconciler: Reconciler::new(options, log, Instant::now()),
            system_views: SystemViews::open(deps.publisher.clone(), &mut snapshot),
            calls: CallPollers::new(
                deps.caller.clone(),
                deps.publisher.clone(),
                deps.source_metrics.clone(),
            ),
            snapshot,
            deps,
            statuses_due: Instant::now(),
        }
    }

    /// Works until the term ends.
    ///
    /// # Errors
    /// A poller of API calls ended by itself, which none should.
    pub(crate) async fn run(mut self, mut notes: NoteReceiver) -> anyhow::Result<()> {
        let mut served = self.deps.discovery.served_resources.subscribe();
        served.mark_changed();
        let mut found = self.deps.rights.found.clone();
        let mut user = self.deps.rights.user.clone();
        user.mark_changed();
        let mut written = self.deps.publisher.written();
        let mut inputs = Inputs {
            log: self.deps.bus.follow(LogScope::Controls),
            leaders: None,
            replicas: None,
            webhooks: None,
        };
        let policies = policies_in_log::read(&*self.deps.bus).await;
        self.reconciler.inherit(policies);
        let mut tick = tokio::time::interval(TICK);
        loop {
            let awaits_log = self.reconciler.awaits_log();
            let has_turns = self.reconciler.has_turns();
            tokio::select! {
                note = notes.recv() => match note {
                    Some(note) => self.note(note),
                    None => return Ok(()),
                },
                error = self.calls.failed() => return Err(error),
                Ok(()) = served.changed() => self.discovered(&mut served),
                Some(event) = inputs.log.next() => self.reconciler.log(event),
                Some(beat) = next(&mut inputs.leaders) => {
                    self.reconciler.leader_beat(beat, Instant::now());
                }
                Some(beat) = next(&mut inputs.replicas) => {
                    self.reconciler.replica_beat(beat, Instant::now());
                }
                Some(beat) = next(&mut inputs.webhooks) => {
                    self.reconciler.webhook_beat(beat, Instant::now());
                }
                Ok(()) = written.changed(), if awaits_log => self.reconciler.log_written(),
                Ok(()) = found.changed() => {
                    let found = found.borrow_and_update().clone();
                    self.reconciler.rights_found(found);
                }
                Ok(()) = user.changed() => {
                    let user = user.borrow_and_update().clone();
                    self.reconciler.writer_found(user, Instant::now());
                }
                _ = tick.tick() => self.tick(&mut inputs).await,
                () = std::future::ready(()), if has_turns => self.take_turn().await,
            }
            self.carry_out();
            let rests = notes.is_empty() && !self.reconciler.has_turns();
            if rests || Instant::now() >= self.statuses_due {
                self.update_statuses();
                self.carry_out();
            }
        }
    }

    /// Hands a note to the reconciler. Manifests are read and compiled there, and beats and leases do not wait for that.
    fn note(&mut self, (manifests, note, came): TakenNote) {
        let is_long = !matches!(note, Note::Heard { .. });
        off_thread_if(is_long, || self.reconciler.note(manifests, note, came));
    }

    /// Lets a policy have its turn. Policies are compiled there, as with notes.
    async fn take_turn(&mut self) {
        off_thread(|| self.reconciler.take_turn(Instant::now()));
        // Turns are always due: nothing else would let the term end between two of them.
        tokio::task::yield_now().await;
    }

    fn discovered(&mut self, served: &mut watch::Receiver<Option<Arc<ServedResources>>>) {
        if let Some(served) = served.borrow_and_update().clone() {
            self.reconciler.discovered(served, Instant::now());
        }
    }

    fn update_statuses(&mut self) {
        let Deps {
            highest,
            incarnation,
            ..
        } = &self.deps;
        self.reconciler.log_ends_at(highest.written_in(incarnation));
        let (system_views, begun) = (&self.system_views, Instant::now());
        let position =
            |policy: &ObjectKey, entries: &[ObjectKey]| system_views.position(policy, entries);
        self.reconciler
            .update_statuses(&position, begun, wall_clock::now());
        let pause = STATUSES_WAIT.max(begun.elapsed() * STATUSES_PACE);
        self.statuses_due = Instant::now() + pause;
    }

    async fn tick(&mut self, inputs: &mut Inputs) {
        let bus = &self.deps.bus;
        // A webhook that cannot be heard is not away.
        let mut heard_anew = *bus.connection().borrow() == Connection::Down;
        if inputs.leaders.is_none() {
            inputs.leaders = bus.signals::<Beat>().await.ok();
        }
        if inputs.replicas.is_none() {
            inputs.replicas = bus.signals::<ReplicaBeat>().await.ok();
        }
        if inputs.webhooks.is_none() {
            inputs.webhooks = bus.signals::<WebhookBeat>().await.ok();
            heard_anew = true;
        }
        if self.reconciler.doubts_end() {
            let Deps {
                bus,
                incarnation,
                highest,
                ..
            } = &self.deps;
            look_at_end(&**bus, incarnation, highest).await;
        }
        let now = Instant::now();
        if heard_anew {
            self.reconciler.listens_to_webhooks(now);
        }
        off_thread(|| self.reconciler.tick(now));
        self.deps.memory.keeps(self.reconciler.entry_count());
        let waits = self.reconciler.waits_for_api();
        let Discovery { eager, nudge, .. } = &self.deps.discovery;
        if waits && !eager.swap(waits, Ordering::Relaxed) {
            nudge.notify_one();
        }
        eager.store(waits, Ordering::Relaxed);
    }

    /// Carries out all effects, in order. Writes that follow each other are handed in together.
    fn carry_out(&mut self) {
        let mut writes = Vec::new();
        for effect in self.reconciler.take_effects() {
            match effect {
                CoordinatorEffect::Write(view, write) => writes.push((view, write)),
                other => {
                    self.flush(&mut writes);
                    self.carry_out_one(other);
                }
            }
        }
        self.flush(&mut writes);
    }

    fn flush(&mut self, writes: &mut Vec<(SystemView, Write)>) {
        if !writes.is_empty() {
            self.system_views.write(writes.drain(..));
        }
    }

    fn carry_out_one(&mut self, effect: CoordinatorEffect) {
        let Deps {
            status,
            statuses,
            discovery,
            rights,
            entries_check,
            policies_check,
            publisher,
            ..
        } = &self.deps;
        match effect {
            CoordinatorEffect::Write(view, write) => self.system_views.write([(view, write)]),
            CoordinatorEffect::StartCall(info, spec) => {
                let view = info.source.view_id();
                self.calls.stop(&view); // It may be made otherwise now.
                let inherited = self.snapshot.take(&view);
                self.calls.start(info, spec, inherited);
            }
            CoordinatorEffect::StopCall(view) => self.calls.stop(&view),
            CoordinatorEffect::AnswerAgeReported(view, at) => self.calls.report_good_at(&view, at),
            CoordinatorEffect::SetStatus(owner, desired) => {
                statuses.put(&owner, &desired);
                status.put(owner, *desired);
            }
            CoordinatorEffect::ForgetStatus(owner) => {
                statuses.forget(&owner);
                status.forget(&owner);
            }
            CoordinatorEffect::NeedRights(needed) => {
                rights.needed.send_if_modified(|before| {
                    let is_news = **before != needed;
                    *before = Arc::new(needed);
                    is_news
                });
            }
            CoordinatorEffect::Rediscover => discovery.nudge.notify_one(),
            CoordinatorEffect::EntriesWait(waits_for) => wait(entries_check, waits_for),
            CoordinatorEffect::PoliciesWait(waits_for) => wait(policies_check, waits_for),
            CoordinatorEffect::FreeInherited => {
                for record in self.snapshot.drain() {
                    tracing::info!(view = %record.view, "view of an earlier term freed: nobody needs it");
                    publisher.with(|queue| queue.free(record));
                }
            }
        }
    }
}

fn wait(check: &Check, waits_for: Option<String>) {
    match waits_for {
        None => check.ready(),
        Some(waits_for) => check.not_ready(waits_for),
    }
}

/// The next heartbeat; `None`: the bus was closed, or it is not listened to yet.
async fn next<T: Signal>(beats: &mut Option<Signals<T>>) -> Option<T> {
    let beat = beats.as_mut()?.next().await;
    if beat.is_none() {
        *beats = None;
    }
    beat
}

/// Asks for the end of this log. A webhook says that it has read further than any watcher is known to have written: a lease
/// that another watcher took may stand there.
async fn look_at_end(bus: &dyn Bus, log: &Incarnation, highest: &HighestPosition) {
    if let Ok(Ok(head)) = timeout(END_TIMEOUT, bus.head()).await
        && head.incarnation == *log
    {
        highest.raise(log, head.last);
    }
}
