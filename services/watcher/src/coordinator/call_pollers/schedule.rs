//! The schedule of a call, and the state of its view between two calls. Pure.

use std::time::Duration;

use anteroom_model::{Failure, limits::REPLICA_BEAT_INTERVAL_MS};
use tokio::time::Instant;

use crate::gateway::calls::{CALL_TIMEOUT, CallSpec, OnFailure};

/// Waits after a failure: doubling from this, up to the maximum or the interval.
const RETRY_BASE: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// An interval is up to this part shorter or longer, so that calls that began together do not stay
/// together.
const JITTER: f64 = 0.1;

/// The time that readers have to say how old the data of an earlier term are, before an entry that
/// may serve old data fails: twice the interval of their beats, and the time to listen to them.
pub(super) const AGE_AWAITED: Duration =
    Duration::from_millis(2 * REPLICA_BEAT_INTERVAL_MS + 1_000);

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallOutcome {
    /// The call was answered, with new or with unchanged data.
    Answered,
    /// The call was not answered.
    Failed(Failure),
}

/// A report to the readers of the view.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Report {
    /// The data, whose age counts from this report.
    Good,
    /// Nothing new: the trouble is shown to the entry's author alone.
    Troubled(Failure),
    /// The last data, which were good at this moment; the trouble as above.
    Old(Failure, Instant),
    /// The error, in place of the data.
    Failed(Failure),
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NextCall {
    /// The report to readers.
    pub report: Report,
    /// The time until the next call.
    pub wait: Duration,
}

/// The state of one poller.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    /// The number of failed calls since the last answer.
    failures: u32,
    /// The time of the last good answer, in this term or, by readers' reports, in an earlier one.
    good: Option<Instant>,
    /// The time until which readers may report the age of an earlier term's data, if there are any.
    age_awaited_until: Option<Instant>,
}

impl Schedule {
    /// An earlier term left data, whose age is not known yet.
    pub(super) fn with_data(now: Instant) -> Self {
        Self {
            age_awaited_until: Some(now + AGE_AWAITED),
            ..Self::default()
        }
    }

    /// Readers say that the data of the earlier term were good at this moment.
    pub(super) fn report_good_at(&mut self, at: Instant) {
        self.good = self.good.max(Some(at));
    }

    /// Returns the next step after a call. `random` is evenly distributed in `0.0..1.0`.
    pub(super) fn step(
        &mut self,
        spec: &CallSpec,
        outcome: CallOutcome,
        now: Instant,
        random: f64,
    ) -> NextCall {
        match outcome {
            CallOutcome::Answered => {
                self.failures = 0;
                self.good = Some(now);
                let part = 1.0 - JITTER + 2.0 * JITTER * random;
                NextCall {
                    report: Report::Good,
                    wait: spec.interval.mul_f64(part),
                }
            }
            CallOutcome::Failed(failure) => {
                self.failures = self.failures.saturating_add(1);
                self.failed(spec, failure, now, random)
            }
        }
    }

    fn failed(&self, spec: &CallSpec, failure: Failure, now: Instant, random: f64) -> NextCall {
        let doubled = 2_u32.saturating_pow(self.failures.saturating_sub(1).min(16));
        let most = RETRY_MAX.min(spec.interval);
        let backoff = RETRY_BASE.saturating_mul(doubled).min(most);
        let wait = backoff.mul_f64(0.5 + 0.5 * random);
        let old = match (spec.on_failure, self.good) {
            (OnFailure::ServeStale(most), Some(good)) => {
                let usable_for = most.saturating_sub(now.saturating_duration_since(good));
                (!usable_for.is_zero()).then_some((good, usable_for))
            }
            // Where nobody knows how old the data are, they are not served as if somebody did.
            (OnFailure::Error, _) | (OnFailure::ServeStale(_), None) => None,
        };
        let (report, wait) = match old {
            // They are told in time that the data are too old.
            Some((good, usable_for)) => (Report::Old(failure, good), wait.min(usable_for)),
            None if self.failures <= spec.retries || self.awaits_age(spec, now) => {
                (Report::Troubled(failure), wait)
            }
            None => (Report::Failed(failure), wait),
        };
        NextCall { report, wait }
    }

    fn awaits_age(&self, spec: &CallSpec, now: Instant) -> bool {
        let serves_old = matches!(spec.on_failure, OnFailure::ServeStale(_));
        let awaited = self.age_awaited_until.is_some_and(|until| now < until);
        serves_old && self.good.is_none() && awaited
    }
}

/// The age at which a view of this call stops answering to readers that name none: as old as its data
/// may become while everything goes as it should, or as far as the entry lets them.
pub(super) fn age_max(spec: &CallSpec) -> Duration {
    let attempts = spec.retries.saturating_add(1);
    let retries = (0..spec.retries).map(|failures| {
        RETRY_BASE
            .saturating_mul(2_u32.saturating_pow(failures.min(16)))
            .min(RETRY_MAX)
    });
    let ordinary = spec
        .interval
        .mul_f64(1.0 + JITTER)
        .saturating_add(CALL_TIMEOUT.saturating_mul(attempts))
        .saturating_add(retries.sum());
    match spec.on_failure {
        OnFailure::Error => ordinary,
        // The view fails by itself when they are too old; until then nothing else may stop it.
        OnFailure::ServeStale(most) => ordinary.max(most.saturating_add(CALL_TIMEOUT)),
    }
}

#[cfg(test)]
mod tests;
