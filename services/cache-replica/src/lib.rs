//! The cache replica: builds every view from the log alone, and answers queries next to the data.
//!
//! ```text
//!  log, beats ──▶ mirror ──▶ views ◀── evaluate ◀── answer ◀── endpoint (one per view) ◀── calls
//!                              │          │
//!                           derived   plan, memo, scan
//! ```
//!
//! | module | content |
//! |---|---|
//! | `replica` | [`run`]: the replica until shutdown |
//! | `local` | [`LocalReplica`]: views of the process that asks, without addresses |
//! | `endpoint` | the addresses of one view |
//! | `answer`, `deadline` | one call, from bytes to bytes; its time |
//! | `evaluate` | one query; `path` has the ways to its answer |
//! | `derived` | indexes and counters beside the views |
//! | `scan`, `fair_slots` | large views by slices; whose turn it is |
//! | `plan`, `memo` | caches of compiled expressions, and of results |
//! | `memory`, `memory_limit`, `shares` | evicts views; what may be taken; who holds which views |
//! | `references`, `sealed` | objects referenced one by one; sealed bodies |
//! | `beats`, `waiting` | publishes the views that are held; names missing entries |
//! | `args`, `command`, `metrics` | options; the process; metrics |
//!
//! `endpoint` subscribes to a view's address while the view is complete and fresh, and leaves it by draining.
//! Beside it, a fallback address answers for every view, whatever its state.
//!
//! A replica never talks to the API server.

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
mod local;
mod memo;
mod memory;
mod memory_limit;
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
pub use local::{LocalArgs, LocalReplica, OptionsState};
pub use replica::{run, run_and_show};
