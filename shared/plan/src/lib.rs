//! Plans that answer a query without looking at every object.
//!
//! Most queries ask for the few objects of a view that agree with a request in some value:
//! `items[?metadata.name == $name]`. [`narrow()`] reads from the expression in which value the objects have to agree,
//! so that the other objects can be left out. An [`Index`] knows which objects have that value. The whole expression
//! is then evaluated over those few objects. So the answer is always the same as over all objects, errors included.
//! The only possible fault of an index is to leave out an object: the properties in `tests/` compare both.
//!
//! Only a budget may show the difference: the few objects cost less.
//!
//! Counts over the whole list are kept up to date while the list changes, and stand in the expression as parameters.
//! [`extract_counts()`] finds them, and a [`Counter`] keeps one of them. An expression that has to scan all objects
//! does so slice by slice, if it can: see [`Sliced`].
//!
//! [`reads()`] returns the fields of each object that an expression can read, so that a view need not keep the other
//! fields.
//!
//! | module | content |
//! |---|---|
//! | `narrow` | the keys that tell which objects matter |
//! | `key`, `index` | the value looked up of an object; objects by it |
//! | `changes` | the difference between two states of a view |
//! | `chain` | projections, filters and flattenings, element by element |
//! | `counts` | counts that are kept up to date |
//! | `sliced` | evaluation slice by slice |
//! | `field_reads` | the fields that an expression can read |
//! | `text` | a syntax tree as text again |
//! | `describe` | a plan in words |
//! | `cel` | CEL over the objects of a view |
//!
//! # Which objects can matter
//!
//! [`narrow()`] reads this off the syntax tree. The expression is always evaluated whole, over the objects
//! that an index finds.
//!
//! - *Chains.* For a projection, a filter or `[]`, the result over the list is the concatenation of the results over
//!   each object. So a filter anywhere in such a chain tells which objects matter, also a filter within an object.
//!   The key of an index is the chain up to the filter, then the compared subexpression. A slice (`[0:10]`) ends a
//!   chain.
//! - *Errors.* An object whose key fails, or has parts, is looked at in every query. The parts of a chain
//!   that are not part of a key must be such that they cannot fail.
//! - *Members.* `any_in(keys, CHAIN)` and its kin, and `contains(CHAIN, value)`, look for a member. One
//!   object for each key is enough. Values with wildcards are kept apart: every key is matched against them.
//!   A key with a wildcard is matched against the values with its literal prefix.
//! - *Labels.* `label_match(selector of the object, $labels)` finds objects by their selector's first entry.
//!   `label_match($selector, labels of the object)` finds them by the rarest entry of the request.
//! - *Choice.* Of several usable conditions, the index that finds the fewest objects is taken.
//!
//! # How an index follows a view
//!
//! An index belongs to one snapshot. It advances by the difference of two snapshots, which share unchanged
//! chunks, so a view needs to notify nobody. The difference is computed once for all indexes of a view, field
//! by field. A change in fields that a key does not read is only noted, for up to a thousand objects. A query
//! whose index is missing or in use scans instead. [`describe`] says in words how a query is answered, and
//! why it scans.
//!
//! # Why only counts are kept
//!
//! Counts and existence are kept while a view changes. Sums, means, extremes and sorted lists are not: no
//! published policy applies them to a collection of the cluster, and a scan answers them.

mod cel;
mod chain;
mod changes;
mod counts;
mod describe;
mod field_reads;
mod index;
mod key;
mod narrow;
mod sliced;
mod text;

pub use anteroom_jmespath::Scalar;
pub use cel::{ListHost, PACE_OBJECTS, ViewList};
pub use chain::ChainParameters;
pub use changes::Changes;
pub use counts::{
    Count, CountedExpression, Counter, CounterKey, IndexedCount, Measure, extract_counts,
};
pub use describe::{Objects, PlanDescription, describe};
pub use field_reads::{pruned, reads};
pub use index::{Index, Language, LookupOptions};
pub use key::{IndexKey, Key, KeyProgram, Leaf, Reading};
pub use narrow::{
    Document, Matching, Narrow, NoIndexReason, Operand, Probe, Scan, narrow, selected,
};
pub use sliced::{NoPart, SliceResult, Sliced, Whole};
