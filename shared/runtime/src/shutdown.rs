//! Asking a process to stop.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Asks everything in the process to drain and stop. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

impl Shutdown {
    /// Not asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled once the process has to drain. Take `.child_token()` of it to cancel a part earlier.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Asks for the shutdown. Only the first reason is kept.
    pub fn trigger(&self, reason: impl Into<String>) {
        let reason = reason.into();
        if self.reason.set(reason.clone()).is_ok() {
            tracing::info!(%reason, "shutdown started");
        }
        self.token.cancel();
    }

    /// Returns true once it was asked for.
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Returns the reason, once it was asked for.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Waits until it is asked for.
    pub async fn triggered(&self) {
        self.token.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_shutdown_reason_is_kept_and_reaches_every_clone() {
        let shutdown = Shutdown::new();
        let other = shutdown.clone();
        assert!(!other.is_triggered());
        shutdown.trigger("first");
        other.trigger("second");
        other.triggered().await;
        assert!(shutdown.token().is_cancelled());
        assert_eq!(other.reason(), Some("first"));
    }
}
