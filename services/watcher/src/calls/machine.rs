//! When a call is made again, and what readers are told meanwhile. Pure.

use std::time::{Duration, Instant};

use anteroom_model::Failure;

use super::{CALL_TIMEOUT, CallSpec, OnFailure};

/// Waits after a failure: doubling from this, up to the maximum or the interval.
const RETRY_BASE: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// An interval is up to this part shorter or longer, so that calls that began together do not stay
/// together.
const JITTER: f64 = 0.1;

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// It was answered, with something new or with what is known.
    Answered,
    /// It was not.
    Failed(Failure),
}

/// What readers are told.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tell {
    /// The data, which are as new as this.
    Good,
    /// What they were told before: the trouble is shown to the entry's author alone.
    Troubled(Failure),
    /// The error, in place of the data.
    Failed(Failure),
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Next {
    /// What readers are told.
    pub tell: Tell,
    /// How long to wait before the next call.
    pub wait: Duration,
}

/// One poller's memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Polls {
    /// Calls that failed since the last one that was answered.
    failures: u32,
    /// When the last good answer came.
    good: Option<Instant>,
}

impl Polls {
    /// After a call. `random` is evenly distributed in `0.0..1.0`.
    pub(super) fn step(
        &mut self,
        spec: &CallSpec,
        outcome: Outcome,
        now: Instant,
        random: f64,
    ) -> Next {
        match outcome {
            Outcome::Answered => {
                self.failures = 0;
                self.good = Some(now);
                let part = 1.0 - JITTER + 2.0 * JITTER * random;
                Next {
                    tell: Tell::Good,
                    wait: spec.interval.mul_f64(part),
                }
            }
            Outcome::Failed(failure) => {
                self.failures = self.failures.saturating_add(1);
                self.failed(spec, failure, now, random)
            }
        }
    }

    fn failed(&self, spec: &CallSpec, failure: Failure, now: Instant, random: f64) -> Next {
        let doubled = 2_u32.saturating_pow(self.failures.saturating_sub(1).min(16));
        let most = RETRY_MAX.min(spec.interval);
        let backoff = RETRY_BASE.saturating_mul(doubled).min(most);
        let wait = backoff.mul_f64(0.5 + 0.5 * random);
        if self.failures <= spec.retries {
            let tell = Tell::Troubled(failure);
            return Next { tell, wait };
        }
        let left = match (spec.on_failure, self.good) {
            (OnFailure::ServeStale(most), Some(good)) => {
                most.saturating_sub(now.saturating_duration_since(good))
            }
            // Where nobody knows how old the data are, they are not served as if somebody did.
            (OnFailure::Error, _) | (OnFailure::ServeStale(_), None) => Duration::ZERO,
        };
        if left.is_zero() {
            let tell = Tell::Failed(failure);
            Next { tell, wait }
        } else {
            Next {
                tell: Tell::Troubled(failure),
                // They are told in time that the data are too old.
                wait: wait.min(left),
            }
        }
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
