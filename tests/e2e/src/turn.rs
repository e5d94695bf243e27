//! Turns: only so many clusters run at once, however many threads a test program has.

use anyhow::Context;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Clusters that run at once in one process: a story waits more than it computes.
const CLUSTERS_AT_ONCE: usize = 3;

static TURNS: Semaphore = Semaphore::const_new(CLUSTERS_AT_ONCE);

/// A turn, which ends when this is dropped.
pub type Turn = SemaphorePermit<'static>;

/// Waits for a turn.
///
/// # Errors
/// None: turns are never closed.
pub async fn take() -> anyhow::Result<Turn> {
    TURNS.acquire().await.context("turns are closed")
}
