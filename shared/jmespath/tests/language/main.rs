//! Tests of the language as a whole, in one binary: one link for all of them.
#![allow(clippy::unwrap_used)] // In the helpers of tests as in tests.

mod calls;
mod cases;
mod compliance;
mod corpus;
mod fuzz;
mod hostile;
mod missing_key;
mod oracle;
mod support;
mod text;
