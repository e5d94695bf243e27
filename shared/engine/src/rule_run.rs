//! One rule on its way through a request, and the record of it. Pure but for the clock.

use std::{sync::Arc, time::Duration};

use anteroom_model::FactError;
use anteroom_policy::{
    AdmissionRequest, ChangedObject, Evaluation, FactRequest, FailureAction, Phase, Policy, Rule,
    RuleError, RuleOutcome, RuleReport, Step,
};
use tokio::time::Instant;

use crate::{
    catalog::Catalog,
    facts::{Answer, Fact, Origin, RuleRequests},
    rule::RuleName,
    verdict::{FactRecord, RuleRecord},
};

/// A rule with its policy and its names.
#[derive(Clone, Copy, Debug)]
pub struct NamedRule<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// One of its rules.
    pub rule: &'a Rule,
    /// The names of the rule.
    pub name: &'a Arc<RuleName>,
}

/// A rule on its way through a request.
pub struct RuleRun<'a> {
    rule: NamedRule<'a>,
    evaluation: Evaluation<'a>,
    /// Facts that are on their way to it, by id.
    awaited: Vec<u32>,
    origins: Vec<(u32, Option<Arc<Origin>>)>,
    /// It has read data that may travel sealed alone, or its object is a Secret.
    knows_secrets: bool,
    report: Option<RuleReport>,
    /// The time of its first step.
    begun: Option<Instant>,
    /// The time from there to the report.
    took: Duration,
}

impl<'a> RuleRun<'a> {
    /// A rule on a request, with the exceptions of `catalog`.
    pub(crate) fn new(
        rule: NamedRule<'a>,
        request: &'a AdmissionRequest,
        catalog: &'a Catalog,
    ) -> Self {
        let evaluation = Evaluation::start(rule.policy, rule.rule, request);
        let exceptions = catalog.exceptions.of(rule.policy);
        Self::of(rule, evaluation.with_exceptions(exceptions)).about(request)
    }

    /// A rule on an object that exists. Exceptions that are not for background scans do not hold.
    pub(crate) fn of_existing(
        rule: NamedRule<'a>,
        request: &'a AdmissionRequest,
        catalog: &'a Catalog,
    ) -> Self {
        let exceptions = catalog.exceptions.of(rule.policy);
        let exceptions = exceptions.filter(|exception| exception.background());
        let evaluation = Evaluation::of_existing(rule.policy, rule.rule, request);
        Self::of(rule, evaluation.with_exceptions(exceptions)).about(request)
    }

    /// The content of a Secret under admission is as secret as what is read of one.
    fn about(mut self, request: &AdmissionRequest) -> Self {
        self.knows_secrets = request.is_about_secret();
        self
    }

    /// The same, with the policy's conditions known to be met.
    pub(crate) fn with_conditions_met(mut self) -> Self {
        self.evaluation = self.evaluation.with_conditions_met();
        self
    }

    /// A rule whose evaluation was begun by the caller.
    pub fn of(rule: NamedRule<'a>, evaluation: Evaluation<'a>) -> Self {
        Self {
            rule,
            evaluation,
            awaited: Vec::new(),
            origins: Vec::new(),
            knows_secrets: false,
            report: None,
            begun: None,
            took: Duration::ZERO,
        }
    }

    /// The names of the rule.
    pub(crate) fn name(&self) -> &'a RuleName {
        self.rule.name
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
        loop {
            let mut requests = match self.evaluation.step() {
                Step::Done(mut report) => {
                    self.took = begun.elapsed();
                    if self.knows_secrets {
                        withhold_error(&mut report);
                    }
                    self.report = Some(report);
                    return None;
                }
                Step::Need(requests) => requests,
            };
            if self.knows_secrets {
                requests.retain(|request| !self.declines(request));
                // Ends: the facts that those are parts of are asked for then.
                if requests.is_empty() {
                    continue;
                }
            }
            self.awaited = requests.iter().map(|request| request.id).collect();
            return Some(RuleRequests {
                asker,
                reader: &self.rule.name.reader,
                requests,
            });
        }
    }

    /// Declines a part that would take what the rule has read to another view, in the clear. The fact comes here
    /// instead.
    fn declines(&mut self, request: &FactRequest) -> bool {
        let tells = request.is_pushed_down && !request.parameters.is_empty();
        if tells {
            self.evaluation.decline(request.id);
        }
        tells
    }

    /// Takes the existing objects that it has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<ChangedObject> {
        match &mut self.report {
            Some(report) => std::mem::take(&mut report.changed),
            None => self.evaluation.take_changed(),
        }
    }

    /// Hands over a fact.
    pub(crate) fn supply(&mut self, fact: Fact) {
        self.awaited.retain(|id| *id != fact.id);
        self.knows_secrets |= fact.secret;
        self.origins.push((fact.id, fact.origin));
        match fact.answer {
            Answer::Got(answer) => self.evaluation.supply(fact.id, answer),
            Answer::Declined => self.evaluation.decline(fact.id),
            Answer::LeftOut => self.evaluation.leave_out(fact.id),
        }
    }

    /// Returns the same rule, which is not begun any more.
    pub(crate) fn out_of_time(mut self) -> Self {
        self.end_out_of_time();
        self
    }

    /// Ends the rule where it is.
    pub(crate) fn end_out_of_time(&mut self) {
        self.report = Some(self.late());
    }

    /// Ends the rule, whatever it has come to: the review has done all the work that it may.
    pub(crate) fn end_too_costly(&mut self) {
        self.report = Some(self.ended(RuleError::ReviewTooCostly));
    }

    fn late(&self) -> RuleReport {
        self.ended(RuleError::OutOfTime)
    }

    fn ended(&self, error: RuleError) -> RuleReport {
        RuleReport {
            outcome: RuleOutcome::Error(error),
            action: self.rule.rule.action(),
            facts: Vec::new(),
            excepted_by: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Takes what it waits for as not known, since nothing is on its way any more.
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

    /// Ends, and returns the report if it has come to one.
    pub(crate) fn into_ended(self) -> Option<RuleReport> {
        self.report
    }

    /// The report of a rule that has ended. Another one is out of time.
    pub(crate) fn into_report(mut self) -> RuleReport {
        self.report.take().unwrap_or_else(|| self.late())
    }

    /// The record; `None` where the rule does not speak of the request.
    fn into_record(self) -> Option<RuleRecord> {
        let NamedRule { policy, rule, name } = self.rule;
        let report = self.report?;
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

/// Leaves of an error its code: its text may quote what a Secret holds.
fn withhold_error(report: &mut RuleReport) {
    if let RuleOutcome::Error(error) = &report.outcome {
        let code = error.code();
        report.outcome = RuleOutcome::Error(RuleError::Withheld { code });
    }
}

/// Returns the records of rules, in their order. Where a policy applies one alone, what those after it came
/// to counts for nothing: one of those that deny, and one of those that do not, as in Kyverno.
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
        // Several uses of one fact, read from one state of it, are one thing to know.
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    RuleRecord {
        name,
        action: match rule.phase() {
            Phase::Validation => report.action,
            // A change that is not made cannot be told from one that nobody wants: it is the failure
            // policy's to say.
            Phase::Mutation => FailureAction::Enforce,
        },
        ignore_errors: policy.failure_policy() == anteroom_policy::FailurePolicy::Ignore
            // Otherwise a large object would get past the policy.
            && report.outcome != RuleOutcome::Error(RuleError::ReviewTooCostly),
        warn_on_audit: policy.emit_warning(),
        knows_secrets: false,
        facts,
        changed: Vec::new(),
        took: Duration::ZERO,
        excepted_by: report.excepted_by,
        outcome: report.outcome,
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{ErrorCode, ObjectKey};
    use serde_json::{Value, json};

    use super::*;

    fn named<'a>(policy: &'a Policy, at: usize, name: &'a Arc<RuleName>) -> NamedRule<'a> {
        let rule = &policy.rules()[at];
        NamedRule { policy, rule, name }
    }

    /// The requests of a rule and its outcome, where it first reads a Secret, or does not.
    fn asked_after(secret: bool) -> (Vec<(String, Value)>, RuleOutcome) {
        let condition = json!({
            "key": "{{ token.data.key }}", "operator": "AnyIn", "value": "{{ hosts }}",
        });
        let rule = json!({
            "name": "r", "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
            "context": [
                { "name": "token", "apiCall": { "urlPath": "/api/v1/namespaces/a/secrets/x" } },
                { "name": "hosts", "cachedContextEntry": {
                    "name": "ingresses", "jmesPath": "items[].host",
                } },
            ],
            "validate": { "message": "no", "deny": { "conditions": { "all": [condition] } } },
        });
        let policy = anteroom_policy::compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
            "spec": { "rules": [rule] },
        }));
        let policy = policy.unwrap();
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "object": { "apiVersion": "v1", "kind": "ConfigMap" },
        }));
        let request = request.unwrap();
        let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
        let catalog = Catalog::default();
        let mut running = RuleRun::new(named(&policy, 0, &name), &request, &catalog);
        let mut asked = Vec::new();
        while let Some(needs) = running.step(0) {
            for request in needs.requests {
                let answer = match (&*request.variable, request.is_pushed_down) {
                    ("token", true) => json!("hunter2"),
                    ("token", false) => json!({ "data": { "key": "hunter2" } }),
                    (_, true) => json!(true),
                    (_, false) => json!(["hunter2"]),
                };
                running.supply(Fact {
                    asker: 0,
                    id: request.id,
                    answer: Answer::Got(Ok(answer)),
                    origin: None,
                    secret: secret && request.variable == "token",
                });
                asked.push((request.variable, json!(request.parameters)));
            }
        }
        (asked, running.report.unwrap().outcome)
    }

    #[test]
    fn a_secrets_content_is_sent_to_no_other_view() {
        let told = |asked: &[(String, Value)]| {
            let of_others = asked.iter().filter(|(variable, _)| variable != "token");
            of_others
                .map(|(_, parameters)| parameters.to_string().contains("hunter2"))
                .collect::<Vec<_>>()
        };
        let (asked, outcome) = asked_after(false);
        assert_eq!(told(&asked), [true], "{asked:?}");
        assert!(matches!(outcome, RuleOutcome::Fail { .. }), "{outcome:?}");
        let (asked, of_secret) = asked_after(true);
        assert_eq!(told(&asked), [false], "{asked:?}");
        assert_eq!(of_secret, outcome);
    }

    /// A rule that denies, or that fails, and quotes what it is about.
    fn quotes(kind: &str, key: &str) -> RuleRecord {
        let rule = json!({
            "name": "r", "match": { "any": [{ "resources": { "kinds": [kind] } }] },
            "validate": { "message": "it is {{ request.object.data.key }}", "deny": {
                "conditions": { "all": [{ "key": key, "operator": "Equals", "value": true }] } } },
        });
        let policy = anteroom_policy::compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
            "spec": { "rules": [rule] },
        }));
        let (policy, catalog) = (policy.unwrap(), Catalog::default());
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": kind },
            "object": { "apiVersion": "v1", "kind": kind, "data": { "key": "hunter2" } },
        }));
        let request = request.unwrap();
        let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
        let mut run = RuleRun::new(named(&policy, 0, &name), &request, &catalog);
        assert!(run.step(0).is_none());
        run.into_record().unwrap()
    }

    #[test]
    fn no_text_of_a_rule_on_secrets_is_for_others_than_the_user() {
        for (kind, is_told) in [("ConfigMap", true), ("Secret", false)] {
            let denied = quotes(kind, "{{ request.object.data.key == 'hunter2' }}");
            let to_user = format!("{:?}", denied.outcome);
            assert!(to_user.contains("it is hunter2"), "{to_user}");
            let to_others = format!("{:?}", denied.outcome_for_others());
            assert_eq!(to_others.contains("hunter2"), is_told, "{to_others}");
            let failed = quotes(kind, "{{ to_boolean(request.object.data.key) }}");
            let RuleOutcome::Error(error) = &failed.outcome else {
                panic!("{:?}", failed.outcome);
            };
            assert_eq!(error.to_string().contains("hunter2"), is_told, "{error}");
            assert_eq!(error.code(), ErrorCode::VARIABLE_UNRESOLVED);
        }
    }

    /// What is under admission travels to no replica in the clear.
    #[test]
    fn the_content_of_a_secret_under_admission_is_no_parameter_of_a_query() {
        for (kind, is_asked) in [("ConfigMap", true), ("Secret", false)] {
            let condition = json!({ "key": "{{ request.object.data.key }}", "operator": "AnyIn",
                "value": "{{ known }}" });
            let rule = json!({
                "name": "r", "match": { "any": [{ "resources": { "kinds": [kind] } }] },
                "context": [{ "name": "known", "cachedContextEntry": {
                    "name": "known", "jmesPath": "items[].host" } }],
                "validate": { "message": "no", "deny": { "conditions": { "all": [condition] } } },
            });
            let policy = anteroom_policy::compile(&json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
                "spec": { "rules": [rule] },
            }));
            let (policy, catalog) = (policy.unwrap(), Catalog::default());
            let request = AdmissionRequest::new(json!({
                "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": kind },
                "object": { "apiVersion": "v1", "kind": kind, "data": { "key": "hunter2" } },
            }));
            let request = request.unwrap();
            let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
            let mut run = RuleRun::new(named(&policy, 0, &name), &request, &catalog);
            let asked = run.step(0).unwrap();
            let parameters = asked
                .requests
                .iter()
                .map(|one| json!(one.parameters).to_string());
            let is_told = parameters.into_iter().any(|text| text.contains("hunter2"));
            assert_eq!(is_told, is_asked, "{kind}");
        }
    }

    #[test]
    fn apply_rules_one_applies_one_enforcing_and_one_auditing_rule() {
        let rule = |name: &str, action: &str, key: &str| {
            let condition = json!({ "key": key, "operator": "Equals", "value": "bad" });
            json!({
                "name": name, "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
                "validate": { "failureAction": action, "deny": { "conditions": { "all": [condition] } } },
            })
        };
        let rules = [
            rule("audit", "Audit", "good"),
            rule("enforce", "Enforce", "bad"),
            rule("audit-2", "Audit", "bad"),
            rule("enforce-2", "Enforce", "bad"),
        ];
        let policy = anteroom_policy::compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
            "spec": { "applyRules": "One", "rules": rules },
        }));
        let policy = policy.unwrap();
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "object": {},
        }));
        let (request, catalog) = (request.unwrap(), Catalog::default());
        let key = ObjectKey::new("", "p");
        let name = |rule: &Rule| Arc::new(RuleName::new(key.clone(), rule.name()));
        let names: Vec<_> = policy.rules().iter().map(name).collect();
        let named = policy.rules().iter().zip(&names);
        let running = named.map(|(rule, name)| {
            let mut running = RuleRun::new(
                NamedRule {
                    policy: &policy,
                    rule,
                    name,
                },
                &request,
                &catalog,
            );
            assert!(running.step(0).is_none());
            running
        });
        let records = records(running.collect());
        let found: Vec<_> = records.iter().map(|record| record.name.rule()).collect();
        assert_eq!(found, ["audit", "enforce"]);
    }

    #[test]
    fn a_rule_that_there_is_no_time_for_is_an_error_of_its_policy() {
        let rule = json!({
            "name": "r", "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
            "mutate": { "patchStrategicMerge": { "data": { "a": "b" } } },
        });
        let policy = anteroom_policy::compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
            "spec": { "failurePolicy": "Ignore", "rules": [rule] },
        }));
        let policy = policy.unwrap();
        let request = json!({
            "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "object": {},
        });
        let request = AdmissionRequest::new(request).unwrap();
        let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
        let (rule, catalog) = (named(&policy, 0, &name), Catalog::default());
        let mut late = RuleRun::new(rule, &request, &catalog).out_of_time();
        assert!(late.step(0).is_none());
        let record = late.into_record().unwrap();
        assert!(record.ignore_errors);
        let RuleOutcome::Error(error) = record.outcome else {
            panic!("{:?}", record.outcome);
        };
        assert_eq!(error.code(), ErrorCode::DEADLINE_EXCEEDED);
    }
}
