//! Problems that keep a policy from being ready.

use std::fmt;

use anteroom_model::ErrorCode;

use super::{Driver, subquery::ExpressionIds};

/// A fault of a manifest, or a feature that this version does not evaluate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `POLICY_INVALID`, `POLICY_UNSUPPORTED` or `POLICY_FORBIDDEN`.
    pub code: ErrorCode,
    /// The field, as in `spec.rules[0].validate.pattern`.
    pub path: String,
    /// The reason, and the remedy.
    pub message: String,
}

/// For people: `AR301 spec.rules[0].validate.pattern: …`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.path, self.message)
    }
}

/// The problems found so far, in the manifest's order.
///
/// The problems that the compiler has found. It goes on after a problem, so that an author sees all problems at once.
pub(crate) struct Problems {
    found: Vec<Problem>,
    driver: Driver,
    /// The counter of the expressions that are compiled.
    pub(crate) ids: ExpressionIds,
}

impl Problems {
    /// None yet, of a manifest that is compiled for `driver`.
    pub(crate) fn new(driver: Driver, ids: ExpressionIds) -> Self {
        Self {
            found: Vec::new(),
            driver,
            ids,
        }
    }

    /// Returns the driver that the policy is compiled for.
    pub(crate) fn driver(&self) -> Driver {
        self.driver
    }

    /// A problem, unless the driver of evaluations supports the feature.
    pub(crate) fn unsupported_unless(
        &mut self,
        known: impl FnOnce(Driver) -> bool,
        path: impl fmt::Display,
        message: impl Into<String>,
    ) {
        if !known(self.driver) {
            self.unsupported(path, message);
        }
    }

    pub(crate) fn invalid(&mut self, path: impl fmt::Display, message: impl Into<String>) {
        self.push(ErrorCode::POLICY_INVALID, path, message);
    }

    pub(crate) fn unsupported(&mut self, path: impl fmt::Display, message: impl Into<String>) {
        self.push(ErrorCode::POLICY_UNSUPPORTED, path, message);
    }

    pub(crate) fn forbidden(&mut self, path: impl fmt::Display, message: impl Into<String>) {
        self.push(ErrorCode::POLICY_FORBIDDEN, path, message);
    }

    fn push(&mut self, code: ErrorCode, path: impl fmt::Display, message: impl Into<String>) {
        if !self.is_full() {
            self.found.push(Problem {
                code,
                path: path.to_string(),
                message: cut(message.into()),
            });
        }
    }

    /// Returns whether further problems are left out.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= PROBLEMS_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<Problem> {
        self.found
    }
}

/// The most characters of one message. A message may quote an expression, and people read it in a status.
const MESSAGE_CHARACTERS_MAX: usize = 1024;

fn cut(message: String) -> String {
    match message.char_indices().nth(MESSAGE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

/// The most problems reported for a manifest. Further problems are left out, since the manifest is not ready anyway.
pub(crate) const PROBLEMS_MAX: usize = 256;
