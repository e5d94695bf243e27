//! The functions that expressions of policies may call: JMESPath's own, and Kyverno's additions.
//!
//! The replica evaluates queries of context entries with the same table.

use std::sync::LazyLock;

use anteroom_jmespath::FunctionTable;

/// The table, one for all.
pub fn functions() -> &'static FunctionTable {
    static TABLE: LazyLock<FunctionTable> = LazyLock::new(|| FunctionTable::standard());
    &TABLE
}
