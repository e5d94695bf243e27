//! A follower of the in-process log.
//!
//! It reads the shared log by position and hands records on through a bounded channel. A follower
//! that nobody reads waits there, and then reads on from its position: what was superseded meanwhile
//! is skipped, as on the real bus, and nothing else is.

use std::{sync::Arc, time::Duration};

use anteroom_model::Revision;
use anteroom_wire::envelope::Envelope;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{hub::Hub, link::Link, log::Records};
use crate::{
    Follower, LogEvent, LogHead, LogScope, RestartCause,
    position::{Position, is_at_end},
};

/// Records read under one taking of the lock.
const CHUNK_RECORDS: usize = 64;

/// The time after which a follower that gets nothing, though the log goes on, is connected anew. On NATS it is two
/// verifications.
const STANDSTILL_MAX: Duration = Duration::from_secs(4);

/// Starts a follower's task.
pub(super) fn follow(hub: Arc<Hub>, link: Arc<Link>, scope: LogScope) -> Follower {
    let (events, receiver) = mpsc::channel(hub.options.follower_events_max);
    let restart = Arc::new(Notify::new());
    let stop = link.closed.child_token();
    let task = Task {
        changes: hub.changes(),
        gaps_seen: link.gaps(),
        moves_seen: link.moves(),
        hub,
        link,
        scope,
        events,
        position: Position::default(),
        current: Instant::now(),
        away: false,
        is_new: true,
        stands_since: None,
        caught_up: false,
        lags: false,
    };
    tokio::spawn(task.run(Arc::clone(&restart), stop.clone()));
    Follower {
        events: receiver,
        restart,
        _stop: stop.drop_guard(),
    }
}

struct Task {
    hub: Arc<Hub>,
    link: Arc<Link>,
    scope: LogScope,
    events: mpsc::Sender<LogEvent>,
    changes: watch::Receiver<u64>,
    position: Position,
    /// When the reader last held all that the log held. What was written since may be a tombstone.
    current: Instant,
    gaps_seen: u64,
    moves_seen: u64,
    away: bool,
    /// It was just connected, and nothing was read since.
    is_new: bool,
    /// Since when its copy of the log has ended before the log does.
    stands_since: Option<Instant>,
    caught_up: bool,
    /// It was caught up, and has passed superseded records since, or may have.
    lags: bool,
}

/// An event that wakes the task.
enum Woken {
    Changed,
    /// The follower's owner asked to begin again.
    Asked,
    /// Nothing came for [`STANDSTILL_MAX`], though the log goes on.
    StoodStill,
}

/// Some of the records that come next, and how far they can be read.
struct Chunk {
    records: Records,
    /// The end of the copy that is read.
    readable_to: Revision,
    /// The end of the log.
    last: Revision,
}

/// The reader is gone.
struct ReaderGone;

impl Task {
    async fn run(mut self, restart: Arc<Notify>, stop: CancellationToken) {
        let mut connection = self.link.connection();
        loop {
            // Marked as seen before the read, so that no change between read and wait is missed.
            connection.borrow_and_update();
            self.changes.borrow_and_update();
            // Closed, it ends without a word: being away is for those that come back.
            let read = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                read = self.read() => read,
            };
            if read.is_err() {
                return;
            }
            let stands_since = self.stands_since;
            let stands_until = stands_since.unwrap_or_else(Instant::now) + STANDSTILL_MAX;
            let woken = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = self.changes.changed() => Woken::Changed,
                _ = connection.changed() => Woken::Changed,
                () = restart.notified() => Woken::Asked,
                () = tokio::time::sleep_until(stands_until), if stands_since.is_some() => Woken::StoodStill,
            };
            if self.caught_up && stands_since.is_none() {
                self.current = Instant::now();
            }
            let acted = match woken {
                Woken::Changed => Ok(()),
                Woken::Asked => self.restart(RestartCause::Asked).await,
                Woken::StoodStill => self.leave("nothing is delivered".to_owned()).await,
            };
            if acted.is_err() {
                return;
            }
        }
    }

    /// Reads until there is nothing more to read for now.
    async fn read(&mut self) -> Result<(), ReaderGone> {
        loop {
            let head = match self.head() {
                Ok(head) => head,
                Err(reason) => return self.leave(reason).await,
            };
            let moves = self.link.moves();
            if std::mem::replace(&mut self.moves_seen, moves) != moves {
                self.leave("moved to another copy of the log".to_owned())
                    .await?;
            }
            self.come_back(&head).await?;
            let read_at = Instant::now();
            let Some(Chunk {
                records,
                readable_to,
                last,
            }) = self.chunk()
            else {
                continue;
            };
            let is_new = std::mem::take(&mut self.is_new);
            if records.is_empty() {
                // As on NATS: no record waits for a reader that was just connected, or the server has met the log's end.
                let applied = self.position.applied();
                let is_at_end = readable_to >= last || is_new && is_at_end(applied, last, true);
                if !is_at_end {
                    self.stands_since.get_or_insert_with(Instant::now);
                    return Ok(());
                }
                self.position.advance(last);
                return self.catch_up().await;
            }
            self.stands_since = None;
            let all = readable_to >= last && records.len() < CHUNK_RECORDS;
            if self.deliver(records).await? && all {
                self.current = read_at;
            }
        }
    }

    fn head(&self) -> Result<LogHead, String> {
        self.link
            .require_up()
            .and_then(|()| self.hub.with_log(|log| log.head()))
            .map_err(|error| error.to_string())
    }

    /// The next records; `None` if the log is not the one of the last look any more.
    fn chunk(&self) -> Option<Chunk> {
        let after = self.position.applied();
        self.hub
            .with_log(|log| {
                log.expire(Instant::now());
                let head = log.head();
                let whole = self.position.resume(&head, Duration::ZERO, Duration::MAX);
                whole.is_ok().then(|| {
                    let readable_to = self.link.readable_to(head.last);
                    let mut records = log.read(after, &self.scope, CHUNK_RECORDS);
                    records.retain(|(revision, _)| *revision <= readable_to);
                    Chunk {
                        records,
                        readable_to,
                        last: head.last,
                    }
                })
            })
            .ok()
            .flatten()
    }

    /// Sends `records` to the reader. Returns false if the connection was lost before the last one.
    async fn deliver(&mut self, records: Records) -> Result<bool, ReaderGone> {
        for (revision, envelope) in records {
            self.hub.delay().await;
            if !self.link.is_up() {
                return Ok(false);
            }
            let was_caught_up = self.caught_up || self.lags;
            if was_caught_up && self.passes_superseded(revision) {
                (self.caught_up, self.lags) = (false, true);
                self.send(LogEvent::Superseded { before: revision }).await?;
            }
            if !self.link.loses_next() {
                let envelope = Ok(Box::new(Envelope::clone(&envelope)));
                self.send(LogEvent::Record { revision, envelope }).await?;
            }
            self.position.advance(revision);
        }
        Ok(true)
    }

    /// Returns true if records between this one and the one before were superseded, or, where gaps cannot be seen, if
    /// records wait behind this one. Present leases take positions too.
    fn passes_superseded(&self, revision: Revision) -> bool {
        let applied = self.position.applied();
        let left_out = revision.0.saturating_sub(applied.0 + 1);
        match self.scope {
            LogScope::All if left_out == 0 => false,
            LogScope::All => {
                let leases = self
                    .hub
                    .with_log(|log| log.leases_between(applied, revision));
                left_out > leases.unwrap_or_default()
            }
            _ if self.lags => false,
            _ => {
                let behind = self.hub.with_log(|log| log.read(revision, &self.scope, 1));
                behind.is_ok_and(|records| !records.is_empty())
            }
        }
    }

    async fn leave(&mut self, reason: String) -> Result<(), ReaderGone> {
        if std::mem::replace(&mut self.away, true) {
            return Ok(());
        }
        (self.caught_up, self.lags) = (false, false);
        self.stands_since = None;
        self.send(LogEvent::Away { reason }).await
    }

    /// Resumes after the position, or begins again from the start: the log is within reach.
    async fn come_back(&mut self, head: &LogHead) -> Result<(), ReaderGone> {
        self.is_new |= std::mem::take(&mut self.away);
        let away = self.current.elapsed();
        let gaps = self.link.gaps();
        let gapped = std::mem::replace(&mut self.gaps_seen, gaps) != gaps;
        let ttl = self.hub.options.tombstone_ttl;
        match self.position.resume(head, away, ttl) {
            Err(cause) => self.begin(head, cause).await,
            Ok(()) if gapped => self.begin(head, RestartCause::Gap).await,
            Ok(()) => Ok(()),
        }
    }

    async fn begin(&mut self, head: &LogHead, cause: RestartCause) -> Result<(), ReaderGone> {
        self.position.restart(head.incarnation.clone());
        self.current = Instant::now();
        (self.caught_up, self.lags) = (false, false);
        self.is_new = true;
        self.stands_since = None;
        let incarnation = head.incarnation.clone();
        self.send(LogEvent::Restart { incarnation, cause }).await
    }

    /// Begins again if the log is within reach; else coming back decides.
    async fn restart(&mut self, cause: RestartCause) -> Result<(), ReaderGone> {
        match self.head() {
            Ok(head) => self.begin(&head, cause).await,
            Err(_) => {
                self.position = Position::default();
                Ok(())
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), ReaderGone> {
        self.current = Instant::now();
        self.stands_since = None;
        self.lags = false;
        if std::mem::replace(&mut self.caught_up, true) {
            return Ok(());
        }
        let revision = self.position.applied();
        self.send(LogEvent::CaughtUp { revision }).await
    }

    async fn send(&self, event: LogEvent) -> Result<(), ReaderGone> {
        self.events.send(event).await.map_err(|_| ReaderGone)
    }
}
