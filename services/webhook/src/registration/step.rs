//! The next step for the configuration. Pure.
//!
//! | the API server has | and | then |
//! |---|---|---|
//! | nothing of ours | | write |
//! | a different configuration | it is proven active, or `PROOF_PATIENCE` has passed | write |
//! | a different configuration | it is not proven active | prove it before writing |
//! | the desired configuration | it is not proven active | prove |
//! | the desired configuration | it is proven active | rest |
//! | the desired configuration, marked with earlier policies | `MARK_AFTER` has passed | write: by the mark, webhooks without NATS notice that they lag behind |
//! | any of ours | `RECHECK` has passed since the write | write again: somebody may have changed it |
//!
//! A configuration is proven before the next one is written. Otherwise the proof of an earlier configuration with the
//! same content could count for the next.

use std::time::Duration;

use tokio::time::Instant;

/// The interval at which the object is written although nothing has changed here: somebody may have changed the
/// object at the API server. A write of the same content changes nothing.
pub(super) const RECHECK: Duration = Duration::from_secs(30);

/// The time after which the object names a newer log position if changed policies have not changed the rest of it.
pub(super) const MARK_AFTER: Duration = Duration::from_secs(5);

/// The time for which a newer configuration waits for the proof of the last one: a hundred times the usual time of a
/// proof.
pub(super) const PROOF_PATIENCE: Duration = Duration::from_secs(2);

/// Time after which a configuration counts as in force if the API server does not let us ask: forty times the longest
/// that was measured.
pub(super) const MARGIN: Duration = Duration::from_secs(1);

/// A configuration that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteState {
    /// The configuration equals the desired configuration.
    pub(super) desired: bool,
    /// The time of the first acknowledgement.
    pub(super) at: Instant,
    /// The time of the last write.
    pub(super) checked: Instant,
    /// The API server uses the configuration.
    pub(super) proven: bool,
    /// The API server does not let us ask whether it does.
    pub(super) unknowable: bool,
    /// The configuration names the position of the last change of policies, or a later one.
    pub(super) marked: bool,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegistrationStep {
    Write,
    Prove,
    /// Do nothing until this time.
    WaitUntil(Instant),
}

/// Returns the next thing to do at `now`.
pub(super) fn step(written: Option<WriteState>, now: Instant) -> RegistrationStep {
    let Some(written) = written else {
        return RegistrationStep::Write;
    };
    let recheck = written.checked + RECHECK;
    if now >= recheck {
        return RegistrationStep::Write;
    }
    let mark = written.checked + MARK_AFTER;
    match (written.desired, written.proven) {
        (true, true) if written.marked => RegistrationStep::WaitUntil(recheck),
        (true, true) if now < mark => RegistrationStep::WaitUntil(mark),
        (true, true) => RegistrationStep::Write,
        (false, true) => RegistrationStep::Write,
        (false, false) if now >= written.at + PROOF_PATIENCE => RegistrationStep::Write,
        (_, false) if written.unknowable => match written.at + MARGIN {
            until if now < until => RegistrationStep::WaitUntil(until),
            _ => RegistrationStep::Prove,
        },
        (_, false) => RegistrationStep::Prove,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_written_configuration_is_proven_before_the_next_write() {
        let at = Instant::now();
        let ms = |ms| at + Duration::from_millis(ms);
        let after = |desired, proven| WriteState {
            desired,
            at,
            checked: at,
            proven,
            unknowable: false,
            marked: true,
        };
        let unmarked = WriteState {
            marked: false,
            ..after(true, true)
        };
        let unknowable = WriteState {
            unknowable: true,
            ..after(true, false)
        };
        let checked = WriteState {
            checked: ms(30_000),
            ..after(true, true)
        };
        for (written, now, expected) in [
            (None, 0, RegistrationStep::Write),
            (Some(after(true, false)), 0, RegistrationStep::Prove),
            (Some(after(true, false)), 29_999, RegistrationStep::Prove),
            (Some(after(true, false)), 30_000, RegistrationStep::Write),
            (
                Some(after(true, true)),
                5,
                RegistrationStep::WaitUntil(ms(30_000)),
            ),
            (Some(after(true, true)), 30_000, RegistrationStep::Write),
            (Some(unmarked), 5, RegistrationStep::WaitUntil(ms(5_000))),
            (Some(unmarked), 5_000, RegistrationStep::Write),
            (
                Some(checked),
                30_000,
                RegistrationStep::WaitUntil(ms(60_000)),
            ),
            (Some(after(false, true)), 5, RegistrationStep::Write),
            (Some(after(false, false)), 1_999, RegistrationStep::Prove),
            (Some(after(false, false)), 2_000, RegistrationStep::Write),
            (
                Some(unknowable),
                999,
                RegistrationStep::WaitUntil(ms(1_000)),
            ),
            (Some(unknowable), 1_000, RegistrationStep::Prove),
        ] {
            assert_eq!(step(written, ms(now)), expected, "{written:?} at {now}");
        }
    }
}
