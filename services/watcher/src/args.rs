//! The command line.

/// Options of the watcher.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Watcher")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "WatcherArgs")]
pub struct Args {
    /// Whom the lease names as its holder: one name for each replica, kept over restarts, so that a
    /// restarted one need not wait for its own lease [default: the host's name and the process id]
    #[arg(long, env = "ANTEROOM_HOLDER")]
    pub holder: Option<String>,
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
