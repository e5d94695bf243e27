//! The reasons why a rule could not be evaluated.

use anteroom_cel::EvalError;
use anteroom_model::{ErrorCode, FactError};
use anteroom_patch::PatchError;
use thiserror::Error;

use super::limits::{
    EXISTING_BATCHES_MAX, FACTS_PER_RULE_MAX, FOREACH_ELEMENTS_IN_ALL_MAX, FOREACH_ELEMENTS_MAX,
    MUTATED_BYTES_MAX, PARAMETERS_BYTES_MAX,
};
use crate::ir::{VariableError, VariableErrorKind, reference::CONFIG_MAP};

/// The reason why a rule could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// A fact could not be read: the error that its entry or its view holds.
    #[error("context entry `{variable}`: {}", fact_message(entry, source))]
    Fact {
        /// The context entry.
        variable: String,
        /// The name of the fact's source, for people: an entry's name, or a path.
        entry: String,
        /// The error of the fact.
        source: FactError,
    },
    /// A variable could not be resolved.
    #[error("{place}: {source}")]
    Variable {
        /// The path of its field, as in `preconditions.all[0].key`.
        place: String,
        /// The reason.
        source: VariableError,
    },
    /// A CEL expression failed, or its result has a type that its field does not allow.
    #[error("{place} resulted in error: {source}")]
    Cel {
        /// The path of its field, as in `validate.cel.expressions[0].expression`.
        place: String,
        /// The reason.
        source: EvalError,
    },
    /// A patch does not apply.
    #[error("{place}: {source}")]
    Patch {
        /// The path of its field, as in `mutate.foreach[0].patchesJson6902`.
        place: String,
        /// The reason.
        source: PatchError,
    },
    /// The rule patches a large object often.
    #[error("the patches of the rule go through more than {MUTATED_BYTES_MAX} bytes")]
    TooMuchPatched,
    /// The rule was not begun: those before it took all the time that there was.
    #[error("there was no time left to evaluate the rule")]
    OutOfTime,
    /// All rules of the review together took more steps than a review may take.
    #[error(
        "the policies take too long for a request of this size: make the object smaller, or simplify the policies"
    )]
    ReviewTooCostly,
    /// The reviews of one namespace or user take their part of the webhook's work.
    #[error(
        "other requests in the same namespace or of the same user take their part of the webhook's processors: try again \
         with fewer at once"
    )]
    ReviewsOverPart,
    /// The rule asked for more facts than it may.
    #[error("the rule reads more than {FACTS_PER_RULE_MAX} facts for one request")]
    TooManyFacts,
    /// The questions of the rule have large values in them.
    #[error(
        "the questions of the rule have values in them that take more than {PARAMETERS_BYTES_MAX} bytes"
    )]
    LargeQuestions,
    /// There are more objects that exist than a rule goes through.
    #[error(
        "{target}: more than {EXISTING_BATCHES_MAX} batches of objects; the first {seen} objects were handled, the rest \
         were not"
    )]
    TooManyObjects {
        /// The number of objects in those parts.
        seen: usize,
        /// The name of the objects.
        target: String,
    },
    /// A `foreach` has more to go through than it may.
    #[error("a foreach of the rule has {found} elements; {FOREACH_ELEMENTS_MAX} are gone through")]
    TooManyElements {
        /// The number of elements.
        found: usize,
        /// They are a part of the request, and of no fact.
        of_request: bool,
    },
    /// All `foreach` of the rule have more elements together.
    #[error(
        "the foreach of the rule go through more than {FOREACH_ELEMENTS_IN_ALL_MAX} elements in all"
    )]
    TooManyElementsInAll,
    /// An error of a rule that has read Secrets. Its message is withheld, since it could quote them.
    #[error("withheld, since the rule has read Secrets")]
    Withheld {
        /// The code of the error.
        code: ErrorCode,
        /// See [`RuleError::is_over_part`].
        over_part: bool,
    },
}

impl RuleError {
    /// The error as a rule that has read Secrets may show it: its code alone, where its text quotes values or names.
    #[must_use]
    pub fn withheld(self) -> Self {
        match self {
            Self::Fact { .. }
            | Self::Variable { .. }
            | Self::Cel { .. }
            | Self::Patch { .. }
            | Self::TooManyObjects { .. } => Self::Withheld {
                code: self.code(),
                over_part: self.is_over_part(),
            },
            Self::OutOfTime
            | Self::ReviewTooCostly
            | Self::ReviewsOverPart
            | Self::TooManyFacts
            | Self::LargeQuestions
            | Self::TooMuchPatched
            | Self::TooManyElements { .. }
            | Self::TooManyElementsInAll
            | Self::Withheld { .. } => self,
        }
    }

    /// Returns whether the error is about a limit that the request's own content exceeds, or that other requests in its
    /// namespace use up. A rule that reads facts may exceed a limit because of these, which the request's sender does not
    /// choose, unless the request is [large](crate::LARGE_REQUEST_BYTES_MIN): its sender could make it smaller.
    pub fn is_caused_by_request(&self, reads_facts: bool, is_large: bool) -> bool {
        match self {
            _ if self.is_over_part() => true,
            Self::ReviewTooCostly
            | Self::TooManyFacts
            | Self::LargeQuestions
            | Self::TooManyElements {
                of_request: true, ..
            } => true,
            _ => self.code() == ErrorCode::BUDGET_EXCEEDED && (is_large || !reads_facts),
        }
    }

    /// Returns whether other requests in the same namespace, or of the same user, use up their part of the webhook, or of
    /// the service that was to read a fact.
    fn is_over_part(&self) -> bool {
        match self {
            Self::ReviewsOverPart => true,
            Self::Fact { source, .. } => source.is_over_part(),
            Self::Withheld { over_part, .. } => *over_part,
            _ => false,
        }
    }

    /// Returns the error's stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Withheld { code, .. } => *code,
            Self::Fact { source, .. } => source.code(),
            Self::Variable { source, .. } if source.kind == VariableErrorKind::OverBudget => {
                ErrorCode::BUDGET_EXCEEDED
            }
            Self::Variable { .. } => ErrorCode::VARIABLE_UNRESOLVED,
            Self::Cel { source, .. } if source.is_budget() => ErrorCode::BUDGET_EXCEEDED,
            Self::Cel { .. } => ErrorCode::CEL_FAILED,
            Self::Patch { source, .. } => match source {
                PatchError::TooLarge
                | PatchError::TooCostly
                | PatchError::TooManyOperations { .. } => ErrorCode::BUDGET_EXCEEDED,
                _ => ErrorCode::PATCH_FAILED,
            },
            Self::OutOfTime => ErrorCode::DEADLINE_EXCEEDED,
            Self::ReviewTooCostly => ErrorCode::REVIEW_TOO_COSTLY,
            Self::ReviewsOverPart => ErrorCode::REVIEWS_OVER_PART,
            Self::TooManyFacts
            | Self::LargeQuestions
            | Self::TooMuchPatched
            | Self::TooManyObjects { .. }
            | Self::TooManyElements { .. }
            | Self::TooManyElementsInAll => ErrorCode::BUDGET_EXCEEDED,
        }
    }
}

/// Returns the reason why a fact could not be read. For a ConfigMap it has Kyverno's words, since clients match on
/// them.
fn fact_message(read: &str, error: &FactError) -> String {
    match (read.strip_prefix(CONFIG_MAP), error) {
        (Some(object), FactError::PathOutsideNamespace { namespace, .. }) => {
            let other = object.split('/').next().unwrap_or_default();
            format!(
                "configMap namespace \"{other}\" is different from policy namespace \"{namespace}\": \
                 {error}"
            )
        }
        (Some(_), error) => format!("failed to get {read} : {error}"),
        (None, error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error that is withheld says of itself what it said before.
    #[test]
    fn what_a_request_or_others_in_its_namespace_cause_is_never_ignored() {
        let fact = |over_part| RuleError::Fact {
            variable: "v".to_owned(),
            entry: "e".to_owned(),
            source: FactError::DeadlineExceeded {
                deadline_ms: 1,
                over_part,
            },
        };
        for (error, is_caused) in [
            (RuleError::ReviewsOverPart, true),
            (RuleError::ReviewTooCostly, true),
            (RuleError::TooManyFacts, true),
            (fact(true), true),
            (fact(false), false),
            (RuleError::TooMuchPatched, false),
            (RuleError::OutOfTime, false),
        ] {
            assert_eq!(error.is_caused_by_request(true, false), is_caused);
            let withheld = error.clone().withheld();
            let is_still = withheld.is_caused_by_request(true, false);
            assert_eq!(is_still, is_caused, "{error} {withheld}");
        }
    }
}
