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
//! that wait when the process ends are lost.

mod attempt;
mod change;
mod forbidden;
mod trigger;
mod worker;
mod written;

use std::{sync::Arc, time::Duration};

use anteroom_runtime::Shutdown;
use tokio::{
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{
            self,
            error::TrySendError::{Closed, Full},
        },
    },
    task::JoinSet,
    time::Instant,
};

use crate::{decide::Engine, recorder::SharedRecorder, verdict::Triggered, violations::Violations};
pub use attempt::TriggerSource;
pub use worker::Worker;

/// The user that writes changes until a watcher has said its user, as in the manifests.
const WATCHER_USER_DEFAULT: &str = "system:serviceaccount:anteroom:anteroom-watcher";

/// The most triggers that wait. A trigger beyond the limit is dropped, and an Event reports the loss.
const WAITING_MAX: usize = 1_024;

/// KiB of requests that wait or are worked on.
const WAITING_KIB_MAX: usize = 64 * 1024;

/// Triggers that are worked on, those included that wait to be tried again. Of these few are evaluated at
/// once: see `worker`.
const UNDER_WAY_MAX: usize = 256;

/// The longest time for which the answer to a DELETE waits until the object is read.
const WITNESS_TIMEOUT: Duration = Duration::from_millis(500);

struct Job {
    triggered: Triggered,
    _waiting_kib: OwnedSemaphorePermit,
}

/// The queue for triggers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MutateExisting {
    queue: mpsc::Sender<Job>,
    waiting_kib: Arc<Semaphore>,
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
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let worker = Arc::new(Worker::new(engine, violations, recorder, trusts_reviews));
        let own = Self {
            queue,
            waiting_kib: Arc::new(Semaphore::new(WAITING_KIB_MAX)),
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
        let told = catalog.as_ref().and_then(|catalog| catalog.writer());
        told.unwrap_or(WATCHER_USER_DEFAULT) == user
    }

    /// Queues the triggers of a request of `bytes` bytes. It waits only for the read of an object that a DELETE is
    /// about.
    pub async fn hand_over(&self, mut triggered: Triggered, bytes: usize, deadline: Instant) {
        if triggered.by_manager && self.is_own(triggered.request.username()) {
            triggered.rules.retain(|(_, by_own)| *by_own);
        }
        let until = deadline.min(Instant::now() + WITNESS_TIMEOUT);
        self.worker.read_before_delete(&mut triggered, until).await;
        if triggered.rules.is_empty() {
            return;
        }
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
        let waiting_kib = match Arc::clone(&self.waiting_kib).try_acquire_many_owned(kib) {
            Ok(waiting_kib) => waiting_kib,
            Err(_) => return self.worker.dropped(&triggered),
        };
        let job = Job {
            triggered,
            _waiting_kib: waiting_kib,
        };
        if let Err(Full(job) | Closed(job)) = self.queue.try_send(job) {
            self.worker.dropped(&job.triggered);
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
            job = waiting.recv(), if under_way.len() < UNDER_WAY_MAX => {
                let Some(job) = job else {
                    stop.cancelled().await; // Nobody hands over any more: the server has ended.
                    return Ok(());
                };
                let worker = Arc::clone(&worker);
                under_way.spawn(async move {
                    let Triggered { request, rules, .. } = &job.triggered;
                    // Rules run independently: a rule that is retried delays no other rule.
                    let works = rules
                        .iter()
                        .map(|(rule, _)| worker.work(rule, request, TriggerSource::Request));
                    futures::future::join_all(works).await;
                });
            }
        }
    }
}

/// The longest time for one evaluation and its writes, waits for turns not counted.
pub const TIMEOUT: Duration = Duration::from_secs(240);
