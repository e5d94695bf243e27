//! Two sets of policies held against each other: do they decide alike?
//!
//! ```text
//! policies ── vocabulary ──▶ paths, literals ──┐
//! objects ── seeds ────────────────────────────┴▶ requests ──▶ OLD, NEW ── compare ──▶ classes ── shrink ──▶ examples
//!                                                                └▶ coverage
//! ```
//!
//! Requests are the given objects as they are, then each with one change, then with several. What is changed are
//! the paths that either set of policies reads ([`vocabulary`]), and what is put there are the literals that they
//! mention, and their neighbours ([`variation`]). Both sides are taken through the scenario of `apply`, with the same
//! facts. It is a search and no proof: what it did not try it says nothing of, and its coverage tells how much that is.

mod coverage;
mod expression;
mod found;
mod guide;
mod mention;
mod outcome;
mod pattern;
mod request;
mod seed;
mod shrink;
mod subject;
mod token;
mod value_path;
mod variation;
mod vocabulary;

use std::collections::BTreeSet;

use anteroom_policy::Operation;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use self::{
    coverage::Coverage,
    found::FoundDifferences,
    guide::Guide,
    outcome::compare,
    request::{RequestValue, Requests},
    seed::seeds,
    subject::ComparedPolicies,
    vocabulary::Vocabulary,
};
use crate::{
    check::load,
    loaded_policy::LoadedPolicy,
    scenario::Scenario,
    suite::{Suite, SuiteError},
};

pub use coverage::Covered;
pub use outcome::{Decision, DifferenceKind, Explained, Outcome, Reported};

/// The requests of a search, where nothing else is said.
pub const REQUESTS_MAX: usize = 10_000;

/// The reason why policies cannot be compared.
#[derive(Debug, Error)]
pub enum EqualError {
    /// There is no policy that is run here.
    #[error("there is no policy that is run here in {0}")]
    NoPolicy(String),
    /// A policy does not compile.
    #[error("policy {policy} of {side} cannot be compiled: {problems}")]
    NotCompiled {
        /// The files that it is from.
        side: String,
        /// The policy.
        policy: String,
        /// The problems of the policy, with their codes.
        problems: String,
    },
    /// Nothing was given, and the policies are about no kind that is known here.
    #[error("there is no object to begin at: give some with --resource, or suites with --suite")]
    NoObject,
}

/// One of two sets of policies.
#[derive(Debug)]
pub struct LoadedPolicies {
    policies: Vec<LoadedPolicy>,
    manifests: Vec<Value>,
}

impl LoadedPolicies {
    /// Returns the policies among manifests; `name` is what these are called.
    ///
    /// # Errors
    /// There is none that is run here, or one does not compile.
    pub fn new(manifests: Vec<Value>, name: &str) -> Result<Self, EqualError> {
        let mut side = Self {
            policies: Vec::new(),
            manifests: Vec::new(),
        };
        for manifest in manifests {
            let Some(policy) = LoadedPolicy::new(&manifest) else {
                continue;
            };
            if let Err(problems) = &policy.outcome {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                return Err(EqualError::NotCompiled {
                    side: name.to_owned(),
                    policy: policy.name,
                    problems: problems.join("; "),
                });
            }
            side.policies.push(policy);
            side.manifests.push(manifest);
        }
        match side.policies.is_empty() {
            true => Err(EqualError::NoPolicy(name.to_owned())),
            false => Ok(side),
        }
    }
}

/// The extent of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The most requests.
    pub requests_max: usize,
    /// The seed of random choices: equal seeds make equal requests.
    pub seed: u64,
    /// The operations of requests.
    pub operations: Vec<Operation>,
    /// No field is null, or of another type than elsewhere, and no Pod lacks what it must have.
    pub valid_only: bool,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            requests_max: REQUESTS_MAX,
            seed: 1,
            operations: vec![Operation::Create, Operation::Update, Operation::Delete],
            valid_only: false,
        }
    }
}

/// The reason why a search ended before it had made all its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stopped {
    /// The search made as many requests as it may.
    Requests,
    /// The time of the search is over.
    Time,
}

/// The result of a search.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The requests that were made.
    pub requests: usize,
    /// The requests on which the two differ.
    pub different: usize,
    /// The given objects that requests were made from.
    pub objects_given: usize,
    /// The objects that were made for kinds of which none was given, and of what makes the given Pods.
    pub objects_made: usize,
    /// The number of varied places that policies read.
    pub places: usize,
    /// The seed of chance.
    pub seed: u64,
    /// The reason why there are no more requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The differences by kind; within a kind, those with the most requests first.
    pub differences: Vec<Difference>,
    /// Requests with differences that are not among those, since there are too many.
    pub untold: usize,
    /// The results of the first set's rules.
    pub old: Vec<Covered>,
    /// The results of the second set's rules.
    pub new: Vec<Covered>,
    /// Rules of either that are not run here, as in `POLICY RULE: FIELD`.
    pub not_run: Vec<String>,
}

/// A difference, with examples.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Its kind.
    pub kind: DifferenceKind,
    /// The requests that show it.
    pub requests: usize,
    /// Only requests show it that an API server refuses before any policy: a field is null or of another type, or a
    /// Pod lacks what it must have.
    pub invalid: bool,
    /// The smallest requests that show the difference, each unlike the rest.
    pub examples: Vec<Example>,
}

/// A request on which the two differ.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Example {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// The user, unless the request is by the first user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The object, as in `Pod/default/web`.
    pub resource: String,
    /// The object that it was found with.
    pub made_from: String,
    /// The changes of that, of which shrinking may have left less.
    pub changes: Vec<String>,
    /// The object, without all that the difference does not need.
    pub object: Value,
    /// The object before the update, if the update changed the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_object: Option<Value>,
    /// The outcome by the first set.
    pub old: Outcome,
    /// The outcome by the second set.
    pub new: Outcome,
}

impl Comparison {
    /// Returns whether no difference was found.
    pub fn is_alike(&self) -> bool {
        self.different == 0
    }

    /// Returns whether no difference was found, and no rule of either set judged or changed an object. Then nothing was
    /// compared.
    pub fn is_about_nothing(&self) -> bool {
        let mut rules = self.old.iter().chain(&self.new);
        self.is_alike() && !rules.any(|rule| rule.pass + rule.fail > 0)
    }
}

/// Adds a suite's resources and given facts to a scenario. The suite's policies and expected results are ignored.
///
/// # Errors
/// A file of the suite cannot be used.
pub fn take_suite(scenario: &mut Scenario, suite: &Suite) -> Result<(), SuiteError> {
    let own = load::load(suite)?.scenario;
    for resource in own.resources {
        if !scenario.resources.contains(&resource) {
            scenario.resources.push(resource);
        }
    }
    scenario.variables.extend(own.variables);
    scenario.exceptions.extend(own.exceptions);
    if own.user.is_known() {
        scenario.user = own.user;
    }
    scenario.leaves_out = true;
    scenario.arrival = scenario.arrival.or(own.arrival);
    scenario.world.unite(own.world);
    scenario.name_kinds();
    Ok(())
}

/// Searches for requests that two sets of policies decide otherwise. The scenario has the objects and the facts; its own
/// policies are passed over. `is_over` says that there is no time left.
///
/// # Errors
/// There is no object to begin at.
pub fn equal(
    scenario: Scenario,
    sides: [LoadedPolicies; 2],
    search: &Search,
    is_over: &dyn Fn() -> bool,
) -> Result<Comparison, EqualError> {
    let mut vocabulary = Vocabulary::default();
    for manifest in sides.iter().flat_map(|side| &side.manifests) {
        vocabulary.add(manifest);
    }
    let seeds = seeds(&scenario.resources, &vocabulary);
    if seeds.is_empty() {
        return Err(EqualError::NoObject);
    }
    let guide = Guide::new(&vocabulary);
    let policies = sides.map(|side| side.policies);
    let not_run = policies.iter().flatten().flat_map(|policy| {
        let rules = policy.not_run.iter();
        rules.map(|rule| format!("{} {}: {}", policy.name, rule.rule, rule.kind))
    });
    let not_run = not_run.collect::<BTreeSet<_>>().into_iter().collect();
    let mut coverage = policies.each_ref().map(|side| Coverage::new(side));
    let mut subject = ComparedPolicies::new(scenario, policies, &vocabulary);
    let mut found = FoundDifferences::default();
    let requests = Requests {
        seeds: &seeds,
        guide: &guide,
        users: subject.users(),
        asks_operations: vocabulary.asks_operations,
        search,
    };
    let mut stopped = None;
    requests.each(&mut |request| {
        if is_over() {
            stopped = Some(Stopped::Time);
            return RequestValue::Last;
        }
        let Some([old, new]) = subject.outcomes(&request) else {
            return RequestValue::Dull;
        };
        found.requests += 1;
        coverage[0].add(&old);
        coverage[1].add(&new);
        if let Some(class) = compare(&old, &new, request.operation, &request.object) {
            found.add(class, request);
        }
        match old.is_telling() || new.is_telling() {
            true => RequestValue::Telling,
            false => RequestValue::Dull,
        }
    });
    if stopped.is_none() && found.requests >= search.requests_max {
        stopped = Some(Stopped::Requests);
    }
    let made = seeds.iter().filter(|seed| seed.is_made).count();
    let [old, new] = coverage.map(Coverage::into_rules);
    Ok(Comparison {
        requests: found.requests,
        different: found.different,
        objects_given: seeds.len() - made,
        objects_made: made,
        places: guide.paths(),
        seed: search.seed,
        stopped,
        untold: found.untold,
        differences: found.differences(&mut subject, is_over),
        old,
        new,
        not_run,
    })
}

#[cfg(test)]
mod tests;
