//! One rule taken through one request, without IO.

use std::collections::BTreeMap;

use anteroom_model::{ErrorCode, FactError};
use serde_json::Value;
use thiserror::Error;

use crate::{AdmissionRequest, Policy, Rule, VariableError};

/// Facts that one rule may read while one request is evaluated; more is an error.
pub const FACTS_PER_RULE_MAX: usize = 64;

/// What the driver is asked for: one query to the view that an entry points at.
#[derive(Clone, Debug, PartialEq)]
pub struct FactRequest {
    /// To answer it with [`Evaluation::supply`]: unique within the evaluation.
    pub id: u32,
    /// The context entry that reads it.
    pub variable: String,
    /// The `CachedContextEntry`'s name.
    pub entry: String,
    /// JMESPath over the entry's data; empty: the data whole. The same text for every request,
    /// except where a policy puts a variable where only an identifier or a number can stand.
    pub expression: String,
    /// What each `$name` of the expression is bound to.
    pub parameters: BTreeMap<String, Value>,
    /// Whether a key that an object lacks is an error rather than null.
    pub missing_key_is_error: bool,
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleOutcome {
    /// The rule does not speak of this request.
    NotMatched,
    /// It matched, and then did not apply.
    Skipped {
        /// Why: its preconditions, or a violation that was there before.
        reason: String,
    },
    /// The request complies.
    Pass,
    /// The request violates the rule.
    Fail {
        /// The rule's message, with its variables resolved.
        message: String,
    },
    /// Whether it complies is not known.
    Error(RuleError),
}

/// Why a rule could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A fact could not be read: the error that its entry or its view holds.
    #[error("context entry `{variable}`: {source}")]
    Fact {
        /// The context entry.
        variable: String,
        /// The `CachedContextEntry` that it reads.
        entry: String,
        /// Why there is no answer.
        source: FactError,
    },
    /// A variable could not be resolved.
    #[error("{place}: {source}")]
    Variable {
        /// Where it stands, as in `preconditions.all[0].key`.
        place: String,
        /// Why.
        source: VariableError,
    },
    /// The rule asked for more than it may.
    #[error("the rule reads more than {FACTS_PER_RULE_MAX} facts for one request")]
    TooManyFacts,
}

impl RuleError {
    /// Its stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Fact { source, .. } => source.code(),
            Self::Variable { .. } => ErrorCode::VARIABLE_UNRESOLVED,
            Self::TooManyFacts => ErrorCode::BUDGET_EXCEEDED,
        }
    }
}

/// A fact that the rule asked for, for the record of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactRead {
    /// The id of the [`FactRequest`].
    pub id: u32,
    /// The context entry.
    pub variable: String,
    /// The `CachedContextEntry`'s name.
    pub entry: String,
    /// Why there was no answer, if there was none.
    pub error: Option<FactError>,
}

/// What became of a rule, and what it was decided from.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleReport {
    /// What became of it.
    pub outcome: RuleOutcome,
    /// In the order in which they were asked for.
    pub facts: Vec<FactRead>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Ask for these, [`Evaluation::supply`] each answer, and step again.
    Need(Vec<FactRequest>),
    /// There is nothing left to do.
    Done(RuleReport),
}

/// One rule on its way through one request.
pub struct Evaluation<'a> {
    policy: &'a Policy,
    rule: &'a Rule,
    request: &'a AdmissionRequest,
}

impl<'a> Evaluation<'a> {
    /// Begins; nothing is evaluated before the first [`step`](Self::step).
    pub fn start(policy: &'a Policy, rule: &'a Rule, request: &'a AdmissionRequest) -> Self {
        Self {
            policy,
            rule,
            request,
        }
    }

    /// Goes on as far as the facts at hand allow.
    pub fn step(&mut self) -> Step {
        let _ = (self.policy, self.rule, self.request);
        Step::Done(RuleReport {
            outcome: RuleOutcome::NotMatched,
            facts: Vec::new(),
        })
    }

    /// Answers a request of the last step.
    pub fn supply(&mut self, id: u32, answer: Result<Value, FactError>) {
        let _ = (id, answer);
    }
}
