//! Evaluates the queries of one request over one state of a view.
//!
//! [`path`] has the table of the five ways in which a query is answered, and chooses among them.

mod batch;
mod cel;
mod evaluator;
mod offload;
mod path;
mod traits;

pub(crate) use batch::{Batch, Prepared};
pub(crate) use evaluator::{Evaluator, REQUEST_INLINE_STEPS_MAX};
