//! The attempts of a rule on existing objects: their number, and the waits between them. Pure.
//!
//! | result of the attempt | next step |
//! |---|---|
//! | all is written, or nothing is to be | done |
//! | the trigger is not stored | again, three times: the API server may not have stored it yet |
//! | an object changed meanwhile | again, soon |
//! | no watcher answered, or it was busy | again, later each time |
//! | it was refused, or the rule cannot be evaluated | it failed |

use std::time::Duration;

use anteroom_model::FactError;
use anteroom_policy::RuleError;

use crate::verdict::WITHHELD;

/// Attempts, the first included; after the last one it has failed.
pub(super) const ATTEMPTS_MAX: u32 = 6;

/// Attempts that look for a trigger that is not stored, the first included.
pub(super) const LOOKS_MAX: u32 = 4;

/// The time after which an admitted object is stored, most often.
const STORED_AFTER: Duration = Duration::from_millis(300);

/// The pause before the second attempt; before each further attempt it is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after an object had changed meanwhile.
const PAUSE_OF_CONFLICT: Duration = Duration::from_millis(100);

/// The trigger of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TriggerSource {
    /// A request, which is looked up in the cluster first.
    Request,
    /// An object that exists.
    Existing,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// The trigger did not take effect, or not yet.
    NotStored,
    /// The rule does not match the trigger, or is gone.
    NotMatched,
    /// No object is to be changed.
    Unchanged,
    /// Some objects were written, and no write failed.
    Written,
    /// The stored object had changed since the rule read the object.
    Conflict,
    /// A later attempt may succeed.
    Unavailable(String),
    /// No later attempt can succeed.
    Failed(String),
}

/// The step after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextAttempt {
    Done,
    Again(Duration),
    Failed(String),
}

/// Returns the wait before the first attempt.
pub(super) fn first(source: TriggerSource) -> Duration {
    match source {
        TriggerSource::Request => STORED_AFTER,
        TriggerSource::Existing => Duration::ZERO,
    }
}

/// Returns the step after this many attempts.
pub(super) fn next(attempts: u32, came: AttemptOutcome) -> NextAttempt {
    let later = PAUSE * 2_u32.pow(attempts.saturating_sub(1).min(8));
    let again = |pause, reason| match attempts < ATTEMPTS_MAX {
        true => NextAttempt::Again(pause),
        false => NextAttempt::Failed(reason),
    };
    match came {
        AttemptOutcome::NotStored if attempts < LOOKS_MAX => NextAttempt::Again(later / 2),
        AttemptOutcome::NotStored
        | AttemptOutcome::NotMatched
        | AttemptOutcome::Unchanged
        | AttemptOutcome::Written => NextAttempt::Done,
        AttemptOutcome::Conflict => {
            let reason = "an object is changed by somebody else all the time".to_owned();
            again(PAUSE_OF_CONFLICT * attempts, reason)
        }
        AttemptOutcome::Unavailable(reason) => again(later, reason),
        AttemptOutcome::Failed(reason) => NextAttempt::Failed(reason),
    }
}

impl AttemptOutcome {
    /// The outcome of a rule that ended with an error. With `knows_secrets`, the outcome has the error's code alone.
    pub(super) fn of_rule(error: &RuleError, knows_secrets: bool) -> Self {
        let reason = match knows_secrets {
            true => format!("{} {}", error.code(), error.clone().withheld()),
            false => format!("{} {error}", error.code()),
        };
        match error {
            RuleError::Fact { source, .. } if !is_final(source) => Self::Unavailable(reason),
            _ => Self::Failed(reason),
        }
    }

    /// The outcome of a look-up of the trigger that failed.
    pub(super) fn of_look_up(error: &FactError) -> Self {
        let reason = format!(
            "{} the object that triggers the rule cannot be looked up: {error}. The watcher needs the right to `get` it",
            error.code()
        );
        match is_final(error) {
            true => Self::Failed(reason),
            false => Self::Unavailable(reason),
        }
    }

    /// Returns the outcome of a write that failed. If the rule `knows_secrets`, the message is withheld: the API
    /// server may quote what the rule wrote.
    pub(super) fn of_write(error: &FactError, knows_secrets: bool) -> Self {
        let reason = match knows_secrets {
            true => format!("{} {WITHHELD}", error.code()),
            false => format!("{} {error}", error.code()),
        };
        match error {
            FactError::WriteFailed { code: 409, .. } => Self::Conflict,
            error if is_final(error) => Self::Failed(reason),
            _ => Self::Unavailable(reason),
        }
    }
}

/// Returns whether another attempt would have the same error.
fn is_final(error: &FactError) -> bool {
    match error {
        FactError::WriteFailed { code, .. } => matches!(code, 400 | 401 | 403 | 405 | 413 | 422),
        FactError::LiveReadFailed { code, .. } => matches!(code, 400 | 401 | 403 | 405 | 413),
        FactError::EvaluationFailed { .. }
        | FactError::ExpressionInvalid { .. }
        | FactError::BudgetExceeded { .. }
        | FactError::PathOutsideNamespace { .. }
        | FactError::RequestInvalid { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_may_still_succeed_is_retried_a_limited_number_of_times() {
        let ms = Duration::from_millis;
        let why = || "why".to_owned();
        let again = |pause| NextAttempt::Again(ms(pause));
        for (attempts, came, expected) in [
            (1, AttemptOutcome::NotMatched, NextAttempt::Done),
            (1, AttemptOutcome::Unchanged, NextAttempt::Done),
            (1, AttemptOutcome::Written, NextAttempt::Done),
            (1, AttemptOutcome::NotStored, again(500)),
            (3, AttemptOutcome::NotStored, again(2_000)),
            (4, AttemptOutcome::NotStored, NextAttempt::Done),
            (1, AttemptOutcome::Conflict, again(100)),
            (5, AttemptOutcome::Unavailable(why()), again(16_000)),
            (
                6,
                AttemptOutcome::Unavailable(why()),
                NextAttempt::Failed(why()),
            ),
            (1, AttemptOutcome::Failed(why()), NextAttempt::Failed(why())),
        ] {
            let what = format!("{attempts} {came:?}");
            assert_eq!(next(attempts, came), expected, "{what}");
        }
        assert!(matches!(
            next(ATTEMPTS_MAX, AttemptOutcome::Conflict),
            NextAttempt::Failed(_)
        ));
    }

    #[test]
    fn an_attempt_of_a_rule_that_read_secrets_tells_its_code_alone() {
        let quoting = FactError::WriteFailed {
            code: 422,
            message: "Invalid value: hunter2".to_owned(),
        };
        let written = AttemptOutcome::of_write(&quoting, true);
        let error = RuleError::Fact {
            variable: "v".to_owned(),
            entry: "e".to_owned(),
            source: quoting,
        };
        for outcome in [written, AttemptOutcome::of_rule(&error, true)] {
            let AttemptOutcome::Failed(told) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(
                told.contains("withheld") && !told.contains("hunter2"),
                "{told}"
            );
        }
    }

    #[test]
    fn a_refused_write_is_not_retried() {
        let write = |code| {
            AttemptOutcome::of_write(
                &FactError::WriteFailed {
                    code,
                    message: String::new(),
                },
                false,
            )
        };
        assert_eq!(write(409), AttemptOutcome::Conflict);
        for (code, is_failed) in [
            (403, true),
            (422, true),
            (500, false),
            (0, false),
            (429, false),
        ] {
            assert_eq!(
                matches!(write(code), AttemptOutcome::Failed(_)),
                is_failed,
                "{code}"
            );
        }
        assert!(matches!(
            AttemptOutcome::of_write(&FactError::NoWatcher, false),
            AttemptOutcome::Unavailable(_)
        ));
    }
}
