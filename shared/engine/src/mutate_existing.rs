//! Changes existing objects after a trigger (`mutate.targets`). This happens after the answer, so that no request
//! waits for it.
//!
//! ```text
//! an admitted request ──▶ queue ──▶ look it up ──▶ evaluate ──▶ write each changed object ──▶ done
//!                                      ▲              ▲    │             │
//!                                      └── not yet    └────┴── again ◀───┘   (another state, no answer: a few times)
//! ```
//!
//! A change is computed from one state of an object. If the object has another state by then, everything is evaluated
//! anew. An object that is right already is not written, so a chain of changes ends. The queue is in memory: triggers
//! that wait when the process ends are lost. Namespaces share that memory fairly: see `memory`.

mod attempt;
mod change;
mod forbidden;
mod held;
mod memory;
mod trigger;
mod worker;
mod written;

use std::{sync::Arc, time::Duration};

use anteroom_runtime::{Shutdown, fair_quota::FairPermit};
use tokio::{
    sync::mpsc::{
        self,
        error::TrySendError::{Closed, Full},
    },
    task::JoinSet,
    time::Instant,
};

use crate::{
    decide::Engine, incoming::ReviewOwner, off_thread::off_thread_if, recorder::SharedRecorder,
    rule::RuleName, verdict::Triggered, violations::Violations,
};
use held::HeldRequest;
use memory::TRIGGERS_MAX;
pub use worker::Worker;
use worker::{QUEUE_FULL, TOO_LARGE};

/// The user that writes changes until a watcher has said its user, as in the manifests.
const WATCHER_USER_DEFAULT: &str = "system:serviceaccount:anteroom:anteroom-watcher";

/// The longest time for which the answer to a DELETE waits until the object is read, and before that for a place to find
/// out which rules it triggers.
const WITNESS_TIMEOUT: Duration = Duration::from_millis(500);

/// A trigger that waits or is worked on.
struct Job {
    request: HeldRequest,
    rules: Vec<(Arc<RuleName>, bool)>,
    _memory: FairPermit<ReviewOwner>,
}

/// The queue for triggers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MutateExisting {
    queue: mpsc::Sender<Job>,
    worker: Arc<Worker>,
    /// The user who writes in the name of such rules, where the watcher is not to say it itself.
    watcher_user: Option<Arc<str>>,
}

impl MutateExisting {
    /// Returns the queue, and the worker that handles its triggers until shutdown. `trusts_reviews`: see
    /// [`Worker::new`].
    pub fn new(
        engine: Engine,
        violations: Violations,
        recorder: SharedRecorder,
        watcher_user: Option<&str>,
        trusts_reviews: bool,
        shutdown: Shutdown,
    ) -> (Self, impl Future<Output = anyhow::Result<()>> + use<>) {
        let worker = Worker::new(engine, violations, recorder, trusts_reviews);
        Self::of(worker, watcher_user, shutdown)
    }

    fn of(
        worker: Worker,
        watcher_user: Option<&str>,
        shutdown: Shutdown,
    ) -> (Self, impl Future<Output = anyhow::Result<()>> + use<>) {
        let (queue, waiting) = mpsc::channel(TRIGGERS_MAX);
        let worker = Arc::new(worker);
        let own = Self {
            queue,
            worker: Arc::clone(&worker),
            watcher_user: watcher_user.map(Into::into),
        };
        (own, run(worker, waiting, shutdown))
    }

    /// Returns whether this user writes in the name of such rules.
    fn is_own(&self, user: &str) -> bool {
        if let Some(given) = &self.watcher_user {
            return **given == *user;
        }
        let catalog = self.worker.catalog();
        let writer = catalog.as_ref().and_then(|catalog| catalog.writer());
        writer.unwrap_or(WATCHER_USER_DEFAULT) == user
    }

    /// Queues the rules that a request may trigger. A trigger for which its owner has no memory, or that takes more than
    /// there is, is dropped, and an Event reports the loss. Only the read of an object that a DELETE is about is waited for.
    pub async fn hand_over(&self, mut triggered: Triggered, deadline: Instant) {
        if triggered.by_manager && self.is_own(triggered.request.username()) {
            triggered.rules.retain(|(_, by_own)| *by_own);
        }
        let soon = || deadline.min(Instant::now() + WITNESS_TIMEOUT);
        self.worker.rule_out(&mut triggered, soon()).await;
        let until = soon();
        self.worker.read_before_delete(&mut triggered, until).await;
        let is_large = triggered.request.is_large();
        if triggered.rules.is_empty() {
            return off_thread_if(is_large, || drop(triggered));
        }
        let Triggered {
            request,
            owner,
            rules,
            ..
        } = triggered;
        let request = off_thread_if(is_large, || HeldRequest::of(request, owner));
        if !memory::fits(request.parsed_bytes()) {
            return self.worker.dropped(&request, &rules, TOO_LARGE);
        }
        let Ok(memory) = self.worker.memory().try_hold(&request, rules.len()) else {
            return self.worker.dropped(&request, &rules, QUEUE_FULL);
        };
        let job = Job {
            request,
            rules,
            _memory: memory,
        };
        if let Err(Full(job) | Closed(job)) = self.queue.try_send(job) {
            self.worker.dropped(&job.request, &job.rules, QUEUE_FULL);
        }
    }
}

async fn run(
    worker: Arc<Worker>,
    mut waiting: mpsc::Receiver<Job>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_) = under_way.join_next(), if !under_way.is_empty() => {}
            // Their number is limited by their memory.
            job = waiting.recv() => {
                let Some(job) = job else {
                    stop.cancelled().await; // Nobody hands over any more: the server has ended.
                    return Ok(());
                };
                let worker = Arc::clone(&worker);
                under_way.spawn(async move {
                    // Rules run independently: a rule that is retried delays no other rule.
                    let rules = job.rules.iter();
                    let works = rules.map(|(rule, _)| worker.work(rule, &job.request));
                    futures::future::join_all(works).await;
                });
            }
        }
    }
}

/// The longest time for one evaluation and its writes, waits for turns not counted.
pub const TIMEOUT: Duration = Duration::from_secs(240);

#[cfg(test)]
mod tests;
