//! The reasons why an evaluation stops.

use super::{error::RuleError, report::RuleOutcome};
use crate::ir::VariableError;

/// The reason why a template or an expression is not resolved.
#[derive(Debug)]
pub(super) enum Interrupt {
    /// A fact has to arrive first.
    Pending,
    /// The rule fails, whatever the expression around it does.
    Rule(Box<RuleError>),
    /// The rule fails, unless the expression around it catches the error.
    Variable(VariableError),
}

impl From<VariableError> for Interrupt {
    fn from(error: VariableError) -> Self {
        Self::Variable(error)
    }
}

impl Interrupt {
    /// The rule's error, if it is one; `place` is where the variable stands.
    pub(super) fn into_error(self, place: impl FnOnce() -> String) -> Option<RuleError> {
        Some(match self {
            Self::Pending => return None,
            Self::Rule(error) => *error,
            Self::Variable(source) => RuleError::Variable {
                place: place(),
                source,
            },
        })
    }
}

/// The reason why there is no verdict.
pub(super) enum Stop {
    /// A fact is waited for.
    Pending,
    /// The rule cannot be evaluated.
    Error(Box<RuleError>),
}

impl Stop {
    /// `None` while a fact is waited for.
    pub(super) fn outcome(self) -> Option<RuleOutcome> {
        match self {
            Self::Pending => None,
            Self::Error(error) => Some(RuleOutcome::Error(*error)),
        }
    }
}
