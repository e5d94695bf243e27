//! Kyverno's condition operators.
//!
//! What the names do not say, and both sides' types decide, stands in the submodules. Common to all:
//! a null key meets no condition, and neither does a pair of types that an operator does not compare,
//! except that it is *not equal*.

mod equality;
mod membership;
mod ordering;

use std::cmp::Ordering;

use serde_json::Value;

use crate::meter;
use membership::{Quantifier, Set};

/// A comparison of a condition's key with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `Equals`, `Equal`
    Equals,
    /// `NotEquals`, `NotEqual`
    NotEquals,
    /// `In`, deprecated: strings, without wildcards where the key is a list.
    In,
    /// `NotIn`, deprecated: as `In`.
    NotIn,
    /// Some element of the key is in the value.
    AnyIn,
    /// Every element of the key is in the value.
    AllIn,
    /// Some element of the key is not in the value.
    AnyNotIn,
    /// No element of the key is in the value.
    AllNotIn,
    /// Compared as durations, quantities, numbers or versions.
    Compare(Comparison),
    /// `Duration*`, deprecated: by duration alone, numbers being seconds.
    CompareDurations(Comparison),
}

/// The orderings that satisfy a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The operator `GreaterThan`.
    Greater,
    /// The operator `GreaterThanOrEquals`.
    GreaterOrEqual,
    /// The operator `LessThan`.
    Less,
    /// The operator `LessThanOrEquals`.
    LessOrEqual,
}

impl Comparison {
    fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
        }
    }
}

/// Every spelling; case does not matter.
const NAMES: [(&str, Operator); 18] = [
    ("Equals", Operator::Equals),
    ("Equal", Operator::Equals),
    ("NotEquals", Operator::NotEquals),
    ("NotEqual", Operator::NotEquals),
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("AnyIn", Operator::AnyIn),
    ("AllIn", Operator::AllIn),
    ("AnyNotIn", Operator::AnyNotIn),
    ("AllNotIn", Operator::AllNotIn),
    ("GreaterThan", Operator::Compare(Comparison::Greater)),
    (
        "GreaterThanOrEquals",
        Operator::Compare(Comparison::GreaterOrEqual),
    ),
    ("LessThan", Operator::Compare(Comparison::Less)),
    (
        "LessThanOrEquals",
        Operator::Compare(Comparison::LessOrEqual),
    ),
    (
        "DurationGreaterThan",
        Operator::CompareDurations(Comparison::Greater),
    ),
    (
        "DurationGreaterThanOrEquals",
        Operator::CompareDurations(Comparison::GreaterOrEqual),
    ),
    (
        "DurationLessThan",
        Operator::CompareDurations(Comparison::Less),
    ),
    (
        "DurationLessThanOrEquals",
        Operator::CompareDurations(Comparison::LessOrEqual),
    ),
];

impl Operator {
    /// From its name in a policy.
    pub fn parse(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|&(_, operator)| operator)
    }

    /// The names that a policy may use.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|&(name, _)| name)
    }

    /// The name that a policy would write today.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(_, known)| *known == self)
            .map_or("", |&(name, _)| name)
    }

    /// Returns whether key and value meet the condition. The work is charged to the [`meter`]; where nothing is left of
    /// it, the answer means nothing.
    pub fn holds(self, key: &Value, value: &Value) -> bool {
        if !meter::charge(1 + length(key) + length(value)) {
            return false;
        }
        match self {
            Self::Equals => equality::equals(key, value),
            Self::NotEquals => !key.is_null() && !equality::equals(key, value),
            Self::In => membership::in_strings(key, value, false),
            Self::NotIn => membership::in_strings(key, value, true),
            Self::AnyIn => membership::holds(Quantifier::Any, Set::In, key, value),
            Self::AllIn => membership::holds(Quantifier::All, Set::In, key, value),
            Self::AnyNotIn => membership::holds(Quantifier::Any, Set::NotIn, key, value),
            Self::AllNotIn => membership::holds(Quantifier::All, Set::NotIn, key, value),
            Self::Compare(wanted) => {
                ordering::compare(key, value).is_some_and(|found| wanted.accepts(found))
            }
            Self::CompareDurations(wanted) => {
                ordering::compare_durations(key, value).is_some_and(|found| wanted.accepts(found))
            }
        }
    }
}

/// Returns the steps of the [`meter`] that it takes to look through a value once.
pub fn length(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text_length(text),
        Value::Array(elements) => elements.iter().map(|element| 1 + length(element)).sum(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| 1 + text_length(key) + length(value);
            fields.iter().map(field).sum()
        }
    }
}

fn text_length(text: &str) -> u64 {
    (text.len() / meter::BYTES_PER_STEP) as u64
}

#[cfg(test)]
mod tests;
