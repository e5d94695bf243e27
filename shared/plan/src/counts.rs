//! Counts over the whole list that a small counter or an index answers while the list changes: the
//! number of elements of a chain, and whether there are any. Pure.
//!
//! [`extract_counts()`] puts a parameter in the place of each such term, so that the rest of the
//! expression is evaluated as ever. A term can fail only where its [chain](crate::chain) fails on some
//! object: then a [`Counter`] gives no count, and the expression is evaluated as it is, with its first
//! error. So a term that is never reached, as behind `||`, makes no difference.

mod counter;
mod search;
mod term;

pub use counter::{Counter, CounterKey};
pub use search::extract_counts;
pub use term::{Count, CountedExpression, IndexedCount, Measure};
