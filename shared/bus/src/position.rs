//! A reader's position in the log, and the decision to resume or to begin again.

use std::time::Duration;

use anteroom_model::{Incarnation, Revision};

use crate::{LogHead, RestartCause};

/// A reader's position in the log. Both buses decide with it, so that they resume by the same rule.
#[derive(Debug, Default)]
pub(crate) struct Position {
    /// The log that is read; `None` before the first read.
    incarnation: Option<Incarnation>,
    /// Everything in scope up to here has been delivered.
    applied: Revision,
}

impl Position {
    pub(crate) fn applied(&self) -> Revision {
        self.applied
    }

    /// Returns how far this log was read.
    pub(crate) fn in_log(&self, incarnation: &Incarnation) -> Revision {
        match self.incarnation.as_ref() == Some(incarnation) {
            true => self.applied,
            false => Revision(0),
        }
    }

    /// Everything in scope up to `revision` has been delivered.
    pub(crate) fn advance(&mut self, revision: Revision) {
        self.applied = self.applied.max(revision);
    }

    /// Begins again from the start of `incarnation`.
    pub(crate) fn restart(&mut self, incarnation: Incarnation) {
        self.incarnation = Some(incarnation);
        self.applied = Revision(0);
    }

    /// Returns `Ok` if the reader may resume after [`Position::applied`], or else the reason to
    /// begin again.
    ///
    /// `away` is how long it has not heard from the log. Half of the tombstones' life is the limit,
    /// so that a tombstone written while it was away is still there when it has read that far.
    pub(crate) fn resume(
        &self,
        head: &LogHead,
        away: Duration,
        tombstone_ttl: Duration,
    ) -> Result<(), RestartCause> {
        let Some(incarnation) = &self.incarnation else {
            return Err(RestartCause::Start);
        };
        if *incarnation != head.incarnation {
            Err(RestartCause::NewIncarnation)
        } else if head.last < self.applied {
            Err(RestartCause::Truncated)
        } else if away > tombstone_ttl / 2 {
            Err(RestartCause::AwayTooLong)
        } else {
            Ok(())
        }
    }
}

/// Returns true if a reader that has read up to `read`, and for which no record waits, is at the log's end, `last`.
///
/// The number of waiting records comes from the server that delivers, which counts on its own copy. Where there are
/// copies, this one may still lack the log's last records, and `last` comes from the server that leads.
pub(crate) fn is_at_end(read: Revision, last: Revision, is_replicated: bool) -> bool {
    !is_replicated || read >= last
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn head(incarnation: &str, last: u64) -> LogHead {
        LogHead {
            incarnation: Incarnation(incarnation.into()),
            last: Revision(last),
        }
    }

    #[test]
    fn no_waiting_record_proves_the_end_only_where_there_is_one_copy() {
        for (read, is_replicated, is_end) in [
            (7, false, true),
            (7, true, false),
            (8, true, true),
            (9, true, true),
        ] {
            let found = is_at_end(Revision(read), Revision(8), is_replicated);
            assert_eq!(found, is_end, "{read} {is_replicated}");
        }
    }

    #[test]
    fn a_reader_restarts_only_when_its_position_no_longer_holds() {
        let mut position = Position::default();
        let resume = |position: &Position, head: &LogHead, away_s| {
            position.resume(head, Duration::from_secs(away_s), TTL)
        };
        assert_eq!(
            resume(&position, &head("a", 0), 0),
            Err(RestartCause::Start)
        );
        position.restart(Incarnation("a".into()));
        assert_eq!(resume(&position, &head("a", 0), 0), Ok(()));
        position.advance(Revision(5));
        position.advance(Revision(3));
        assert_eq!(position.applied(), Revision(5));
        assert_eq!(resume(&position, &head("a", 5), 30), Ok(()));
        for (head, away_s, cause) in [
            (head("a", 4), 0, RestartCause::Truncated),
            (head("b", 9), 0, RestartCause::NewIncarnation),
            (head("b", 4), 31, RestartCause::NewIncarnation),
            (head("a", 9), 31, RestartCause::AwayTooLong),
        ] {
            assert_eq!(resume(&position, &head, away_s), Err(cause));
        }
        position.restart(Incarnation("b".into()));
        assert_eq!(position.applied(), Revision(0));
    }
}
