//! What the webhook counts.

use std::time::Duration;

use anteroom_model::ErrorCode;
use anteroom_runtime::Metrics;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use crate::verdict::RuleRecord;

/// From a decision that asked nobody to one that took all the time there was.
const SECONDS: [f64; 14] = [
    0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// The webhook's metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    decisions: Family<DecisionLabels, Counter>,
    decision_seconds: Histogram,
    rules: Family<RuleLabels, Counter>,
    query_seconds: Family<OutcomeLabels, Histogram, fn() -> Histogram>,
    query_attempts: Counter,
    review_errors: Family<CodeLabels, Counter>,
    pub(crate) reviews_in_flight: Gauge,
    policies: Family<StateLabels, Gauge>,
    registrations: Family<OutcomeLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    decision: &'static str,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    policy: String,
    rule: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

impl WebhookMetrics {
    pub(crate) fn registered(metrics: &Metrics) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let own = Self {
            decisions: Family::default(),
            decision_seconds: histogram(),
            rules: Family::default(),
            query_seconds: Family::new_with_constructor(histogram),
            query_attempts: Counter::default(),
            review_errors: Family::default(),
            reviews_in_flight: Gauge::default(),
            policies: Family::default(),
            registrations: Family::default(),
        };
        metrics.register(
            "anteroom_admission_decisions",
            "Reviews decided, by decision and by whether a rule could not be evaluated",
            own.decisions.clone(),
        );
        metrics.register(
            "anteroom_admission_duration_seconds",
            "From a review's last byte to its answer",
            own.decision_seconds.clone(),
        );
        metrics.register(
            "anteroom_admission_rule_results",
            "Rules that matched a request, by result",
            own.rules.clone(),
        );
        metrics.register(
            "anteroom_webhook_query_duration_seconds",
            "From a query to its answer, all attempts included; outcome is ok or an error code",
            own.query_seconds.clone(),
        );
        metrics.register(
            "anteroom_webhook_query_attempts",
            "Requests sent to replicas",
            own.query_attempts.clone(),
        );
        metrics.register(
            "anteroom_admission_review_errors",
            "Reviews that could not be decided on, by error code",
            own.review_errors.clone(),
        );
        metrics.register(
            "anteroom_admission_reviews_in_flight",
            "Reviews that are being decided",
            own.reviews_in_flight.clone(),
        );
        metrics.register(
            "anteroom_policies",
            "Policies, by whether they are in force",
            own.policies.clone(),
        );
        metrics.register(
            "anteroom_webhook_configuration_writes",
            "Times that the webhook configuration was written, by outcome",
            own.registrations.clone(),
        );
        own
    }

    pub(crate) fn decided(&self, allowed: bool, error: bool, took: Duration) {
        let labels = DecisionLabels {
            decision: if allowed { "allowed" } else { "denied" },
            cause: if error { "error" } else { "policy" },
        };
        self.decisions.get_or_create(&labels).inc();
        self.decision_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn rule(&self, record: &RuleRecord) {
        let labels = RuleLabels {
            policy: record.policy.clone(),
            rule: record.rule.clone(),
            result: record.result(),
        };
        self.rules.get_or_create(&labels).inc();
    }

    pub(crate) fn attempt(&self) {
        self.query_attempts.inc();
    }

    /// `error`: `None` for an answer.
    pub(crate) fn query(&self, error: Option<ErrorCode>, took: Duration) {
        let outcome = error.map_or("ok", ErrorCode::as_str);
        self.query_seconds
            .get_or_create(&OutcomeLabels { outcome })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn review_error(&self, code: ErrorCode) {
        let code = code.as_str();
        self.review_errors.get_or_create(&CodeLabels { code }).inc();
    }

    pub(crate) fn policies(&self, ready: usize, unready: usize) {
        for (state, count) in [("ready", ready), ("not_ready", unready)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.policies
                .get_or_create(&StateLabels { state })
                .set(count);
        }
    }

    pub(crate) fn registered_configuration(&self, written: bool) {
        let outcome = if written { "ok" } else { "error" };
        self.registrations
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }
}
