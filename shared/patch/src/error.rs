//! Why a patch does not apply.

use thiserror::Error;

use crate::{BUILT_BYTES_MAX, DEPTH_MAX, MADE_MEMORY_BYTES_MAX, OPERATIONS_MAX};

/// Why a patch is none, or does not apply. The document is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The patch is none, whatever the document.
    #[error("{place}: {problem}")]
    Malformed {
        /// The position in the patch, like `operation 2` or `spec.containers`.
        place: String,
        /// The fault at that position.
        problem: String,
    },
    /// The patch speaks of what the document does not have, or has otherwise.
    #[error("{operation} at `{path}`: {problem}")]
    DoesNotApply {
        /// The operation, like `replace`.
        operation: &'static str,
        /// The path in the document.
        path: String,
        /// Why it cannot be.
        problem: String,
    },
    /// A `test` found another value.
    #[error("test at `{path}`: the document has another value there")]
    TestFailed {
        /// The path in the document.
        path: String,
    },
    /// There are more operations than are applied.
    #[error("the patch has {found} operations; {OPERATIONS_MAX} are applied")]
    TooManyOperations {
        /// The number found.
        found: usize,
    },
    /// Whoever counts the work of the patch has stopped it.
    #[error("the patch takes more steps than are left")]
    TooCostly,
    /// The result would be too large.
    #[error(
        "what the patch makes is larger than {BUILT_BYTES_MAX} bytes, or takes {MADE_MEMORY_BYTES_MAX} bytes of memory more \
         than the object"
    )]
    TooLarge,
    /// The patch or the document is too deep.
    #[error("the patch or the object nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

impl PatchError {
    pub(crate) fn malformed(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Malformed {
            place: place.into(),
            problem: problem.into(),
        }
    }
}
