//! The reporter between an in-process bus, a watcher that keeps its views, and a simulated API server.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod others;
mod schema;
mod steps;
mod world;
