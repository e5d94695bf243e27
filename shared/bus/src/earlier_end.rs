//! Ends of the log that are earlier than a position which is known to be acknowledged. Pure.
//!
//! A server that has just come to lead a replicated stream tells an earlier end for a moment, until it has applied all
//! that it has. A log that goes on to end there has lost records.

use std::time::Duration;

use anteroom_model::Revision;
use tokio::time::Instant;

/// The time within which a new leader of a stream has applied all acknowledged records.
const APPLIES_WITHIN: Duration = Duration::from_secs(15);

/// The time since which a reader finds that the log ends before a position that the reader knows. Each reader has its
/// own, since readers know different positions.
#[derive(Debug, Default)]
pub struct EarlierEnd(Option<Instant>);

impl EarlierEnd {
    /// Notes the log's end. Returns true once the log has ended before `known` for so long that it has lost records.
    pub fn is_lasting(&mut self, end: Revision, known: Revision, now: Instant) -> bool {
        if end >= known {
            self.0 = None;
            return false;
        }
        let since = *self.0.get_or_insert(now);
        now.saturating_duration_since(since) > APPLIES_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_end_lasts_once_it_stays() {
        let (mut earlier, begun) = (EarlierEnd::default(), Instant::now());
        let mut is_lasting = |end, seconds| {
            let now = begun + Duration::from_secs(seconds);
            earlier.is_lasting(Revision(end), Revision(9), now)
        };
        assert!(!is_lasting(9, 0));
        assert!(!is_lasting(8, 0) && !is_lasting(8, 15));
        assert!(is_lasting(8, 16));
        assert!(!is_lasting(12, 17), "the log has it");
        assert!(!is_lasting(8, 18), "it was well meanwhile");
    }
}
