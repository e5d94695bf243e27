//! The command line.

use std::time::Duration;

use anteroom_runtime::{
    instance,
    units::{bytes, duration},
};
use anteroom_seal::Keys;
use http::uri::Authority;

use crate::coordinator::{CacheApiCalls, PolicyWriter, SecretsReader};
use crate::feeds::LIMIT_MIN;
use crate::gateway::live::LiveArgs;

/// Parses a limit of memory with [`bytes()`].
///
/// # Errors
/// The fault of the text, in words for the author.
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

/// The policies that may change existing objects if `--allow-writes` is not given.
const CLUSTER_POLICIES: [&str; 2] = ["clusterpolicy/*", "mutatingpolicy/*"];

/// The default of `--namespace-log-bytes-max`.
const NAMESPACE_LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The default time after which the watch of an unread object stops.
const REFERENCE_IDLE_AFTER: Duration = Duration::from_secs(10 * 60);

/// The default time after which a silent watch counts as dead.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// Options of the watcher.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Watcher")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "WatcherArgs")]
pub struct Args {
    /// This replica's name in the lease. If the name stays the same over a restart, the replica
    /// need not wait for its own old lease [default: $POD_NAME, else the host's name and the
    /// process id]
    #[arg(long, env = "ANTEROOM_HOLDER")]
    pub holder: Option<String>,

    /// The policies' calls of the API server that views answer
    #[arg(long, env = "ANTEROOM_CACHE_API_CALLS", value_enum, default_value_t)]
    pub cache_api_calls: CacheApiCalls,

    /// Keep views of all objects that policies with background scans match, for the reporter. Views
    /// of a type share watches. Each view takes memory for its objects in this watcher's log, in every replica
    /// and in the reporter
    #[arg(long, env = "ANTEROOM_BACKGROUND_SCANS")]
    pub background_scans: bool,

    /// The namespace from which PolicyExceptions are read; `*` for any. A user who may write
    /// PolicyExceptions there can exempt any object from any policy [default: none are read]
    #[arg(
        long,
        env = "ANTEROOM_EXCEPTION_NAMESPACE",
        value_name = "NAMESPACE",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub exception_namespace: Option<String>,

    /// Entries and policies that may read Secrets, separated by commas: cachedcontextentry/NAME,
    /// globalcontextentry/NAME, clusterpolicy/NAME, policy/NAMESPACE/NAME. The kinds of
    /// policies.kyverno.io have the same forms, as in validatingpolicy/NAME. `*` stands for any run of
    /// characters. To change the list, restart the watchers one after the other: a takeover
    /// publishes only the differences
    #[arg(
        long,
        env = "ANTEROOM_ALLOW_SECRETS",
        value_delimiter = ',',
        value_name = "READER"
    )]
    pub allow_secrets: Vec<SecretsReader>,

    /// Policies that may change existing objects (`mutate.targets`, `mutateExisting`), separated by commas:
    /// clusterpolicy/NAME, policy/NAMESPACE/NAME, and the kinds of policies.kyverno.io likewise, as
    /// in mutatingpolicy/NAME. `*` stands for any run of characters. Others are in force, but
    /// change nothing
    #[arg(
        long,
        env = "ANTEROOM_ALLOW_WRITES",
        value_delimiter = ',',
        default_values = CLUSTER_POLICIES,
        value_name = "POLICY"
    )]
    pub allow_writes: Vec<PolicyWriter>,

    /// Nothing is written for policies and GlobalContextEntries.
    #[arg(skip)]
    pub shadow: bool,

    /// The largest response of an entry's API call, as in `512Ki`; a larger one is an error [default:
    /// 2Mi]
    #[arg(long, env = "ANTEROOM_API_CALL_BYTES_MAX", value_parser = bytes, value_name = "BYTES")]
    pub api_call_bytes_max: Option<u64>,

    /// Services that policies and entries may call at any address, separated by commas: hosts, as in
    /// `127.0.0.1:8080`; without a port, each port of the host. For other services, the watcher
    /// refuses loopback, link-local and cloud metadata addresses
    #[arg(
        long,
        env = "ANTEROOM_TRUSTED_SERVICE",
        value_delimiter = ',',
        value_name = "HOST"
    )]
    pub trusted_service: Vec<Authority>,

    /// The memory limit of this watcher, as in `512Mi`; at least `64Mi`. Reads from the API server
    /// wait for pending writes, to stay below it. If keys and entries alone exceed it, the largest
    /// view fails until there is room again [default: no limit]
    #[arg(long, env = "ANTEROOM_WATCHER_MEMORY_LIMIT", value_parser = memory_limit, value_name = "BYTES")]
    pub watcher_memory_limit: Option<u64>,

    /// The bytes of the log that objects of one type may take in the views which only policies of one
    /// namespace read, as in `64Mi`. Beyond it the largest of these views fails. In a view that namespaces share, the
    /// objects of one namespace may take as much; further ones are errors (AR119)
    #[arg(
        long,
        env = "ANTEROOM_NAMESPACE_LOG_BYTES_MAX",
        default_value = "64Mi",
        value_parser = bytes,
        value_name = "BYTES"
    )]
    pub namespace_log_bytes_max: u64,

    /// The time, as in `10m`, after which the watcher stops a watch of one named object that no
    /// policy has read. The next query reads the object again
    #[arg(
        id = "reference_idle_after",
        long = "reference-idle-after",
        env = "ANTEROOM_REFERENCE_IDLE_AFTER",
        default_value = "10m",
        value_parser = duration,
        value_name = "DURATION"
    )]
    pub reference_idle_after: Duration,

    /// The time after which a silent watch counts as dead, at least 20 seconds. Readers use the
    /// same limit for stale views.
    #[arg(skip = STALE_AFTER)]
    pub stale_after: Duration,

    /// The keys that Secrets are sealed with in the log.
    #[arg(skip = Keys::none())]
    pub keys: Keys,

    /// The keys that Secrets are asked for with.
    #[arg(skip = Keys::none())]
    pub asker_keys: Keys,

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
            allow_writes: CLUSTER_POLICIES
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect(),
            shadow: false,
            api_call_bytes_max: None,
            trusted_service: Vec::new(),
            live: LiveArgs::default(),
            watcher_memory_limit: None,
            namespace_log_bytes_max: NAMESPACE_LOG_BYTES_MAX,
            reference_idle_after: REFERENCE_IDLE_AFTER,
            stale_after: STALE_AFTER,
            keys: Keys::none(),
            asker_keys: Keys::none(),
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
        assert_eq!(bytes("64Mi"), Ok(NAMESPACE_LOG_BYTES_MAX));
        assert_eq!(Args::default().allow_writes.len(), 2);
    }
}
