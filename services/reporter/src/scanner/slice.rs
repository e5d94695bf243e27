//! A slice of a walk: some objects through the walk's policies. A slice owns all its data, so that slices run in
//! parallel.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anteroom_engine::judge::{CatalogSnapshot, Judge, RuleJudgement, ScannedPolicy, TIMEOUT};
use anteroom_model::ObjectKey;
use anteroom_policy::{RuleError, RuleOutcome};
use anteroom_view::Object;
use futures::{StreamExt as _, stream};

use super::{PendingWalk, slice_scheduler::Lane};
use crate::{
    metrics::ReporterMetrics,
    plan::WalkStep,
    result::{ReportSubject, RuleResult},
};

/// Objects that are judged side by side: while one waits for facts, others go on.
const AT_ONCE: usize = 16;

/// The number of waits in vain for a policy's facts, in a row, after which the waits become short.
const IN_VAIN_MAX: u32 = AT_ONCE as u32;

/// The wait for the facts of such a policy, for each object: long enough for a replica that answers at once.
const TIMEOUT_IN_VAIN: Duration = Duration::from_millis(200);

/// An error after that time was waited for.
const WAITED: Duration = Duration::from_secs(1);

/// The results on one object.
pub(super) enum ScannedObject {
    Gone(String),
    /// The object was judged: its results by policy, in order of the policies' keys.
    Judged(ObjectKey, ReportSubject, Vec<(ObjectKey, RuleResult)>),
    /// The object cannot be read, or is no object of the API.
    Unreadable(ObjectKey),
}

impl ScannedObject {
    /// Returns the object if it exists, and whether it could be read.
    pub(super) fn object(&self) -> Option<(&ObjectKey, bool)> {
        match self {
            Self::Gone(_) => None,
            Self::Judged(object, ..) => Some((object, true)),
            Self::Unreadable(object) => Some((object, false)),
        }
    }
}

/// A finished slice, with the walk that waits for the slice.
pub(super) struct Slice {
    pub(super) waiting: PendingWalk,
    pub(super) lane: Lane,
    pub(super) found: Vec<ScannedObject>,
}

/// The timeout of a policy's facts, short once they were waited for in vain. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct FactTimeoutBackoff(Arc<AtomicU32>);

impl FactTimeoutBackoff {
    /// The longest time for facts.
    fn timeout(&self) -> Duration {
        match self.is_lost() {
            true => TIMEOUT_IN_VAIN,
            false => TIMEOUT,
        }
    }

    /// Returns whether so many waits were in vain that further long waits are useless.
    pub(super) fn is_lost(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= IN_VAIN_MAX
    }

    /// Waits for facts again as if none had been waited for in vain.
    pub(super) fn regain(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Notes the outcome of a rule.
    fn note(&self, is_error: bool, was_answered: bool, took: Duration) {
        if was_answered && !is_error {
            self.regain();
        } else if is_error && took >= WAITED {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The context of a slice.
pub(super) struct Tools {
    pub(super) judge: Judge,
    pub(super) known: CatalogSnapshot,
    /// The policies, in order of key.
    pub(super) policies: Vec<ScannedPolicy>,
    pub(super) fact_timeout: FactTimeoutBackoff,
    pub(super) metrics: ReporterMetrics,
}

impl Tools {
    pub(super) async fn find(&self, steps: Vec<WalkStep<Object>>) -> Vec<ScannedObject> {
        let finding = stream::iter(steps).map(|step| async move {
            // Where nothing waits, others get their turn all the same.
            tokio::task::yield_now().await;
            match step {
                WalkStep::Forget(uid) => ScannedObject::Gone(uid),
                WalkStep::Judge(object) => self.look_at(&object).await,
            }
        });
        // In order: what is gone may come again.
        finding.buffered(AT_ONCE).collect().await
    }

    async fn look_at(&self, object: &Object) -> ScannedObject {
        let key = ObjectKey::new(object.namespace(), object.name());
        let Ok(value) = anteroom_wire::body::to_json(object.body()) else {
            return ScannedObject::Unreadable(key);
        };
        let Some(subject) = ReportSubject::of(&value) else {
            return ScannedObject::Unreadable(key);
        };
        let timeout = self.fact_timeout.timeout();
        let judging = self
            .judge
            .judge(&self.known, &self.policies, value, timeout);
        let judged = Box::pin(judging).await;
        let results = judged.into_iter().filter_map(|judged| self.result(judged));
        ScannedObject::Judged(key, subject, results.collect())
    }

    fn result(&self, judged: RuleJudgement) -> Option<(ObjectKey, RuleResult)> {
        let RuleJudgement {
            policy: key,
            rule,
            outcome,
            properties,
            was_answered,
            took,
        } = judged;
        let at = self
            .policies
            .binary_search_by(|policy| policy.key().cmp(&key));
        let policy = self.policies.get(at.ok()?)?.policy()?;
        let mut result = RuleResult::of(policy, &rule, &outcome)?;
        result.set_properties(properties);
        if !is_out_of_work(&outcome) {
            self.fact_timeout
                .note(result.is_error(), was_answered, took);
        }
        self.metrics.result(result.outcome);
        Some((key, result))
    }
}

/// Returns whether a rule ended for want of processors or of their time, which says nothing about its facts.
fn is_out_of_work(outcome: &RuleOutcome) -> bool {
    use RuleError::{OutOfTime, ReviewTooCostly, ReviewsOverPart};
    matches!(
        outcome,
        RuleOutcome::Error(OutOfTime | ReviewTooCostly | ReviewsOverPart)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_want_of_processors_are_no_facts_that_never_came() {
        for (error, expected) in [
            (RuleError::OutOfTime, true),
            (RuleError::ReviewTooCostly, true),
            (RuleError::ReviewsOverPart, true),
            (RuleError::TooManyFacts, false),
        ] {
            let outcome = RuleOutcome::Error(error);
            assert_eq!(is_out_of_work(&outcome), expected, "{outcome:?}");
        }
        assert!(!is_out_of_work(&RuleOutcome::Pass));
    }

    #[test]
    fn facts_that_never_come_are_waited_for_with_a_shorter_timeout() {
        let fact_timeout = FactTimeoutBackoff::default();
        let long = Duration::from_secs(10);
        for _ in 1..IN_VAIN_MAX {
            fact_timeout.note(true, false, long);
            fact_timeout.note(true, false, Duration::ZERO); // That costs nothing.
            fact_timeout.note(false, false, long); // It asked nobody.
        }
        assert_eq!(fact_timeout.timeout(), TIMEOUT);
        fact_timeout.note(true, false, long);
        assert_eq!(fact_timeout.timeout(), TIMEOUT_IN_VAIN);
        fact_timeout.note(true, true, TIMEOUT_IN_VAIN);
        assert!(
            fact_timeout.is_lost(),
            "an answer to one fact of two is none"
        );
        fact_timeout.note(false, true, TIMEOUT_IN_VAIN);
        assert_eq!(fact_timeout.timeout(), TIMEOUT);
    }
}
