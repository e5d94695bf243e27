//! Errors of compiling and of evaluating.

use thiserror::Error;

use crate::limits::{BUILT_BYTES_MAX, EVALUATION_DEPTH_MAX, JSON_BYTES_MAX, STEPS_MAX};

/// Why an expression is not compiled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The text is no expression, or one that can come to nothing but an error.
    #[error("{0}")]
    Invalid(String),
    /// The expression uses what Kubernetes' CEL has and this crate has not.
    #[error("{0}")]
    Unsupported(String),
}

impl CompileError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

/// Why an evaluation came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvalError {
    /// A map has no such key.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A list is not that long.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(i64),
    /// An operator or function was given what it is not for.
    #[error("no such overload: {function}({types})")]
    NoSuchOverload {
        /// The name of the operator or function.
        function: String,
        /// The types that it was given.
        types: String,
    },
    /// `/ 0`
    #[error("division by zero")]
    DivisionByZero,
    /// `% 0`
    #[error("modulus by zero")]
    ModulusByZero,
    /// A number beyond its type.
    #[error("{0} overflow")]
    Overflow(&'static str),
    /// A function refused its arguments.
    #[error("{0}")]
    Refused(String),
    /// More steps than there may be.
    #[error("the expression takes more than {STEPS_MAX} steps on this object")]
    Steps,
    /// More bytes than there may be.
    #[error(
        "the expression builds more than {BUILT_BYTES_MAX} bytes, or JSON of more than {JSON_BYTES_MAX}, on this object"
    )]
    Bytes,
    /// A fact is not there yet, and what is there does not decide.
    #[error("a fact that it reads is not known yet")]
    Unknown,
    /// A fact cannot be read.
    #[error("{message}")]
    Fact {
        /// The number that the [`Host`](crate::Host) gave.
        id: u32,
        /// The reason.
        message: String,
    },
    /// An input is an error.
    #[error("{message}")]
    Input {
        /// The name of the value.
        name: String,
        /// The error message, in the words of the caller that gave the input.
        message: String,
    },
    /// Variables that refer to variables, too deep.
    #[error("the expression is evaluated more than {EVALUATION_DEPTH_MAX} levels deep")]
    TooDeep,
}

/// Why a value is not there as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JsonError {
    /// There is no value.
    #[error(transparent)]
    Failed(#[from] EvalError),
    /// The value is of a type that JSON has not, or holds such a value. This is the type's name.
    #[error("a {0} cannot be said in JSON")]
    NoJson(&'static str),
}

impl EvalError {
    /// Returns whether a limit was hit, which nothing around it forgives.
    pub fn is_budget(&self) -> bool {
        matches!(self, Self::Steps | Self::Bytes | Self::TooDeep)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}
