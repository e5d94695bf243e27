//! Conditions of rules, compiled. Pure.

use anteroom_functions::operator::Operator;

use crate::ir::template::{Template, ValueTemplate};

/// Conditions of a rule, in one of the two shapes that a manifest may give them.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// `None` where the manifest has no `any`: then nothing is asked of it. An empty one is never
    /// met.
    pub(crate) any: Option<Vec<Condition>>,
    /// All must be met; the legacy list is one of these.
    pub(crate) all: Vec<Condition>,
}

/// One condition.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) key: ValueTemplate,
    pub(crate) operator: Operator,
    pub(crate) value: ValueTemplate,
    /// The message as written: variables in it are resolved together with the rule's message.
    pub(crate) message: Option<Template>,
}
