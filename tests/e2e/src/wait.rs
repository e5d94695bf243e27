//! Waiting for something to become true, with a bound and a reason.

use std::{
    env,
    fmt::Display,
    str::FromStr as _,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// The longest that anything may take to become true on a slow, busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks at something that cannot be awaited: another process's state.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);

/// Calls `look` until it answers `Ok`, and returns that. At the bound, the last error is the reason.
pub async fn until<T, E: Display>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> anyhow::Result<T> {
    let started = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(reason) if started.elapsed() >= PATIENCE => {
                bail!(
                    "{what}: not within {} s; last: {reason}",
                    PATIENCE.as_secs()
                )
            }
            Err(_) => tokio::time::sleep(LOOK_INTERVAL).await,
        }
    }
}

/// A number that chooses another or a longer story, from the environment.
pub fn setting(name: &str, default: u64) -> anyhow::Result<u64> {
    match env::var(name) {
        Ok(text) => u64::from_str(&text).with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}
