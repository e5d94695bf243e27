//! Runs a rule on existing objects for a trigger, from the first attempt to the last.

use std::{sync::Arc, time::Duration};

use anteroom_model::FactError;
use anteroom_policy::{AdmissionRequest, ChangedObject, Operation, RuleError, RuleOutcome};
use anteroom_runtime::fair_quota::FairPermit;
use anteroom_wire::violation::{MESSAGE_BYTES_MAX, ViolatedRule, Violation, cut};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

use super::{
    TIMEOUT, Triggered,
    attempt::{AttemptOutcome, LOOKS_MAX, NextAttempt, TriggerSource, first, next},
    change::{TriggeredChange, is_ruled_out, is_unchanged},
    forbidden::{ForbiddenTargets, TargetNamespace},
    held::{self, HeldRequest},
    memory::{self, PartTurn, PartTurns, TriggerMemory, is_enough},
    trigger::{self, TriggerEffect},
    written::{self, WrittenBefore},
};
use crate::{
    catalog::Catalog,
    decide::Engine,
    incoming::ReviewOwner,
    off_thread::off_thread,
    recorder::SharedRecorder,
    review_work::{REVIEW_STEPS_MAX, SHORT_STEPS_MAX},
    rule::RuleName,
    violations::Violations,
};

/// The most objects of an evaluation that are written at once.
const WRITES_MAX: usize = 4;

/// The longest time for one write: the death of a watcher that was asked is announced by no message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest time for looking up a trigger.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(20);

/// The reason why a trigger that finds no room is dropped.
pub(super) const QUEUE_FULL: &str = "the queue of triggers is full: existing objects were not read";

/// The reason why a trigger that can never find room is dropped.
pub(super) const TOO_LARGE: &str = "the object that triggers the rule takes more memory than there is for triggers: \
     existing objects were not read";

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
    turns: PartTurns,
    memory: TriggerMemory,
    trusts_reviews: bool,
}

/// The trigger of a rule.
#[derive(Clone, Copy)]
enum Trigger<'t> {
    Request(&'t HeldRequest),
    Existing(&'t AdmissionRequest),
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
            turns: PartTurns::new(),
            memory: TriggerMemory::new(),
            trusts_reviews,
        }
    }

    /// The policies and all else as they are now.
    pub(super) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.engine.catalog()
    }

    /// The memory of triggers.
    pub(super) fn memory(&self) -> &TriggerMemory {
        &self.memory
    }

    /// Evaluates the rule to its end for a request. Returns whether it ended without a failure.
    pub(super) async fn work(&self, rule: &RuleName, request: &HeldRequest) -> bool {
        self.work_on(rule, Trigger::Request(request)).await
    }

    /// Evaluates the rule to its end for an object that exists. Returns whether it ended without a failure.
    pub async fn work_on_existing(&self, rule: &RuleName, request: &AdmissionRequest) -> bool {
        self.work_on(rule, Trigger::Existing(request)).await
    }

    async fn work_on(&self, rule: &RuleName, trigger: Trigger<'_>) -> bool {
        let (request, source) = match trigger {
            Trigger::Request(held) => (&held.rest, TriggerSource::Request),
            Trigger::Existing(request) => (request, TriggerSource::Existing),
        };
        tokio::time::sleep(first(source)).await;
        let (mut attempts, mut earlier) = (0, WrittenBefore::default());
        let mut stored = None;
        loop {
            attempts += 1;
            // In boxes, so that a trigger takes little memory between its attempts.
            let came = match trigger {
                Trigger::Request(held) => {
                    let attempt =
                        self.attempt_parsed(rule, held, attempts, &mut stored, &mut earlier);
                    Box::pin(attempt).await
                }
                Trigger::Existing(request) => {
                    let owner = ReviewOwner::of(request.namespace(), request.username());
                    let attempt = self.attempt(rule, request, (owner, source), None, &mut earlier);
                    Box::pin(attempt).await
                }
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

    /// Attempts the rule for a request, which is parsed and looked up in memory that is its owner's meanwhile. For a
    /// further attempt, what was looked up is kept in `stored`; where there is no memory, it is looked up again.
    async fn attempt_parsed(
        &self,
        rule: &RuleName,
        held: &HeldRequest,
        attempts: u32,
        stored: &mut Option<(HeldRequest, FairPermit<ReviewOwner>)>,
        earlier: &mut WrittenBefore,
    ) -> AttemptOutcome {
        let known = stored.as_ref().map(|(known, _)| known);
        let mut parsed_bytes = known.unwrap_or(held).parsed_bytes();
        // Ends: each round takes more memory than the one before, up to all.
        loop {
            if !memory::fits(parsed_bytes) {
                return AttemptOutcome::Failed(TOO_LARGE.to_owned());
            }
            let Ok(_memory) = self.memory.take(held.owner, parsed_bytes).await else {
                let why = "other triggers take all the memory for attempts";
                return AttemptOutcome::Unavailable(why.to_owned());
            };
            let mut request = match off_thread(|| known.unwrap_or(held).request()) {
                Ok(request) => request,
                Err(error) => return AttemptOutcome::Failed(error.to_string()),
            };
            let mut turn = None;
            if known.is_none() {
                let looked_up = self.look_up(rule, request, held.owner, attempts).await;
                let (found, of_look_up) = match looked_up {
                    Ok(looked_up) => looked_up,
                    Err(came) => return came,
                };
                let found_bytes = off_thread(|| held::parsed_bytes(&found));
                if !is_enough(found_bytes, parsed_bytes) {
                    // The object has grown since the request.
                    parsed_bytes = found_bytes;
                    continue;
                }
                (request, turn) = (found, Some(of_look_up));
            }
            let source = (held.owner, TriggerSource::Request);
            let came = self.attempt(rule, &request, source, turn, earlier).await;
            let is_retried = matches!(
                came,
                AttemptOutcome::Conflict | AttemptOutcome::Unavailable(_)
            );
            if is_retried && stored.is_none() {
                let looked_up = off_thread(|| HeldRequest::of(request, held.owner));
                let memory = self.memory.try_hold(&looked_up, 0).ok();
                *stored = memory.map(|memory| (looked_up, memory));
            }
            return came;
        }
    }

    /// Returns the request as it took effect, in a turn. The object is not looked up for a rule that does not match the
    /// request. To find that out takes few steps, or a turn.
    async fn look_up(
        &self,
        rule: &RuleName,
        request: AdmissionRequest,
        owner: ReviewOwner,
        attempts: u32,
    ) -> Result<(AdmissionRequest, PartTurn), AttemptOutcome> {
        let catalog = self.engine.catalog();
        let is_out = |steps_left: &mut u64| {
            let catalog = catalog.as_ref();
            catalog.is_some_and(|catalog| is_ruled_out(catalog, rule, &request, steps_left))
        };
        let mut steps_left = SHORT_STEPS_MAX;
        if is_out(&mut steps_left) {
            return Err(AttemptOutcome::NotMatched);
        }
        let turn = self.turn(owner).await?;
        if steps_left == 0 && off_thread(|| is_out(&mut REVIEW_STEPS_MAX.clone())) {
            return Err(AttemptOutcome::NotMatched);
        }
        let deadline = Instant::now() + LOOK_UP_TIMEOUT;
        let found = trigger::look_up(self.engine.facts(), &rule.reader, &request, deadline);
        match found.await.map(|stored| trigger::effect(&request, stored)) {
            Ok(TriggerEffect::Stored(request)) => Ok((*request, turn)),
            // After so many looks, the request counts as a request that changed nothing.
            Ok(TriggerEffect::Unchanged(request)) if attempts >= LOOKS_MAX => Ok((*request, turn)),
            Ok(TriggerEffect::Unchanged(_) | TriggerEffect::NotStored) => {
                Err(AttemptOutcome::NotStored)
            }
            Err(error) => match AttemptOutcome::of_look_up(&error) {
                AttemptOutcome::Failed(_) if self.trusts_reviews => Ok((request, turn)),
                came => Err(came),
            },
        }
    }

    /// Waits for a turn of the owner.
    async fn turn(&self, owner: ReviewOwner) -> Result<PartTurn, AttemptOutcome> {
        let turn = self.turns.take(owner).await;
        turn.map_err(|_| AttemptOutcome::Unavailable("other triggers take all turns".to_owned()))
    }

    /// Leaves out the rules that do not match a request, so that nothing is kept or read for them. The answer waits for
    /// it, so rules that need many steps stay candidates. The object of a deletion is read before the answer, so a deletion
    /// takes more steps, if the long lane has a place for it before `place_until`.
    pub(super) async fn rule_out(&self, triggered: &mut Triggered, place_until: Instant) {
        let Some(catalog) = self.engine.catalog() else {
            return;
        };
        let is_read_first = self.is_read_before_answer(&triggered.request);
        if self.rule_out_within(SHORT_STEPS_MAX, &catalog, triggered) || !is_read_first {
            return;
        }
        let owner = triggered.owner;
        let work = || self.rule_out_within(DELETION_STEPS_MAX, &catalog, triggered);
        // Without a place, they stay candidates.
        let _ = Box::pin(self.engine.run_long(owner, place_until, work)).await;
    }

    /// Leaves out the rules that so many steps show not to match. Returns whether these were enough for all rules.
    fn rule_out_within(
        &self,
        mut steps_left: u64,
        catalog: &Catalog,
        triggered: &mut Triggered,
    ) -> bool {
        let Triggered { request, rules, .. } = triggered;
        rules.retain(|(rule, _)| {
            let is_ruled_out = is_ruled_out(catalog, rule, request, &mut steps_left);
            if is_ruled_out {
                self.recorder.mutate_existing("not-matched");
            }
            !is_ruled_out
        });
        steps_left > 0
    }

    /// Returns whether the object of a request is read before the request is answered.
    fn is_read_before_answer(&self, request: &AdmissionRequest) -> bool {
        !self.trusts_reviews && request.operation() == Operation::Delete
    }

    /// Reads the objects that a request deletes, before the request is answered: afterwards the objects are gone.
    /// Rules whose trigger cannot be read do not run.
    pub(super) async fn read_before_delete(&self, triggered: &mut Triggered, deadline: Instant) {
        if !self.is_read_before_answer(&triggered.request) {
            return;
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
        (owner, source): (ReviewOwner, TriggerSource),
        turn: Option<PartTurn>,
        earlier: &mut WrittenBefore,
    ) -> AttemptOutcome {
        // While it waits its time does not pass, and what the policies say may become something else.
        let turn = match turn {
            Some(turn) => turn,
            None => match self.turn(owner).await {
                Ok(turn) => turn,
                Err(came) => return came,
            },
        };
        let Some(catalog) = self.engine.catalog() else {
            return AttemptOutcome::Unavailable("the policies have not been read yet".to_owned());
        };
        let (engine, turns, turn) = (&self.engine, &self.turns, (owner, turn));
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
    pub(super) fn dropped(
        &self,
        request: &HeldRequest,
        rules: &[(Arc<RuleName>, bool)],
        reason: &str,
    ) {
        for (rule, _) in rules {
            self.recorder.mutate_existing("dropped");
            self.failed(rule, &request.rest, reason);
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
pub(super) mod tests;
