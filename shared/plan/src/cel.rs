//! CEL over the objects of a view.
//!
//! The evaluator goes through a list of objects as it does through any list, and asks it for the objects that can
//! matter to a macro (see [`anteroom_cel::ObjectList`]). [`ViewList`] is such a list: it finds them in indexes by
//! paths ([`KeyPath`](anteroom_cel::KeyPath)), which follow a view as all indexes do. So one query may ask for many
//! values, each of which is known only while it is evaluated.
//!
//! # Differences from JMESPath
//!
//! - *A lookup needs no plan.* When a macro runs, the values to look up are known, within loops around it. A macro
//!   that no index can answer scans the objects, and only that macro does.
//! - *Irregular objects* (those for which a path fails) can only matter to the error. They are read from the index a
//!   few at a time, in order, until one of them fails.
//! - *A list is lazy.* An object that is not asked for costs nothing, also where a namespace is selected.

mod batches;
mod candidates;
mod list;

pub use list::{ListHost, PACE_OBJECTS, ViewList};
