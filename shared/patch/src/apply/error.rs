//! Why a partial object is not merged.

use thiserror::Error;

use crate::{BUILT_BYTES_MAX, DEPTH_MAX, PatchError};

/// Why a partial object is not merged. The object is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// The types of the kind are not known, so nothing can be merged.
    #[error("there is no schema for kind `{kind}` of `{api_version}`")]
    NoSchema {
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's `kind`.
        kind: String,
    },
    /// The patch is not of the object's type.
    #[error("invalid ApplyConfiguration: {path}: {problem}")]
    Patch {
        /// The path in the patch, as in `.spec.containers[name="app"].image`.
        path: String,
        /// The fault at that path.
        problem: String,
    },
    /// The object is not of its own type.
    #[error("the object does not fit its schema: {path}: {problem}")]
    Object {
        /// The path in the object.
        path: String,
        /// The fault at that path.
        problem: String,
    },
    /// The patch touches what can only be replaced as a whole.
    #[error(
        "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
        paths.join(", ")
    )]
    Atomic {
        /// The paths in the patch, in its order; elements of lists by their places.
        paths: Vec<String>,
    },
    /// Object and patch are too large together.
    #[error("object and patch are larger than {BUILT_BYTES_MAX} bytes")]
    TooLarge,
    /// The object or the patch is too deep.
    #[error("the patch or the object nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// Whoever counts the work of the merge has stopped it.
    #[error("the patch takes more steps than are left")]
    TooCostly,
}

impl From<PatchError> for ApplyError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::TooDeep => Self::TooDeep,
            PatchError::TooCostly => Self::TooCostly,
            _ => Self::TooLarge,
        }
    }
}
