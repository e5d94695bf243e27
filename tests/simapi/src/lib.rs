//! A simulated Kubernetes API server: a real HTTP server, with objects in memory and faults to order.
//!
//! It behaves as a kube-apiserver does wherever a client of LIST, WATCH and admission can tell: the
//! order of versions, pages of one moment, expired histories and tokens, bookmarks, selectors,
//! conflicts, subresources, validating webhooks. What both must do alike is written down once, in
//! `conformance` (behind the feature of that name), and run against both.
//!
//! What controllers of a real cluster do at once here: a deleted namespace is empty, a created
//! definition is served.
//!
//! What it does not do: authenticate, validate by schema, default, convert between versions (all
//! serve the same), keep managed fields, run finalizers, dry runs, mutating webhooks, tables, YAML
//! and protobuf bodies.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admission;
mod args;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod control;
mod discovery;
mod faults;
pub mod generate;
mod http;
mod list;
mod metadata;
mod object;
mod patch;
mod request;
mod resource;
mod selector;
mod server;
mod sim;
mod stats;
mod status;
mod store;
mod watch;
mod write;

pub use args::Args;
pub use faults::{Fault, Matching};
pub use resource::ResourceName;
pub use sim::{SimApi, SimConfig, SimError};
pub use stats::{Requests, Stats};
