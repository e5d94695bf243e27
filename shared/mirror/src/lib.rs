//! A mirror keeps views in step with the log.
//!
//! ```text
//!  Bus ── LogEvent ──▶ ┌─────────┐ ── Effect ──▶ handles, metrics, spans
//!      ── Beat ──────▶ │ machine │
//!      ◀── restart ─── └─────────┘
//! ```
//!
//! The machine ([`machine`](self)) is pure: it holds each view ([`kept`](self)) with what is known of
//! it, which is two things that a view must have before it answers:
//!
//! - *everything*: [`proof`](self) says what is known of that, by having read the log to its end and
//!   by comparing digests with the writer's;
//! - *news*: [`freshness`](self) says how old it is, from the writer's beats.
//!
//! Everything else about it is an error that says why. A view that is not whole is repaired by
//! reading the log again ([`RereadCause`]), at a bounded rate, while the others go on answering.
//!
//! Replicas mirror every view; a webhook mirrors the system views.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod effect;
mod freshness;
mod handle;
mod kept;
mod machine;
mod metrics;
mod mirror;
mod proof;
mod readiness;
mod reread;
mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use config::MirrorConfig;
pub use handle::{ViewHandle, ViewSet};
pub use metrics::MirrorMetrics;
pub use mirror::Mirror;
pub use readiness::MirrorReadiness;
pub use reread::RereadCause;
pub use status::{ContentStamp, ReadPosition, ViewStatus};
