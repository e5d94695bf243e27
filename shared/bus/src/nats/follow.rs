//! A follower of the log on NATS, which heals itself.
//!
//! It reads in sessions: ask for the log's head, decide whether to resume or begin again
//! ([`Position`]), create a consumer, read until something fails. After any failure, the next
//! session resumes after the last applied record, so nothing is lost or delivered twice.

use std::{pin::pin, sync::Arc, time::Duration};

use anteroom_model::{Revision, limits::TOMBSTONE_TTL_MS};
use anteroom_wire::{
    envelope::{self, Envelope},
    subject::Subject,
};
use async_nats::Message;
use futures::{
    FutureExt as _,
    future::{BoxFuture, OptionFuture},
};
use parking_lot::Mutex;
use rand::Rng;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior},
};

use super::{
    ClientState, api,
    consumer::{Consumer, ConsumerEvent, Delivered, Lost, Pass},
    earlier::believe,
    link,
    verify::Verifier,
};
use crate::{
    BusError, EarlierEnd, Follower, LogEvent, LogHead, LogScope, RestartCause, Unreadable,
    position::{Position, is_at_end},
};

/// Events that wait for the follower's reader; at the limit, the reader's task waits, and asks the
/// server for no more.
const EVENTS_MAX: usize = 64;

/// The interval at which a session verifies that the log is still the same one, and that nothing is
/// missing. A consumer of a stream that was deleted and created again gets silence, not an error.
const VERIFY_INTERVAL: Duration = Duration::from_secs(2);

/// The shortest time between two lines that say that the log does not exist, over all followers of a
/// client.
const NO_LOG_NOTICE_INTERVAL: Duration = Duration::from_secs(30);

const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

const TOMBSTONE_TTL: Duration = Duration::from_millis(TOMBSTONE_TTL_MS);

/// Starts a follower's task.
pub(super) fn follow(shared: Arc<ClientState>, scope: &LogScope) -> Follower {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let restart = Arc::new(Notify::new());
    let stop = shared.closed.child_token();
    let leases = shared.subjects.leases();
    let reader = LogReader {
        filters: filters(&shared, scope),
        pull_records: shared.config.pull_records_max,
        shared,
        events,
        position: Position::default(),
        current: Instant::now(),
        asked: false,
        away: false,
        progress: LogProgress::Behind,
        sees_gaps: *scope == LogScope::All,
        wanted: Revision(0),
        earlier: EarlierEnd::default(),
        lease_prefix: leases.trim_end_matches('>').to_owned(),
        retry_delay: RETRY_DELAY_MIN,
    };
    let (asked, stopped) = (Arc::clone(&restart), stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            // Ends when nobody reads the events any more.
            ReaderGone = reader.run(&asked) => {}
        }
    });
    Follower {
        events: receiver,
        restart,
        _stop: stop.drop_guard(),
    }
}

fn filters(shared: &ClientState, scope: &LogScope) -> Vec<String> {
    match scope {
        // The lease too, though it is no record: then the last record is the log's last position.
        LogScope::All => shared.subjects.stream_subjects(),
        // A consumer without filters would read everything; no view has an empty name.
        LogScope::Views(views) if views.is_empty() => {
            vec![shared.subjects.control(&anteroom_model::ViewId::new(""))]
        }
        LogScope::Views(views) => shared.subjects.filters(views),
        LogScope::Controls => vec![shared.subjects.controls()],
    }
}

struct LogReader {
    shared: Arc<ClientState>,
    filters: Vec<String>,
    /// The size of a pull, halved after messages were dropped, so that a pull fits into the client's queue.
    pull_records: usize,
    events: mpsc::Sender<LogEvent>,
    position: Position,
    /// When the reader last held all that the log held. What was written since may be a tombstone.
    current: Instant,
    /// The follower's owner asked to begin again.
    asked: bool,
    away: bool,
    progress: LogProgress,
    /// True if all records are in scope: a position that is left out was superseded. Elsewhere, records that wait behind a
    /// delivered one say that the reader lags, and may have passed superseded ones.
    sees_gaps: bool,
    /// The log's last position when it was last asked: to be caught up is to have got there.
    wanted: Revision,
    /// The log seems to end before what was read of it.
    earlier: EarlierEnd,
    /// The prefix of the subjects of leases.
    lease_prefix: String,
    retry_delay: Duration,
}

/// The progress of the reader.
///
/// A record that is left out between two positions was superseded, by one that had been written by the time that the
/// second one was delivered. So that one has been read once the reader has got, without another gap, to where the log
/// ended at any time after that. Where gaps cannot be seen, it has been read once no record waits behind the delivered
/// one: that is off by no more than the moment that a write takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogProgress {
    /// It has not read all that the log held when it began, or came back.
    Behind,
    /// It has.
    CaughtUp,
    /// It had, and then records waited behind the delivered one. Gaps cannot be seen.
    Lags,
    /// It had, and then a record was left out.
    Gap,
    /// Since then it was asked where the log ends.
    GapAsked,
    /// All is read with this position.
    GapUntil(Revision),
}

/// The question where the log ends, if it is under way.
type AskedHead = OptionFuture<BoxFuture<'static, Result<LogHead, BusError>>>;

/// When the followers of a client last said that there is no log.
#[derive(Debug, Default)]
pub(super) struct NoLogNotice(Mutex<Option<Instant>>);

impl NoLogNotice {
    /// Returns whether the notice is due, and remembers it as given.
    fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|at| at.elapsed() >= NO_LOG_NOTICE_INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// The events have no reader any more.
struct ReaderGone;

/// Why a session ended.
enum End {
    Gone,
    /// The owner asked to begin again.
    Asked,
    /// The log is not the one that was read: the next session begins again.
    Changed,
    /// The next session resumes.
    Lost(Lost),
    /// There is no log to read.
    NoLog,
}

impl From<ReaderGone> for End {
    fn from(ReaderGone: ReaderGone) -> Self {
        Self::Gone
    }
}

impl From<Lost> for End {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<BusError> for End {
    fn from(error: BusError) -> Self {
        match error {
            BusError::NoLog => Self::NoLog,
            error => Self::Lost(Lost::Gone(error.to_string())),
        }
    }
}

impl LogReader {
    async fn run(mut self, restart: &Notify) -> ReaderGone {
        let mut link = self.shared.link.clone();
        loop {
            if !link.borrow_and_update().is_up() {
                if self
                    .leave("not connected to NATS".to_owned())
                    .await
                    .is_err()
                {
                    return ReaderGone;
                }
                if link.wait_for(|link| link.is_up()).await.is_err() {
                    return ReaderGone;
                }
            }
            let Err(end) = self.session(restart).await;
            match end {
                End::Gone => return ReaderGone,
                End::Asked => self.asked = true,
                End::Changed => {}
                End::Lost(lost) => {
                    if self.lost(lost).await.is_err() {
                        return ReaderGone;
                    }
                }
                End::NoLog => {
                    if self.await_log().await.is_err() {
                        return ReaderGone;
                    }
                }
            }
        }
    }

    async fn session(&mut self, restart: &Notify) -> Result<std::convert::Infallible, End> {
        let mut link = self.shared.link.clone();
        let connects = link.borrow_and_update().connects;
        let end = self.end().await?;
        self.resume(&end.head).await?;
        let mut consumer = self.consume(&end).await?;
        let mut verify = tokio::time::interval(VERIFY_INTERVAL);
        verify.set_missed_tick_behavior(MissedTickBehavior::Delay);
        verify.reset();
        let mut verifier = Verifier::default();
        // Waited for all the while: to begin to wait again for each record would cost more than the rest.
        let (lost, asked) = (link::lost(&mut link, connects), restart.notified());
        let (mut lost, mut asked) = (pin!(lost), pin!(asked));
        let (mut head, mut is_asked) = (AskedHead::default(), false);
        loop {
            if self.progress == LogProgress::Gap && !is_asked {
                head = self.ask_head();
                is_asked = true;
            }
            tokio::select! {
                Some(answer) = &mut head => {
                    (head, is_asked) = (AskedHead::default(), false);
                    self.gap_ends(answer).await?;
                }
                step = consumer.next() => match step? {
                    ConsumerEvent::Record(delivered) => self.deliver(delivered).await?,
                    ConsumerEvent::Idle { scanned } => self.idle(scanned).await?,
                },
                _ = verify.tick() => {
                    let is_changed = consumer.is_changed(&self.shared.api);
                    self.verify(&mut verifier).await?;
                    if verifier.is_consumer_due() && is_changed.await {
                        tracing::warn!(
                            "consumer of the log changed by somebody else: the log is read from its start again; check who has this service's login to NATS"
                        );
                        // Its heartbeats have moved the position beyond records that it left out.
                        self.begin_again(RestartCause::Gap).await?;
                    }
                }
                () = &mut lost => {
                    return Err(Lost::Gone("the connection to NATS was lost".to_owned()).into());
                }
                () = &mut asked => return Err(End::Asked),
            }
        }
    }

    /// Returns the end of the log, which is not before what was read of it.
    async fn end(&mut self) -> Result<api::End, BusError> {
        let end = self.shared.api.end().await?;
        let is_replicated = end.is_replicated;
        let read = self.position.in_log(&end.head.incarnation);
        let head = believe(&mut self.earlier, end, read, Instant::now())?;
        Ok(api::End {
            head,
            is_replicated,
        })
    }

    /// Resumes after the position, or begins again.
    async fn resume(&mut self, head: &LogHead) -> Result<(), ReaderGone> {
        let away = self.current.elapsed();
        let cause = match self.position.resume(head, away, TOMBSTONE_TTL) {
            Err(cause) => Some(cause),
            Ok(()) => self.asked.then_some(RestartCause::Asked),
        };
        self.asked = false;
        let Some(cause) = cause else { return Ok(()) };
        self.position.restart(head.incarnation.clone());
        self.current = Instant::now();
        self.progress = LogProgress::Behind;
        let incarnation = head.incarnation.clone();
        self.send(LogEvent::Restart { incarnation, cause }).await
    }

    async fn consume(&mut self, end: &api::End) -> Result<Consumer, End> {
        let pass = Pass {
            filters: self.filters.clone(),
            from: Revision(self.position.applied().0 + 1),
            headers_only: false,
            pull_records: self.pull_records,
        };
        let (client, api) = (&self.shared.client, &self.shared.api);
        let (consumer, waiting) = Consumer::create(client, api, &pass).await?;
        self.away = false;
        let head = &end.head;
        self.wanted = head.last;
        let is_at_end = is_at_end(self.position.applied(), head.last, end.is_replicated);
        if waiting == 0 && is_at_end && self.shared.api.head().await? == *head {
            self.catch_up(head.last).await?;
        }
        Ok(consumer)
    }

    /// The server has met the log's end at `scanned`.
    async fn idle(&mut self, scanned: Revision) -> Result<(), ReaderGone> {
        // A read that failed ends before the end, which the log's last position gives away.
        if scanned < self.wanted {
            return Ok(());
        }
        self.catch_up(scanned).await
    }

    fn ask_head(&mut self) -> AskedHead {
        self.progress = LogProgress::GapAsked;
        let api = self.shared.api.clone();
        Some(async move { api.head().await }.boxed()).into()
    }

    /// Takes the answer to [`LogReader::ask_head`]. The next verification answers where this one does not.
    async fn gap_ends(&mut self, answer: Result<LogHead, BusError>) -> Result<(), ReaderGone> {
        match answer {
            // If another gap came since, the answer may be too early.
            Ok(head) if self.progress == LogProgress::GapAsked && self.is_the_same(&head) => {
                self.gap_ends_at(head.last).await
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn gap_ends_at(&mut self, end: Revision) -> Result<(), ReaderGone> {
        let applied = self.position.applied();
        if applied >= end {
            return self.catch_up(applied).await;
        }
        self.progress = LogProgress::GapUntil(end);
        Ok(())
    }

    async fn deliver(&mut self, delivered: Delivered) -> Result<(), End> {
        let Delivered {
            revision,
            maybe_last,
            message,
        } = delivered;
        if revision <= self.position.applied() {
            tracing::warn!(
                %revision,
                "old position delivered by the log's consumer: the log is read from its start again"
            );
            return self.begin_again(RestartCause::Gap).await;
        }
        if let Some(progress) = self.passes_superseded(revision, maybe_last) {
            self.progress = progress;
            self.send(LogEvent::Superseded { before: revision }).await?;
        }
        if !message.subject.starts_with(&self.lease_prefix) {
            let envelope = self.decode(&message).map(Box::new);
            self.send(LogEvent::Record { revision, envelope }).await?;
        }
        self.position.advance(revision);
        self.retry_delay = RETRY_DELAY_MIN;
        match self.progress {
            LogProgress::Behind if maybe_last => self.confirm(revision).await?,
            // Not certain, but off by no more than the moment that a write takes. A copy that lags is further off.
            LogProgress::CaughtUp if maybe_last && revision >= self.wanted => {
                self.current = Instant::now();
            }
            LogProgress::GapUntil(end) => self.gap_ends_at(end).await?,
            LogProgress::Lags if maybe_last => self.catch_up(revision).await?,
            LogProgress::Behind
            | LogProgress::CaughtUp
            | LogProgress::Lags
            | LogProgress::Gap
            | LogProgress::GapAsked => {}
        }
        Ok(())
    }

    /// Returns the progress from now on if the reader, which was caught up, has passed superseded records before
    /// `revision`, or may have.
    fn passes_superseded(&self, revision: Revision, maybe_last: bool) -> Option<LogProgress> {
        let is_next = revision.0 == self.position.applied().0 + 1;
        match self.progress {
            LogProgress::Behind => None,
            _ if self.sees_gaps => (!is_next).then_some(LogProgress::Gap),
            LogProgress::CaughtUp => (!maybe_last).then_some(LogProgress::Lags),
            _ => None,
        }
    }

    fn decode(&self, message: &Message) -> Result<Envelope, Unreadable> {
        let header = |name: &str| {
            let headers = message.headers.as_ref()?;
            headers.get(name).map(|value| value.as_str())
        };
        let (subject, subjects) = (&message.subject, &self.shared.subjects);
        let body = message.payload.clone();
        envelope::decode(subject, header, body, subjects).map_err(|error| {
            let (view, key) = match subjects.parse(subject) {
                Ok(Subject::Object { view, key }) => (Some(view), Some(key)),
                Ok(Subject::Control(view)) => (Some(view), None),
                _ => (None, None),
            };
            Unreadable { view, key, error }
        })
    }

    /// Asks whether the record at `revision`, which has just been delivered, is still the last one.
    async fn confirm(&mut self, revision: Revision) -> Result<(), ReaderGone> {
        match self.shared.api.head().await {
            Ok(head) if head.last == revision && self.is_the_same(&head) => {
                self.catch_up(revision).await
            }
            // Others follow, or an idle server will say so, or the next verification sees what is
            // wrong.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Forgets the position, for a cause that was found here rather than by [`Position::resume`].
    async fn begin_again(&mut self, cause: RestartCause) -> Result<(), End> {
        let head = self.shared.api.head().await?;
        self.position.restart(head.incarnation.clone());
        self.current = Instant::now();
        self.progress = LogProgress::Behind;
        let incarnation = head.incarnation;
        self.send(LogEvent::Restart { incarnation, cause }).await?;
        Err(End::Changed)
    }

    async fn verify(&mut self, verifier: &mut Verifier) -> Result<(), End> {
        let head = match self.end().await {
            Ok(end) => end.head,
            Err(error @ BusError::NoLog) => return Err(error.into()),
            Err(error) => return Ok(verifier.failed(&error)?),
        };
        if !self.is_the_same(&head) {
            return Err(End::Changed);
        }
        self.wanted = head.last;
        if matches!(self.progress, LogProgress::Gap | LogProgress::GapAsked) {
            self.gap_ends_at(head.last).await?;
        }
        Ok(verifier.passed(self.position.applied(), head.last)?)
    }

    /// Returns true if `head` belongs to the log that is read: the same incarnation, not truncated.
    fn is_the_same(&self, head: &LogHead) -> bool {
        let resumed = self.position.resume(head, Duration::ZERO, TOMBSTONE_TTL);
        resumed.is_ok()
    }

    /// Everything in scope up to `revision` has been delivered.
    async fn catch_up(&mut self, revision: Revision) -> Result<(), ReaderGone> {
        self.position.advance(revision);
        self.current = Instant::now();
        self.retry_delay = RETRY_DELAY_MIN;
        if std::mem::replace(&mut self.progress, LogProgress::CaughtUp) == LogProgress::CaughtUp {
            return Ok(());
        }
        let revision = self.position.applied();
        self.send(LogEvent::CaughtUp { revision }).await
    }

    async fn lost(&mut self, lost: Lost) -> Result<(), ReaderGone> {
        let reason = match lost {
            Lost::Gone(reason) => reason,
            Lost::Gap(reason) => {
                self.pull_records = (self.pull_records / 2).max(1);
                reason
            }
        };
        let after = self.position.applied();
        tracing::info!(
            reason,
            %after,
            "consumer of the log lost: a new one resumes after this position"
        );
        self.shared.counters.resumed();
        self.leave(reason).await?;
        self.pause().await;
        Ok(())
    }

    /// Waits for a watcher to create the log. That is how every installation begins, so it is told
    /// rarely.
    async fn await_log(&mut self) -> Result<(), ReaderGone> {
        let stream = self.shared.subjects.stream();
        if self.shared.no_log_notice.is_due() {
            if self.position.applied() == Revision(0) {
                tracing::info!("log {stream} not there: no watcher has created it yet");
            } else {
                tracing::warn!("log {stream} deleted: a watcher creates it anew");
            }
        }
        self.leave(BusError::NoLog.to_string()).await?;
        self.pause().await;
        Ok(())
    }

    async fn pause(&mut self) {
        let delay = self
            .retry_delay
            .mul_f64(rand::rng().random_range(0.5..=1.0));
        self.retry_delay = (self.retry_delay * 2).min(RETRY_DELAY_MAX);
        tokio::time::sleep(delay).await;
    }

    async fn leave(&mut self, reason: String) -> Result<(), ReaderGone> {
        // Closed, it ends without a word: being away is for those that come back.
        if self.shared.closed.is_cancelled() {
            return Err(ReaderGone);
        }
        if std::mem::replace(&mut self.away, true) {
            return Ok(());
        }
        self.progress = LogProgress::Behind;
        self.send(LogEvent::Away { reason }).await
    }

    async fn send(&self, event: LogEvent) -> Result<(), ReaderGone> {
        self.events.send(event).await.map_err(|_| ReaderGone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn followers_that_wait_for_the_log_say_so_once_in_half_a_minute() {
        let notice = NoLogNotice::default();
        let mut said = 0;
        for _ in 0..61 {
            said += u32::from(notice.is_due());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(said, 3, "at 0, 30 and 60 seconds");
    }
}
