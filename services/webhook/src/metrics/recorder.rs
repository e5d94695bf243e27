//! Counts the engine's work, under our names and Kyverno's.

use std::{sync::OnceLock, time::Duration};

use anteroom_engine::{
    policies::PolicySet,
    recorder::{AuditResult, Recorder},
    rule::{RuleName, RuleResult},
};
use anteroom_model::ErrorCode;
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use super::{
    WebhookMetrics,
    kyverno::{ConstantRuleLabels, SeriesCache},
};

/// The series of one rule, each found at its first use.
#[derive(Debug)]
pub(super) struct RuleSeries {
    counters: [OnceLock<Counter>; RuleResult::ALL.len()],
    seconds: OnceLock<Histogram>,
    /// The rule's part of Kyverno's labels.
    pub(super) labels: ConstantRuleLabels,
    /// The rule's series by Kyverno's names.
    pub(super) seen: SeriesCache,
}

impl RuleSeries {
    fn of(rule: &RuleName) -> Self {
        Self {
            counters: Default::default(),
            seconds: OnceLock::new(),
            labels: ConstantRuleLabels::of(rule),
            seen: SeriesCache::default(),
        }
    }

    /// Hands the rule's series to `count`.
    pub(super) fn with<T>(rule: &RuleName, count: impl FnOnce(&Self) -> T) -> T {
        match rule.recorded(|| Self::of(rule)) {
            Some(series) => count(series),
            None => count(&Self::of(rule)),
        }
    }
}

impl Recorder for WebhookMetrics {
    fn rule(&self, rule: &RuleName, result: RuleResult, took: Duration) {
        RuleSeries::with(rule, |series| {
            series
                .seconds
                .get_or_init(|| self.rule_seconds(&rule.policy, rule.rule()))
                .observe(took.as_secs_f64());
            series.counters[result as usize]
                .get_or_init(|| self.rule_results(&rule.policy, rule.rule(), result))
                .inc();
        });
    }

    fn query_attempt(&self) {
        self.query_attempts.inc();
    }

    fn query(&self, error: Option<ErrorCode>, took: Duration) {
        self.queried(error, took);
    }

    fn local_query(&self, outcome: &'static str) {
        self.asked_locally(outcome);
    }

    fn live_read(&self, error: Option<ErrorCode>, took: Duration) {
        self.read_live(error, took);
    }

    fn audit(&self, result: AuditResult) {
        self.audited(result.as_str());
    }

    fn policies(&self, policies: &PolicySet) {
        let (ready, unready) = policies.counts();
        self.count_policies(ready, unready);
        self.forget_all_but(&policies.rules());
        if let Some(kyverno) = &self.kyverno {
            kyverno.policies(policies);
        }
    }

    fn mutate_existing(&self, outcome: &'static str) {
        self.existing(outcome);
    }

    fn violation(&self, outcome: &'static str) {
        self.count_violation(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_events_are_counted_by_result() {
        let metrics = anteroom_runtime::Service::new("webhook").metrics;
        let own = WebhookMetrics::register(&metrics);
        own.audit(AuditResult::Different);
        own.mutate_existing("written");
        own.violation("dropped");
        own.live_read(Some(ErrorCode::BUSY), Duration::ZERO);
        own.query(None, Duration::ZERO);
        own.query_attempt();
        for outcome in ["ok", "long", "ok"] {
            own.local_query(outcome);
        }
        let text = metrics.encode();
        let busy = ErrorCode::BUSY.as_str();
        for line in [
            "anteroom_webhook_cached_call_audit_total{result=\"different\"} 1".to_owned(),
            "anteroom_webhook_mutate_existing_total{outcome=\"written\"} 1".to_owned(),
            "anteroom_webhook_violations_total{outcome=\"dropped\"} 1".to_owned(),
            format!("anteroom_webhook_live_read_duration_seconds_count{{outcome=\"{busy}\"}} 1"),
            "anteroom_webhook_query_duration_seconds_count{outcome=\"ok\"} 1".to_owned(),
            "anteroom_webhook_query_attempts_total 1".to_owned(),
            "anteroom_webhook_local_queries_total{outcome=\"ok\"} 2".to_owned(),
            "anteroom_webhook_local_queries_total{outcome=\"long\"} 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
