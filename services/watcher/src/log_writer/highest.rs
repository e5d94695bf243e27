//! The highest position of the log that is known to have been acknowledged.
//!
//! A server that comes back from a power failure, or with an older copy of its disk, may have lost the last records
//! that it acknowledged. Writers go on behind the rest, and get positions for the second time. So a new position that
//! is not higher than an older one proves that the log was shortened. The watcher that finds this out ends its term,
//! and creates the log anew before it leads again: the rest is an old state of some views and a newer one of others.
//!
//! A watcher that has just started knows no older position, nor do others if they started with it. But replicas and
//! webhooks tell how far they have read. A new watcher hears them for a moment before it takes an open lease.
//! Their word counts less, since their logins are in more hands: it has a log made anew once in
//! [`READERS_REMAKE_INTERVAL`], and never stops the writer otherwise.

use std::{collections::VecDeque, ops::RangeInclusive, sync::Arc, time::Duration};

use anteroom_model::{Incarnation, Revision};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of logs to remember. A late heartbeat may still name a log that was remade.
const LOGS_MAX: usize = 4;

/// The time after a log was made anew in which positions that only readers name do not count. Whoever has a reader's
/// login can make positions up, and each could cost a log.
const READERS_REMAKE_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The highest known positions of the last logs. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct HighestPosition(Arc<Mutex<KnownLogs>>);

#[derive(Debug, Default)]
struct KnownLogs {
    /// At most [`LOGS_MAX`].
    logs: VecDeque<Highest>,
    /// When a log in the place of another was first heard of; `None`: this watcher knows a single one.
    made_anew_at: Option<Instant>,
}

#[derive(Debug)]
struct Highest {
    incarnation: Incarnation,
    /// The greatest position that writers and the bus have told of.
    at: Revision,
    /// The greatest position that a reader has read.
    read: Revision,
    is_shortened: bool,
    /// True once this process has taken a lease in the log.
    is_led_here: bool,
}

impl KnownLogs {
    fn log(&mut self, incarnation: &Incarnation) -> Option<&mut Highest> {
        let mut logs = self.logs.iter_mut();
        logs.find(|log| log.incarnation == *incarnation)
    }

    fn counts_readers(&self) -> bool {
        let is_over = |at: Instant| at.elapsed() >= READERS_REMAKE_INTERVAL;
        self.made_anew_at.is_none_or(is_over)
    }
}

/// The log has lost records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortened;

impl HighestPosition {
    /// Notes a position that the log has, by the word of a writer or of the bus.
    pub(crate) fn raise(&self, incarnation: &Incarnation, at: Revision) {
        let mut known = self.0.lock();
        if let Some(log) = known.log(incarnation) {
            log.at = log.at.max(at);
            return;
        }
        if !known.logs.is_empty() {
            known.made_anew_at = Some(Instant::now());
        }
        if known.logs.len() == LOGS_MAX {
            known.logs.pop_front();
        }
        known.logs.push_back(Highest {
            incarnation: incarnation.clone(),
            at,
            read: Revision(0),
            is_shortened: false,
            is_led_here: false,
        });
    }

    /// Notes a position that a reader has read, of a log that a writer knows.
    pub(crate) fn raise_by_reader(&self, incarnation: &Incarnation, read: Revision) {
        if let Some(log) = self.0.lock().log(incarnation) {
            log.read = log.read.max(read);
        }
    }

    /// Returns the highest known position of this log that counts now; 0: none is known.
    pub(crate) fn position_in(&self, incarnation: &Incarnation) -> Revision {
        let mut known = self.0.lock();
        let counts_readers = known.counts_readers();
        known
            .log(incarnation)
            .map_or(Revision(0), |log| match counts_readers {
                true => log.at.max(log.read),
                false => log.at,
            })
    }

    /// Returns the known end of this log, without the word of readers; 0: none is known.
    pub(crate) fn written_in(&self, incarnation: &Incarnation) -> Revision {
        let mut known = self.0.lock();
        known.log(incarnation).map_or(Revision(0), |log| log.at)
    }

    /// Notes positions that the log gave out now. `known` is the result of [`HighestPosition::position_in`] before
    /// that.
    ///
    /// # Errors
    /// [`Shortened`] if they are not higher.
    pub(crate) fn note_appended(
        &self,
        incarnation: &Incarnation,
        known: Revision,
        given: RangeInclusive<u64>,
    ) -> Result<(), Shortened> {
        self.raise(incarnation, Revision(*given.end()));
        if *given.start() > known.0 {
            return Ok(());
        }
        tracing::error!(
            given = given.start(),
            known = known.0,
            "acknowledged records of the log lost: a position was given out twice; check the disks of NATS; the log is \
             made anew"
        );
        if let Some(log) = self.0.lock().log(incarnation) {
            log.is_shortened = true;
        }
        Err(Shortened)
    }

    /// Notes that this process has taken a lease in this log. The lease's position is the end of the log.
    pub(crate) fn note_led(&self, incarnation: &Incarnation) {
        if let Some(log) = self.0.lock().log(incarnation) {
            log.is_led_here = true;
        }
    }

    /// Returns true if this process has taken a lease in this log.
    pub(crate) fn is_led_here(&self, incarnation: &Incarnation) -> bool {
        let mut known = self.0.lock();
        known.log(incarnation).is_some_and(|log| log.is_led_here)
    }

    /// Returns true if this log was found to be shortened.
    pub(crate) fn is_shortened(&self, incarnation: &Incarnation) -> bool {
        let mut known = self.0.lock();
        known.log(incarnation).is_some_and(|log| log.is_shortened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_was_known_before_proves_that_its_log_was_shortened() {
        let highest = HighestPosition::default();
        let (one, two) = (Incarnation("1".into()), Incarnation("2".into()));
        let give = |log, at| highest.note_appended(log, highest.position_in(log), at);
        assert_eq!(give(&one, 7..=7), Ok(()));
        assert_eq!(give(&one, 8..=8), Ok(()));
        // Another group's position came in between.
        assert_eq!(highest.note_appended(&one, Revision(8), 10..=10), Ok(()));
        assert_eq!(highest.note_appended(&one, Revision(8), 9..=9), Ok(()));
        assert!(!highest.is_shortened(&one));
        // A batch that has grown past what was known begins where something was.
        assert_eq!(give(&one, 10..=12), Err(Shortened));
        assert!(highest.is_shortened(&one) && !highest.is_shortened(&two));
        assert_eq!(give(&two, 3..=3), Ok(()));
        assert!(highest.is_shortened(&one) && !highest.is_shortened(&two));
        // A word of the log that was left takes nothing away from the other.
        highest.raise(&one, Revision(90));
        assert_eq!(give(&two, 3..=4), Err(Shortened));
        for other in 3..7 {
            highest.raise(&Incarnation(other.to_string()), Revision(1));
        }
        assert_eq!(highest.position_in(&two), Revision(0), "it was long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn a_position_that_only_readers_name_counts_once_in_an_interval() {
        let highest = HighestPosition::default();
        let [one, two, three] = ["1", "2", "3"].map(|log| Incarnation(log.into()));
        let give = |log, at| highest.note_appended(log, highest.position_in(log), at..=at);
        highest.raise_by_reader(&one, Revision(90));
        assert_eq!(give(&one, 7), Ok(()), "no writer knew that log");
        highest.raise_by_reader(&one, Revision(7));
        assert_eq!(give(&one, 8), Ok(()));
        highest.raise_by_reader(&one, Revision(90));
        assert_eq!(highest.written_in(&one), Revision(8));
        assert_eq!(give(&one, 9), Err(Shortened));
        assert!(highest.is_shortened(&one));
        // Whoever makes positions up has not each new log made anew, nor stops its writer.
        assert_eq!(give(&two, 1), Ok(()));
        highest.raise_by_reader(&two, Revision(u64::MAX));
        assert_eq!(give(&two, 2), Ok(()));
        assert_eq!(give(&two, 2), Err(Shortened), "writers know it");
        assert_eq!(give(&three, 1), Ok(()));
        highest.raise_by_reader(&three, Revision(u64::MAX));
        tokio::time::advance(READERS_REMAKE_INTERVAL).await;
        assert_eq!(give(&three, 2), Err(Shortened));
    }
}
