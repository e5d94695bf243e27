//! Access to the Kubernetes API.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Limit for connecting to the API server.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Options for access to the API server.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesArgs {
    /// A kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's own account]
    #[arg(long, value_name = "FILE", env = "ANTEROOM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig file [default: its current one]
    #[arg(long, value_name = "NAME", env = "ANTEROOM_KUBE_CONTEXT")]
    pub kube_context: Option<String>,
}

impl KubernetesArgs {
    /// A client without retries of its own: a service sees every refusal, says it, and backs off as
    /// it finds right. Nothing is connected yet.
    ///
    /// # Errors
    /// `CONFIG_INVALID` where there is no usable configuration.
    pub async fn client(&self) -> anyhow::Result<Client> {
        // A code of the model's, which this crate does not depend on.
        const WHAT: &str = "AR701: no usable configuration for the Kubernetes API: give \
                            --kubeconfig, set KUBECONFIG, or run in a pod with a service account";
        let mut config = self.config().await.context(WHAT)?;
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_MAX);
        Client::try_from(config).context(WHAT)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two contexts, the first of which is current.
    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: one
clusters:
  - {name: one, cluster: {server: "https://192.0.2.1:6443"}}
  - {name: two, cluster: {server: "https://192.0.2.2:6443"}}
users: [{name: it, user: {token: t}}]
contexts:
  - {name: one, context: {cluster: one, user: it}}
  - {name: two, context: {cluster: two, user: it}}
"#;

    async fn host(kube_context: Option<&str>) -> anyhow::Result<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), KUBECONFIG).unwrap();
        let args = KubernetesArgs {
            kubeconfig: Some(file.path().to_owned()),
            kube_context: kube_context.map(ToOwned::to_owned),
        };
        Ok(args.config().await?.cluster_url.to_string())
    }

    #[tokio::test]
    async fn the_client_uses_the_kubeconfig_file_and_its_context() {
        assert_eq!(host(None).await.unwrap(), "https://192.0.2.1:6443/");
        assert_eq!(host(Some("two")).await.unwrap(), "https://192.0.2.2:6443/");
        assert!(host(Some("three")).await.is_err());
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_file_is_named_in_the_error() {
        let args = KubernetesArgs {
            kubeconfig: Some("/nowhere/kubeconfig".into()),
            kube_context: None,
        };
        let error = format!("{:#}", args.client().await.err().unwrap());
        assert!(error.starts_with("AR701: "), "{error}");
        assert!(error.contains("/nowhere/kubeconfig"), "{error}");
    }
}
