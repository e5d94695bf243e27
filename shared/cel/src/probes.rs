//! The questions that a macro asks of an index.

use anteroom_jmespath::Scalar;

use crate::key_path::KeyPath;

/// The condition that elements have to meet, with the values that are looked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Probes<'p> {
    /// Objects with one of these values at a path.
    One {
        /// The path.
        key: &'p KeyPath,
        /// The values.
        values: Vec<Scalar>,
    },
    /// Any of these: all of them have to be asked.
    Any(Vec<Probes<'p>>),
    /// Each finds all elements that can matter: any of them may be asked. At least one.
    All(Vec<Probes<'p>>),
}
