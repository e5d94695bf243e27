//! Time limits after which a mirror no longer trusts its copies.

use std::{sync::Arc, time::Duration};

use anteroom_model::limits::{AGE_MAX_DEFAULT_MS, BEAT_SILENCE_MAX_MS, LAG_MAX_MS};

use crate::{Changes, HeldViewFilter, OpenSealed};

/// The limits of a mirror, and what it holds. The defaults are those of [`anteroom_model::limits`].
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// The age of a view's news above which it is stale, where neither its writer nor a reader names
    /// one.
    pub age_max_ms: u64,
    /// The silence of a group's writer from which on readiness and the errors of stale views tell it.
    pub beat_silence_max_ms: u64,
    /// The longest time that a beat may be ahead of the log without any progress. After it, the log is
    /// read again.
    pub lag_max_ms: u64,
    /// The least time between two times that this mirror asks for the log again. It doubles with
    /// every time, up to [`MirrorConfig::RESTART_WAIT_MAX`], until a read leaves nothing in doubt.
    pub restart_wait: Duration,
    /// The views that it holds, until [`Mirror::hold`](crate::Mirror::hold) says otherwise.
    pub hold: HeldViewFilter,
    /// Opens bodies that are sealed. Without it, a view that has any fails with a reason.
    pub opener: Option<Arc<dyn OpenSealed>>,
    /// Collects the changes of all views, those included that are not held.
    pub changes: Option<Changes>,
}

impl MirrorConfig {
    /// The longest wait of a view that stays in doubt, before the log is read for it again.
    pub const RESTART_WAIT_MAX: Duration = Duration::from_secs(60);
}

impl Default for MirrorConfig {
    fn default() -> Self {
        Self {
            age_max_ms: AGE_MAX_DEFAULT_MS,
            beat_silence_max_ms: BEAT_SILENCE_MAX_MS,
            lag_max_ms: LAG_MAX_MS,
            restart_wait: Duration::from_millis(500),
            hold: HeldViewFilter::all(),
            opener: None,
            changes: None,
        }
    }
}
