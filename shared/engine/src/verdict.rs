//! The decision that follows from the records of rules. Pure.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::ErrorCode;
use anteroom_policy::{
    AdmissionRequest, FailureAction, FailurePolicy, Phase, Policy, Rule, RuleError, RuleOutcome,
    RuleReport,
};
use serde_json::Value;

use crate::{
    facts::Origin,
    incoming::ReviewOwner,
    rule::{RuleName, RuleResult},
};

/// The record of one rule that matches the request.
#[derive(Clone, Debug)]
pub struct RuleRecord {
    /// The rule.
    pub name: Arc<RuleName>,
    /// The consequence of a violation.
    pub action: FailureAction,
    /// An error admits.
    pub ignore_errors: bool,
    /// The user gets a warning for a violation in Audit.
    pub warn_on_audit: bool,
    /// The time from the rule's first step to its report, with the wait for facts, and without that for the long lane.
    pub took: std::time::Duration,
    /// The outcome; of a rule that changes the object, without the object that it made.
    pub outcome: RuleOutcome,
    /// The places where the rule changed the object.
    pub changed: ChangedPlaces,
    /// The facts that it asked for.
    pub facts: Vec<FactRecord>,
    /// The exceptions by which it was skipped.
    pub excepted_by: Vec<String>,
    /// Further results, as in [`RuleReport::properties`](anteroom_policy::RuleReport::properties).
    pub properties: BTreeMap<String, String>,
    /// The rule asked for the time or for chance: at another moment the outcome may be another.
    pub depends_on_arrival: bool,
    /// The rule has read Secrets, so only the user may see its message.
    pub knows_secrets: bool,
}

/// The most places of one rule's changes that are kept; the rest are counted.
pub const CHANGED_MAX: usize = 16;

/// The most bytes of a changed place that are kept: keys may be long.
pub const CHANGED_BYTES_MAX: usize = 256;

/// Places where a rule changed an object, as pointers into it: the first [`CHANGED_MAX`], and a count of the rest. Every
/// rule of a review may change thousands of places, and all records are kept until its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedPlaces {
    kept: Vec<String>,
    left_out: usize,
}

impl ChangedPlaces {
    /// Returns the places that are kept, each cut off after [`CHANGED_BYTES_MAX`] bytes.
    pub fn kept(&self) -> &[String] {
        &self.kept
    }

    /// Returns the number of the other places.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl<T: AsRef<str>> FromIterator<T> for ChangedPlaces {
    fn from_iter<I: IntoIterator<Item = T>>(places: I) -> Self {
        let mut places = places.into_iter();
        let cut = |place: T| {
            let place = place.as_ref();
            place[..place.floor_char_boundary(CHANGED_BYTES_MAX)].to_owned()
        };
        Self {
            kept: places.by_ref().take(CHANGED_MAX).map(cut).collect(),
            left_out: places.count(),
        }
    }
}

/// Replaces the message of a rule that has read Secrets, for everyone but the user.
pub(crate) const WITHHELD: &str = "withheld, since the rule has read Secrets";

/// A fact that a rule asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactRecord {
    /// The name of the fact's source, for people: an entry's name, or a path.
    pub entry: String,
    /// The origin of the answer; `None`: there was no answer.
    pub origin: Option<Arc<Origin>>,
    /// The reason why there was no answer, if there was none.
    pub error: Option<ErrorCode>,
}

impl RuleRecord {
    /// For metrics and the record.
    pub fn result(&self) -> RuleResult {
        RuleResult::of(&self.outcome)
    }

    /// Returns the rule's outcome for logs, Events and reports.
    pub fn public_outcome(&self) -> RuleOutcome {
        match &self.outcome {
            RuleOutcome::Fail { .. } if self.knows_secrets => RuleOutcome::Fail {
                message: WITHHELD.to_owned(),
            },
            RuleOutcome::Skipped { .. } if self.knows_secrets => RuleOutcome::Skipped {
                reason: WITHHELD.to_owned(),
            },
            RuleOutcome::Error(error) if self.knows_secrets => {
                RuleOutcome::Error(error.clone().withheld())
            }
            outcome => outcome.clone(),
        }
    }

    /// Returns the rule's further results for logs, Events and reports: none of a rule that has read Secrets.
    pub fn public_properties(&self) -> impl Iterator<Item = (&String, &String)> {
        self.properties.iter().filter(|_| !self.knows_secrets)
    }
}

/// A decision on one review.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The reasons to deny it, by policy and rule, in order; empty: it is allowed.
    pub blocked: Vec<Blocked>,
    /// Texts for the user, also if the request is allowed.
    pub warnings: Vec<String>,
    /// Every rule that spoke of the request.
    pub rules: Vec<RuleRecord>,
    /// Some rule could not be evaluated.
    pub error: bool,
    /// The patch of RFC 6902 for a request that may go on; `None`: nothing is to be changed.
    pub patch: Option<Value>,
    /// Rules on objects that exist already, which may have been triggered. Of a request that may go on.
    pub triggered: Option<Triggered>,
}

/// The rules that a request may have triggered.
#[derive(Clone, Debug)]
pub struct Triggered {
    /// The request, as the rules that change objects left it.
    pub request: AdmissionRequest,
    /// The party that the trigger's memory is counted for.
    pub owner: ReviewOwner,
    /// The rules, each with a mark whether our own writes trigger it too.
    pub rules: Vec<(Arc<RuleName>, bool)>,
    /// The request names the watcher's field manager. Requests of the same user without it are not the watcher's writes.
    pub by_manager: bool,
}

/// A reason for a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The policy, as in [`RuleName::policy`].
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// The text for the user.
    pub message: String,
    /// `None`: the request violates the rule. Otherwise the rule could not be evaluated.
    pub error: Option<ErrorCode>,
}

impl Decision {
    /// Returns whether the request may go on.
    pub fn allowed(&self) -> bool {
        self.blocked.is_empty()
    }
}

/// The consequence of one rule's outcome for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consequence {
    /// The request may go on.
    Admits,
    /// The request may go on, and the user is warned.
    Warns,
    /// The request is denied, since it violates the rule.
    RefusesByRule,
    /// The request is denied, since the rule could not be evaluated.
    RefusesByError,
}

/// Returns the action for a violation of a rule. A mutate rule always enforces: a missing change cannot be told from
/// an unwanted one, so the failure policy decides about errors.
pub(crate) fn action(rule: &Rule, report: &RuleReport) -> FailureAction {
    match rule.phase() {
        Phase::Validation => report.action,
        Phase::Mutation => FailureAction::Enforce,
    }
}

/// Returns whether an outcome that is an error admits. One that the request's own size leads to never does: otherwise
/// large objects would get past the policy.
pub(crate) fn ignores_errors(policy: &Policy, report: &RuleReport) -> bool {
    let (reads_facts, is_large) = (!report.facts.is_empty(), report.is_of_large_request);
    let is_caused_by_request = match &report.outcome {
        RuleOutcome::Error(error) => error.is_caused_by_request(reads_facts, is_large),
        _ => false,
    };
    policy.failure_policy() == FailurePolicy::Ignore && !is_caused_by_request
}

impl Consequence {
    /// Returns the consequence of a rule's outcome for the request.
    pub fn of_report(policy: &Policy, rule: &Rule, report: &RuleReport) -> Self {
        let ignore_errors = ignores_errors(policy, report);
        let (action, warn_on_audit) = (action(rule, report), policy.emit_warning());
        Self::of_outcome(&report.outcome, action, ignore_errors, warn_on_audit)
    }

    /// Returns the consequence of an outcome, if violations lead to `action`. With `ignore_errors` an error admits
    /// the request, and with `warn_on_audit` the user is warned of violations in Audit.
    fn of_outcome(
        outcome: &RuleOutcome,
        action: FailureAction,
        ignore_errors: bool,
        warn_on_audit: bool,
    ) -> Self {
        match (outcome, action) {
            (RuleOutcome::Fail { .. }, FailureAction::Enforce) => Self::RefusesByRule,
            (RuleOutcome::Fail { .. }, FailureAction::Audit) if warn_on_audit => Self::Warns,
            (RuleOutcome::Error(_), FailureAction::Enforce) if !ignore_errors => {
                Self::RefusesByError
            }
            (RuleOutcome::Error(_), _) => Self::Warns,
            (
                RuleOutcome::Fail { .. }
                | RuleOutcome::Pass
                | RuleOutcome::Mutated { .. }
                | RuleOutcome::Skipped { .. }
                | RuleOutcome::NotMatched,
                _,
            ) => Self::Admits,
        }
    }
}

/// Makes the decision from the records of all rules. `warnings` are earlier warnings.
pub fn decide(rules: Vec<RuleRecord>, warnings: Vec<String>) -> Decision {
    let mut decision = Decision {
        warnings,
        ..Decision::default()
    };
    for record in &rules {
        let (message, code) = match &record.outcome {
            RuleOutcome::Fail { message } => (message.clone(), None),
            RuleOutcome::Error(error) => {
                decision.error = true;
                (error_text(error), Some(error.code()))
            }
            RuleOutcome::Pass
            | RuleOutcome::Mutated { .. }
            | RuleOutcome::Skipped { .. }
            | RuleOutcome::NotMatched => continue,
        };
        let consequence = Consequence::of_outcome(
            &record.outcome,
            record.action,
            record.ignore_errors,
            record.warn_on_audit,
        );
        match consequence {
            Consequence::Admits => {}
            Consequence::Warns => decision.warnings.push(warning(record, &message)),
            Consequence::RefusesByRule | Consequence::RefusesByError => {
                decision.blocked.push(blocked(record, message, code));
            }
        }
    }
    decision.rules = rules;
    decision
}

fn blocked(record: &RuleRecord, message: String, error: Option<ErrorCode>) -> Blocked {
    Blocked {
        policy: record.name.policy.clone(),
        rule: record.name.rule().to_owned(),
        message,
        error,
    }
}

fn warning(record: &RuleRecord, message: &str) -> String {
    let name = &record.name;
    format!("policy {}.{}: {message}", name.policy, name.rule())
}

fn error_text(error: &RuleError) -> String {
    format!("{} {error}", error.code())
}

#[cfg(test)]
mod tests {
    use anteroom_model::{FactError, ObjectKey};
    use anteroom_policy::FactRead;

    use super::*;

    fn record(outcome: RuleOutcome, action: FailureAction, ignore_errors: bool) -> RuleRecord {
        RuleRecord {
            took: std::time::Duration::ZERO,
            name: Arc::new(RuleName::new(ObjectKey::new("", "p"), "r")),
            action,
            ignore_errors,
            warn_on_audit: false,
            outcome,
            changed: ChangedPlaces::default(),
            facts: Vec::new(),
            excepted_by: Vec::new(),
            properties: BTreeMap::new(),
            depends_on_arrival: false,
            knows_secrets: false,
        }
    }

    #[test]
    fn every_outcome_under_every_action_and_failure_policy() {
        use FailureAction::{Audit, Enforce};
        let fail = || RuleOutcome::Fail {
            message: "taken".into(),
        };
        let error = || {
            RuleOutcome::Error(RuleError::Fact {
                variable: "v".into(),
                entry: "e".into(),
                source: FactError::EntryNotFound {
                    kind: anteroom_model::EntryKind::Cached,
                    entry: "e".into(),
                },
            })
        };
        let skip = RuleOutcome::Skipped { reason: "s".into() };
        // Allowed, warnings, error.
        for (outcome, action, ignore, expected) in [
            (RuleOutcome::Pass, Enforce, false, (true, 0, false)),
            (skip, Enforce, false, (true, 0, false)),
            (fail(), Enforce, false, (false, 0, false)),
            (fail(), Enforce, true, (false, 0, false)),
            (fail(), Audit, false, (true, 0, false)),
            (error(), Enforce, false, (false, 0, true)),
            (error(), Enforce, true, (true, 1, true)),
            (error(), Audit, false, (true, 1, true)),
            (error(), Audit, true, (true, 1, true)),
        ] {
            let decision = decide(vec![record(outcome.clone(), action, ignore)], Vec::new());
            let found = (decision.allowed(), decision.warnings.len(), decision.error);
            assert_eq!(found, expected, "{outcome:?} {action:?} {ignore}");
        }
    }

    fn fact() -> FactRead {
        FactRead {
            id: 0,
            variable: "v".to_owned(),
            entry: "e".to_owned(),
            error: None,
        }
    }

    #[test]
    fn an_error_that_the_request_itself_leads_to_is_never_ignored() {
        let policy = anteroom_policy::compile(&serde_json::json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
            "spec": { "failurePolicy": "Ignore", "rules": [{
                "name": "r", "match": { "any": [{ "resources": { "kinds": ["Pod"] } }] },
                "validate": { "message": "no", "deny": {} },
            }] },
        }));
        let policy = policy.unwrap();
        let (refuses, warns) = (Consequence::RefusesByError, Consequence::Warns);
        let elements = |of_request| RuleError::TooManyElements {
            found: 1_001,
            of_request,
        };
        let of_fact = |source| RuleError::Fact {
            variable: "v".into(),
            entry: "e".into(),
            source,
        };
        let busy = |over_part| {
            let message = "m".into();
            of_fact(FactError::LiveReadBusy { message, over_part })
        };
        let late = |over_part| {
            of_fact(FactError::DeadlineExceeded {
                deadline_ms: 1,
                over_part,
            })
        };
        // Without facts, with one, and with one for a large request.
        for (error, expected) in [
            (RuleError::ReviewTooCostly, [refuses, refuses, refuses]),
            (RuleError::ReviewsOverPart, [refuses, refuses, refuses]),
            (RuleError::TooManyFacts, [refuses, refuses, refuses]),
            (elements(true), [refuses, refuses, refuses]),
            (elements(false), [refuses, warns, refuses]),
            (RuleError::TooManyElementsInAll, [refuses, warns, refuses]),
            (RuleError::TooMuchPatched, [refuses, warns, refuses]),
            (RuleError::OutOfTime, [warns, warns, warns]),
            (busy(true), [refuses, refuses, refuses]),
            (busy(true).withheld(), [refuses, refuses, refuses]),
            (busy(false), [warns, warns, warns]),
            (late(true), [refuses, refuses, refuses]),
            (late(false), [warns, warns, warns]),
            (late(false).withheld(), [warns, warns, warns]),
        ] {
            let cases = [
                (Vec::new(), false),
                (vec![fact()], false),
                (vec![fact()], true),
            ];
            for ((facts, is_of_large_request), expected) in cases.into_iter().zip(expected) {
                let report = RuleReport {
                    outcome: RuleOutcome::Error(error.clone()),
                    action: FailureAction::Enforce,
                    facts,
                    is_of_large_request,
                    excepted_by: Vec::new(),
                    changed: Vec::new(),
                    properties: BTreeMap::new(),
                    depends_on_arrival: false,
                };
                let found = Consequence::of_report(&policy, &policy.rules()[0], &report);
                assert_eq!(found, expected, "{error}");
            }
        }
    }

    #[test]
    fn an_error_is_reported_with_its_code() {
        let error = RuleError::TooManyFacts;
        let decision = decide(
            vec![record(
                RuleOutcome::Error(error),
                FailureAction::Enforce,
                false,
            )],
            vec!["before".into()],
        );
        assert!(
            decision.blocked[0]
                .message
                .starts_with("AR203 the rule reads")
        );
        assert_eq!(decision.blocked[0].error, Some(ErrorCode::BUDGET_EXCEEDED));
        assert_eq!(decision.warnings, ["before"]);
    }

    #[test]
    fn an_audit_violation_is_a_warning_where_the_policy_asks_for_it() {
        let fail = RuleOutcome::Fail {
            message: "taken".into(),
        };
        let record = RuleRecord {
            warn_on_audit: true,
            knows_secrets: false,
            ..record(fail, FailureAction::Audit, false)
        };
        let decision = decide(vec![record], Vec::new());
        assert!(decision.allowed());
        assert_eq!(decision.warnings, ["policy p.r: taken"]);
    }
}
