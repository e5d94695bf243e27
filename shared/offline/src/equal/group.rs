//! Places and literals that belong together.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{expression::ExpressionParts, place::Place};

/// The most literals that are kept of one field of a policy.
const LITERALS_MAX: usize = 48;

/// Places, and literals that the policy mentions in the same breath.
#[derive(Clone, Debug, Default)]
pub(super) struct LiteralGroup {
    pub(super) places: BTreeSet<Place>,
    pub(super) literals: Vec<Value>,
}

impl LiteralGroup {
    pub(super) fn literal(&mut self, value: Value) {
        if self.literals.len() < LITERALS_MAX && !self.literals.contains(&value) {
            self.literals.push(value);
        }
    }

    pub(super) fn take(&mut self, found: ExpressionParts) {
        self.places.extend(found.places);
        found.literals.into_iter().for_each(|one| self.literal(one));
    }
}
