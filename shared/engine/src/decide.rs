//! The decision on a review: evaluates all policies that concern the review.
//!
//! Rules that judge an object are asked side by side. Mutating rules are asked one after the other, policy by policy
//! in order of name, those of namespaces first: each sees the object as the earlier rules left it. Those of namespaces
//! have at most half of the time, so that none of them keeps a rule of the cluster from being asked. Where they judge, they
//! wait no longer than that for a place for long work.

mod mutation;
mod triggered;

use std::{sync::Arc, time::Duration};

use anteroom_model::{ErrorCode, GroupVersionResource};
use anteroom_policy::{
    AdmissionRequest, Conditions, FIELD_MANAGER, Phase, Policy, Rule, RuleError, RuleOutcome,
    ServedKind,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    catalog::{Catalog, Catalogs},
    drive::drive,
    facts::{BusFacts, Deadline, FactSource, WaitingMemory},
    incoming::{Incoming, KindName, RequestHead, ResourcePath, ReviewOwner},
    off_thread::off_thread,
    policies::{CallScope, CompiledPolicy, Concerned, RequestSubject},
    recorder::SharedRecorder,
    review_work::{LongLane, NoPlace, ReviewWork},
    rule_run::{NamedRule, RuleRun, is_about_a_secret, records},
    verdict::{self, Blocked, ChangedPlaces, Decision, RuleRecord, Triggered, WITHHELD},
};
use mutation::{Mutation, NextAsked};

/// Evaluates policies on requests and objects, with facts of `F`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine<F = BusFacts> {
    catalogs: Catalogs,
    facts: F,
    recorder: SharedRecorder,
    lane: LongLane,
    waiting: WaitingMemory,
}

impl<F> Engine<F> {
    /// Returns an engine that decides each request by the latest catalog.
    pub fn new(catalogs: Catalogs, facts: F, recorder: SharedRecorder) -> Self {
        Self {
            catalogs,
            facts,
            recorder,
            lane: LongLane::new(),
            waiting: WaitingMemory::default(),
        }
    }

    /// Returns the latest catalog; `None` until all of it was read once.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        self.catalogs.borrow().clone()
    }

    /// The source of facts.
    pub fn facts(&self) -> &F {
        &self.facts
    }

    /// Does work that is no decision and may take long, such as compiling a policy, where long reviews are decided.
    ///
    /// # Errors
    /// There was no place before the deadline.
    pub async fn run_long<T>(
        &self,
        owner: ReviewOwner,
        deadline: Deadline,
        work: impl FnOnce() -> T,
    ) -> Result<T, NoPlace> {
        self.lane.run(owner, deadline, work).await
    }

    pub(crate) fn recorder(&self) -> &SharedRecorder {
        &self.recorder
    }

    /// The memory of rules that wait for facts.
    pub(crate) fn waiting(&self) -> &WaitingMemory {
        &self.waiting
    }
}

impl<F: FactSource> Engine<F> {
    /// Decides by the rules of `scope` and by the policies of `catalog`, before `deadline`.
    ///
    /// The views of a policy go when the policy goes. So an error under policies that are no longer those
    /// in force is none: then those decide that are, once.
    ///
    /// # Errors
    /// The request cannot be read.
    pub async fn decide<I: Incoming>(
        &self,
        catalog: Option<&Arc<Catalog>>,
        incoming: &I,
        scope: &CallScope,
        deadline: Deadline,
    ) -> Result<Decision, I::Error> {
        let Some(catalog) = catalog else {
            return Ok(not_ready(scope));
        };
        let work = ReviewWork::new(&self.lane, incoming.owner(), incoming.bytes(), deadline);
        let mut work = work.with_memory(&self.waiting);
        let mut decision = self
            .decide_by(catalog, incoming, scope, &mut work, deadline)
            .await?;
        let now = self.catalog();
        let changed = now.filter(|now| !now.same_policies(catalog));
        if let Some(now) = changed.filter(|_| decision.error) {
            decision = self
                .decide_by(&now, incoming, scope, &mut work, deadline)
                .await?;
        }
        for record in &decision.rules {
            self.recorder
                .rule(&record.name, record.result(), record.took);
        }
        Ok(decision)
    }

    /// Decides by the policies of this catalog.
    async fn decide_by<I: Incoming>(
        &self,
        catalog: &Catalog,
        incoming: &I,
        scope: &CallScope,
        work: &mut ReviewWork<'_>,
        deadline: Deadline,
    ) -> Result<Decision, I::Error> {
        let head = incoming.head();
        let KindName {
            group,
            version,
            kind,
        } = head.named_kind(Some(catalog));
        let subject = RequestSubject {
            served: ServedKind {
                group,
                version,
                kind,
                resource: head.resource.resource,
                subresource: head.resource.subresource,
            },
            operation: head.operation,
            namespace: namespace(&head, group, kind, catalog),
        };
        let Concerned {
            policies: mut entries,
            parts,
        } = catalog.policies.concerned(scope, &subject);
        if entries.is_empty() {
            return Ok(Decision::default());
        }
        let parts = catalog.exceptions.parts(&parts);
        let Some(request) = work.run(|| incoming.request(&parts)).await else {
            return Ok(match work.is_crowded_out() {
                true => crowded_out(),
                false => no_time(scope),
            });
        };
        let request = request?.with_resource_kind(group, version, kind);
        let warnings = entries.iter().filter_map(|entry| unready(entry)).collect();
        work.share_time(are_of_both_scopes(&entries));
        if scope.phase == Phase::Mutation {
            let (records, patch) = self.change(catalog, &entries, request, work).await;
            let mut decision = verdict::decide(records, warnings);
            decision.patch = patch.filter(|_| decision.allowed());
            return Ok(decision);
        }
        let mut failed = Vec::new();
        let mut policies = entries.iter().flat_map(|entry| &entry.outcome);
        if policies.any(Policy::has_conditions) {
            let judged = Box::pin(judge_conditions(&entries, &request, work)).await;
            failed = sort_by_conditions(&mut entries, &request, judged);
        }
        let judging = entries.iter().flat_map(|entry| rules(entry, scope.phase));
        let running =
            judging.map(|rule| RuleRun::new(rule, &request, catalog).with_conditions_met());
        let failing = failed.iter().flat_map(|entry| rules(entry, scope.phase));
        let running = running.chain(failing.map(|rule| RuleRun::new(rule, &request, catalog)));
        let running = running.collect();
        let records = self.run(catalog, running, work, deadline).await;
        let rules = triggered::triggered(&entries, incoming);
        let mut decision = verdict::decide(records, warnings);
        if !rules.is_empty() && decision.allowed() {
            decision.triggered = Some(Triggered {
                by_manager: incoming.field_manager() == FIELD_MANAGER,
                request,
                owner: incoming.owner(),
                rules,
            });
        } else {
            work.run_here(|| drop(request));
        }
        Ok(decision)
    }

    /// Evaluates the rules that change the object. Returns their records, and the patch.
    async fn change(
        &self,
        catalog: &Catalog,
        entries: &[&CompiledPolicy],
        request: AdmissionRequest,
        work: &mut ReviewWork<'_>,
    ) -> (Vec<RuleRecord>, Option<Value>) {
        let mut mutation = work.run_here(|| Mutation::new(request));
        'policies: for entry in entries {
            let scope = entry.scope();
            let until = work.deadline_of(scope);
            let request = mutation.request();
            let judged = work.run_for(scope, || conditions(entry, request)).await;
            // Where nothing is left, every rule comes to that error.
            let judged = judged.filter(|_| !work.is_over());
            let is_met = match judged.map(|judged| unless_ignored(entry, request, judged)) {
                Some(Conditions::Met) => true,
                Some(Conditions::NotMet) => continue,
                Some(Conditions::Failed(_)) | None => false,
            };
            mutation.begin_policy();
            for rule in rules(entry, Phase::Mutation) {
                let mut running = RuleRun::new(rule, mutation.request(), catalog);
                if is_met {
                    // Also of an object that the policy's own rules changed since.
                    running = running.with_conditions_met();
                }
                // Rules that ask nobody never wait, so nothing else would end them.
                if Instant::now() >= until {
                    work.end_late(&mut running);
                }
                let running = vec![running];
                let Some(record) = self.run(catalog, running, work, until).await.pop() else {
                    continue;
                };
                let is_applied = record.outcome.is_applied();
                let changed = match &record.outcome {
                    RuleOutcome::Mutated { object } => {
                        match work.run_for(scope, || mutation.places(object)).await {
                            Some(Some(places)) => Ok(places),
                            Some(None) => Err(RuleError::ReviewTooCostly),
                            None => Err(work.late()),
                        }
                    }
                    _ => Ok(ChangedPlaces::default()),
                };
                match work.run_here(|| mutation.note(record, changed)) {
                    NextAsked::Rule if is_applied && rule.policy.applies_one() => break,
                    NextAsked::Rule => {}
                    NextAsked::Policy => break,
                    NextAsked::Nobody => break 'policies,
                }
            }
        }
        let patch = match work.run(|| mutation.patch()).await {
            Some(Ok(patch)) => patch,
            // Too few steps are left to compare the objects, or there is no place for that in time.
            Some(Err(_)) | None => off_thread(|| mutation.whole_patch()),
        };
        (work.run_here(|| mutation.into_records()), patch)
    }

    /// Evaluates the validating rules of these policies on an existing object. Returns the records of the rules that
    /// match the object.
    pub async fn judge(
        &self,
        catalog: &Catalog,
        policies: &[&CompiledPolicy],
        request: &AdmissionRequest,
        timeout: Duration,
    ) -> Vec<RuleRecord> {
        let deadline = Instant::now() + timeout;
        // Long work on the objects of a namespace takes turns with that of other namespaces.
        let owner = ReviewOwner::of(request.namespace(), "");
        let work = ReviewWork::new(&self.lane, owner, 0, deadline);
        let mut work = work.with_memory(&self.waiting);
        work.share_time(are_of_both_scopes(policies));
        let mut running = Vec::new();
        for entry in policies {
            let judging = work.run_for(entry.scope(), || conditions(entry, request));
            let judged = judging.await;
            // Where nothing is left, every rule comes to that error.
            let judged = judged.filter(|_| !work.is_over());
            let conditions = judged.map(|judged| unless_ignored(entry, request, judged));
            if conditions == Some(Conditions::NotMet) {
                continue;
            }
            let rules = rules(entry, Phase::Validation);
            running.extend(
                rules
                    .map(|rule| RuleRun::of_existing(rule, request, catalog))
                    .map(|running| match conditions {
                        Some(Conditions::Met) => running.with_conditions_met(),
                        _ => running,
                    }),
            );
            // Many policies may have many conditions.
            tokio::task::yield_now().await;
        }
        self.run(catalog, running, &mut work, deadline).await
    }

    async fn run<'a>(
        &'a self,
        catalog: &Catalog,
        mut rules: Vec<RuleRun<'a>>,
        work: &mut ReviewWork<'_>,
        deadline: Deadline,
    ) -> Vec<RuleRecord> {
        drive(&self.facts, catalog, &mut rules, work, deadline).await;
        work.run_here(|| records(rules))
    }
}

/// Returns whether there are policies of the cluster and of a namespace among these.
fn are_of_both_scopes(entries: &[&CompiledPolicy]) -> bool {
    let mut scopes = entries.iter().map(|entry| entry.scope());
    let first = scopes.next();
    scopes.any(|scope| Some(scope) != first)
}

/// Returns the namespace that the object lives in; `None`: it is unknown before the object is read.
fn namespace<'a>(
    head: &RequestHead<'a>,
    group: &str,
    kind: &str,
    catalog: &Catalog,
) -> Option<&'a str> {
    if (group, kind) == ("", "Namespace") {
        return Some(""); // It lives in none, although the API server sends its name.
    }
    if !head.namespace.is_empty() {
        return Some(head.namespace);
    }
    let ResourcePath {
        group,
        version,
        resource,
        ..
    } = head.resource;
    let gvr = GroupVersionResource::new(group, version, resource);
    let record = catalog.kinds.of_resource(&gvr)?;
    (!record.namespaced).then_some("")
}

/// Returns the decision before the policies were read, when it is unknown whether the request is allowed.
fn not_ready(scope: &CallScope) -> Decision {
    let why = "the webhook has not read its policies yet: try again";
    undecided(scope, "readiness", ErrorCode::NOT_READY, why)
}

/// The decision on a large request if there was no time to read it.
fn no_time(scope: &CallScope) -> Decision {
    let why = "the webhook had no time to read a request of this size: try again";
    undecided(scope, "deadline", ErrorCode::DEADLINE_EXCEEDED, why)
}

/// The decision on a large request that other requests of its owner kept from being read. It is refused whatever the
/// failure policy: otherwise large requests would make way for one that a policy forbids.
fn crowded_out() -> Decision {
    let error = RuleError::ReviewsOverPart;
    blocked("deadline", error.code(), &error.to_string())
}

/// The decision where no policy could be asked.
fn undecided(scope: &CallScope, rule: &str, code: ErrorCode, why: &str) -> Decision {
    match scope.ignores_errors {
        true => Decision {
            error: true,
            warnings: vec![format!("{code} {why}")],
            ..Decision::default()
        },
        false => blocked(rule, code, why),
    }
}

fn blocked(rule: &str, code: ErrorCode, why: &str) -> Decision {
    Decision {
        error: true,
        blocked: vec![Blocked {
            policy: "anteroom".to_owned(),
            rule: rule.to_owned(),
            message: format!("{code} {why}"),
            error: Some(code),
        }],
        ..Decision::default()
    }
}

/// Returns the answer of a policy's `matchConditions`.
fn conditions(entry: &CompiledPolicy, request: &AdmissionRequest) -> Conditions {
    match &entry.outcome {
        Ok(policy) => policy.conditions(request),
        Err(_) => Conditions::Met, // It has no rules.
    }
}

/// Returns the answers of the `matchConditions` of these policies. `None`: there was no time, or nothing is left, so every
/// rule of the policy comes to that error.
async fn judge_conditions(
    entries: &[&CompiledPolicy],
    request: &AdmissionRequest,
    work: &mut ReviewWork<'_>,
) -> Vec<Option<Conditions>> {
    let mut judged = Vec::with_capacity(entries.len());
    for entry in entries {
        // Of a large request, what is evaluated waits for a place.
        if !entry.outcome.as_ref().is_ok_and(Policy::has_conditions) {
            judged.push(Some(Conditions::Met));
            continue;
        }
        let judging = work.run_for(entry.scope(), || conditions(entry, request));
        let of_policy = judging.await;
        judged.push(of_policy.filter(|_| !work.is_over()));
    }
    judged
}

/// Makes an unmet condition of an error that the policy's failure policy ignores, and logs the error.
fn unless_ignored(
    entry: &CompiledPolicy,
    request: &AdmissionRequest,
    judged: Conditions,
) -> Conditions {
    match judged {
        Conditions::Failed(error)
            if entry.class.ignore && !error.is_caused_by_request(false, false) =>
        {
            let error = match is_about_a_secret(request) {
                true => format!("{} {WITHHELD}", ErrorCode::CEL_FAILED),
                false => error.to_string(),
            };
            tracing::warn!(
                policy = %entry.key,
                kind = request.kind(),
                error,
                "matchCondition not evaluated: the policy does not judge this request, as its failurePolicy is \
                 Ignore; correct the condition"
            );
            Conditions::NotMet
        }
        judged => judged,
    }
}

/// Keeps the policies whose conditions are met. Returns the policies with a condition that failed or was not judged,
/// whose rules end with its error.
fn sort_by_conditions<'e>(
    entries: &mut Vec<&'e CompiledPolicy>,
    request: &AdmissionRequest,
    judged: Vec<Option<Conditions>>,
) -> Vec<&'e CompiledPolicy> {
    let (mut judged, mut failed) = (judged.into_iter(), Vec::new());
    entries.retain(|entry| {
        let judged = judged.next().flatten();
        match judged.map(|judged| unless_ignored(entry, request, judged)) {
            Some(Conditions::Met) => true,
            Some(Conditions::NotMet) => false,
            Some(Conditions::Failed(_)) | None => {
                failed.push(*entry);
                false
            }
        }
    });
    failed
}

fn rules(entry: &CompiledPolicy, phase: Phase) -> impl Iterator<Item = NamedRule<'_>> {
    entry.outcome.iter().flat_map(move |policy| {
        let named = policy.rules().iter().zip(&entry.names);
        let is_asked = move |rule: &Rule| rule.phase() == phase && !rule.changes_existing();
        let of_phase = named.filter(move |(rule, _)| is_asked(rule));
        of_phase.map(move |(rule, name)| NamedRule { policy, rule, name })
    })
}

/// The warning of a policy that is not in force.
fn unready(entry: &CompiledPolicy) -> Option<String> {
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

#[cfg(test)]
mod tests;
