//! Ends of the log that may be too early to be believed. Pure.

use anteroom_model::Revision;
use tokio::time::Instant;

use super::api::End;
use crate::{BusError, EarlierEnd, LogHead};

/// Returns the head of the log, if it may be believed. `known` is the highest position of this log that the reader with
/// this `earlier` end knows.
///
/// # Errors
/// [`BusError::Unavailable`] as long as the server may only be late.
pub(super) fn believe(
    earlier: &mut EarlierEnd,
    end: End,
    known: Revision,
    now: Instant,
) -> Result<LogHead, BusError> {
    let End {
        head,
        is_replicated,
    } = end;
    if !is_replicated {
        *earlier = EarlierEnd::default();
        return Ok(head);
    }
    if earlier.is_lasting(head.last, known, now) || head.last >= known {
        return Ok(head);
    }
    Err(BusError::Unavailable {
        message: format!(
            "the server that leads the log tells {} as its end, but acknowledged {known}",
            head.last
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            let believed = believe(&mut earlier, end(last, is_replicated), Revision(9), now);
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
