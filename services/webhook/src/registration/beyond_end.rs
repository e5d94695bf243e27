//! A stored configuration that names a position which the log does not have. Pure.
//!
//! A log that lost its last records goes on from an earlier end. A configuration that was made from the lost records
//! seems newer than all that follow, until the log has as many records again. No webhook could write another one.

use anteroom_bus::{EarlierEnd, LogHead};
use anteroom_engine::catalog::LogPosition;
use tokio::time::Instant;

/// The time since which the log has ended before the position of the stored configuration.
#[derive(Debug, Default)]
pub(super) struct BeyondEnd(EarlierEnd);

impl BeyondEnd {
    /// Returns whether the log has lost the position that the configuration was made by. `end`: the log's end now; `None`:
    /// it is not known.
    pub(super) fn is_proven(
        &mut self,
        made_by: &LogPosition,
        end: Option<&LogHead>,
        now: Instant,
    ) -> bool {
        let Some(end) = end.filter(|end| end.incarnation == made_by.incarnation) else {
            *self = Self::default();
            return false;
        };
        self.0.is_lasting(end.last, made_by.revision, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anteroom_model::{Incarnation, Revision};

    use super::*;

    #[test]
    fn a_position_is_lost_once_the_log_has_ended_before_it_for_a_while() {
        let made_by = LogPosition {
            incarnation: Incarnation("a".into()),
            revision: Revision(1_000),
            ..LogPosition::default()
        };
        let (mut beyond, begun) = (BeyondEnd::default(), Instant::now());
        let mut is_proven = |log: &str, last, seconds| {
            let end = LogHead {
                incarnation: Incarnation(log.into()),
                last: Revision(last),
            };
            let now = begun + Duration::from_secs(seconds);
            beyond.is_proven(&made_by, Some(&end), now)
        };
        assert!(!is_proven("a", 900, 0) && !is_proven("a", 905, 15));
        assert!(is_proven("a", 910, 16));
        assert!(!is_proven("a", 1_000, 16), "the log has it");
        assert!(!is_proven("a", 910, 17) && !is_proven("b", 9, 31));
        assert!(!is_proven("a", 910, 32), "counted anew");
        let later = begun + Duration::from_secs(60);
        assert!(!beyond.is_proven(&made_by, None, later), "nobody knows");
    }
}
