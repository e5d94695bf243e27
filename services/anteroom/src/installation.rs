//! Commands that an installation in a cluster begins and ends with.

pub(crate) mod init;
pub(crate) mod uninstall;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use kube::Error;
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
        .and_then(|answer| answer.map_err(said))
        .with_context(|| format!("cannot {}", what()))
}

/// Returns an error in the API server's own words, where it has answered.
pub(crate) fn said(error: Error) -> anyhow::Error {
    match error {
        Error::Api(status) if !status.message.is_empty() => anyhow!("{}", status.message),
        Error::Service(_) => anyhow::Error::from(error)
            .context("the API server that --kubeconfig and --kube-context name does not answer"),
        error => error.into(),
    }
}
