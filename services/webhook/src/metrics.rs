//! The metrics of the webhook.

mod kyverno;
mod recorder;

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anteroom_engine::rule::RuleResult;
use anteroom_model::ErrorCode;
use anteroom_policy::Phase;
use anteroom_runtime::Metrics;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use crate::exempt::ExemptBy;
pub(crate) use kyverno::KyvernoMetrics;

/// Buckets from a decision without facts to a decision that took its whole time.
const SECONDS: [f64; 14] = [
    0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// Buckets for a rule: few, since there are many rules.
const RULE_SECONDS: [f64; 6] = [0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0];

/// The webhook's metrics. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    decisions: Family<DecisionLabels, Counter>,
    /// The usual ones of the families, found once.
    usual: Arc<Usual>,
    decision_seconds: Histogram,
    rules: Family<RuleLabels, Counter>,
    rule_seconds: Family<RuleNameLabels, Histogram, fn() -> Histogram>,
    /// The rules that something was counted of.
    rules_counted: Arc<Mutex<HashSet<RuleNameLabels>>>,
    query_seconds: Family<OutcomeLabels, Histogram, fn() -> Histogram>,
    query_attempts: Counter,
    local_queries: Family<OutcomeLabels, Counter>,
    /// The memory of local views.
    pub(crate) local_views_bytes: Gauge,
    live_read_seconds: Family<OutcomeLabels, Histogram, fn() -> Histogram>,
    audits: Family<ResultLabels, Counter>,
    review_errors: Family<CodeLabels, Counter>,
    exempt: Family<ExemptLabels, Counter>,
    pub(crate) reviews_in_flight: Gauge,
    /// Operators who look at decisions.
    pub(crate) taps_open: Gauge,
    policies: Family<StateLabels, Gauge>,
    registrations: Family<OutcomeLabels, Counter>,
    pub(crate) unknown_configurations: Counter,
    proof_seconds: Histogram,
    violations: Family<OutcomeLabels, Counter>,
    existing: Family<OutcomeLabels, Counter>,
    /// Copies of these metrics under Kyverno's names, if an option asks for them.
    pub(crate) kyverno: Option<KyvernoMetrics>,
}

/// The series that nearly every decision counts.
#[derive(Debug, Default)]
struct Usual {
    /// Decisions without an error, for each phase: denied, allowed.
    decisions: [[OnceLock<Counter>; 2]; 2],
    /// Queries that were answered.
    query_seconds: OnceLock<Histogram>,
    /// Queries that local views answered at once.
    local_queries: OnceLock<Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    decision: &'static str,
    cause: &'static str,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleLabels {
    policy: String,
    rule: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RuleNameLabels {
    policy: String,
    rule: String,
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
struct ExemptLabels {
    by: &'static str,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

impl WebhookMetrics {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        Self {
            decisions: metrics.create(
                "anteroom_admission_decisions",
                "Reviews decided, by decision, by whether a rule could not be evaluated, and by phase",
            ),
            usual: Arc::default(),
            decision_seconds: metrics.register(
                "anteroom_admission_duration_seconds",
                "From a review's last byte to its answer",
                histogram(),
            ),
            rules: metrics.create(
                "anteroom_admission_rule_results",
                "Rules that matched a request, by result",
            ),
            rule_seconds: metrics.register(
                "anteroom_admission_rule_duration_seconds",
                "From a rule's first step to its result, the facts that it waited for included",
                Family::new_with_constructor(|| Histogram::new(RULE_SECONDS)),
            ),
            rules_counted: Arc::default(),
            query_seconds: metrics.register(
                "anteroom_webhook_query_duration_seconds",
                "From a query to its answer, all attempts included; outcome is ok or an error code",
                Family::new_with_constructor(histogram),
            ),
            query_attempts: metrics.create(
                "anteroom_webhook_query_attempts",
                "Requests sent to replicas",
            ),
            local_queries: metrics.create(
                "anteroom_webhook_local_queries",
                "Queries of local views, by outcome: ok or alone for answers; long (it takes long, or waits for a position) or an error code where replicas were asked",
            ),
            local_views_bytes: metrics.create(
                "anteroom_webhook_local_views_bytes",
                "Memory that local views take, with their indexes and results",
            ),
            live_read_seconds: metrics.register(
                "anteroom_webhook_live_read_duration_seconds",
                "From a live read's beginning to its end; outcome is ok or an error code",
                Family::new_with_constructor(histogram),
            ),
            audits: metrics.create(
                "anteroom_webhook_cached_call_audit",
                "Views' answers to API calls that were compared with live ones, by result",
            ),
            review_errors: metrics.create(
                "anteroom_admission_review_errors",
                "Reviews that could not be decided on, by error code",
            ),
            exempt: metrics.create(
                "anteroom_admission_exempt",
                "Reviews that no policy was asked about, by what exempts them, and by phase",
            ),
            reviews_in_flight: metrics.create(
                "anteroom_admission_reviews_in_flight",
                "Reviews that are being decided",
            ),
            taps_open: metrics.create(
                "anteroom_webhook_taps_open",
                "Operators who look at decisions now, by `anteroom top`, `anteroom tap` or the console",
            ),
            policies: metrics.create("anteroom_policies", "Policies, by whether they are in force"),
            registrations: metrics.create(
                "anteroom_webhook_configuration_writes",
                "Times that the webhook configuration was written, by outcome",
            ),
            unknown_configurations: metrics.create(
                "anteroom_webhook_unknown_configurations",
                "Calls by a webhook configuration that this webhook did not make lately: all policies were asked",
            ),
            proof_seconds: metrics.register(
                "anteroom_webhook_configuration_proof_seconds",
                "From a webhook configuration being written to the API server going by it",
                histogram(),
            ),
            violations: metrics.create(
                "anteroom_webhook_violations",
                "Decisions with violations that were told to the reporter, by what became of that",
            ),
            existing: metrics.create(
                "anteroom_webhook_mutate_existing",
                "Attempts of rules on objects that exist already, by what came of them",
            ),
            kyverno: None,
        }
    }

    /// Counts a decision. A review makes one in each phase in which policies are called.
    pub(crate) fn decided(&self, phase: Phase, allowed: bool, error: bool, took: Duration) {
        let counter = || {
            self.decisions.get_or_create_owned(&DecisionLabels {
                decision: if allowed { "allowed" } else { "denied" },
                cause: if error { "error" } else { "policy" },
                phase: phase_name(phase),
            })
        };
        match error {
            true => counter().inc(),
            false => self.usual.decisions[phase as usize][usize::from(allowed)]
                .get_or_init(counter)
                .inc(),
        };
        self.decision_seconds.observe(took.as_secs_f64());
    }

    /// No policy was asked.
    pub(crate) fn exempt(&self, phase: Phase, by: ExemptBy) {
        let labels = ExemptLabels {
            by: by.as_str(),
            phase: phase_name(phase),
        };
        self.exempt.get_or_create(&labels).inc();
    }

    /// The series of this result of the rule.
    fn rule_results(&self, policy: &str, rule: &str, result: RuleResult) -> Counter {
        let labels = RuleLabels {
            policy: policy.to_owned(),
            rule: rule.to_owned(),
            result: result.as_str(),
        };
        self.rules.get_or_create_owned(&labels)
    }

    /// The series of the duration of the rule.
    fn rule_seconds(&self, policy: &str, rule: &str) -> Histogram {
        let labels = RuleNameLabels {
            policy: policy.to_owned(),
            rule: rule.to_owned(),
        };
        let seconds = self.rule_seconds.get_or_create_owned(&labels);
        self.rules_counted.lock().insert(labels);
        seconds
    }

    /// Removes the series of all rules but these, which are named by policy and rule.
    fn forget_all_but(&self, rules: &HashSet<(&str, &str)>) {
        self.rules_counted.lock().retain(|counted| {
            let RuleNameLabels { policy, rule } = counted;
            let stays = rules.contains(&(&**policy, &**rule));
            if !stays {
                self.rule_seconds.remove(counted);
                for result in RuleResult::ALL {
                    self.rules.remove(&RuleLabels {
                        policy: policy.clone(),
                        rule: rule.clone(),
                        result: result.as_str(),
                    });
                }
            }
            stays
        });
    }

    /// `error`: `None` for an answer.
    fn queried(&self, error: Option<ErrorCode>, took: Duration) {
        let histogram = || {
            let outcome = error.map_or("ok", ErrorCode::as_str);
            self.query_seconds
                .get_or_create_owned(&OutcomeLabels { outcome })
        };
        match error {
            Some(_) => histogram().observe(took.as_secs_f64()),
            None => self
                .usual
                .query_seconds
                .get_or_init(histogram)
                .observe(took.as_secs_f64()),
        }
    }

    fn asked_locally(&self, outcome: &'static str) {
        let counter = || {
            self.local_queries
                .get_or_create_owned(&OutcomeLabels { outcome })
        };
        match outcome {
            "ok" => self.usual.local_queries.get_or_init(counter).inc(),
            _ => counter().inc(),
        };
    }

    /// `error`: `None` for an answer.
    fn read_live(&self, error: Option<ErrorCode>, took: Duration) {
        let outcome = error.map_or("ok", ErrorCode::as_str);
        self.live_read_seconds
            .get_or_create(&OutcomeLabels { outcome })
            .observe(took.as_secs_f64());
    }

    fn audited(&self, result: &'static str) {
        self.audits.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn review_error(&self, code: ErrorCode) {
        let code = code.as_str();
        self.review_errors.get_or_create(&CodeLabels { code }).inc();
    }

    fn count_policies(&self, ready: usize, unready: usize) {
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

    fn count_violation(&self, outcome: &'static str) {
        self.violations
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    fn existing(&self, outcome: &'static str) {
        self.existing
            .get_or_create(&OutcomeLabels { outcome })
            .inc();
    }

    pub(crate) fn proven(&self, took: Duration) {
        self.proof_seconds.observe(took.as_secs_f64());
    }
}

/// The phase, as rules name it.
fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Validation => "validate",
        Phase::Mutation => "mutate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_removed_rule_are_forgotten() {
        let metrics = anteroom_runtime::Service::new("webhook").metrics;
        let own = WebhookMetrics::register(&metrics);
        for policy in ["gone", "stays"] {
            own.rule_seconds(policy, "r").observe(0.1);
            own.rule_results(policy, "r", RuleResult::Fail).inc();
        }
        own.forget_all_but(&[("stays", "r"), ("new", "r")].into());
        let text = metrics.encode();
        assert!(!text.contains("gone"), "{text}");
        for metric in ["rule_results_total", "rule_duration_seconds_count"] {
            let line = format!("anteroom_admission_{metric}{{policy=\"stays\",rule=\"r\"");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
