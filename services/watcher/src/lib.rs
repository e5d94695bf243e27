//! The watcher: the only service that reads from the API server.
//!
//! It computes the set of wanted views from entries, runs one watch per view, prunes what nobody
//! reads, and writes deltas to the log. Of several watchers one leads; the others stand by.
//!
//! ```text
//!  API server ──▶ reflect ──▶ sinks ─────────────────────────▶ publish ──▶ bus
//!       │            ▲          │ entries, policies              ▲
//!       │            │ starts   ▼                                │ entries, policies, kinds
//!       └──▶ discovery ───▶ controller ──(registry, resolve)─────┘
//!                               └──▶ status ──▶ conditions, Events
//! ```
//!
//! Decisions are pure and held by tables and models: [`reflect`]'s machine, the registry, the
//! catalog, the book of what has to be written, conditions and status plans.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod api;
mod apiserver;
pub mod args;
#[allow(dead_code, reason = "the coordinator drives it")]
mod calls;
mod conditions;
mod controller;
mod crd;
mod discovery;
#[allow(dead_code, reason = "the feeder of a term drives it")]
mod feeds;
mod lead;
mod left;
#[allow(dead_code, reason = "the process serves it")]
mod live;
mod manifests;
mod metrics;
mod prune;
mod publish;
mod reflect;
mod registry;
#[allow(dead_code, unused_imports, reason = "the coordinator calls it")]
mod resolve;
mod sinks;
mod status;
mod term;
mod watcher;

pub use args::Args;
pub use crd::crds;
pub use live::LiveArgs;
pub use watcher::run;
