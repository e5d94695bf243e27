//! Paths and literals that a policy mentions together.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{expression::ExpressionParts, value_path::ValuePath};

/// The most literals that are kept of one field of a policy.
const LITERALS_MAX: usize = 48;

/// Paths, and literals that the policy mentions in the same breath.
#[derive(Clone, Debug, Default)]
pub(super) struct Mention {
    pub(super) paths: BTreeSet<ValuePath>,
    pub(super) literals: Vec<Value>,
}

impl Mention {
    pub(super) fn literal(&mut self, value: Value) {
        if self.literals.len() < LITERALS_MAX && !self.literals.contains(&value) {
            self.literals.push(value);
        }
    }

    pub(super) fn take(&mut self, found: ExpressionParts) {
        self.paths.extend(found.paths);
        found.literals.into_iter().for_each(|one| self.literal(one));
    }
}
