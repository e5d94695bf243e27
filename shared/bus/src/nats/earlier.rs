//! Ends of the log that are earlier than a position that is known to be acknowledged. Pure.
//!
//! A server that has just come to lead a replicated stream tells an earlier end for a moment, until it has applied all
//! that it has. A log that goes on to end there has lost records.

use std::time::Duration;

use anteroom_model::Revision;
use tokio::time::Instant;

use super::api::End;
use crate::{BusError, LogHead};

/// The time within which a new leader of a stream has applied all acknowledged records.
const APPLIES_WITHIN: Duration = Duration::from_secs(15);

/// The time since which a reader finds that the log ends before a position that the reader knows. Each reader has its
/// own, since readers know different positions.
#[derive(Debug, Default)]
pub(super) struct EarlierEnd(Option<Instant>);

impl EarlierEnd {
    /// Returns the head, if it may be believed. `known` is the highest position of this log that is known.
    ///
    /// # Errors
    /// [`BusError::Unavailable`] as long as the server may only be late.
    pub(super) fn believe(
        &mut self,
        end: End,
        known: Revision,
        now: Instant,
    ) -> Result<LogHead, BusError> {
        let End {
            head,
            is_replicated,
        } = end;
        if !is_replicated || head.last >= known {
            self.0 = None;
            return Ok(head);
        }
        let since = *self.0.get_or_insert(now);
        if now.saturating_duration_since(since) > APPLIES_WITHIN {
            return Ok(head);
        }
        Err(BusError::Unavailable {
            message: format!(
                "the server that leads the log tells {} as its end, but acknowledged {known}",
                head.last
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::Incarnation;

    use super::*;

    fn end(last: u64, is_replicated: bool) -> End {
        End {
            head: LogHead {
                incarnation: Incarnation("i".into()),
                last: Revision(last),
            },
            is_replicated,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_end_of_a_replicated_log_is_believed_once_it_stays() {
        let (mut earlier, begun) = (EarlierEnd::default(), Instant::now());
        let mut is_believed = |last, is_replicated, seconds| {
            let now = begun + Duration::from_secs(seconds);
            let believed = earlier.believe(end(last, is_replicated), Revision(9), now);
            believed.is_ok()
        };
        assert!(is_believed(9, true, 0));
        assert!(is_believed(8, false, 0), "one server has applied all");
        assert!(!is_believed(8, true, 0) && !is_believed(8, true, 15));
        assert!(is_believed(8, true, 16));
        assert!(is_believed(12, true, 17));
        assert!(!is_believed(8, true, 18), "it was well meanwhile");
    }
}
