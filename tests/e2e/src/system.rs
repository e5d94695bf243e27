//! The services together, each a process of its own.

use std::{path::Path, time::Duration};

use anteroom_load::Target;
use anyhow::Context;
use base64::Engine;
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind},
};

use crate::{
    nats::password,
    process::free_address,
    services::{Recipe, Running},
    wait,
};

/// The namespace that the services think they live in.
pub const SYSTEM_NAMESPACE: &str = "anteroom";

/// The webhook's configuration of itself.
const CONFIGURATION: &str = "anteroom";

/// How many replicas answer.
pub const REPLICAS: usize = 2;

/// A watcher, replicas and a webhook.
#[derive(Debug)]
pub struct System {
    /// `None` while it is killed.
    pub watcher: Option<Running>,
    /// Each is `None` while it is killed.
    pub replicas: Vec<Option<Running>>,
    /// The webhook.
    pub webhook: Running,
}

impl System {
    /// Starts all of them; nothing is waited for. Logs go to `folder`.
    pub fn start(
        folder: &Path,
        nats_url: &str,
        watcher_kubeconfig: &Path,
        webhook_kubeconfig: &Path,
    ) -> anyhow::Result<Self> {
        Self::start_with(
            folder,
            nats_url,
            watcher_kubeconfig,
            webhook_kubeconfig,
            &[],
        )
    }

    /// As [`System::start`], with these environment variables in every process.
    pub fn start_with(
        folder: &Path,
        nats_url: &str,
        watcher_kubeconfig: &Path,
        webhook_kubeconfig: &Path,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let recipe = |name: &str, binary, user: &str| -> anyhow::Result<Recipe> {
            let recipe = Recipe::new(name, binary, folder)?
                .arg("--nats-url", nats_url)
                .arg("--nats-user", user)
                .env("ANTEROOM_NATS_PASSWORD", password(user));
            Ok(env
                .iter()
                .fold(recipe, |recipe, (name, value)| recipe.env(name, value)))
        };
        let watcher = recipe("watcher", "anteroom-watcher", "watcher")?
            .arg("--kubeconfig", watcher_kubeconfig.display())
            .arg("--holder", "watcher-0")
            .start()?;
        let replica = |index: usize| -> anyhow::Result<_> {
            let name = format!("replica-{index}");
            let replica =
                recipe(&name, "anteroom-cache-replica", "replica")?.arg("--replica-id", &name);
            Ok(Some(replica.start()?))
        };
        let replicas = (0..REPLICAS).map(replica).collect::<anyhow::Result<_>>()?;
        let address = free_address()?;
        let webhook = recipe("webhook", "anteroom-webhook", "webhook")?
            .env("KUBECONFIG", webhook_kubeconfig.display())
            .arg("--listen-address", address)
            .arg("--webhook-url", format!("https://{address}"))
            .arg("--service-namespace", SYSTEM_NAMESPACE)
            .start()?;
        Ok(Self {
            watcher: Some(watcher),
            replicas,
            webhook,
        })
    }

    /// Waits until every service says that it is ready.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        for running in self
            .watcher
            .iter_mut()
            .chain(self.replicas.iter_mut().flatten())
        {
            running.ready().await?;
        }
        self.webhook.ready().await
    }

    /// All that run.
    pub fn into_running(self) -> impl Iterator<Item = Running> {
        self.replicas
            .into_iter()
            .flatten()
            .chain(self.watcher)
            .chain([self.webhook])
    }
}

/// Waits until the webhook has registered itself, and says where reviews go: what the API server
/// reads, nothing else.
pub async fn target(client: &Client) -> anyhow::Result<Target> {
    let kind = GroupVersionKind::gvk(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    );
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    wait::until("the webhook to register itself", async || {
        let found = api.get(CONFIGURATION).await?;
        let webhook = &found.data["webhooks"][0]["clientConfig"];
        let url = webhook["url"].as_str().context("no webhook yet")?;
        let ca = webhook["caBundle"].as_str().context("no caBundle yet")?;
        parse_target(url, ca)
    })
    .await
}

fn parse_target(url: &str, ca_base64: &str) -> anyhow::Result<Target> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let url: http::Uri = url.parse()?;
    let authority = url.authority().context("a URL without an address")?;
    Ok(Target {
        address: authority.as_str().parse()?,
        server_name: authority.host().to_owned(),
        ca_pem: base64::engine::general_purpose::STANDARD.decode(ca_base64)?,
        path: format!("{}?timeout={}s", url.path(), TIMEOUT.as_secs()),
        timeout: TIMEOUT,
    })
}
