//! The requests of an evaluation for facts, and its outcome.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::FactError;
use serde_json::Value;

use super::error::RuleError;
use crate::ir::{ChangedObject, FactSubject, FailureAction};

/// The next step of an evaluation.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is returned"
)]
pub enum RuleStep {
    /// Ask for these, [`Evaluation::supply`](super::Evaluation::supply) each answer, and step again.
    Need(Vec<FactRequest>),
    /// There is nothing left to do.
    Done(RuleReport),
}

/// A query that the driver is asked to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FactRequest {
    /// The number to answer it with [`Evaluation::supply`](super::Evaluation::supply): unique within the
    /// evaluation.
    pub id: u32,
    /// The context entry that reads it.
    pub variable: String,
    /// The subject of the fact.
    pub subject: FactSubject,
    /// JMESPath over the entry's data; empty: the data whole. The same text for every request,
    /// except where a policy puts a variable where only an identifier or a number can stand.
    pub expression: String,
    /// The value of each `$name` of the expression. A rule that waits, its queries and their repetitions share them.
    pub parameters: Arc<BTreeMap<String, Value>>,
    /// A key that an object lacks is an error rather than null.
    pub missing_key_is_error: bool,
    /// The oldest news that the rule accepts (`maxStaleness`); `None`: the replicas' own limit holds.
    pub age_max_ms: Option<u64>,
    /// The request is for the result of one use of the fact, or for the fields that the rule reads, so that the fact
    /// need not travel. A driver that cannot answer without the whole fact calls
    /// [`Evaluation::decline`](super::Evaluation::decline); the rule then asks for the fact.
    pub is_pushed_down: bool,
    /// The expression in CEL that is asked in place of `expression`: it is about a list, and pushed down. The answer is
    /// `{"value": …}`, `{"failed": {"message": …}}`, `{"parameter": {"name": …}}` or `{"noJson": …}`.
    pub cel: Option<Arc<CelRequest>>,
}

/// A part of an expression in CEL, to be evaluated where the lists are kept that it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct CelRequest {
    /// The expression: it names `view`, which is the list of the request's subject, its parameters, and the further lists.
    pub expression: String,
    /// The variables before it, by name.
    pub variables: Vec<(String, String)>,
    /// Parameters that are errors, with their messages.
    pub failed: BTreeMap<String, String>,
    /// Further lists of the same view, by their names in the expression.
    pub documents: BTreeMap<String, FactSubject>,
}

/// The outcome of a rule, and the facts that it was decided from.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleReport {
    /// The outcome.
    pub outcome: RuleOutcome,
    /// The consequence of a violation, for this object.
    pub action: FailureAction,
    /// The facts, in the order in which they were asked for.
    pub facts: Vec<FactRead>,
    /// The request is [large](crate::LARGE_REQUEST_BYTES_MIN).
    pub is_of_large_request: bool,
    /// The exceptions by which it was skipped, if it was, as [`PolicyException::name`](crate::PolicyException::name) has them.
    pub excepted_by: Vec<String>,
    /// The existing objects to write, for a rule with `mutate.targets`, without those that were
    /// [taken](super::Evaluation::take_changed) before. There may be some even if the rule failed on others.
    pub changed: Vec<ChangedObject>,
    /// Further results: audit annotations of a policy in CEL by their keys, and which of its validations decided
    /// (`cel.validationIndex`).
    pub properties: BTreeMap<String, String>,
    /// An expression asked for the time or for chance: at another [`Arrival`](crate::Arrival) the outcome may be another.
    pub depends_on_arrival: bool,
}

/// The outcome of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleOutcome {
    /// The rule does not match this request.
    NotMatched,
    /// The rule matched, and then did not apply.
    Skipped {
        /// The reason: the rule's preconditions, or a violation that existed before.
        reason: String,
    },
    /// The request complies.
    Pass,
    /// The request violates the rule.
    Fail {
        /// The rule's message, with its variables resolved.
        message: String,
    },
    /// The rule changes the object.
    Mutated {
        /// The object with the changes.
        object: Value,
    },
    /// The rule failed, so it is unknown whether the request complies.
    Error(RuleError),
}

impl RuleOutcome {
    /// Returns whether the rule was applied: it was not skipped, and is no error.
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Pass | Self::Fail { .. } | Self::Mutated { .. })
    }
}

/// A fact that the rule asked for, for the record of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactRead {
    /// The id of the [`FactRequest`].
    pub id: u32,
    /// The context entry.
    pub variable: String,
    /// The name of the fact's source, for people: an entry's name, or a path.
    pub entry: String,
    /// The error, if there was no answer.
    pub error: Option<FactError>,
}
