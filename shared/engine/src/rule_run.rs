//! The evaluation of one rule for a request, and its record. Pure but for the clock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_model::{ErrorCode, FactError};
use anteroom_policy::{
    AdmissionRequest, ChangedObject, Evaluation, FactRequest, FactSubject, FailureAction, Policy,
    Rule, RuleError, RuleOutcome, RuleReport, RuleStep, StepStart,
};
use anteroom_runtime::fair_quota::QuotaFull;
use tokio::time::Instant;

use crate::{
    catalog::Catalog,
    facts::{
        FactAnswer, FactPermit, FactResult, Origin, ReviewWaiting, RuleRequests, WaitingPermit,
    },
    off_thread::{off_thread, off_thread_if},
    rule::{PolicyScope, RuleName},
    verdict::{self, ChangedPlaces, FactRecord, RuleRecord},
};

/// A rule with its policy and its names.
#[derive(Clone, Copy, Debug)]
pub struct NamedRule<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The rule to evaluate.
    pub rule: &'a Rule,
    /// The names of the rule.
    pub name: &'a Arc<RuleName>,
}

/// A rule on its way through a request.
pub struct RuleRun<'a> {
    rule: NamedRule<'a>,
    evaluation: Evaluation<'a>,
    /// The memory of the large facts that the evaluation holds.
    memory: Vec<FactPermit>,
    /// The memory of what else the evaluation holds between its steps.
    held: Option<WaitingPermit>,
    /// The state of the evaluation before the last step.
    step_start: StepStart,
    /// Facts that are on their way to it, by id.
    awaited: Vec<u32>,
    origins: Vec<(u32, Option<Arc<Origin>>)>,
    /// The facts, by id, whose name may have Secrets in it.
    unnamed: Vec<u32>,
    /// The rule has read data that may travel sealed alone.
    knows_secrets: bool,
    review_namespace: &'a str,
    report: Option<RuleReport>,
    /// The time of its first step, later by as much as it waited for places in the long lane since.
    begun: Option<Instant>,
    /// The time from there to the report.
    took: Duration,
    /// The time since which it waits for a place in the long lane; `None`: it does not.
    waits_since: Option<Instant>,
    /// The step that waits for a place was tried in place, and was too long.
    was_tried_in_place: bool,
    /// Policies of namespaces left little time for the facts or the place that the rule waits for.
    is_held_up: bool,
}

impl<'a> RuleRun<'a> {
    /// A rule on a request, with the exceptions of `catalog`.
    pub(crate) fn new(
        rule: NamedRule<'a>,
        request: &'a AdmissionRequest,
        catalog: &'a Catalog,
    ) -> Self {
        let evaluation = Evaluation::start(rule.policy, rule.rule, request);
        let exceptions = catalog.exceptions.about(rule.policy);
        Self::of(rule, evaluation.with_exceptions(exceptions)).about(request)
    }

    /// A rule on an object that exists. Exceptions that are not for background scans do not hold.
    pub(crate) fn of_existing(
        rule: NamedRule<'a>,
        request: &'a AdmissionRequest,
        catalog: &'a Catalog,
    ) -> Self {
        let exceptions = catalog.exceptions.about(rule.policy);
        let exceptions = exceptions.filter(|exception| exception.background());
        let evaluation = Evaluation::of_existing(rule.policy, rule.rule, request);
        Self::of(rule, evaluation.with_exceptions(exceptions)).about(request)
    }

    /// Notes the namespace of the request, and that the rule knows a Secret from the start where the request is about one.
    fn about(mut self, request: &'a AdmissionRequest) -> Self {
        self.review_namespace = request.namespace();
        self.knows_secrets |= is_about_a_secret(request);
        self
    }

    /// Treats the policy's conditions as met, so that they are not evaluated.
    pub(crate) fn with_conditions_met(mut self) -> Self {
        self.evaluation = self.evaluation.with_conditions_met();
        self
    }

    /// A rule whose evaluation was begun by the caller.
    pub fn of(rule: NamedRule<'a>, evaluation: Evaluation<'a>) -> Self {
        Self {
            rule,
            evaluation,
            memory: Vec::new(),
            held: None,
            step_start: StepStart::default(),
            awaited: Vec::new(),
            origins: Vec::new(),
            unnamed: Vec::new(),
            knows_secrets: false,
            review_namespace: "",
            report: None,
            begun: None,
            took: Duration::ZERO,
            waits_since: None,
            was_tried_in_place: false,
            is_held_up: false,
        }
    }

    /// The names of the rule.
    pub(crate) fn name(&self) -> &'a RuleName {
        self.rule.name
    }

    /// The scope of the rule's policy.
    pub(crate) fn scope(&self) -> PolicyScope {
        self.rule.name.scope()
    }

    /// Returns whether it can go on: it has not ended, and waits for nothing.
    pub(crate) fn goes_on(&self) -> bool {
        self.awaited.is_empty() && self.report.is_none()
    }

    /// Goes on, if nothing is waited for. Returns the facts that it asks for then.
    pub(crate) fn step(&mut self, asker: usize) -> Option<RuleRequests<'a>> {
        if !self.goes_on() {
            return None;
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.step_start = self.evaluation.step_start();
        loop {
            let mut requests = match self.evaluation.step() {
                RuleStep::Done(report) => {
                    self.took = begun.elapsed();
                    self.report = Some(report);
                    return None;
                }
                RuleStep::Need(requests) => requests,
            };
            if self.knows_secrets {
                requests.retain(|request| !self.declines(request));
                // Ends: the facts that those are parts of are asked for then.
                if requests.is_empty() {
                    continue;
                }
                let unnamed = requests.iter().filter(|one| may_tell(&one.subject));
                self.unnamed.extend(unnamed.map(|one| one.id));
            }
            self.awaited = requests.iter().map(|request| request.id).collect();
            return Some(RuleRequests {
                asker,
                reader: &self.rule.name.reader,
                review_namespace: self.review_namespace,
                requests,
            });
        }
    }

    /// Returns whether it waits for a place in the long lane.
    pub(crate) fn waits_for_lane(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Returns whether the step that waits for a place was tried in place.
    pub(crate) fn was_tried_in_place(&self) -> bool {
        self.was_tried_in_place
    }

    /// Waits for a place in the long lane. A step that was tried in place was too long, and its outcome means nothing. The
    /// outcome is dropped, so that it takes no memory meanwhile. Of so few steps, it is not much.
    pub(crate) fn wait_for_lane(&mut self, was_tried_in_place: bool) {
        if was_tried_in_place {
            self.begin_anew();
        }
        self.waits_since = Some(Instant::now());
        self.was_tried_in_place = was_tried_in_place;
    }

    /// Takes the step that it waited for a place with. All but the report is dropped here where the rule ends: it may be many
    /// values.
    pub(crate) fn step_in_lane(&mut self, asker: usize) -> Option<RuleRequests<'a>> {
        self.was_tried_in_place = false;
        if let Some(since) = self.waits_since.take()
            && let Some(begun) = &mut self.begun
        {
            *begun += since.elapsed();
        }
        let asked = self.step(asker);
        if self.report.is_some() {
            self.evaluation.begin_anew(StepStart::default());
            self.memory.clear();
            self.held = None;
        }
        asked
    }

    /// Takes memory for what the evaluation holds until its next step, in place of that since the step before. Values that can
    /// be made again are dropped where the review's rules hold many.
    ///
    /// # Errors
    /// There is none now.
    pub(crate) fn hold(&mut self, waiting: &mut ReviewWaiting<'_>) -> Result<(), QuotaFull> {
        self.held = None;
        let scope = self.scope();
        let mut held = self.evaluation.waiting_bytes();
        if !waiting.takes_values(scope, held.values) && self.can_begin_anew() {
            self.evaluation.drop_values();
            held = self.evaluation.waiting_bytes();
        }
        self.held = waiting.hold(scope, held)?;
        Ok(())
    }

    /// Returns whether a fact has been handed over to it.
    pub(crate) fn has_facts(&self) -> bool {
        !self.origins.is_empty()
    }

    /// Returns whether its last step can be [undone](Self::begin_anew). A rule that changes existing objects lets go of
    /// the objects that it has gone through.
    pub(crate) fn can_begin_anew(&self) -> bool {
        !self.rule.rule.changes_existing()
    }

    /// Undoes the last step, whose meter ran out: what it came to means nothing. The next step evaluates the rule from its
    /// beginning. That is pure: the facts that have arrived are kept, and nobody was asked for those that it wanted.
    pub(crate) fn begin_anew(&mut self) {
        self.evaluation.begin_anew(self.step_start);
        self.report = None;
        let wanted = std::mem::take(&mut self.awaited);
        self.unnamed.retain(|id| !wanted.contains(id));
    }

    /// Returns whether it has read data that may travel sealed alone.
    pub(crate) fn knows_secrets(&self) -> bool {
        self.knows_secrets
    }

    /// Declines a subquery that would carry data of Secrets to another view in the clear. The whole fact is fetched
    /// instead.
    fn declines(&mut self, request: &FactRequest) -> bool {
        // Errors of parameters quote what they are about.
        let says_errors = request
            .cel
            .as_ref()
            .is_some_and(|cel| !cel.failed.is_empty());
        let tells = request.is_pushed_down && (!request.parameters.is_empty() || says_errors);
        if tells {
            self.evaluation.decline(request.id);
        }
        tells
    }

    /// Takes the existing objects that the rule has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<ChangedObject> {
        match &mut self.report {
            Some(report) => std::mem::take(&mut report.changed),
            None => self.evaluation.take_changed(),
        }
    }

    /// Hands over a fact.
    pub(crate) fn supply(&mut self, fact: FactAnswer) {
        let FactAnswer {
            id, answer, memory, ..
        } = fact;
        self.awaited.retain(|awaited| *awaited != id);
        self.knows_secrets |= fact.secret;
        self.origins.push((id, fact.origin));
        let is_large = memory.is_some();
        off_thread_if(is_large, || match answer {
            FactResult::Got(answer) => self.evaluation.supply(id, answer),
            FactResult::Declined => self.evaluation.decline(id),
            FactResult::LeftOut => self.evaluation.leave_out(id),
        });
        self.memory.extend(memory);
        self.let_go();
    }

    /// Drops what a rule that has ended holds, if it is large: others need the memory.
    pub(crate) fn let_go(&mut self) {
        let is_large =
            !self.memory.is_empty() || self.held.as_ref().is_some_and(|held| held.is_shared());
        if self.report.is_some() && is_large {
            off_thread(|| self.evaluation.begin_anew(StepStart::default()));
            self.memory.clear();
            self.held = None;
        }
    }

    /// Ends the rule in its present state, because its time is over.
    pub(crate) fn end_out_of_time(&mut self) {
        self.end(RuleError::OutOfTime);
    }

    /// Ends the rule in any state, since the review has used up its steps.
    pub(crate) fn end_too_costly(&mut self) {
        self.end(RuleError::ReviewTooCostly);
    }

    /// Ends the rule in any state, since reviews of the same owner take all the places that this one may have.
    pub(crate) fn end_crowded_out(&mut self) {
        self.end(RuleError::ReviewsOverPart);
    }

    /// Ends the rule, since there is no memory for what it holds while it waits for these facts.
    pub(crate) fn end_without_memory(&mut self, asked: RuleRequests<'_>, full: QuotaFull) {
        let first = asked.requests.first();
        let error = RuleError::Fact {
            variable: first.map_or_else(String::new, |first| first.variable.clone()),
            entry: first.map_or_else(String::new, |first| first.subject.to_string()),
            source: FactError::DeadlineExceeded {
                deadline_ms: 0,
                over_part: full.over_part,
            },
        };
        self.awaited.clear();
        self.end(error);
        off_thread(|| {
            drop(asked);
            self.evaluation.begin_anew(StepStart::default());
        });
    }

    fn end(&mut self, error: RuleError) {
        self.report = Some(self.ended(error));
        self.waits_since = None;
        self.let_go();
    }

    /// Notes that policies of namespaces left little time for the facts or the place that the rule waits for.
    pub(crate) fn hold_up(&mut self) {
        self.is_held_up = true;
    }

    /// Makes the rule too costly for the review if what it waited for came too late, and it was held up.
    pub(crate) fn settle(&mut self) {
        if !self.is_held_up {
            return;
        }
        if let Some(report) = &mut self.report
            && let RuleOutcome::Error(error) = &mut report.outcome
            && error.code() == ErrorCode::DEADLINE_EXCEEDED
        {
            *error = RuleError::ReviewTooCostly;
        }
    }

    fn late(&self) -> RuleReport {
        self.ended(RuleError::OutOfTime)
    }

    fn ended(&self, error: RuleError) -> RuleReport {
        RuleReport {
            outcome: RuleOutcome::Error(error),
            action: self.rule.rule.action(),
            facts: Vec::new(),
            is_of_large_request: false,
            excepted_by: Vec::new(),
            changed: Vec::new(),
            properties: BTreeMap::new(),
            depends_on_arrival: false,
        }
    }

    /// Answers all facts that the rule waits for as unknown, since no answer is under way any more.
    pub(crate) fn give_up(&mut self) {
        for id in std::mem::take(&mut self.awaited) {
            let message = "no replica and no watcher answered".to_owned();
            self.evaluation
                .supply(id, Err(FactError::RequestInvalid { message }));
        }
    }

    /// The report, once it has ended.
    pub(crate) fn report(&self) -> Option<&RuleReport> {
        self.report.as_ref()
    }

    /// Ends the evaluation, and returns the report if there is one.
    pub(crate) fn into_ended(self) -> Option<RuleReport> {
        self.report
    }

    /// The report of a rule that has ended. Another one is out of time.
    pub(crate) fn into_report(mut self) -> RuleReport {
        self.report.take().unwrap_or_else(|| self.late())
    }

    /// Returns the record; `None`: the rule does not match the request.
    fn into_record(self) -> Option<RuleRecord> {
        let NamedRule { policy, rule, name } = self.rule;
        let mut report = self.report?;
        if self.knows_secrets {
            report.outcome = withheld(report.outcome);
        }
        for read in &mut report.facts {
            if self.unnamed.contains(&read.id) {
                read.entry = format!("context entry {} (withheld)", read.variable);
            }
        }
        (report.outcome != RuleOutcome::NotMatched).then(|| {
            let record = record(policy, rule, Arc::clone(name), report, &self.origins);
            RuleRecord {
                took: self.took,
                knows_secrets: self.knows_secrets,
                ..record
            }
        })
    }
}

/// Returns whether the object of the request is a Secret.
pub(crate) fn is_about_a_secret(request: &AdmissionRequest) -> bool {
    request.group().is_empty() && request.kind() == "Secret"
}

/// Returns the outcome of a rule that has read Secrets. Its message is the user's; its error quotes nothing.
fn withheld(outcome: RuleOutcome) -> RuleOutcome {
    match outcome {
        RuleOutcome::Error(error) => RuleOutcome::Error(error.withheld()),
        outcome => outcome,
    }
}

/// Returns whether variables may stand in the name of a fact.
fn may_tell(subject: &FactSubject) -> bool {
    match subject {
        FactSubject::Entry { .. }
        | FactSubject::Collection(_)
        | FactSubject::RoleBindings { .. } => false,
        FactSubject::Api(_)
        | FactSubject::Service { .. }
        | FactSubject::ConfigMap { .. }
        | FactSubject::NamespaceLabels { .. }
        | FactSubject::Image { .. }
        | FactSubject::Existing(_) => true,
    }
}

/// Returns the records of rules, in their order. With `applyRules: One` only the first rule that applied counts: one of
/// those that deny, and one of those that do not, as in Kyverno.
pub(crate) fn records(all: Vec<RuleRun<'_>>) -> Vec<RuleRecord> {
    let mut applied: Vec<(&Policy, FailureAction)> = Vec::new();
    let mut records = Vec::new();
    for running in all {
        let policy = running.rule.policy;
        let Some(record) = running.into_record() else {
            continue;
        };
        if policy.applies_one() {
            let is_same = |one: &&(&Policy, FailureAction)| {
                std::ptr::eq(one.0, policy) && one.1 == record.action
            };
            if applied.iter().any(|one| is_same(&one)) {
                continue;
            }
            if record.outcome.is_applied() {
                applied.push((policy, record.action));
            }
        }
        records.push(record);
    }
    records
}

fn record(
    policy: &Policy,
    rule: &Rule,
    name: Arc<RuleName>,
    report: RuleReport,
    origins: &[(u32, Option<Arc<Origin>>)],
) -> RuleRecord {
    let action = verdict::action(rule, &report);
    let ignore_errors = verdict::ignores_errors(policy, &report);
    let mut facts: Vec<FactRecord> = Vec::new();
    for read in report.facts {
        let fact = FactRecord {
            origin: origins
                .iter()
                .find(|(id, _)| *id == read.id)
                .and_then(|(_, origin)| origin.clone()),
            error: read.error.as_ref().map(FactError::code),
            entry: read.entry,
        };
        // Several uses of a fact in the same state are recorded once.
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    RuleRecord {
        name,
        action,
        ignore_errors,
        warn_on_audit: policy.emit_warning(),
        facts,
        changed: ChangedPlaces::default(),
        took: Duration::ZERO,
        excepted_by: report.excepted_by,
        properties: report.properties,
        depends_on_arrival: report.depends_on_arrival,
        knows_secrets: false,
        outcome: report.outcome,
    }
}

#[cfg(test)]
mod tests;
