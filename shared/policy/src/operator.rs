//! Kyverno's condition operators.

/// How key and value of a condition are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equals,
}
