//! The command line.

use std::time::Duration;

use anteroom_runtime::{
    instance,
    units::{bytes, duration},
};
use anteroom_seal::Keys;

use crate::feeds::LIMIT_MIN;
use crate::live::LiveArgs;
use crate::permits::{CacheApiCalls, SecretsReader};

/// A limit of memory, as [`bytes()`] reads it.
///
/// # Errors
/// What is wrong with it, for whoever wrote it.
pub fn memory_limit(text: &str) -> Result<u64, String> {
    let limit = bytes(text)?;
    if limit < LIMIT_MIN {
        let least = LIMIT_MIN >> 20;
        return Err(format!(
            "`{text}` leaves no room for any view: use {least}Mi or more"
        ));
    }
    Ok(limit)
}

/// How long an object may be unread, where nobody says otherwise.
const REFERENCE_IDLE_AFTER: Duration = Duration::from_secs(10 * 60);

/// How long a watch may be silent, where nobody says otherwise.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// Options of the watcher.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Watcher")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "WatcherArgs")]
pub struct Args {
    /// Whom the lease names as its holder: one name for each replica, kept over restarts, so that a
    /// restarted one need not wait for its own lease [default: $POD_NAME, else the host's name and
    /// the process id]
    #[arg(long, env = "ANTEROOM_HOLDER")]
    pub holder: Option<String>,

    /// Which of the policies' calls of the API server are answered from views
    #[arg(long, env = "ANTEROOM_CACHE_API_CALLS", value_enum, default_value_t)]
    pub cache_api_calls: CacheApiCalls,

    /// Keep views of all objects that policies with background scans are about, for the reporter. Each is a
    /// watch, and takes the memory of its objects in this watcher's log, in every replica and in the
    /// reporter
    #[arg(long, env = "ANTEROOM_BACKGROUND_SCANS")]
    pub background_scans: bool,

    /// The namespace in which PolicyExceptions are taken into account; `*` for any. Whoever may write them
    /// there may except anything from every policy [default: none is taken into account]
    #[arg(
        long,
        env = "ANTEROOM_EXCEPTION_NAMESPACE",
        value_name = "NAMESPACE",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub exception_namespace: Option<String>,

    /// Who may read Secrets, separated by commas: cachedcontextentry/NAME, globalcontextentry/NAME,
    /// clusterpolicy/NAME, policy/NAMESPACE/NAME, each with `*` for any run of characters. To change
    /// it, start the watchers anew, one after the other: a takeover publishes only what differs
    #[arg(
        long,
        env = "ANTEROOM_ALLOW_SECRETS",
        value_delimiter = ',',
        value_name = "READER"
    )]
    pub allow_secrets: Vec<SecretsReader>,

    /// The largest response of an entry's API call, as in `512Ki`; a larger one is an error [default:
    /// 2Mi]
    #[arg(long, env = "ANTEROOM_API_CALL_BYTES_MAX", value_parser = bytes, value_name = "BYTES")]
    pub api_call_bytes_max: Option<u64>,

    /// What this watcher may take in memory, as in `512Mi`, and at least `64Mi`: reading from the API
    /// server waits for what is to be written, and where keys and entries alone take more, the largest view fails
    /// [default: no limit]
    #[arg(long, env = "ANTEROOM_WATCHER_MEMORY_LIMIT", value_parser = memory_limit, value_name = "BYTES")]
    pub watcher_memory_limit: Option<u64>,

    /// How long an object that policies name, and that is watched by itself, may be unread before it
    /// is no longer watched, as in `10m`; it is read again when it is asked for
    #[arg(
        id = "reference_idle_after",
        long = "reference-idle-after",
        env = "ANTEROOM_REFERENCE_IDLE_AFTER",
        default_value = "10m",
        value_parser = duration,
        value_name = "DURATION"
    )]
    pub reference_idle_after: Duration,

    /// How long a watch may be silent before it is taken for dead, at least 20 seconds: the same as the
    /// age at which readers take a view for stale.
    #[arg(skip = STALE_AFTER)]
    pub stale_after: Duration,

    /// The keys that Secrets are sealed with in the log.
    #[arg(skip = Keys::none())]
    pub keys: Keys,

    // Last, since a heading holds until the next one.
    /// Limits of live reads.
    #[command(flatten)]
    pub live: LiveArgs,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            holder: None,
            cache_api_calls: CacheApiCalls::default(),
            background_scans: false,
            exception_namespace: None,
            allow_secrets: Vec::new(),
            api_call_bytes_max: None,
            live: LiveArgs::default(),
            watcher_memory_limit: None,
            reference_idle_after: REFERENCE_IDLE_AFTER,
            stale_after: STALE_AFTER,
            keys: Keys::none(),
        }
    }
}

impl Args {
    /// The holder's name: as given, else the pod's (`POD_NAME`), else the host's and the process id.
    pub fn holder(&self) -> String {
        let given = self.holder.clone().filter(|name| !name.is_empty());
        given
            .or_else(instance::pod)
            .unwrap_or_else(|| format!("{}-{}", instance::place("watcher"), std::process::id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_the_command_line_says() {
        assert_eq!(duration("10m"), Ok(REFERENCE_IDLE_AFTER));
        assert_eq!(duration("60s"), Ok(STALE_AFTER));
    }
}
