//! Counts over the whole list that a small counter or an index answers while the list changes: the
//! number of elements of a chain, and whether there are any. Pure.
//!
//! [`extract_counts()`] replaces each such subexpression by a parameter, and the rest of the expression is evaluated as
//! usual. A subexpression can fail only if its [chain](crate::chain) fails on some object. Then the [`Counter`] gives
//! no count, and the original expression is evaluated, with its first error. So a subexpression that is never reached,
//! as behind `||`, makes no difference.

mod counted;
mod counter;
mod search;

pub use counted::{Count, CountedExpression, IndexedCount, Measure};
pub use counter::{Counter, CounterKey};
pub use search::extract_counts;
