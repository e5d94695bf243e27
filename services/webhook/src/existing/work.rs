//! One rule on objects that exist, and what triggers it, from the first attempt to the last.

use std::sync::Arc;

use anteroom_policy::{AdmissionRequest, ChangedObject, RuleError, RuleOutcome};
use anteroom_wire::violation::{MESSAGE_BYTES_MAX, ViolatedRule, Violation, cut};
use futures::{StreamExt as _, stream};
use tokio::{sync::Semaphore, time::Instant};

pub(crate) use super::attempt::Source;
use super::{
    TIMEOUT, Triggered,
    attempt::{Came, Next, first, next},
};
use crate::{
    catalog::Catalog, decide::Decider, metrics::WebhookMetrics, rule::RuleName,
    violations::Violations,
};

/// Objects of one evaluation that are written at once.
const WRITES_MAX: usize = 4;

/// Parts at once, of all attempts: each holds the objects of one read.
const PARTS_MAX: usize = 2;

/// Evaluates and writes.
#[derive(Debug)]
pub(crate) struct Worker {
    decider: Decider,
    /// Where failures are told.
    violations: Violations,
    metrics: WebhookMetrics,
    turns: Semaphore,
}

impl Worker {
    pub(crate) fn new(decider: Decider, violations: Violations, metrics: WebhookMetrics) -> Self {
        Self {
            decider,
            violations,
            metrics,
            turns: Semaphore::new(PARTS_MAX),
        }
    }

    /// The policies and all else as they are now.
    pub(super) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.decider.catalog()
    }

    /// Takes the rule to its end; whether it came to one without a failure.
    pub(crate) async fn work(
        &self,
        rule: &RuleName,
        request: &AdmissionRequest,
        source: Source,
    ) -> bool {
        tokio::time::sleep(first(source)).await;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let came = self.attempt(rule, request, source).await;
            self.metrics.existing(match &came {
                Came::NotMatched => "not-matched",
                Came::Unchanged => "unchanged",
                Came::Written(_) => "written",
                Came::Conflict => "conflict",
                Came::Unavailable(_) => "unavailable",
                Came::Failed(_) => "failed",
            });
            match next(attempts, source, came) {
                Next::Done => return true,
                Next::Again(pause) => tokio::time::sleep(pause).await,
                Next::Failed(reason) => {
                    self.failed(rule, request, &reason);
                    return false;
                }
            }
        }
    }

    async fn attempt(&self, rule: &RuleName, request: &AdmissionRequest, source: Source) -> Came {
        let Some(catalog) = self.decider.catalog() else {
            return Came::Unavailable("the policies have not been read yet".to_owned());
        };
        let deadline = Instant::now() + TIMEOUT;
        let trigger = (request, source != Source::Existing);
        let begun = self.decider.begin_change(&catalog, rule, trigger, deadline);
        let Some(mut change) = begun else {
            return Came::NotMatched;
        };
        let (mut worst, mut count) = (Came::Unchanged, 0);
        while let Some(changed) = self.decider.next_changed(&mut change, &self.turns).await {
            count += changed.len();
            worst = worse(worst, self.write_all(rule, changed, deadline).await);
        }
        // What was written before it came to an error stays written.
        let outcome = self.decider.end_change(change).map(|report| report.outcome);
        match outcome {
            None | Some(RuleOutcome::NotMatched) => Came::NotMatched,
            // It would go the same way again.
            Some(RuleOutcome::Error(error @ RuleError::OutOfTime)) => Came::Failed(format!(
                "{} it took longer than {} s: {count} objects were changed, and those behind them were not looked at",
                error.code(),
                TIMEOUT.as_secs()
            )),
            Some(RuleOutcome::Error(error)) => worse(worst, Came::of_rule(&error)),
            Some(_) => worst,
        }
    }

    async fn write_all(
        &self,
        rule: &RuleName,
        changed: Vec<ChangedObject>,
        deadline: Instant,
    ) -> Came {
        let mut worst = Came::Written(changed.len());
        let writes = changed.into_iter().map(|changed| {
            let facts = self.decider.facts();
            facts.write(&rule.reader, changed.target, changed.object, deadline)
        });
        let mut writes = stream::iter(writes).buffer_unordered(WRITES_MAX);
        while let Some(written) = writes.next().await {
            if let Err(error) = written {
                worst = worse(worst, Came::of_write(&error));
            }
        }
        worst
    }

    /// Tells of what nothing came of.
    pub(crate) fn dropped(&self, triggered: &Triggered) {
        for (rule, _) in &triggered.rules {
            self.metrics.existing("dropped");
            let reason = "as many triggers wait as this webhook takes: objects that exist were not looked at";
            self.failed(rule, &triggered.request, reason);
        }
    }

    fn failed(&self, rule: &RuleName, request: &AdmissionRequest, reason: &str) {
        tracing::warn!(
            policy = rule.policy,
            rule = rule.rule(),
            reason,
            "objects that exist were not changed"
        );
        let policy = &rule.reader.policy;
        let (group, version) = (request.group(), request.version());
        let violation = Violation {
            operation: request.operation().as_str().to_owned(),
            blocked: false,
            api_version: match group {
                "" => version.to_owned(),
                group => format!("{group}/{version}"),
            },
            kind: request.kind().to_owned(),
            namespace: match request.kind() {
                "Namespace" => String::new(),
                _ => request.namespace().to_owned(),
            },
            name: request.name().to_owned(),
            ..Violation::default()
        };
        self.violations.send(violation.of([ViolatedRule {
            policy_namespace: policy.namespace.to_string(),
            policy: policy.name.to_string(),
            rule: rule.rule().to_owned(),
            error: true,
            unscanned: true,
            message: cut(reason, MESSAGE_BYTES_MAX),
        }]));
    }
}

/// Of two, what decides how it goes on: what is never written is told only where nothing else is to be tried.
fn worse(one: Came, other: Came) -> Came {
    let rank = |came: &Came| match came {
        Came::Unavailable(_) => 4,
        Came::Conflict => 3,
        Came::Failed(_) => 2,
        Came::Written(_) => 1,
        Came::Unchanged | Came::NotMatched => 0,
    };
    match rank(&one) >= rank(&other) {
        true => one,
        false => other,
    }
}
