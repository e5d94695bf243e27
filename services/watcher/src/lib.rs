//! The watcher: the only service that reads from the API server.
//!
//! The views are divided into groups, each with a lease; any number of watchers divide the groups
//! among themselves. Whoever leads group 0 is the *coordinator*: it reads entries and policies, and
//! publishes which views and objects are wanted. Whoever leads another group reads that from the log,
//! runs the watches, prunes what nobody reads, and writes deltas.
//!
//! ```text
//!              ┌─ coordinator (group 0) ──────────────────────────────┐
//!  API server ─┼▶ reflect ─▶ controller ─(registry, resolve)─▶ publish ┼─▶ log: entries, policies,
//!       │      │ discovery ─▶    │ └─▶ calls (API calls)              │        kinds, wanted, …
//!       │      │                 └─▶ status ──▶ conditions, Events    │             │
//!       │      └──────────────────────────────────────────────────────┘             ▼
//!       │      ┌─ of every other group ───────────────────────────────┐           wants
//!       └──────┼▶ feeds ─▶ reflect ─▶ sinks ─▶ publish ──▶ log: views  │◀────────────┘
//!              └──────────────────────────────────────────────────────┘
//! ```
//!
//! Decisions are pure and held by tables and models: [`reflect`]'s machine, the registry, the
//! catalog, the book of what has to be written, what is wanted, how the groups are divided,
//! conditions and status plans.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod api;
mod apiserver;
pub mod args;
mod board;
mod calls;
mod checks;
mod conditions;
mod controller;
mod crd;
mod discovery;
mod feeds;
mod images;
mod index;
mod lead;
mod left;
mod live;
mod manifests;
mod members;
mod metrics;
mod permits;
mod prune;
mod publish;
mod reflect;
mod registry;
mod resolve;
mod rights;
mod rules;
mod sinks;
mod status;
mod term;
mod wants;
mod watcher;
mod webhooks;

pub use args::{Args, memory_limit};
pub use crd::crds;
pub use images::RegistryArgs;
pub use live::LiveArgs;
pub use permits::{CacheApiCalls, SecretsReader};
pub use watcher::run;
