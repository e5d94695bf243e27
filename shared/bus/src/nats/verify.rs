//! Verification that a follower's consumer still delivers.

use anteroom_model::Revision;

use super::consumer::Lost;
use crate::BusError;

/// So many verifications in a row may fail, as while a cluster elects a leader, before the log
/// counts as out of reach.
const UNVERIFIED_MAX: u32 = 3;

/// The consumer itself is verified with every so many verifications: where there are several servers, each of these is a
/// write of theirs.
const CONSUMER_PERIOD: u32 = 4;

/// The results of a session's verifications so far.
#[derive(Debug, Default)]
pub(super) struct Verifier {
    failed: u32,
    /// Verifications since the consumer itself was verified.
    since_consumer: u32,
    /// The reader's position at the last verification, if it was behind the log's end.
    behind: Option<Revision>,
}

impl Verifier {
    /// Takes in a verification at which the log ended at `last`. Between two of them an idle
    /// consumer sends several heartbeats with its position, so a reader that is behind and does not
    /// move gets nothing.
    pub(super) fn passed(&mut self, applied: Revision, last: Revision) -> Result<(), Lost> {
        self.failed = 0;
        let behind = (applied < last).then_some(applied);
        if behind.is_some() && self.behind == behind {
            let reason = format!("the consumer delivers nothing, though the log ends at {last}");
            return Err(Lost::Gone(reason));
        }
        self.behind = behind;
        Ok(())
    }

    /// Returns true if the consumer itself is to be verified now, once for so many calls.
    pub(super) fn is_consumer_due(&mut self) -> bool {
        self.since_consumer = (self.since_consumer + 1) % CONSUMER_PERIOD;
        self.since_consumer == 0
    }

    pub(super) fn failed(&mut self, error: &BusError) -> Result<(), Lost> {
        self.failed += 1;
        if self.failed >= UNVERIFIED_MAX {
            return Err(Lost::Gone(error.to_string()));
        }
        tracing::debug!(%error, "last position of the log not read: asked again soon");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_failed_verifications_are_forgiven() {
        let away = || BusError::Unavailable {
            message: "no leader".into(),
        };
        let mut verifier = Verifier::default();
        assert!(verifier.failed(&away()).is_ok());
        assert!(verifier.failed(&away()).is_ok());
        assert!(verifier.passed(Revision(1), Revision(1)).is_ok());
        assert!(verifier.failed(&away()).is_ok());
        assert!(verifier.failed(&away()).is_ok());
        assert!(verifier.failed(&away()).is_err());
    }

    #[test]
    fn a_reader_that_is_behind_and_does_not_move_is_noticed() {
        let mut verifier = Verifier::default();
        let mut passed = |applied, last| verifier.passed(Revision(applied), Revision(last));
        assert!(passed(5, 9).is_ok());
        assert!(passed(6, 9).is_ok(), "it moves");
        assert!(passed(9, 9).is_ok());
        assert!(passed(9, 9).is_ok(), "it is not behind");
        assert!(passed(9, 10).is_ok());
        assert!(passed(9, 12).is_err());
    }
}
