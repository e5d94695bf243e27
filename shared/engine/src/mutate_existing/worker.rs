//! Runs a rule on existing objects for a trigger, from the first attempt to the last.

use std::{borrow::Cow, sync::Arc, time::Duration};

use anteroom_model::FactError;
use anteroom_policy::{AdmissionRequest, ChangedObject, Operation, RuleError, RuleOutcome};
use anteroom_wire::violation::{MESSAGE_BYTES_MAX, ViolatedRule, Violation, cut};
use futures::{StreamExt as _, stream};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    TIMEOUT, Triggered,
    attempt::{AttemptOutcome, LOOKS_MAX, NextAttempt, TriggerSource, first, next},
    change::{TriggeredChange, is_ruled_out, is_unchanged},
    forbidden::{ForbiddenTargets, TargetNamespace},
    trigger::{self, TriggerEffect},
    written::{self, WrittenBefore},
};
use crate::{
    catalog::Catalog, decide::Engine, recorder::SharedRecorder, review_work::REVIEW_STEPS_MAX,
    rule::RuleName, violations::Violations,
};

/// The most objects of an evaluation that are written at once.
const WRITES_MAX: usize = 4;

/// The longest time for one write: the death of a watcher that was asked is announced by no message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest time for looking up a trigger.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(20);

/// The most parts that all attempts hold at once; each part has the objects of one read.
const PARTS_MAX: usize = 2;

/// The most steps for all rules that a deletion triggers together, before the deletion is answered. Rules that need
/// more steps stay candidates, and one look-up serves all of them.
const DELETION_STEPS_MAX: u64 = REVIEW_STEPS_MAX / 10;

/// Evaluates rules on existing objects, and has their changes written.
#[derive(Debug)]
pub struct Worker {
    engine: Engine,
    /// The queue for reports about failures.
    violations: Violations,
    recorder: SharedRecorder,
    turns: Semaphore,
    trusts_reviews: bool,
}

impl Worker {
    /// Returns a worker that reports failures through `violations`. `trusts_reviews`: reviews certainly come from the
    /// API server, so a review is believed if its object may not be read.
    pub fn new(
        engine: Engine,
        violations: Violations,
        recorder: SharedRecorder,
        trusts_reviews: bool,
    ) -> Self {
        Self {
            engine,
            violations,
            recorder,
            turns: Semaphore::new(PARTS_MAX),
            trusts_reviews,
        }
    }

    /// The policies and all else as they are now.
    pub(super) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.engine.catalog()
    }

    /// Evaluates the rule to its end. Returns whether it ended without a failure.
    pub async fn work(
        &self,
        rule: &RuleName,
        request: &AdmissionRequest,
        source: TriggerSource,
    ) -> bool {
        tokio::time::sleep(first(source)).await;
        let (mut attempts, mut earlier) = (0, WrittenBefore::default());
        let mut stored = (source == TriggerSource::Existing).then_some(Cow::Borrowed(request));
        loop {
            attempts += 1;
            let looked_up = match stored.take() {
                Some(stored) => Ok(stored),
                None => self.look_up(rule, request, attempts).await,
            };
            let came = match looked_up {
                Ok(request) => {
                    let came = self.attempt(rule, &request, source, &mut earlier).await;
                    stored = Some(request);
                    came
                }
                Err(came) => came,
            };
            self.recorder.mutate_existing(match &came {
                AttemptOutcome::NotStored => "not-stored",
                AttemptOutcome::NotMatched => "not-matched",
                AttemptOutcome::Unchanged => "unchanged",
                AttemptOutcome::Written => "written",
                AttemptOutcome::Conflict => "conflict",
                AttemptOutcome::Unavailable(_) => "unavailable",
                AttemptOutcome::Failed(_) => "failed",
            });
            match next(attempts, came) {
                NextAttempt::Done => return true,
                NextAttempt::Again(pause) => tokio::time::sleep(pause).await,
                NextAttempt::Failed(reason) => {
                    self.failed(rule, request, &reason);
                    return false;
                }
            }
        }
    }

    /// Returns the request as it took effect. The object is not looked up for a rule that does not match the request.
    async fn look_up<'r>(
        &self,
        rule: &RuleName,
        request: &'r AdmissionRequest,
        attempts: u32,
    ) -> Result<Cow<'r, AdmissionRequest>, AttemptOutcome> {
        if let Some(catalog) = self.engine.catalog()
            && is_ruled_out(&catalog, rule, request, &mut REVIEW_STEPS_MAX.clone())
        {
            return Err(AttemptOutcome::NotMatched);
        }
        let deadline = Instant::now() + LOOK_UP_TIMEOUT;
        let found = trigger::look_up(self.engine.facts(), &rule.reader, request, deadline);
        match found.await.map(|stored| trigger::effect(request, stored)) {
            Ok(TriggerEffect::Stored(request)) => Ok(Cow::Owned(*request)),
            // After so many looks, the request counts as a request that changed nothing.
            Ok(TriggerEffect::Unchanged(request)) if attempts >= LOOKS_MAX => {
                Ok(Cow::Owned(*request))
            }
            Ok(TriggerEffect::Unchanged(_) | TriggerEffect::NotStored) => {
                Err(AttemptOutcome::NotStored)
            }
            Err(error) => match AttemptOutcome::of_look_up(&error) {
                AttemptOutcome::Failed(_) if self.trusts_reviews => Ok(Cow::Borrowed(request)),
                came => Err(came),
            },
        }
    }

    /// Reads the objects that a request deletes, before the request is answered: afterwards the objects are gone.
    /// Rules whose trigger cannot be read do not run.
    pub(super) async fn read_before_delete(&self, triggered: &mut Triggered, deadline: Instant) {
        if self.trusts_reviews || triggered.request.operation() != Operation::Delete {
            return;
        }
        let (catalog, request) = (self.engine.catalog(), &triggered.request);
        if let Some(catalog) = catalog {
            let mut steps_left = DELETION_STEPS_MAX;
            triggered
                .rules
                .retain(|(rule, _)| !is_ruled_out(&catalog, rule, request, &mut steps_left));
        }
        let mut failed = None;
        for (rule, _) in &triggered.rules {
            let request = &triggered.request;
            let read = trigger::look_up(self.engine.facts(), &rule.reader, request, deadline);
            match read.await.map(|stored| trigger::deletion(request, stored)) {
                Ok(Some(request)) => {
                    triggered.request = request;
                    return;
                }
                Ok(None) => {
                    self.recorder.mutate_existing("not-stored");
                    triggered.rules.clear();
                    return;
                }
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            let reason = format!(
                "{} the object could not be read before it was deleted: {error}",
                error.code()
            );
            for (rule, _) in std::mem::take(&mut triggered.rules) {
                self.recorder.mutate_existing("failed");
                self.failed(&rule, &triggered.request, &reason);
            }
        }
    }

    async fn attempt(
        &self,
        rule: &RuleName,
        request: &AdmissionRequest,
        source: TriggerSource,
        earlier: &mut WrittenBefore,
    ) -> AttemptOutcome {
        // While it waits its time does not pass, and what the policies say may become something else.
        let Ok(turn) = self.turns.acquire().await else {
            return AttemptOutcome::Unavailable("there are no turns any more".to_owned());
        };
        let Some(catalog) = self.engine.catalog() else {
            return AttemptOutcome::Unavailable("the policies have not been read yet".to_owned());
        };
        let (engine, turns) = (&self.engine, &self.turns);
        let change = TriggeredChange::begin(engine, &catalog, rule, request, source, turns, turn);
        let Some(mut change) = change else {
            return AttemptOutcome::NotMatched;
        };
        earlier.begin(&catalog, |before| is_unchanged(&self.engine, before, rule));
        let mut worst = match earlier.is_empty() {
            true => AttemptOutcome::Unchanged,
            false => AttemptOutcome::Written,
        };
        let (mut count, mut refused) = (0, ForbiddenTargets::default());
        while let Some(changed) = change.next_changed().await {
            if !is_unchanged(&self.engine, &catalog, rule) {
                return AttemptOutcome::Conflict;
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
                let came = written.map_or_else(
                    |error| AttemptOutcome::of_write(&error, change.knows_secrets()),
                    |()| AttemptOutcome::Written,
                );
                count += usize::from(came == AttemptOutcome::Written);
                worst = worse(worst, came);
            }
        }
        // What was written before it came to an error stays written.
        let knows_secrets = change.knows_secrets();
        let outcome = change.end().map(|report| report.outcome);
        match outcome {
            None | Some(RuleOutcome::NotMatched) => AttemptOutcome::NotMatched,
            Some(RuleOutcome::Error(error @ RuleError::OutOfTime)) => {
                // A retry would time out again, unless this attempt waited for missing facts.
                let late = AttemptOutcome::Failed(format!(
                    "{} it took longer than {} s: {count} objects were changed, and those behind them were not looked at",
                    error.code(),
                    TIMEOUT.as_secs()
                ));
                worse(worst, late)
            }
            Some(RuleOutcome::Error(error)) => {
                worse(worst, AttemptOutcome::of_rule(&error, knows_secrets))
            }
            Some(_) => worst,
        }
    }

    /// Writes a part of the targets; returns the outcome of each write with its target.
    async fn write_all(
        &self,
        rule: &RuleName,
        changed: Vec<ChangedObject>,
        deadline: Instant,
    ) -> Vec<(written::Id, (TargetNamespace, Result<(), FactError>))> {
        let writes = changed.into_iter().map(async |changed| {
            let (id, place) = (written::id(&changed), TargetNamespace::of(&changed));
            let until = deadline.min(Instant::now() + WRITE_TIMEOUT);
            let facts = self.engine.facts();
            let ChangedObject { target, object } = changed;
            let written = facts.write(&rule.reader, target, object, until).await;
            (id, (place, written))
        });
        let writes = stream::iter(writes).buffer_unordered(WRITES_MAX);
        writes.collect().await
    }

    /// Reports a trigger that was dropped.
    pub fn dropped(&self, triggered: &Triggered) {
        for (rule, _) in &triggered.rules {
            self.recorder.mutate_existing("dropped");
            let reason = "the queue of triggers is full: existing objects were not read";
            self.failed(rule, &triggered.request, reason);
        }
    }

    fn failed(&self, rule: &RuleName, request: &AdmissionRequest, reason: &str) {
        tracing::warn!(
            policy = rule.policy,
            rule = rule.rule(),
            reason,
            "existing objects not changed"
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
            namespace: match request.is_about_namespace() {
                true => String::new(),
                false => request.namespace().to_owned(),
            },
            name: request.name().to_owned(),
            ..Violation::default()
        };
        self.violations.send(violation.with_rules([ViolatedRule {
            policy_namespace: policy.namespace.to_string(),
            policy: policy.name.to_string(),
            rule: rule.rule().to_owned(),
            error: true,
            unscanned: true,
            message: cut(reason, MESSAGE_BYTES_MAX),
        }]));
    }
}

/// Returns the outcome that decides about the next step. A failure counts only if nothing is to be tried again.
fn worse(one: AttemptOutcome, other: AttemptOutcome) -> AttemptOutcome {
    let rank = |came: &AttemptOutcome| match came {
        AttemptOutcome::Unavailable(_) => 4,
        AttemptOutcome::Conflict => 3,
        AttemptOutcome::Failed(_) => 2,
        AttemptOutcome::Written => 1,
        AttemptOutcome::NotStored | AttemptOutcome::Unchanged | AttemptOutcome::NotMatched => 0,
    };
    match rank(&one) >= rank(&other) {
        true => one,
        false => other,
    }
}

#[cfg(test)]
mod tests;
