//! The time that a call has.

use std::time::Duration;

use anteroom_jmespath::Budget;
use anteroom_model::FactError;
use tokio::time::Instant;

/// Evaluation steps in a millisecond, on a machine that is faster than most. The rest of a deadline limits the steps
/// of an evaluation, so that it ends soon after its caller has given up. Twenty thousand are usual.
const STEPS_PER_MS: u64 = 50_000;

/// The longest time that a call is given, whatever its caller says. The longest review takes 30 s, and NATS takes no
/// answer after that. A stolen login could keep a replica busy for ever otherwise.
const GIVEN_MAX: Duration = Duration::from_secs(35);

/// The share of a call's time reserved for writing and sending the reply, as a divisor.
const REPLY_SHARE: u32 = 10;

/// The most that is kept for that.
const REPLY_MAX: Duration = Duration::from_millis(50);

/// The time by which a call's results have to be complete, so that its reply arrives before the caller gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    given: Duration,
}

impl Deadline {
    /// The deadline of a call that its caller gives up after `given`, from now on.
    pub(crate) fn after(given: Duration) -> Self {
        let now = Instant::now();
        let given = given.min(GIVEN_MAX);
        Self {
            at: now + given.saturating_sub(REPLY_MAX.min(given / REPLY_SHARE)),
            given,
        }
    }

    pub(crate) fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// An error once no time is left.
    pub(crate) fn check(self) -> Result<(), FactError> {
        if self.left().is_zero() {
            return Err(self.exceeded());
        }
        Ok(())
    }

    pub(crate) fn exceeded(self) -> FactError {
        self.exceeded_over(false)
    }

    /// Returns the error once no time is left. `over_part`: the beneficiary's own requests took the time.
    pub(crate) fn exceeded_over(self, over_part: bool) -> FactError {
        FactError::DeadlineExceeded {
            deadline_ms: u64::try_from(self.given.as_millis()).unwrap_or(u64::MAX),
            over_part,
        }
    }

    /// Returns the part of `budget` that an evaluation may use in the time that is left, and true if
    /// that is less than `budget`.
    pub(crate) fn limit(self, budget: Budget) -> (Budget, bool) {
        let left_ms = u64::try_from(self.left().as_millis()).unwrap_or(u64::MAX);
        let steps = left_ms.saturating_add(1).saturating_mul(STEPS_PER_MS);
        let shortened = steps < budget.steps;
        let steps = steps.min(budget.steps);
        (Budget { steps, ..budget }, shortened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_leaves_time_for_the_reply() {
        let ms = Duration::from_millis;
        for (given, left) in [(0, 0), (10, 9), (500, 450), (510, 460), (10_000, 9_950)] {
            assert_eq!(Deadline::after(ms(given)).left(), ms(left));
        }
        let for_ever = Deadline::after(Duration::MAX).left();
        assert_eq!(for_ever, GIVEN_MAX - REPLY_MAX);
        assert!(Deadline::after(Duration::ZERO).check().is_err());
        assert!(Deadline::after(ms(1)).check().is_ok());
    }
}
