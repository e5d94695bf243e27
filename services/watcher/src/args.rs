//! The command line.

use anteroom_seal::Keys;

use crate::live::LiveArgs;
use crate::permits::{CacheApiCalls, SecretsReader, bytes};

/// Options of the watcher.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Watcher")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "WatcherArgs")]
pub struct Args {
    /// Whom the lease names as its holder: one name for each replica, kept over restarts, so that a
    /// restarted one need not wait for its own lease [default: the host's name and the process id]
    #[arg(long, env = "ANTEROOM_HOLDER")]
    pub holder: Option<String>,

    /// Which of the policies' calls of the API server are answered from views
    #[arg(long, env = "ANTEROOM_CACHE_API_CALLS", value_enum, default_value_t)]
    pub cache_api_calls: CacheApiCalls,

    /// Who may read Secrets, separated by commas: cachedcontextentry/NAME, globalcontextentry/NAME,
    /// clusterpolicy/NAME, policy/NAMESPACE/NAME, each with `*` for any run of characters
    #[arg(
        long,
        env = "ANTEROOM_ALLOW_SECRETS",
        value_delimiter = ',',
        value_name = "READER"
    )]
    pub allow_secrets: Vec<SecretsReader>,

    /// The largest response of an entry's API call, as in `512K`; a larger one is an error [default:
    /// 2M]
    #[arg(long, env = "ANTEROOM_API_CALL_BYTES_MAX", value_parser = bytes, value_name = "BYTES")]
    pub api_call_bytes_max: Option<u64>,

    /// Limits of live reads.
    #[command(flatten)]
    pub live: LiveArgs,

    /// Bytes that what is kept of all views may take, as in `512M`; at the limit, reading from the
    /// API server waits [default: no limit]
    #[arg(long, env = "ANTEROOM_WATCHER_MEMORY_LIMIT", value_parser = bytes, value_name = "BYTES")]
    pub watcher_memory_limit: Option<u64>,

    /// The keys that Secrets are sealed with in the log.
    #[arg(skip = Keys::none())]
    pub keys: Keys,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            holder: None,
            cache_api_calls: CacheApiCalls::default(),
            allow_secrets: Vec::new(),
            api_call_bytes_max: None,
            live: LiveArgs::default(),
            watcher_memory_limit: None,
            keys: Keys::none(),
        }
    }
}

impl Args {
    /// The holder's name: as given, else the pod's (`POD_NAME`), else the host's and the process id.
    pub fn holder(&self) -> String {
        let given = self
            .holder
            .clone()
            .or_else(|| std::env::var("POD_NAME").ok());
        given.filter(|name| !name.is_empty()).unwrap_or_else(|| {
            let host = std::env::var("HOSTNAME").ok();
            let host = host.or_else(|| std::fs::read_to_string("/etc/hostname").ok());
            let host = host
                .as_deref()
                .map(str::trim)
                .unwrap_or("watcher")
                .to_owned();
            format!("{host}-{}", std::process::id())
        })
    }
}
