//! Conditions of rules, compiled. Pure.

use anteroom_functions::operator::Operator;

use crate::ir::template::{Template, ValueTemplate};

/// Conditions of a rule, in one of the two shapes that a manifest may give them.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// Conditions of which one must be met; `None`: the manifest has no `any`, which is met. An empty list is never
    /// met.
    pub(crate) any: Option<Vec<Condition>>,
    /// Conditions that must all be met; the legacy list of conditions is stored here.
    pub(crate) all: Vec<Condition>,
}

/// A condition of a rule.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) key: ValueTemplate,
    pub(crate) operator: Operator,
    pub(crate) value: ValueTemplate,
    /// The message as written: variables in it are resolved together with the rule's message.
    pub(crate) message: Option<Template>,
}
