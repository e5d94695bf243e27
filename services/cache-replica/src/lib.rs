//! The cache replica: builds every view from the log alone, and answers queries next to the data.
//!
//! ```text
//!  log, beats ──▶ mirror ──▶ views ◀── answer ◀── desk (one per view) ◀── calls
//!                                        │
//!                                   plans, memo
//! ```
//!
//! - [`run`]: the replica until shutdown.
//! - `desk`: joins a view's address while the view is complete and fresh, and leaves it by draining;
//!   beside it, a place where every view is answered for, whatever its state.
//! - `beats`: tells the others what is held; `references`: objects that are referenced by themselves.
//! - `answer`: one call, from bytes to bytes, within its deadline and budgets.
//! - `memory`: which views are evicted where memory is short, and come back; `shares`: who holds which.
//! - `waiting`: names the entries that a view is for which is not there.
//! - `narrowed`, `indexes`: which objects a query has to look at; `aggregates`: what it does not have to
//!   work out of all; `kept`: what both keep beside the views; `scan`: how all objects are looked through.
//! - `plan`, `memo`: what may be forgotten: compiled expressions, and results by state of the view.
//!
//! It never talks to the API server.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aggregates;
mod answer;
mod args;
mod beats;
mod deadline;
mod desk;
mod followed;
mod indexes;
mod kept;
mod memo;
mod memory;
mod metrics;
mod narrowed;
mod per_document;
mod plan;
mod references;
mod replica;
mod retained;
mod scan;
mod sealed;
mod shares;
mod waiting;

pub use args::Args;
pub use replica::run;
