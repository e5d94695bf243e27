//! The writer of the log. The keeper of a view hands in its changes and waits only for room, never for the bus.
//! One task takes the changes in batches and appends them, one batch at a time.

mod gather;
mod log_space;
mod pending;
mod suspends;
mod view_state;
mod work;
mod write_queue;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anteroom_bus::{AppendError, Bus, BusError, Connection};
use anteroom_model::{Incarnation, Revision, ViewId};
use anteroom_runtime::{age_clock, backoff::Backoff, telemetry};
use anteroom_wire::envelope::{Envelope, TraceContext};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use gather::Pace;
pub(crate) use work::{Batch, ChangeOrigin, Incoming, ViewStats, Work, WriteHandle};
pub(crate) use write_queue::{Opening, ViewSize, WriteQueue};

use super::{lead::Leadership, members::Members, metrics::BatchMetrics};

/// The interval at which the writer looks for due control records.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Waits between attempts to append the same batch, in milliseconds.
const RETRY_BASE_MS: u64 = 50;
const RETRY_MAX_MS: u64 = 2_000;

/// The time after which batches that are lost although the bus answers are taken for this watcher's own trouble. A way
/// that loses large packets alone lets heartbeats and leases through.
const UNWRITTEN_MAX: Duration = Duration::from_secs(15);

/// The reason why nothing more can be written in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Somebody else has the lease.
    Fenced,
    /// The log is another one: everything has to be written again.
    LogRemade,
    /// The log differs from what was written to it: it has to be read and compared again.
    Contradicted,
    /// The bus takes smaller messages than it did when the batch was made. The next term knows the new limit.
    TooLarge,
}

/// The entrance of the queue. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<WriteQueue>,
    /// Something was handed in.
    work: Notify,
    /// Something was written. Level-triggered: holders look at the queue.
    written: watch::Sender<()>,
    /// The state of a view changed for its readers.
    control_changes: watch::Sender<()>,
}

impl Publisher {
    /// Nothing handed in yet, in this term.
    pub(crate) fn new(term: u32) -> Self {
        let shared = Shared {
            queue: Mutex::new(WriteQueue::new(term)),
            work: Notify::new(),
            written: watch::Sender::new(()),
            control_changes: watch::Sender::new(()),
        };
        let publisher = Self {
            shared: Arc::new(shared),
        };
        // Suspends count from here on.
        publisher.read_now(|_, _| ());
        publisher
    }

    /// Hands changes in, and wakes the writer.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut WriteQueue) -> R) -> R {
        let result = change(&mut self.shared.queue.lock());
        self.shared.work.notify_one();
        result
    }

    /// Returns the result of `read` over the queue, which stays unchanged.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&WriteQueue) -> R) -> R {
        read(&self.shared.queue.lock())
    }

    /// Returns the result of `read` over the queue at the present moment. The queue learns first for how long the machine
    /// was suspended.
    pub(crate) fn read_now<R>(&self, read: impl FnOnce(&WriteQueue, Instant) -> R) -> R {
        let mut queue = self.shared.queue.lock();
        // In this order: a suspend between the two counts.
        let now = Instant::now();
        queue.note_suspended(age_clock::suspended(), now);
        read(&queue, now)
    }

    /// Waits until more may be handed in.
    pub(crate) async fn wait_for_room(&self) {
        self.until(WriteQueue::has_room).await;
    }

    /// Waits until everything that was handed in is in the log.
    pub(crate) async fn drained(&self) {
        self.until(WriteQueue::is_done).await;
    }

    /// Signals each change of the state that the log gives to the readers of any view.
    pub(crate) fn control_changes(&self) -> watch::Receiver<()> {
        self.shared.control_changes.subscribe()
    }

    /// Changes whenever something was written.
    pub(crate) fn written(&self) -> watch::Receiver<()> {
        self.shared.written.subscribe()
    }

    async fn until(&self, condition: impl Fn(&WriteQueue) -> bool) {
        let mut written = self.shared.written.subscribe();
        while !self.read(&condition) {
            if written.changed().await.is_err() {
                return; // Unreachable: `self` holds the sender.
            }
        }
    }

    /// Writes, until it may not any more.
    pub(crate) async fn run(
        &self,
        bus: &dyn Bus,
        leadership: &Leadership,
        members: &Members,
        metrics: &BatchMetrics,
    ) -> End {
        let writer = Writer {
            bus,
            leadership,
            members,
            metrics,
            is_in_doubt: AtomicBool::new(false),
        };
        let mut pace = Pace::default();
        let mut refresh_at = Instant::now() + REFRESH_INTERVAL;
        loop {
            // Whether there is work or not: a group that is never quiet has readers too.
            if Instant::now() >= refresh_at {
                self.shared.queue.lock().refresh(Instant::now());
                refresh_at = Instant::now() + REFRESH_INTERVAL;
            }
            self.gather(&pace).await;
            let now = Instant::now();
            let work = self.shared.queue.lock().next_work(now);
            let end = match work {
                Some(Work::Append(batch)) => {
                    pace.begin();
                    self.append(&writer, batch).await.err()
                }
                Some(Work::Purge(view)) => self.purge(&writer, &view).await.err(),
                None => {
                    // Only now is the last of it done.
                    self.shared.written.send_replace(());
                    let work = self.shared.work.notified();
                    // The wait ends at `refresh_at` at the latest, when the queue is searched for due control
                    // records.
                    let _ = tokio::time::timeout_at(refresh_at, work).await;
                    continue;
                }
            };
            if let Some(end) = end {
                return end;
            }
            self.shared.written.send_replace(());
        }
    }
}

impl Publisher {
    /// Appends the batch. If the log is full, views are suspended one by one until the rest of the batch fits. The
    /// objects of each are removed from the log before the next attempt, so that no more views go than have to.
    async fn append(&self, writer: &Writer<'_>, mut batch: Batch) -> Result<(), End> {
        while !batch.records.is_empty() {
            match writer.append(&batch).await? {
                Appended::At(last) => {
                    self.written_at(&batch, last);
                    return Ok(());
                }
                Appended::Full => {
                    self.look_at_room(writer.bus).await;
                    let now = Instant::now();
                    let refused = self.shared.queue.lock().refuse(batch, now);
                    batch = match refused {
                        Ok(rest) => rest,
                        Err(batch) => return self.append_singly(writer, batch).await,
                    };
                    self.make_room(writer).await?;
                }
            }
        }
        Ok(())
    }

    /// Removes the objects of the view that was suspended last, which the queue has at its front.
    async fn make_room(&self, writer: &Writer<'_>) -> Result<(), End> {
        loop {
            let work = self.shared.queue.lock().next_work(Instant::now());
            match work {
                Some(Work::Append(dropped)) => self.append_singly(writer, dropped).await?,
                Some(Work::Purge(view)) => return self.purge(writer, &view).await,
                None => return Ok(()), // Unreachable: a view that is suspended is purged.
            }
        }
    }

    /// Removes the view's objects from the log.
    async fn purge(&self, writer: &Writer<'_>, view: &ViewId) -> Result<(), End> {
        let purge = || async { writer.bus.purge(writer.leadership.fence.now(), view).await };
        let purged = writer.until_done("purge", purge).await;
        self.look_at_room(writer.bus).await;
        purged
    }

    /// Appends the records singly, and retries each until the log has it. Alone, a record may take the room of the
    /// record that it replaces.
    async fn append_singly(&self, writer: &Writer<'_>, batch: Batch) -> Result<(), End> {
        for (record, span) in batch.records {
            let alone = Batch::of(record, span);
            let last = writer.append_in_the_end(&alone).await?;
            self.written_at(&alone, last);
        }
        Ok(())
    }

    fn written_at(&self, batch: &Batch, last: Revision) {
        if self.shared.queue.lock().written(batch, last) {
            self.shared.control_changes.send_replace(());
        }
    }

    /// Notes how large the log is. Where that cannot be known now, it is known a little later.
    async fn look_at_room(&self, bus: &dyn Bus) {
        if let Ok(size) = bus.log_size().await {
            self.shared.queue.lock().set_room(size);
        }
    }
}

/// The outcome of an append.
enum Appended {
    At(Revision),
    /// The log has no room for the whole batch.
    Full,
}

struct Writer<'a> {
    bus: &'a dyn Bus,
    leadership: &'a Leadership,
    members: &'a Members,
    metrics: &'a BatchMetrics,
    /// A batch that nobody acknowledged may still be on its way under the present fence.
    is_in_doubt: AtomicBool,
}

impl Writer<'_> {
    async fn append(&self, batch: &Batch) -> Result<Appended, End> {
        let append = || async {
            match self.try_append(batch).await {
                Err(AppendError::Bus(error @ BusError::Full { .. })) => {
                    tracing::warn!(
                        %error,
                        "batch refused: the log is full; raise its limit"
                    );
                    Ok(Appended::Full)
                }
                appended => appended.map(Appended::At),
            }
        };
        self.until_done("append", append).await
    }

    /// Appends the batch, and waits for room while the log is full.
    async fn append_in_the_end(&self, batch: &Batch) -> Result<Revision, End> {
        self.until_done("append", || self.try_append(batch)).await
    }

    async fn try_append(&self, batch: &Batch) -> Result<Revision, AppendError> {
        let begun = Instant::now();
        let envelopes = batch.records.iter().map(|(record, span)| Envelope {
            record: record.clone(),
            trace: span
                .in_scope(telemetry::current_trace)
                .map(|(traceparent, tracestate)| TraceContext {
                    traceparent,
                    tracestate,
                }),
        });
        let envelopes: Vec<_> = envelopes.collect();
        let (log, highest) = (&self.leadership.incarnation, self.members.highest());
        let known = highest.position_in(log);
        let fence = self.leadership.fence.now();
        let last = self.bus.append(fence, envelopes).await?;
        let given = (last.0 + 1 - batch.records.len() as u64)..=last.0;
        if highest.note_appended(log, known, given).is_err() {
            // The next term makes it anew.
            return Err(AppendError::Bus(BusError::NoLog));
        }
        self.metrics
            .batch(batch.records.len(), batch.body_bytes, begun.elapsed());
        Ok(last)
    }

    /// Tries until it is done. Whether an attempt was done after all does not matter: doing it again
    /// leaves the same state, and an attempt that was held up is refused before anything else is done.
    async fn until_done<T, F>(&self, what: &str, attempt: impl Fn() -> F) -> Result<T, End>
    where
        F: Future<Output = Result<T, AppendError>>,
    {
        let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
        let mut losses = Losses::default();
        loop {
            let begun = Instant::now();
            let error = match self.attempt_once(&attempt).await {
                Ok(done) => {
                    losses.end(self);
                    return Ok(done);
                }
                Err(AppendError::Fenced) => return Err(End::Fenced),
                Err(AppendError::Bus(BusError::NoLog)) => return Err(End::LogRemade),
                Err(AppendError::Bus(error @ BusError::TooLarge { .. })) => {
                    tracing::error!(
                        %error,
                        "{what} refused: it is over NATS' message limit; the term ends, and the next one checks \
                         every object"
                    );
                    // Where the next term meets it too, terms do not follow one another at once.
                    tokio::time::sleep(Duration::from_millis(RETRY_MAX_MS)).await;
                    return Err(End::TooLarge);
                }
                Err(error) => error,
            };
            self.metrics.retry();
            tracing::warn!(
                %error,
                attempt = backoff.attempt() + 1,
                "{what} failed: tried again; check NATS if this repeats"
            );
            let was_within_reach = self.wait(&mut backoff).await;
            let is_lost = was_within_reach && matches!(error, AppendError::Unknown { .. });
            match look_at_log(self.bus, &self.leadership.incarnation).await {
                LogLook::Remade => return Err(End::LogRemade),
                LogLook::Same if is_lost => losses.note(self, begun),
                LogLook::Same | LogLook::Unreachable => losses.since = None,
            }
        }
    }

    /// Attempts it once. Behind an attempt of unknown outcome, the lease is renewed first: the earlier batch then stands
    /// before this one, or never comes. Otherwise, it could come after younger batches, and take their changes back.
    async fn attempt_once<T, F>(&self, attempt: &impl Fn() -> F) -> Result<T, AppendError>
    where
        F: Future<Output = Result<T, AppendError>>,
    {
        if self.is_in_doubt.load(Ordering::Relaxed) {
            let highest = self.members.highest();
            match self.leadership.renew(self.bus, highest).await {
                Ok(()) => self.is_in_doubt.store(false, Ordering::Relaxed),
                // The doubt stays. A batch is refused too, and then the writer makes room.
                Err(AppendError::Bus(BusError::Full { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let done = attempt().await;
        if matches!(done, Err(AppendError::Unknown { .. })) {
            self.is_in_doubt.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Waits for the backoff, and then for the bus to be within reach. Returns true if the bus was so already.
    async fn wait(&self, backoff: &mut Backoff) -> bool {
        tokio::time::sleep(backoff.next(rand::random())).await;
        let mut connection = self.bus.connection();
        let was_up = *connection.borrow() == Connection::Up;
        // An error says that the bus was closed, which the next attempt says better.
        let _ = connection.wait_for(|state| *state == Connection::Up).await;
        was_up
    }
}

/// Attempts in succession that were lost on their way, while the bus answered.
#[derive(Debug, Default)]
struct Losses {
    /// When the first of them began.
    since: Option<Instant>,
    has_stood_down: bool,
}

impl Losses {
    /// Notes that the attempt that began then was lost. After [`UNWRITTEN_MAX`], the watcher stands down, and its groups
    /// are handed over.
    fn note(&mut self, writer: &Writer<'_>, begun: Instant) {
        let since = *self.since.get_or_insert(begun);
        if since.elapsed() < UNWRITTEN_MAX || !writer.members.writes_fail(writer.leadership.group) {
            return;
        }
        if !std::mem::replace(&mut self.has_stood_down, true) {
            tracing::warn!(
                group = %writer.leadership.group,
                "batches lost although NATS answers: other watchers take over; check that this watcher's way to NATS lets \
                 large packets through"
            );
        }
    }

    /// It is done after all.
    fn end(&self, writer: &Writer<'_>) {
        if self.has_stood_down {
            writer.members.writes_again(writer.leadership.group);
        }
    }
}

/// The log, as a look at its head shows it.
enum LogLook {
    Same,
    /// It is gone, or has another incarnation.
    Remade,
    /// Any other error of the bus.
    Unreachable,
}

async fn look_at_log(bus: &dyn Bus, incarnation: &Incarnation) -> LogLook {
    match bus.head().await {
        Ok(head) if head.incarnation == *incarnation => LogLook::Same,
        Ok(_) | Err(BusError::NoLog) => LogLook::Remade,
        Err(_) => LogLook::Unreachable,
    }
}

#[cfg(test)]
mod tests;
