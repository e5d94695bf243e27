//! The highest position of the log that is known to have been acknowledged.
//!
//! A server that comes back from a power failure, or with an older copy of its disk, may have lost the last records
//! that it acknowledged. Writers go on behind the rest, and get positions for the second time. So a new position that
//! is not higher than an older one proves that the log was shortened. The watcher that finds this out ends its term,
//! and creates the log anew before it leads again: the rest is an old state of some views and a newer one of others.

use std::{collections::VecDeque, ops::RangeInclusive, sync::Arc};

use anteroom_model::{Incarnation, Revision};
use parking_lot::Mutex;

/// The number of logs to remember. A late heartbeat may still name a log that was remade.
const LOGS_MAX: usize = 4;

/// The highest known positions of the last logs. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct HighestPosition(Arc<Mutex<VecDeque<Highest>>>);

#[derive(Debug)]
struct Highest {
    incarnation: Incarnation,
    at: Revision,
    is_shortened: bool,
}

/// The log has lost records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortened;

impl HighestPosition {
    /// Notes a position that the log has.
    pub(crate) fn raise(&self, incarnation: &Incarnation, at: Revision) {
        let mut logs = self.0.lock();
        if let Some(log) = logs.iter_mut().find(|log| log.incarnation == *incarnation) {
            log.at = log.at.max(at);
            return;
        }
        if logs.len() == LOGS_MAX {
            logs.pop_front();
        }
        logs.push_back(Highest {
            incarnation: incarnation.clone(),
            at,
            is_shortened: false,
        });
    }

    /// Returns the highest known position of this log; 0: none is known.
    pub(crate) fn position_in(&self, incarnation: &Incarnation) -> Revision {
        let logs = self.0.lock();
        let log = logs.iter().find(|log| log.incarnation == *incarnation);
        log.map_or(Revision(0), |log| log.at)
    }

    /// Notes positions that the log gave out now. `known` is the result of [`HighestPosition::position_in`] before
    /// that.
    ///
    /// # Errors
    /// [`Shortened`] if they are not higher.
    pub(crate) fn given(
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
        let mut logs = self.0.lock();
        let log = logs.iter_mut().find(|log| log.incarnation == *incarnation);
        log.into_iter().for_each(|log| log.is_shortened = true);
        Err(Shortened)
    }

    /// Returns true if this log was found to be shortened.
    pub(crate) fn is_shortened(&self, incarnation: &Incarnation) -> bool {
        let logs = self.0.lock();
        let mut found = logs.iter().filter(|log| log.incarnation == *incarnation);
        found.any(|log| log.is_shortened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_was_known_before_proves_that_its_log_was_shortened() {
        let highest = HighestPosition::default();
        let (one, two) = (Incarnation("1".into()), Incarnation("2".into()));
        let give = |log, at| highest.given(log, highest.position_in(log), at);
        assert_eq!(give(&one, 7..=7), Ok(()));
        assert_eq!(give(&one, 8..=8), Ok(()));
        // Another group's position came in between.
        assert_eq!(highest.given(&one, Revision(8), 10..=10), Ok(()));
        assert_eq!(highest.given(&one, Revision(8), 9..=9), Ok(()));
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
}
