//! What every record of a rule says of it, made once when its policy is compiled.

use std::sync::OnceLock;

use anteroom_model::ObjectKey;
use anteroom_policy::{Policy, Rule};
use prometheus_client::metrics::counter::Counter;

use crate::{facts::Reader, metrics::WebhookMetrics, verdict::RuleResult};

/// A rule by its names, and where it is counted.
#[derive(Debug)]
pub(crate) struct RuleName {
    /// `name`, or `namespace/name` of a namespaced policy.
    pub(crate) policy: String,
    /// In whose name it reads facts; has the rule's own name.
    pub(crate) reader: Reader,
    /// Found in the metrics at the first result of each kind.
    counters: [OnceLock<Counter>; RuleResult::ALL.len()],
}

impl RuleName {
    /// Of a rule of `policy`.
    pub(crate) fn of(policy: &Policy, rule: &Rule) -> Self {
        let key = ObjectKey::new(policy.namespace().unwrap_or_default(), policy.name());
        Self::new(key, rule.name())
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
        }
    }

    /// The rule's own name.
    pub(crate) fn rule(&self) -> &str {
        &self.reader.rule
    }

    /// Counts one result.
    pub(crate) fn count(&self, result: RuleResult, metrics: &WebhookMetrics) {
        self.counters[result as usize]
            .get_or_init(|| metrics.rule(&self.policy, self.rule(), result))
            .inc();
    }
}
