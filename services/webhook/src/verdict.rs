//! From what became of the rules to a decision. Pure.

use std::sync::Arc;

use anteroom_model::ErrorCode;
use anteroom_policy::{FailureAction, RuleError, RuleOutcome};
use serde_json::Value;

use crate::{existing::Triggered, facts::Origin, rule::RuleName};

/// What became of one rule that spoke of the request.
#[derive(Clone, Debug)]
pub(crate) struct RuleRecord {
    pub(crate) name: Arc<RuleName>,
    pub(crate) action: FailureAction,
    /// Whether an error admits.
    pub(crate) ignore_errors: bool,
    /// Whether a violation in Audit is told to the user.
    pub(crate) warn_on_audit: bool,
    /// Of one that changes the object, without what it made of it.
    /// From its first step to its report, the facts that it waited for included.
    pub(crate) took: std::time::Duration,
    pub(crate) outcome: RuleOutcome,
    /// Where it changed the object, as pointers into it.
    pub(crate) changed: Vec<String>,
    pub(crate) facts: Vec<FactRecord>,
    /// The exceptions by which it was skipped.
    pub(crate) excepted_by: Vec<String>,
}

/// One fact that a rule asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FactRecord {
    pub(crate) entry: String,
    /// `None` where nobody answered.
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) error: Option<ErrorCode>,
}

impl RuleRecord {
    /// For metrics and the record.
    pub(crate) fn result(&self) -> RuleResult {
        RuleResult::of(&self.outcome)
    }
}

impl RuleResult {
    pub(crate) fn of(outcome: &RuleOutcome) -> Self {
        match outcome {
            RuleOutcome::NotMatched => Self::NotMatched,
            RuleOutcome::Skipped { .. } => Self::Skip,
            RuleOutcome::Pass | RuleOutcome::Mutated { .. } => Self::Pass,
            RuleOutcome::Fail { .. } => Self::Fail,
            RuleOutcome::Error(_) => Self::Error,
        }
    }
}

/// What became of a rule, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleResult {
    NotMatched,
    Skip,
    Pass,
    Fail,
    Error,
}

impl RuleResult {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 5] = [
        Self::NotMatched,
        Self::Skip,
        Self::Pass,
        Self::Fail,
        Self::Error,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotMatched => "not_matched",
            Self::Skip => "skip",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
        }
    }
}

/// A decision on one review.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    /// Why it is denied, by policy and rule, in order; empty: allowed.
    pub(crate) blocked: Vec<Blocked>,
    /// What the user is told although it may be allowed.
    pub(crate) warnings: Vec<String>,
    /// Every rule that spoke of the request.
    pub(crate) rules: Vec<RuleRecord>,
    /// Whether any rule could not be evaluated.
    pub(crate) error: bool,
    /// What is to be changed, by RFC 6902; `None`: nothing. Of a request that may go on.
    pub(crate) patch: Option<Value>,
    /// Rules on objects that exist already, which may have been triggered. Of a request that may go on.
    pub(crate) triggered: Option<Triggered>,
}

/// One reason for a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) policy: String,
    pub(crate) rule: String,
    pub(crate) message: String,
    /// `None`: the request violates the rule. Otherwise the rule could not be evaluated.
    pub(crate) error: Option<ErrorCode>,
}

impl Decision {
    /// Whether the request may go on.
    pub(crate) fn allowed(&self) -> bool {
        self.blocked.is_empty()
    }
}

/// Decides. `warnings` are those that are there already.
pub(crate) fn decide(rules: Vec<RuleRecord>, warnings: Vec<String>) -> Decision {
    let mut decision = Decision {
        warnings,
        ..Decision::default()
    };
    for record in &rules {
        match (&record.outcome, record.action) {
            (RuleOutcome::Fail { message }, FailureAction::Enforce) => {
                decision
                    .blocked
                    .push(blocked(record, message.clone(), None));
            }
            (RuleOutcome::Fail { message }, FailureAction::Audit) => {
                if record.warn_on_audit {
                    decision.warnings.push(warning(record, message));
                }
            }
            (RuleOutcome::Error(error), action) => {
                decision.error = true;
                let message = error_text(error);
                if action == FailureAction::Enforce && !record.ignore_errors {
                    let code = Some(error.code());
                    decision.blocked.push(blocked(record, message, code));
                } else {
                    decision.warnings.push(warning(record, &message));
                }
            }
            (
                RuleOutcome::Pass
                | RuleOutcome::Mutated { .. }
                | RuleOutcome::Skipped { .. }
                | RuleOutcome::NotMatched,
                _,
            ) => {}
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

    use super::*;

    fn record(outcome: RuleOutcome, action: FailureAction, ignore_errors: bool) -> RuleRecord {
        RuleRecord {
            took: std::time::Duration::ZERO,
            name: Arc::new(RuleName::new(ObjectKey::new("", "p"), "r")),
            action,
            ignore_errors,
            warn_on_audit: false,
            outcome,
            changed: Vec::new(),
            facts: Vec::new(),
            excepted_by: Vec::new(),
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

    #[test]
    fn an_error_is_told_with_its_code() {
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
    fn a_violation_in_audit_is_told_where_the_policy_says_so() {
        let fail = RuleOutcome::Fail {
            message: "taken".into(),
        };
        let record = RuleRecord {
            warn_on_audit: true,
            ..record(fail, FailureAction::Audit, false)
        };
        let decision = decide(vec![record], Vec::new());
        assert!(decision.allowed());
        assert_eq!(decision.warnings, ["policy p.r: taken"]);
    }
}
