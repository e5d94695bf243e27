//! Memory: the views in memory, the limit, and the views to evict above it.
//!
//! [`rule`] has the rule. It is applied to the mirror's views here, a few times a second. That goes on while
//! the log is read, so the limit holds then too.

mod keeper;
mod last_use;
mod rule;

pub(crate) use keeper::{DesiredOptions, Keeper, Limited};
pub(crate) use last_use::{ViewUsage, ViewUsages};
