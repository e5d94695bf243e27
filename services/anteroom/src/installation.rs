//! Commands that an installation in a cluster begins and ends with.

pub(crate) mod init;
pub(crate) mod uninstall;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::time::timeout;

/// Limit for one call of the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Waits for a call of the API server. `what` says what it does, as in "read Secret a".
async fn call<T>(
    call: impl Future<Output = kube::Result<T>>,
    what: impl FnOnce() -> String,
) -> anyhow::Result<T> {
    let answer = timeout(CALL_TIMEOUT, call).await;
    answer
        .map_err(|_| anyhow!("the API server does not answer"))
        .and_then(|answer| Ok(answer?))
        .with_context(|| format!("cannot {}", what()))
}
