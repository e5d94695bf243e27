//! A follower of the log on NATS, which heals itself.
//!
//! It reads in sessions: look where the log stands, decide whether to go on or begin again
//! ([`Position`]), make a consumer, read until something is wrong. Whatever went wrong, the next
//! session goes on behind what was applied, so nothing is lost and nothing comes twice.

use std::{sync::Arc, time::Duration};

use anteroom_model::{Revision, limits::TOMBSTONE_TTL_MS};
use anteroom_wire::envelope;
use rand::Rng;
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, MissedTickBehavior},
};

use super::{
    Shared,
    consumer::{Consumer, Delivered, Lost, Pass},
    link,
};
use crate::{BusError, Follower, LogEvent, LogHead, RestartCause, Scope, position::Position};

/// Events that wait for the follower's reader; at the limit, the reader's task waits, and asks the
/// server for no more.
const EVENTS_MAX: usize = 64;

/// How often a session makes sure that the log is still the same one, and that it has all of it. A
/// stream deleted and made again is silence to a consumer, not an error.
const VERIFY_INTERVAL: Duration = Duration::from_secs(2);

/// So many verifications in a row may fail, as while a cluster elects a leader, before the log
/// counts as out of reach.
const UNVERIFIED_MAX: u32 = 3;

const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

const TOMBSTONE_TTL: Duration = Duration::from_millis(TOMBSTONE_TTL_MS);

/// Starts a follower's task.
pub(super) fn follow(shared: Arc<Shared>, scope: &Scope) -> Follower {
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let restart = Arc::new(Notify::new());
    let stop = shared.closed.child_token();
    let reader = Reader {
        filters: filters(&shared, scope),
        pull_records: shared.config.pull_records_max,
        shared,
        events,
        position: Position::default(),
        current: Instant::now(),
        asked: false,
        away: false,
        caught_up: false,
        retry_delay: RETRY_DELAY_MIN,
    };
    let (asked, stopped) = (Arc::clone(&restart), stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            biased;
            // Closed, it ends without a word: being away is for those that come back.
            () = stopped.cancelled() => {}
            // Ends when nobody reads the events any more.
            Gone = reader.run(&asked) => {}
        }
    });
    Follower {
        events: receiver,
        restart,
        _stop: stop.drop_guard(),
    }
}

fn filters(shared: &Shared, scope: &Scope) -> Vec<String> {
    match scope {
        Scope::All => shared.subjects.filters_of_all(),
        // A consumer without filters would read everything; no view has an empty name.
        Scope::Views(views) if views.is_empty() => {
            vec![shared.subjects.control(&anteroom_model::ViewId::new(""))]
        }
        Scope::Views(views) => shared.subjects.filters(views),
    }
}

struct Reader {
    shared: Arc<Shared>,
    filters: Vec<String>,
    /// Halved whenever messages were dropped on the way, so that it ends within what the client
    /// holds.
    pull_records: usize,
    events: mpsc::Sender<LogEvent>,
    position: Position,
    /// When the reader last held all that the log held. What was written since may be a tombstone.
    current: Instant,
    /// The follower's owner asked to begin again.
    asked: bool,
    away: bool,
    caught_up: bool,
    retry_delay: Duration,
}

/// Nobody reads the events any more.
struct Gone;

/// Why a session ended.
enum End {
    Gone,
    /// The owner asked to begin again.
    Asked,
    /// The log is not the one that was read: the next session begins again.
    Changed,
    /// The next session goes on.
    Lost(Lost),
}

impl From<Gone> for End {
    fn from(Gone: Gone) -> Self {
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
        Self::Lost(Lost::Gone(error.to_string()))
    }
}

impl Reader {
    async fn run(mut self, restart: &Notify) -> Gone {
        let mut link = self.shared.link.clone();
        loop {
            if !link.borrow_and_update().is_up() {
                if self
                    .leave("not connected to NATS".to_owned())
                    .await
                    .is_err()
                {
                    return Gone;
                }
                if link.wait_for(|link| link.is_up()).await.is_err() {
                    return Gone;
                }
            }
            let Err(end) = self.session(restart).await;
            match end {
                End::Gone => return Gone,
                End::Asked => self.asked = true,
                End::Changed => {}
                End::Lost(lost) => {
                    if self.lost(lost).await.is_err() {
                        return Gone;
                    }
                }
            }
        }
    }

    async fn session(&mut self, restart: &Notify) -> Result<std::convert::Infallible, End> {
        let mut link = self.shared.link.clone();
        let connects = link.borrow_and_update().connects;
        let head = self.shared.api.head().await?;
        self.resume(&head).await?;
        let mut consumer = self.consume(&head).await?;
        let mut verify = tokio::time::interval(VERIFY_INTERVAL);
        verify.set_missed_tick_behavior(MissedTickBehavior::Delay);
        verify.reset();
        let mut verifier = Verifier::default();
        loop {
            tokio::select! {
                delivered = consumer.next() => self.deliver(delivered?).await?,
                _ = verify.tick() => self.verify(&mut verifier, &consumer).await?,
                () = link::lost(&mut link, connects) => {
                    return Err(Lost::Gone("the connection to NATS was lost".to_owned()).into());
                }
                () = restart.notified() => return Err(End::Asked),
            }
        }
    }

    /// Goes on behind the position, or begins again.
    async fn resume(&mut self, head: &LogHead) -> Result<(), Gone> {
        let away = self.current.elapsed();
        let cause = match self.position.resume(head, away, TOMBSTONE_TTL) {
            Err(cause) => Some(cause),
            Ok(()) => self.asked.then_some(RestartCause::Asked),
        };
        self.asked = false;
        let Some(cause) = cause else { return Ok(()) };
        self.position.restart(head.incarnation.clone());
        self.current = Instant::now();
        self.caught_up = false;
        let incarnation = head.incarnation.clone();
        self.send(LogEvent::Restart { incarnation, cause }).await
    }

    async fn consume(&mut self, head: &LogHead) -> Result<Consumer, End> {
        let pass = Pass {
            filters: self.filters.clone(),
            from: Revision(self.position.applied().0 + 1),
            headers_only: false,
            pull_records: self.pull_records,
        };
        let (client, api) = (&self.shared.client, &self.shared.api);
        let (consumer, waiting) = Consumer::create(client, api, &pass).await?;
        self.away = false;
        if waiting == 0 {
            // Nothing in scope since the position, as of a moment after `head` was read.
            self.catch_up(head.last).await?;
        }
        Ok(consumer)
    }

    async fn deliver(&mut self, delivered: Delivered) -> Result<(), End> {
        let Delivered {
            revision,
            pending,
            message,
        } = delivered;
        if revision <= self.position.applied() {
            tracing::warn!(%revision, "the log's positions went backwards");
            return self.begin_again(RestartCause::Gap).await;
        }
        let header = |name: &str| {
            let headers = message.headers.as_ref()?;
            headers.get(name).map(|value| value.as_str())
        };
        let subjects = &self.shared.subjects;
        let envelope =
            envelope::decode(&message.subject, header, message.payload.clone(), subjects);
        let envelope = envelope.map(Box::new);
        self.send(LogEvent::Record { revision, envelope }).await?;
        self.position.advance(revision);
        self.retry_delay = RETRY_DELAY_MIN;
        if pending == 0 {
            self.catch_up(revision).await?;
        }
        Ok(())
    }

    /// Forgets the position, for a cause that was found here rather than by [`Position::resume`].
    async fn begin_again(&mut self, cause: RestartCause) -> Result<(), End> {
        let head = self.shared.api.head().await?;
        self.position.restart(head.incarnation.clone());
        self.current = Instant::now();
        self.caught_up = false;
        let incarnation = head.incarnation;
        self.send(LogEvent::Restart { incarnation, cause }).await?;
        Err(End::Changed)
    }

    async fn verify(&mut self, verifier: &mut Verifier, consumer: &Consumer) -> Result<(), End> {
        let head = match self.shared.api.head().await {
            Ok(head) => head,
            Err(BusError::NoLog) => return Err(BusError::NoLog.into()),
            Err(error) => return Ok(verifier.failed(&error)?),
        };
        if self
            .position
            .resume(&head, Duration::ZERO, TOMBSTONE_TTL)
            .is_err()
        {
            return Err(End::Changed);
        }
        if self.caught_up && head.last <= self.position.applied() {
            verifier.passed();
            self.current = Instant::now();
            return Ok(());
        }
        // Behind the last record in scope there may be others, and records that were waited for may
        // have been purged: only the consumer knows whether anything is left.
        match self.shared.api.consumer_state(consumer.name()).await {
            Ok((delivered, 0)) if delivered == consumer.delivered() => {
                verifier.passed();
                Ok(self.catch_up(head.last).await?)
            }
            Ok((delivered, _)) if delivered == consumer.delivered() => {
                Ok(verifier.stalled_at(delivered)?)
            }
            Ok(_) => {
                verifier.passed();
                Ok(())
            }
            Err(error) => Ok(verifier.failed(&error.into())?),
        }
    }

    /// Everything in scope up to `revision` has been delivered.
    async fn catch_up(&mut self, revision: Revision) -> Result<(), Gone> {
        self.position.advance(revision);
        self.current = Instant::now();
        self.retry_delay = RETRY_DELAY_MIN;
        if std::mem::replace(&mut self.caught_up, true) {
            return Ok(());
        }
        let revision = self.position.applied();
        self.send(LogEvent::CaughtUp { revision }).await
    }

    async fn lost(&mut self, lost: Lost) -> Result<(), Gone> {
        let reason = match lost {
            Lost::Gone(reason) => reason,
            Lost::Gap(reason) => {
                self.pull_records = (self.pull_records / 2).max(1);
                reason
            }
        };
        let after = self.position.applied();
        tracing::info!(reason, %after, "lost the log; goes on behind what was applied");
        self.shared.counters.resumed();
        self.leave(reason).await?;
        let delay = self
            .retry_delay
            .mul_f64(rand::rng().random_range(0.5..=1.0));
        self.retry_delay = (self.retry_delay * 2).min(RETRY_DELAY_MAX);
        tokio::time::sleep(delay).await;
        Ok(())
    }

    async fn leave(&mut self, reason: String) -> Result<(), Gone> {
        if std::mem::replace(&mut self.away, true) {
            return Ok(());
        }
        self.caught_up = false;
        self.send(LogEvent::Away { reason }).await
    }

    async fn send(&self, event: LogEvent) -> Result<(), Gone> {
        self.events.send(event).await.map_err(|_| Gone)
    }
}

/// What the verifications of one session found so far.
#[derive(Debug, Default)]
struct Verifier {
    failed: u32,
    /// Records wait on the server, but none has come since so many.
    stalled: Option<u64>,
}

impl Verifier {
    fn passed(&mut self) {
        *self = Self::default();
    }

    fn failed(&mut self, error: &BusError) -> Result<(), Lost> {
        self.failed += 1;
        if self.failed >= UNVERIFIED_MAX {
            return Err(Lost::Gone(error.to_string()));
        }
        tracing::debug!(%error, "could not verify where the log stands");
        Ok(())
    }

    fn stalled_at(&mut self, delivered: u64) -> Result<(), Lost> {
        if self.stalled == Some(delivered) {
            let reason = "records wait on the server, but none comes".to_owned();
            return Err(Lost::Gone(reason));
        }
        self.stalled = Some(delivered);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_verification_is_forgiven() {
        let away = || BusError::Unavailable {
            message: "no leader".into(),
        };
        let mut verifier = Verifier::default();
        assert!(verifier.failed(&away()).is_ok());
        assert!(verifier.failed(&away()).is_ok());
        verifier.passed();
        assert!(verifier.failed(&away()).is_ok());
        assert!(verifier.failed(&away()).is_ok());
        assert!(verifier.failed(&away()).is_err());
    }

    #[test]
    fn a_consumer_that_never_moves_is_left() {
        let mut verifier = Verifier::default();
        assert!(verifier.stalled_at(5).is_ok());
        assert!(verifier.stalled_at(6).is_ok(), "it moves");
        assert!(verifier.stalled_at(6).is_err());
    }
}
