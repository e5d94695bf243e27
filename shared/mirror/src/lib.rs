//! A mirror keeps views in step with the log.
//!
//! ```text
//!  Bus ── LogEvent ──▶ ┌─────────┐ ── Effect ──▶ handles, metrics, spans
//!      ── Beat ──────▶ │ machine │
//!      ◀── restart ─── └─────────┘
//! ```
//!
//! `machine` is pure: events with their moments in, effects out. Around each `anteroom_view::View`,
//! which says what is served and what is gathered beside it, `mirrored_view` holds its proof, age and repair:
//!
//! - *Is everything here?* `proof` compares digests with the writer's, and tells a loss from a lag.
//! - *How old is the news?* `freshness` takes it from the writer's beats, once what they speak of has
//!   been read.
//!
//! A view answers when both are good; otherwise readers get an error that says why. What is not whole
//! is repaired by reading the log again ([`RereadCause`]), at a bounded rate (`reread`), while the
//! other views go on answering: what is read again is gathered beside what is served.
//!
//! What it holds may change at any time (`demand`): a view is evicted, comes back, or is another's
//! from now on. So may what it follows of the log. One view is read again by itself, beside the others (`machine::loads`).
//!
//! `mirror` is the task that feeds the machine, and hands on what comes out of it: [`ViewHandle`]s,
//! [`MirrorReadiness`], [`MirrorMetrics`], and spans.
//!
//! Replicas mirror every view; a webhook mirrors the system views, and those that are local.
//!
//! | module | content |
//! |---|---|
//! | `machine` | the state machine: events in, effects out |
//! | `mirrored_view` | one view: objects, proof, age, repair |
//! | `proof`, `freshness` | is everything here; how old is it |
//! | `reread` | when the log is read again |
//! | `demand` | which views are followed, held, loaded and evicted |
//! | `beats`, `beat_delay`, `effect` | heartbeats in; how long each was on its way; effects on the world outside |
//! | `mirror`, `config` | the task that feeds the machine; its settings |
//! | `handle`, `status`, `readiness` | views for readers; their status; readiness |
//! | `silence` | writers that are not heard |
//! | `changes`, `marks` | the last change of each view; marks for readers |
//! | `metrics` | metrics |
//! | `testing` | a writer of logs, for tests of readers |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod beat_delay;
mod beats;
mod changes;
mod config;
mod demand;
mod effect;
mod freshness;
mod handle;
mod machine;
mod marks;
mod metrics;
mod mirror;
mod mirrored_view;
mod proof;
mod readiness;
mod reread;
mod silence;
mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use changes::Changes;
pub use config::MirrorConfig;
pub use demand::{HeldViewFilter, OpenSealed};
pub use handle::{ViewHandle, ViewSet};
pub use marks::ChangeMarks;
pub use metrics::MirrorMetrics;
pub use mirror::Mirror;
pub use readiness::MirrorReadiness;
pub use reread::RereadCause;
pub use status::{ContentStamp, ReadPosition, ServedFrom, ViewStatus};
