//! The watcher between the simulated API server and an in-process bus.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod cel_policies;
mod crds;
mod enforced;
mod exceptions;
mod feeds;
mod full;
mod groups;
mod retained;
mod support;
mod terms;
mod views;
