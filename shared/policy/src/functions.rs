//! Kyverno's additions to the JMESPath functions.

/// The table.
pub fn functions() {}
