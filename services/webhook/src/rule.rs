//! What every record of a rule says of it, made once when its policy is compiled.

use std::{sync::OnceLock, time::Duration};

use anteroom_model::ObjectKey;
use anteroom_policy::{Policy, Rule};
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use crate::{
    facts::Reader,
    metrics::{OfRule, Seen, WebhookMetrics},
    verdict::RuleResult,
};

/// A rule by its names, and where it is counted.
#[derive(Debug)]
pub(crate) struct RuleName {
    /// `name`, or `namespace/name` of a namespaced policy.
    pub(crate) policy: String,
    /// In whose name it reads facts; has the rule's own name.
    pub(crate) reader: Reader,
    /// Found in the metrics at the first result of each kind.
    counters: [OnceLock<Counter>; RuleResult::ALL.len()],
    /// As the counters.
    seconds: OnceLock<Histogram>,
    /// Nobody scans what exists by its policy.
    pub(crate) unscanned: bool,
    /// What Kyverno's labels say of it.
    pub(crate) of_rule: OfRule,
    /// Where it is counted by Kyverno's labels.
    pub(crate) seen: Seen,
}

impl RuleName {
    /// Of a rule of `policy`.
    pub(crate) fn of(policy: &Policy, rule: &Rule) -> Self {
        let key = ObjectKey::new(policy.namespace().unwrap_or_default(), policy.name());
        Self {
            unscanned: policy.not_scanned().is_some(),
            of_rule: OfRule::of(policy, rule),
            ..Self::new(key, rule.name())
        }
    }

    pub(crate) fn new(policy: ObjectKey, rule: &str) -> Self {
        Self {
            policy: match &*policy.namespace {
                "" => policy.name.clone().into_string(),
                namespace => format!("{namespace}/{}", policy.name),
            },
            reader: Reader {
                policy,
                rule: rule.to_owned(),
            },
            counters: Default::default(),
            seconds: OnceLock::new(),
            unscanned: false,
            of_rule: OfRule::default(),
            seen: Seen::default(),
        }
    }

    /// The rule's own name.
    pub(crate) fn rule(&self) -> &str {
        &self.reader.rule
    }

    /// Counts one result, and what it took.
    pub(crate) fn count(&self, result: RuleResult, took: Duration, metrics: &WebhookMetrics) {
        self.seconds
            .get_or_init(|| metrics.rule_seconds(&self.policy, self.rule()))
            .observe(took.as_secs_f64());
        self.counters[result as usize]
            .get_or_init(|| metrics.rule(&self.policy, self.rule(), result))
            .inc();
    }
}
