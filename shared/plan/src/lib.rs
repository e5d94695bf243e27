//! How a query is answered without looking at every object.
//!
//! Most queries ask for the few objects of a view that agree with a request in something:
//! `items[?metadata.name == $name]`. [`narrow()`] finds out from the expression alone what the objects
//! have to agree in, so that the rest can be left out; an [`Index`] knows which objects do. The
//! expression itself is then evaluated, whole, over those few. So the answer is always what it would
//! be over all objects, errors included, and what is wrong with an index can only be that it leaves
//! out an object: the properties in `tests/` hold both against each other.
//!
//! Only a budget may tell the two apart: the few cost less.
//!
//! What an expression takes of the list as a whole (how many there are, their sum, the largest) is
//! kept while the list changes, and stands in the expression as a parameter: [`aggregate()`] finds such
//! terms, and an [`Aggregate`] is one that is kept. What has to look at all objects does so by slices,
//! where it can: see [`Sliced`].
//!
//! [`reads()`] says what of each object an expression can read, so that no more of it has to be kept.

mod aggregate;
mod changes;
mod describe;
mod index;
mod key;
mod narrow;
mod reads;
mod scalar;
mod sliced;
mod text;

pub use aggregate::{
    Aggregate, AggregateKey, AggregateTerm, Aggregated, Counted, Measure, Parameters, TallyKind,
    aggregate,
};
pub use changes::Changes;
pub use describe::{Objects, PlanDescription, describe};
pub use index::{Index, Language, Terms};
pub use key::{IndexKey, Key, Leaf, Reading};
pub use narrow::{Document, Matching, Narrow, Operand, Probe, Scan, Why, narrow, selected};
pub use reads::{pruned, reads};
pub use scalar::Scalar;
pub use sliced::{NoPart, Part, Sliced, Whole};
