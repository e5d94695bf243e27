//! `{{ }}`: text and values with variables in them.
use thiserror::Error;

/// Why a variable could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("variable `{expression}`: {message}")]
pub struct VariableError {
    /// As written between the braces.
    pub expression: String,
    /// What happened.
    pub message: String,
}
#[derive(Debug)]
pub(crate) struct Prepared {}
#[derive(Debug)]
pub(crate) struct Template {}
#[derive(Debug)]
pub(crate) struct ValueTemplate {}
