//! The watcher: the only service that reads from the API server.

pub mod api;
pub mod apiserver;
mod crd;
pub mod discovery;
mod metrics;
mod prune;
mod publish;
mod reflect;
mod registry;
mod resolve;

pub use crd::crds;
