//! The command line.

use std::{path::PathBuf, time::Duration};

use anteroom_model::ErrorCode;
use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// How long connecting to the API server may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

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

    /// How the API server is reached.
    #[command(flatten)]
    pub kubernetes: KubernetesArgs,
}

/// How the API server is reached.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesArgs {
    /// A kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's own account]
    #[arg(long, env = "ANTEROOM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig file [default: its current one]
    #[arg(long, env = "ANTEROOM_KUBE_CONTEXT")]
    pub kube_context: Option<String>,
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

impl KubernetesArgs {
    /// A client without retries of its own, so that the watcher sees every refusal. Nothing is
    /// connected yet.
    ///
    /// # Errors
    /// `CONFIG_INVALID` where there is no usable configuration.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let what = || {
            format!(
                "{}: no usable configuration for the Kubernetes API: give --kubeconfig, set \
                 KUBECONFIG, or run in a pod with a service account",
                ErrorCode::CONFIG_INVALID
            )
        };
        let mut config = self.config().await.with_context(what)?;
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_MAX);
        Client::try_from(config).with_context(what)
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions {
            context: self.kube_context.clone(),
            ..Default::default()
        };
        Ok(match &self.kubeconfig {
            Some(path) => {
                Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?
            }
            None if self.kube_context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await?,
        })
    }
}
