//! Takes a review through all policies that concern it.

use std::{sync::Arc, time::Duration};

use anteroom_model::{ErrorCode, FactError, GroupVersionResource};
use anteroom_policy::{
    AdmissionRequest, Evaluation, Operation, Policy, RequestParts, Rule, RuleOutcome, RuleReport,
    Step,
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    admission::{self, Admission},
    catalog::{Catalog, Catalogs},
    facts::{Fact, Facts, Needs, Origin},
    metrics::WebhookMetrics,
    policies::{Concerned, Entry, Scope, Subject},
    review::{Review, ReviewError},
    rule::RuleName,
    verdict::{self, Blocked, Decision, FactRecord, RuleRecord},
};

/// Takes reviews through the policies. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Decider {
    catalogs: Catalogs,
    facts: Facts,
    metrics: WebhookMetrics,
}

impl Decider {
    pub(crate) fn new(catalogs: Catalogs, facts: Facts, metrics: WebhookMetrics) -> Self {
        Self {
            catalogs,
            facts,
            metrics,
        }
    }

    /// Decides within `timeout`, which is what the API server waits.
    ///
    /// What a policy reads goes when the policy goes. So an error under policies that are no longer those
    /// in force is none: then those decide that are, once.
    ///
    /// # Errors
    /// Where the review's objects are not what they should be.
    pub(crate) async fn decide(
        &self,
        review: &Review<'_>,
        scope: Scope,
        timeout: Duration,
    ) -> Result<Decision, ReviewError> {
        let deadline = Instant::now() + timeout - margin(timeout);
        let Some(catalog) = self.catalogs.borrow().clone() else {
            return Ok(not_ready(scope));
        };
        let mut decision = self.decide_by(&catalog, review, scope, deadline).await?;
        let now = self.catalogs.borrow().clone();
        let changed = now.filter(|now| !Arc::ptr_eq(&now.policies, &catalog.policies));
        if let Some(now) = changed.filter(|_| decision.error) {
            decision = self.decide_by(&now, review, scope, deadline).await?;
        }
        for record in &decision.rules {
            record.name.count(record.result(), &self.metrics);
        }
        Ok(decision)
    }

    /// Decides by the policies of this catalog.
    async fn decide_by(
        &self,
        catalog: &Catalog,
        review: &Review<'_>,
        scope: Scope,
        deadline: Instant,
    ) -> Result<Decision, ReviewError> {
        let kind = resource_kind(catalog, review);
        let subject = Subject {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            subresource: &review.head.sub_resource,
            operation: review.operation(),
            namespace: match kind.kind {
                "Namespace" => "", // It lives in none.
                _ => &review.head.namespace,
            },
        };
        let Concerned { entries, parts } = catalog.policies.concerned(scope, &subject);
        if entries.is_empty() {
            return Ok(Decision::default());
        }
        let request = review.request(parts)?;
        let request = request.with_resource_kind(kind.group, kind.version, kind.kind);
        let warnings = entries.iter().filter_map(|entry| unready(entry)).collect();
        let rules = entries.iter().flat_map(|entry| rules(entry));
        let running = rules.map(|rule| Running::new(rule, &request)).collect();
        let records = self.run(catalog, running, deadline).await;
        Ok(verdict::decide(records, warnings))
    }

    /// Takes an object that exists through the validating rules of these policies; the records of those
    /// that speak of it.
    pub(crate) async fn judge(
        &self,
        catalog: &Catalog,
        policies: &[&Entry],
        request: &AdmissionRequest,
        timeout: Duration,
    ) -> Vec<RuleRecord> {
        let rules = policies.iter().flat_map(|entry| rules(entry));
        let rules = rules.filter(|(_, rule, _)| !rule.is_mutation());
        let running = rules.map(|rule| Running::of_existing(rule, request));
        let deadline = Instant::now() + timeout;
        self.run(catalog, running.collect(), deadline).await
    }

    /// What becomes of a policy that is created or changed; any other review is admitted.
    ///
    /// # Errors
    /// Where the review's objects are not what they should be.
    pub(crate) fn admit(&self, review: &Review<'_>) -> Result<Admission, ReviewError> {
        if review.operation() == Operation::Delete {
            return Ok(Admission::default());
        }
        let request = review.request(&RequestParts::ALL)?;
        let catalog = self.catalogs.borrow().clone();
        Ok(admission::judge(
            request.matched_object(),
            request.old_object(),
            catalog.as_deref(),
        ))
    }

    /// Takes all rules to their end. What several of them want of one view at once travels together,
    /// and each goes on when its own facts are there.
    async fn run(
        &self,
        catalog: &Catalog,
        mut rules: Vec<Running<'_>>,
        deadline: Instant,
    ) -> Vec<RuleRecord> {
        let mut under_way = FuturesUnordered::new();
        // Ends: an evaluation asks for a bounded number of facts, each once.
        loop {
            let mut needs = Vec::new();
            for (asker, running) in rules.iter_mut().enumerate() {
                needs.extend(running.step(asker));
            }
            under_way.extend(self.facts.ask(catalog, needs, deadline));
            match under_way.next().await {
                Some(facts) => facts.into_iter().for_each(|fact| {
                    if let Some(running) = rules.get_mut(fact.asker) {
                        running.supply(fact);
                    }
                }),
                None if rules.iter().all(|running| running.report.is_some()) => break,
                None => rules.iter_mut().for_each(Running::give_up),
            }
        }
        rules.into_iter().filter_map(Running::into_record).collect()
    }
}

/// A rule on its way through the request.
struct Running<'a> {
    rule: (&'a Policy, &'a Rule, &'a Arc<RuleName>),
    evaluation: Evaluation<'a>,
    /// Facts that are on their way to it, by id.
    awaited: Vec<u32>,
    origins: Vec<(u32, Option<Arc<Origin>>)>,
    report: Option<RuleReport>,
}

impl<'a> Running<'a> {
    fn new(rule: (&'a Policy, &'a Rule, &'a Arc<RuleName>), request: &'a AdmissionRequest) -> Self {
        Self::with(rule, Evaluation::start(rule.0, rule.1, request))
    }

    fn of_existing(
        rule: (&'a Policy, &'a Rule, &'a Arc<RuleName>),
        request: &'a AdmissionRequest,
    ) -> Self {
        Self::with(rule, Evaluation::of_existing(rule.0, rule.1, request))
    }

    fn with(rule: (&'a Policy, &'a Rule, &'a Arc<RuleName>), evaluation: Evaluation<'a>) -> Self {
        Self {
            rule,
            evaluation,
            awaited: Vec::new(),
            origins: Vec::new(),
            report: None,
        }
    }

    /// Goes on, if nothing is waited for; what it needs then.
    fn step(&mut self, asker: usize) -> Option<Needs<'a>> {
        if !self.awaited.is_empty() || self.report.is_some() {
            return None;
        }
        match self.evaluation.step() {
            Step::Done(report) => {
                self.report = Some(report);
                None
            }
            Step::Need(requests) => {
                self.awaited = requests.iter().map(|request| request.id).collect();
                Some(Needs {
                    asker,
                    reader: &self.rule.2.reader,
                    requests,
                })
            }
        }
    }

    fn supply(&mut self, fact: Fact) {
        self.awaited.retain(|id| *id != fact.id);
        self.origins.push((fact.id, fact.origin));
        match fact.answer {
            Some(answer) => self.evaluation.supply(fact.id, answer),
            None => self.evaluation.decline(fact.id),
        }
    }

    /// Nothing is on its way any more: what did not come is not known.
    fn give_up(&mut self) {
        for id in std::mem::take(&mut self.awaited) {
            let message = "nobody answered".to_owned();
            self.evaluation
                .supply(id, Err(FactError::RequestInvalid { message }));
        }
    }

    /// `None` where the rule does not speak of the request.
    fn into_record(self) -> Option<RuleRecord> {
        let (policy, rule, name) = self.rule;
        let report = self.report?;
        (report.outcome != RuleOutcome::NotMatched)
            .then(|| record(policy, rule, Arc::clone(name), report, &self.origins))
    }
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
        action: rule.action(),
        ignore_errors: policy.failure_policy() == anteroom_policy::FailurePolicy::Ignore,
        warn_on_audit: policy.emit_warning(),
        facts,
        outcome: report.outcome,
    }
}

/// What is left for the answer to get back in: a tenth, between 20 and 500 ms.
fn margin(timeout: Duration) -> Duration {
    (timeout / 10).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

/// The policies have not been read yet: nobody knows whether the request is allowed.
fn not_ready(scope: Scope) -> Decision {
    let code = ErrorCode::NOT_READY;
    let message = format!("{code} the webhook has not read its policies yet: try again");
    let mut decision = Decision {
        error: true,
        ..Decision::default()
    };
    if scope.ignores_errors() {
        decision.warnings.push(message);
    } else {
        decision.blocked.push(Blocked {
            policy: "anteroom".to_owned(),
            rule: "readiness".to_owned(),
            message,
            error: Some(code),
        });
    }
    decision
}

struct ResourceKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// The kind that policies name: of a subresource that has a kind of its own (`Scale`,
/// `PodExecOptions`), that of the resource that it belongs to.
fn resource_kind<'a>(catalog: &'a Catalog, review: &'a Review<'_>) -> ResourceKind<'a> {
    let head = &review.head;
    if !head.sub_resource.is_empty() {
        let resource = &head.resource;
        let gvr =
            GroupVersionResource::new(&*resource.group, &*resource.version, &*resource.resource);
        if let Some(record) = catalog.kinds.of_resource(&gvr) {
            return ResourceKind {
                group: &resource.group,
                version: &resource.version,
                kind: &record.kind,
            };
        }
    }
    ResourceKind {
        group: &head.kind.group,
        version: &head.kind.version,
        kind: &head.kind.kind,
    }
}

fn rules(entry: &Entry) -> impl Iterator<Item = (&Policy, &Rule, &Arc<RuleName>)> {
    entry.outcome.iter().flat_map(|policy| {
        let named = policy.rules().iter().zip(&entry.names);
        named.map(move |(rule, name)| (policy, rule, name))
    })
}

/// The warning of a policy that is not in force.
fn unready(entry: &Entry) -> Option<String> {
    let problems = entry.outcome.as_ref().err()?;
    let first = problems
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    Some(format!(
        "policy {} is not ready, and not in force: {first}",
        entry.key
    ))
}
