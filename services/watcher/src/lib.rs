//! The watcher: the only service that reads from the API server.
//!
//! The views are divided into groups, each with a lease; any number of watchers divide the groups among themselves.
//! The leader of group 0 is the *coordinator*: it reads entries and policies, and publishes the desired views and
//! objects. The leader of another group reads these from the log, runs the watches, prunes fields that nobody reads,
//! and writes deltas.
//!
//! ```text
//!              ┌─ coordinator (group 0) ─────────────────────────────────────┐
//!  API server ─┼▶ source ─▶ Controller ─▶ Reconciler ─▶ effects ─▶ log_writer┼─▶ log: entries, policies,
//!       │      │ discovery ─▶ │               │                              │   kinds, desired views, …
//!       │      │              └─▶ gateway     └─▶ StatusWriter ─▶ conditions │             │
//!       │      └─────────────────────────────────────────────────────────────┘             ▼
//!       │      ┌─ feeder (of every other group) ─────────────────────────────┐       desired_state
//!       └──────┼▶ source ─▶ feeds ─▶ log_writer ─▶ log: views                │◀────────────┘
//!              └─────────────────────────────────────────────────────────────┘
//! ```
//!
//! The modules, and the modules that each may use (`cargo xtask tidy` checks it):
//!
//! | module | content | uses |
//! |---|---|---|
//! | `source` | discovery, lists and watches of the API server | |
//! | `log_writer` | election, the writer of the log, the content of the log | |
//! | `gateway` | live reads, API calls, images, own rights | `source` |
//! | `feeds` | the watches of a group, from the desired views | `source`, `log_writer` |
//! | `coordinator` | the desired views with their dependents, and the statuses that users see | all of them |
//!
//! The rest (`watcher`, `term`, `checks`, `metrics`, `args`, `command`) puts these modules together; `generations` is used
//! by `log_writer`, `feeds` and `coordinator`. Decisions are pure state machines: the reflector's, [`feeds`]' plans, the
//! log writer's queue, the division of groups, and all of the coordinator but its controller. `fuzzing` has the bodies of
//! fuzz targets.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod args;
mod checks;
mod command;
mod coordinator;
mod feeds;
mod gateway;
mod generations;
mod log_writer;
mod metrics;
mod source;
mod term;
mod watcher;

#[doc(hidden)]
pub mod fuzzing;

pub use args::{Args, memory_limit};
pub use command::Command;
pub use coordinator::{CacheApiCalls, PolicyWriter, SecretsReader};
pub use gateway::{images::RegistryArgs, live::LiveArgs};
pub use source::{api, crd::crds};
pub use watcher::run;
