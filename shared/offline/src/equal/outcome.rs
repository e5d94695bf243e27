//! The outcomes of policies on one request, and the ways in which two of them differ.

use std::{collections::BTreeSet, fmt};

use anteroom_engine::verdict::Consequence;
use anteroom_policy::Operation;
use serde::Serialize;
use serde_json::Value;

use crate::{
    loaded_policy::LoadedPolicy,
    scenario::{Response, RuleResponse, Scenario, Status},
};

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// The request may go on.
    Admitted,
    /// The request may go on, and the user is warned.
    Warned,
    /// The request violates a rule.
    RefusedByRule,
    /// A rule could not be evaluated.
    RefusedByError,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admitted => "admitted",
            Self::Warned => "admitted with a warning",
            Self::RefusedByRule => "refused by a rule",
            Self::RefusedByError => "refused by an error",
        })
    }
}

/// The worst of what reports say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reported {
    /// Nothing: no rule speaks of the object, or all were skipped.
    Nothing,
    /// The request complies.
    Pass,
    /// A rule could not be evaluated.
    Error,
    /// The request violates a rule.
    Fail,
}

/// One rule's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// The policy, with its namespace.
    pub policy: String,
    /// The rule; empty for policies of policies.kyverno.io.
    pub rule: String,
    /// `pass`, `fail`, `warn`, `error` or `skip`.
    pub status: &'static str,
    /// The validation that decided, of policies of policies.kyverno.io.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<String>,
    /// Its message.
    pub message: String,
}

/// The outcome of a set of policies on a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The decision at admission.
    pub decision: Decision,
    /// The worst result.
    pub reported: Reported,
    /// The object, if rules changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patched: Option<Value>,
    /// The rules that speak of the request.
    pub rules: Vec<Explained>,
}

/// The beginning of the message of an error about a fact that no file gives.
const NOT_GIVEN: &str = "AR206 ";

/// The property with the validation that decided.
const VALIDATION: &str = "cel.validationIndex";

impl Outcome {
    pub(super) fn of(scenario: &Scenario, responses: &[Response]) -> Self {
        let rules = responses.iter().flat_map(|response| {
            response
                .rules
                .iter()
                .map(move |rule| (response.policy, rule))
        });
        let original = scenario.resources.first().map(|resource| &resource.value);
        let patched = responses
            .iter()
            .rev()
            .find_map(|response| response.patched.clone());
        Self {
            decision: decision(rules.clone().map(|(_, rule)| rule)),
            reported: rules
                .clone()
                .map(|(_, rule)| reported(rule))
                .max()
                .unwrap_or(Reported::Nothing),
            patched: patched.filter(|patched| Some(patched) != original),
            rules: rules
                .map(|(policy, rule)| explained(&scenario.policies[policy], rule))
                .collect(),
        }
    }

    /// Returns whether a rule judges the object a violation, or changes the object.
    pub(super) fn is_telling(&self) -> bool {
        self.reported == Reported::Fail || self.patched.is_some()
    }

    fn is_refused(&self) -> bool {
        self.decision >= Decision::RefusedByRule
    }

    fn has(&self, reported: Reported) -> bool {
        self.reported == reported
    }

    /// The rules that decided the outcome, by which differences are told apart.
    fn deciding(&self) -> BTreeSet<String> {
        let is_deciding = |rule: &&Explained| ["fail", "warn", "error"].contains(&rule.status);
        let rules = self.rules.iter().filter(is_deciding);
        rules
            .map(|one| {
                let validation = one.validation.as_deref().unwrap_or_default();
                // What is derived from a rule differs for the same reason.
                let rule = one
                    .rule
                    .trim_start_matches("autogen-")
                    .trim_start_matches("cronjob-");
                format!("{}/{rule}#{validation} {}", one.policy, one.status)
            })
            .collect()
    }
}

fn decision<'r>(rules: impl Iterator<Item = &'r RuleResponse>) -> Decision {
    let all: BTreeSet<_> = rules.filter_map(|rule| rule.consequence).collect();
    // Where a rule says no as well, it is not the error that decides.
    if all.contains(&Consequence::RefusesByRule) {
        return Decision::RefusedByRule;
    }
    match all.last() {
        Some(Consequence::RefusesByError | Consequence::RefusesByRule) => Decision::RefusedByError,
        Some(Consequence::Warns) => Decision::Warned,
        Some(Consequence::Admits) | None => Decision::Admitted,
    }
}

fn reported(rule: &RuleResponse) -> Reported {
    match rule.status {
        Status::Pass => Reported::Pass,
        Status::Fail | Status::Warn => Reported::Fail,
        Status::Error => Reported::Error,
        Status::Skip => Reported::Nothing,
    }
}

fn explained(policy: &LoadedPolicy, rule: &RuleResponse) -> Explained {
    Explained {
        policy: policy.name.clone(),
        rule: rule.rule.clone(),
        status: rule.status.as_str(),
        validation: rule.properties.get(VALIDATION).cloned(),
        message: rule.message.clone(),
    }
}

/// The kind of a difference: the most common reasons have their own, so that what is expected when moving between
/// languages is seen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DifferenceKind {
    /// The first set judges the object a violation and the second judges the object compliant, or vice versa.
    Judgement,
    /// The two sets change the object differently.
    Mutation,
    /// Only one set matches the object, by its kind, its name, the operation or the user.
    Match,
    /// Only one set's conditions are met.
    Condition,
    /// Only one set judges objects that make Pods.
    Autogen,
    /// Only one set skips an object that violated the rule before the update too.
    ExistingViolation,
    /// Only one set can be evaluated on the object.
    Error,
    /// Only one set can be evaluated: the second reads a fact that nobody gave.
    Fact,
    /// Neither set can be evaluated on the object, and only one refuses it in this case.
    FailurePolicy,
    /// Both sets judge the object a violation, but only one refuses the request, or warns.
    Action,
}

impl DifferenceKind {
    /// The kind in a few words, and its usual reason.
    pub fn explain(self) -> &'static str {
        match self {
            Self::Judgement => "they judge otherwise",
            Self::Mutation => "they change the object otherwise",
            Self::Match => {
                "one says nothing of this request: compare match, exclude and operations"
            }
            Self::Condition => {
                "one is skipped: compare preconditions, matchConditions and exceptions"
            }
            Self::Autogen => "one says nothing of what makes Pods: compare autogen",
            Self::ExistingViolation => {
                "one admits an update of an object that violated before (allowExistingViolations)"
            }
            Self::Error => {
                "one cannot be evaluated: expressions in CEL fail on fields that are missing or of another type, where patterns are lenient"
            }
            Self::Fact => {
                "one reads what was not given: give it as a value, a resource or in a context file"
            }
            Self::FailurePolicy => "neither can be evaluated: compare failurePolicy",
            Self::Action => "both find the violation: compare failureAction and validationActions",
        }
    }
}

/// A class of differences: differences in one class probably have the same cause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) kind: DifferenceKind,
    decisions: [Decision; 2],
    reported: [Reported; 2],
    deciding: [BTreeSet<String>; 2],
}

/// Returns the difference between two outcomes of a request; `None` if there is none.
pub(super) fn compare(
    old: &Outcome,
    new: &Outcome,
    operation: Operation,
    object: &Value,
) -> Option<Class> {
    let worst = |outcome: &Outcome| match outcome.reported {
        // A rule that does not match an object decides like a rule with which the object complies.
        Reported::Pass => Reported::Nothing,
        other => other,
    };
    let is_patched_alike = old.patched == new.patched || (old.is_refused() && new.is_refused());
    if old.decision == new.decision && worst(old) == worst(new) && is_patched_alike {
        return None;
    }
    Some(Class {
        kind: kind(old, new, operation, object),
        decisions: [old.decision, new.decision],
        reported: [worst(old), worst(new)],
        deciding: [old.deciding(), new.deciding()],
    })
}

fn kind(old: &Outcome, new: &Outcome, operation: Operation, object: &Value) -> DifferenceKind {
    let either = |reported| (old.has(reported), new.has(reported));
    let same_report = old.reported == new.reported;
    if same_report && old.has(Reported::Error) && old.decision != new.decision {
        return DifferenceKind::FailurePolicy;
    }
    if same_report && old.has(Reported::Fail) && old.decision != new.decision {
        return DifferenceKind::Action;
    }
    let is_of_facts = |outcome: &Outcome| {
        let mut errors = outcome.rules.iter().filter(|rule| rule.status == "error");
        errors.any(|rule| rule.message.starts_with(NOT_GIVEN))
    };
    match either(Reported::Error) {
        (true, false) if is_of_facts(old) => return DifferenceKind::Fact,
        (false, true) if is_of_facts(new) => return DifferenceKind::Fact,
        (true, false) | (false, true) => return DifferenceKind::Error,
        _ => {}
    }
    // `quiet` is the set that found less, `loud` the set that found more.
    let (quiet, loud) = match either(Reported::Fail) {
        (true, false) => (Some(new), old),
        (false, true) => (Some(old), new),
        _ if new.patched.is_none() => (Some(new), old),
        _ if old.patched.is_none() => (Some(old), new),
        _ => (None, new),
    };
    // Rules of policies.kyverno.io have no names that would tell.
    let is_derived = |rule: &Explained| rule.rule.is_empty() || rule.rule.starts_with("autogen-");
    let is_of_autogen = || {
        operation == Operation::Create
            && super::seed::makes_pods(object)
            && loud.rules.iter().any(is_derived)
    };
    match quiet {
        Some(quiet) if quiet.rules.is_empty() && is_of_autogen() => DifferenceKind::Autogen,
        Some(quiet) if quiet.rules.is_empty() => DifferenceKind::Match,
        Some(quiet) if quiet.has(Reported::Nothing) && operation == Operation::Update => {
            let is_before = |rule: &Explained| rule.message.contains("violated the rule before");
            match quiet.rules.iter().any(is_before) {
                true => DifferenceKind::ExistingViolation,
                false => DifferenceKind::Condition,
            }
        }
        Some(quiet) if quiet.has(Reported::Nothing) => DifferenceKind::Condition,
        _ if old.patched != new.patched && same_report => DifferenceKind::Mutation,
        _ => DifferenceKind::Judgement,
    }
}
