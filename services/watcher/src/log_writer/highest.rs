//! The highest position of the log that is known to have been acknowledged.
//!
//! A server that comes back from a power failure, or with an older copy of its disk, may have lost the last records that
//! it acknowledged. Writers go on behind what is left, and get positions a second time. So a position that is not higher
//! than one that was known before it was asked for proves that the log was shortened. Whoever finds out ends its term,
//! and makes the log anew before it leads again: what is left of it is an old state of some views and a newer one of
//! others.

use std::sync::Arc;

use anteroom_model::{Incarnation, Revision};
use parking_lot::Mutex;

/// The highest known position of one log. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct HighestPosition(Arc<Mutex<Highest>>);

#[derive(Debug, Default)]
struct Highest {
    incarnation: Incarnation,
    at: Revision,
    is_shortened: bool,
}

/// The log has lost records.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shortened;

impl HighestPosition {
    /// Notes a position that the log has. Of another log than before, it is the first.
    pub(crate) fn raise(&self, incarnation: &Incarnation, at: Revision) {
        let mut highest = self.0.lock();
        if highest.incarnation != *incarnation {
            *highest = Highest {
                incarnation: incarnation.clone(),
                ..Highest::default()
            };
        }
        highest.at = highest.at.max(at);
    }

    /// Returns the highest known position of this log; 0 where none is known.
    pub(crate) fn of(&self, incarnation: &Incarnation) -> Revision {
        let highest = self.0.lock();
        match highest.incarnation == *incarnation {
            true => highest.at,
            false => Revision(0),
        }
    }

    /// Takes a position in that the log gave out now. `known` is what [`HighestPosition::of`] was before.
    ///
    /// # Errors
    /// [`Shortened`] if it is not higher.
    pub(crate) fn given(
        &self,
        incarnation: &Incarnation,
        known: Revision,
        at: Revision,
    ) -> Result<(), Shortened> {
        self.raise(incarnation, at);
        if at > known {
            return Ok(());
        }
        tracing::error!(
            given = at.0,
            known = known.0,
            "the log has lost records that it had acknowledged: it gave out a position that it had given out before. \
             Check the disks of NATS. The log is made anew"
        );
        self.0.lock().is_shortened = true;
        Err(Shortened)
    }

    /// Returns true if this log was found to be shortened.
    pub(crate) fn is_shortened(&self, incarnation: &Incarnation) -> bool {
        let highest = self.0.lock();
        highest.is_shortened && highest.incarnation == *incarnation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_was_known_before_proves_that_its_log_was_shortened() {
        let highest = HighestPosition::default();
        let (one, two) = (Incarnation("1".into()), Incarnation("2".into()));
        let give = |log, at| highest.given(log, highest.of(log), Revision(at));
        assert_eq!(give(&one, 7), Ok(()));
        assert_eq!(give(&one, 8), Ok(()));
        // Another group's position came in between.
        assert_eq!(highest.given(&one, Revision(8), Revision(10)), Ok(()));
        assert_eq!(highest.given(&one, Revision(8), Revision(9)), Ok(()));
        assert!(!highest.is_shortened(&one));
        assert_eq!(give(&one, 10), Err(Shortened));
        assert!(highest.is_shortened(&one) && !highest.is_shortened(&two));
        assert_eq!(give(&two, 3), Ok(()));
        assert!(!highest.is_shortened(&one) && !highest.is_shortened(&two));
        assert_eq!(highest.of(&one), Revision(0));
    }
}
