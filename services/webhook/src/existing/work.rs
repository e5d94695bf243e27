//! One rule on objects that exist, and what triggers it, from the first attempt to the last.

use std::{sync::Arc, time::Duration};

use anteroom_model::FactError;
use anteroom_policy::{AdmissionRequest, ChangedObject, RuleError, RuleOutcome};
use anteroom_wire::violation::{MESSAGE_BYTES_MAX, ViolatedRule, Violation, cut};
use futures::{StreamExt as _, stream};
use tokio::{sync::Semaphore, time::Instant};

pub(crate) use super::attempt::Source;
use super::{
    Refused, TIMEOUT, Triggered,
    attempt::{Came, Next, first, next},
    earlier::{self, Earlier},
    refused::Place,
};
use crate::{
    catalog::Catalog, decide::Decider, metrics::WebhookMetrics, rule::RuleName,
    violations::Violations,
};

/// Objects of one evaluation that are written at once.
const WRITES_MAX: usize = 4;

/// How long one write may take: nobody says that a watcher has died which was asked.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

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
        let (mut attempts, mut earlier) = (0, Earlier::default());
        loop {
            attempts += 1;
            let came = self.attempt(rule, request, source, &mut earlier).await;
            self.metrics.existing(match &came {
                Came::NotMatched => "not-matched",
                Came::Unchanged => "unchanged",
                Came::Written => "written",
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

    async fn attempt(
        &self,
        rule: &RuleName,
        request: &AdmissionRequest,
        source: Source,
        earlier: &mut Earlier,
    ) -> Came {
        // While it waits its time does not pass, and what the policies say may become something else.
        let Ok(turn) = self.turns.acquire().await else {
            return Came::Unavailable("there are no turns any more".to_owned());
        };
        let Some(catalog) = self.decider.catalog() else {
            return Came::Unavailable("the policies have not been read yet".to_owned());
        };
        let deadline = Instant::now() + TIMEOUT;
        let trigger = (request, source != Source::Existing);
        let decider = &self.decider;
        let begun = decider.begin_change(&catalog, rule, trigger, deadline, turn);
        let Some(mut change) = begun else {
            return Came::NotMatched;
        };
        earlier.begin(&catalog, |before| decider.says_still(before, rule));
        let mut worst = match earlier.is_empty() {
            true => Came::Unchanged,
            false => Came::Written,
        };
        let (mut count, mut refused) = (0, Refused::default());
        while let Some(changed) = decider.next_changed(&mut change, &self.turns).await {
            if !decider.says_still(&catalog, rule) {
                return Came::Conflict;
            }
            let is_done = |changed: &ChangedObject| refused.has(changed) || earlier.has(changed);
            let may_be = changed.into_iter().filter(|changed| !is_done(changed));
            let written = self
                .write_all(rule, may_be.collect(), change.deadline())
                .await;
            let (ids, written): (Vec<_>, Vec<_>) = written.into_iter().unzip();
            refused.note(&written);
            change.leave(&refused);
            for (id, (_, written)) in ids.into_iter().zip(written) {
                if written.is_ok() {
                    earlier.put(id);
                }
                let came = written.map_or_else(|error| Came::of_write(&error), |()| Came::Written);
                count += usize::from(came == Came::Written);
                worst = worse(worst, came);
            }
        }
        // What was written before it came to an error stays written.
        let outcome = decider.end_change(change).map(|report| report.outcome);
        match outcome {
            None | Some(RuleOutcome::NotMatched) => Came::NotMatched,
            Some(RuleOutcome::Error(error @ RuleError::OutOfTime)) => {
                // It would go the same way again, unless it waited for what was not there.
                let late = Came::Failed(format!(
                    "{} it took longer than {} s: {count} objects were changed, and those behind them were not looked at",
                    error.code(),
                    TIMEOUT.as_secs()
                ));
                worse(worst, late)
            }
            Some(RuleOutcome::Error(error)) => worse(worst, Came::of_rule(&error)),
            Some(_) => worst,
        }
    }

    /// Writes a part; what came of each, and which it is.
    async fn write_all(
        &self,
        rule: &RuleName,
        changed: Vec<ChangedObject>,
        deadline: Instant,
    ) -> Vec<(earlier::Id, (Place, Result<(), FactError>))> {
        let writes = changed.into_iter().map(async |changed| {
            let (id, place) = (earlier::id(&changed), Place::of(&changed));
            let until = deadline.min(Instant::now() + WRITE_TIMEOUT);
            let facts = self.decider.facts();
            let ChangedObject { target, object } = changed;
            let written = facts.write(&rule.reader, target, object, until).await;
            (id, (place, written))
        });
        let writes = stream::iter(writes).buffer_unordered(WRITES_MAX);
        writes.collect().await
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
        Came::Written => 1,
        Came::Unchanged | Came::NotMatched => 0,
    };
    match rank(&one) >= rank(&other) {
        true => one,
        false => other,
    }
}

#[cfg(test)]
mod tests;
