//! The cache replica: builds every view from the log alone, and answers queries next to the data.
//!
//! ```text
//!  log, beats ──▶ mirror ──▶ views ◀── evaluate ◀── answer ◀── endpoint (one per view) ◀── calls
//!                              │          │
//!                           derived   plan, memo, scan
//! ```
//!
//! - [`run`]: the replica until shutdown.
//! - `endpoint`: subscribes to a view's address while the view is complete and fresh, and leaves it by
//!   draining; beside it, to a fallback address where every view is answered for, whatever its state.
//! - `answer`: one call, from bytes to bytes, within its deadline.
//! - `evaluate`: one query; its `path` has the table of the ways in which a query is answered.
//! - `derived`: indexes and counters beside the views; `scan`: evaluation of a large view by slices; `fair_slots`: whose turn it
//!   is where evaluations take long.
//! - `plan`, `memo`: caches of compiled expressions, and of results by state of the view.
//! - `beats`: tells the others what is held; `references`: objects that are referenced one by one.
//! - `memory`: evicts views where memory is short, and takes them back; `shares`: who holds which views.
//! - `waiting`: names the entries whose views are not there yet.
//!
//! It never talks to the API server.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod args;
mod beats;
mod command;
mod deadline;
mod derived;
mod endpoint;
mod evaluate;
mod fair_slots;
mod memo;
mod memory;
mod metrics;
mod plan;
mod references;
mod replica;
mod scan;
mod sealed;
mod shares;
mod waiting;

pub use args::Args;
pub use command::Command;
pub use replica::run;
