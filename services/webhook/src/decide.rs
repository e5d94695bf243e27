//! Takes a review through all policies that concern it.
//!
//! Rules that judge an object are asked side by side. Those that change it are asked one after the
//! other, policy by policy in order of name, each about what those before it made of the object.

mod course;
mod existing;
mod running;

use std::time::Duration;

use anteroom_model::{ErrorCode, GroupVersionResource};
use anteroom_policy::{AdmissionRequest, FIELD_MANAGER, Operation, Phase, RequestParts, Rule};
use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    admission::{self, Admission},
    catalog::{Catalog, Catalogs},
    exempt::Exempt,
    existing::Triggered,
    facts::Facts,
    metrics::WebhookMetrics,
    policies::{Concerned, Entry, Scope, Subject},
    review::{Review, ReviewError},
    verdict::{self, Blocked, Decision, RuleRecord},
};
use course::{Course, Next};
use running::{NamedRule, Running, records};

/// Takes reviews through the policies. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Decider {
    catalogs: Catalogs,
    facts: Facts,
    metrics: WebhookMetrics,
    exempt: Exempt,
}

impl Decider {
    pub(crate) fn new(catalogs: Catalogs, facts: Facts, metrics: WebhookMetrics) -> Self {
        Self {
            catalogs,
            facts,
            metrics,
            exempt: Exempt::default(),
        }
    }

    /// The same, asking no policy about these requests.
    pub(crate) fn exempting(self, exempt: Exempt) -> Self {
        Self { exempt, ..self }
    }

    /// Decides by the rules of a phase, before `deadline`: see [`deadline`].
    ///
    /// What a policy reads goes when the policy goes. So an error under policies that are no longer those
    /// in force is none: then those decide that are, once.
    ///
    /// # Errors
    /// Where the review's objects are not what they should be.
    pub(crate) async fn decide(
        &self,
        review: &Review<'_>,
        phase: Phase,
        scope: &Scope,
        deadline: Instant,
    ) -> Result<Decision, ReviewError> {
        let catalog = self.catalogs.borrow().clone();
        let kind = resource_kind(catalog.as_deref(), review);
        let named = (kind.group, kind.version, kind.kind);
        if let Some(by) = self.exempt.by(named, review) {
            self.metrics.exempt(phase, by);
            return Ok(Decision::default());
        }
        let Some(catalog) = &catalog else {
            return Ok(not_ready(scope));
        };
        let mut decision = self
            .decide_by(catalog, review, kind, (phase, scope), deadline)
            .await?;
        let now = self.catalogs.borrow().clone();
        let changed = now.filter(|now| !now.decides_as(catalog));
        if let Some(now) = changed.filter(|_| decision.error) {
            let kind = resource_kind(Some(&now), review);
            decision = self
                .decide_by(&now, review, kind, (phase, scope), deadline)
                .await?;
        }
        for record in &decision.rules {
            let result = record.result();
            record.name.count(result, record.took, &self.metrics);
        }
        Ok(decision)
    }

    /// Decides by the policies of this catalog.
    async fn decide_by(
        &self,
        catalog: &Catalog,
        review: &Review<'_>,
        kind: ResourceKind<'_>,
        (phase, scope): (Phase, &Scope),
        deadline: Instant,
    ) -> Result<Decision, ReviewError> {
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
        let Concerned { entries, parts } = catalog.policies.concerned(phase, scope, &subject);
        if entries.is_empty() {
            return Ok(Decision::default());
        }
        let request = review.request(&catalog.exceptions.parts(parts))?;
        let request = request.with_resource_kind(kind.group, kind.version, kind.kind);
        let warnings = entries.iter().filter_map(|entry| unready(entry)).collect();
        if phase == Phase::Mutation {
            let (records, patch) = self.change(catalog, &entries, request, deadline).await;
            let mut decision = verdict::decide(records, warnings);
            decision.patch = patch.filter(|_| decision.allowed());
            return Ok(decision);
        }
        let judging = entries.iter().flat_map(|entry| rules(entry, phase));
        let running = judging.map(|rule| Running::new(rule, &request, catalog));
        let records = self.run(catalog, running.collect(), deadline).await;
        let rules = existing::triggered(&entries, review);
        let mut decision = verdict::decide(records, warnings);
        if !rules.is_empty() && decision.allowed() {
            decision.triggered = Some(Triggered {
                by_manager: review.field_manager() == FIELD_MANAGER,
                request,
                rules,
            });
        }
        Ok(decision)
    }

    /// Takes the object through the rules that change it: what was recorded, and the patch that comes of
    /// it.
    async fn change(
        &self,
        catalog: &Catalog,
        entries: &[&Entry],
        request: AdmissionRequest,
        deadline: Instant,
    ) -> (Vec<RuleRecord>, Option<Value>) {
        let mut course = Course::new(request);
        'policies: for entry in entries {
            course.begin_policy();
            for rule in rules(entry, Phase::Mutation) {
                let running = Running::new(rule, course.request(), catalog);
                // Rules that ask nobody never wait, so nothing else would end them.
                let running = match Instant::now() < deadline {
                    true => running,
                    false => running.out_of_time(),
                };
                let record = self.run(catalog, vec![running], deadline).await.pop();
                let is_applied = record.as_ref().is_some_and(|one| one.outcome.is_applied());
                match record.map(|record| course.take(record)) {
                    Some(Next::Rule) if is_applied && rule.0.applies_one() => break,
                    None | Some(Next::Rule) => {}
                    Some(Next::Policy) => break,
                    Some(Next::Nobody) => break 'policies,
                }
            }
        }
        course.end()
    }

    /// Where facts are read.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
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
        let rules = policies
            .iter()
            .flat_map(|entry| rules(entry, Phase::Validation));
        let running = rules.map(|rule| Running::of_existing(rule, request, catalog));
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
        self.drive(catalog, &mut rules, deadline).await;
        records(rules)
    }

    async fn drive(&self, catalog: &Catalog, rules: &mut [Running<'_>], deadline: Instant) {
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
    }
}

/// By when a review has to be decided that `arrived` then, where the API server waits for `timeout`.
pub(crate) fn deadline(arrived: Instant, timeout: Duration) -> Instant {
    arrived + timeout - margin(timeout)
}

/// What is left for the answer to get back in: a tenth, between 20 and 500 ms.
fn margin(timeout: Duration) -> Duration {
    (timeout / 10).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

/// The policies have not been read yet: nobody knows whether the request is allowed.
fn not_ready(scope: &Scope) -> Decision {
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
/// `PodExecOptions`), that of the resource that it belongs to. Empty where nobody knows yet which that is:
/// then it is no kind that could be named.
fn resource_kind<'a>(catalog: Option<&'a Catalog>, review: &'a Review<'_>) -> ResourceKind<'a> {
    let head = &review.head;
    let resource = &head.resource;
    let kind = match (&*head.sub_resource, catalog) {
        ("", _) => None,
        (_, None) => Some(""),
        (_, Some(catalog)) => {
            let gvr = GroupVersionResource::new(
                &*resource.group,
                &*resource.version,
                &*resource.resource,
            );
            let record = catalog.kinds.of_resource(&gvr);
            record.map(|record| &*record.kind)
        }
    };
    match kind {
        Some(kind) => ResourceKind {
            group: &resource.group,
            version: &resource.version,
            kind,
        },
        None => ResourceKind {
            group: &head.kind.group,
            version: &head.kind.version,
            kind: &head.kind.kind,
        },
    }
}

fn rules(entry: &Entry, phase: Phase) -> impl Iterator<Item = NamedRule<'_>> {
    entry.outcome.iter().flat_map(move |policy| {
        let named = policy.rules().iter().zip(&entry.names);
        let is_asked = move |rule: &Rule| rule.phase() == phase && !rule.changes_existing();
        let of_phase = named.filter(move |(rule, _)| is_asked(rule));
        of_phase.map(move |(rule, name)| (policy, rule, name))
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
