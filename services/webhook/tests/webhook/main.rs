//! The webhook as the API server meets it: over TLS, on an in-process bus, with a log written by
//! hand and replicas that say what a test wants them to say.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod bad_days;
mod bad_input;
mod cel;
mod client;
mod cluster;
mod conditions;
mod decisions;
mod drains;
mod exceptions;
mod exempt;
mod local_views;
mod mutate_existing;
mod mutations;
mod offline;
mod registered;
mod replicas;
mod slow;
mod sources;
mod traced;
