//! The services together, each a process of its own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anteroom_load::Target;
use anyhow::Context;
use base64::Engine;
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

use crate::{
    nats::{NatsLogins, NatsPlan},
    process::free_address,
    services::{Recipe, Running},
    wait,
};

/// The namespace that the services think they live in.
pub const SYSTEM_NAMESPACE: &str = "anteroom";

/// The webhook's configuration of itself.
const CONFIGURATION: &str = "anteroom";

/// The variable that says how long a webhook drains. Webhooks of stories do not, since nearly all stories would only wait: the others
/// take the variable away. The story `mixed` starts programs that would not know a flag.
pub const DRAIN_VARIABLE: &str = "ANTEROOM_DRAIN_SECONDS";

/// The number of replicas, where nothing else is asked for.
pub const REPLICAS: usize = 2;

/// The number of each service, and their flags beside those that they need.
#[derive(Clone, Debug)]
pub struct SystemPlan {
    /// The number of watchers.
    pub watchers: usize,
    /// The number of replicas.
    pub replicas: usize,
    /// The number of webhooks. Several of them take their reviews by a
    /// [`WebhookService`](crate::webhook_service::WebhookService), which a [`World`](crate::world::World) starts.
    pub webhooks: usize,
    /// Environment variables of every process.
    pub env: Vec<(String, String)>,
    /// Flags of every watcher.
    pub watcher_args: Vec<(&'static str, String)>,
    /// Flags of every replica.
    pub replica_args: Vec<(&'static str, String)>,
    /// Flags of every webhook.
    pub webhook_args: Vec<(&'static str, String)>,
    /// The webhook takes reviews only from who presents the API server's certificate.
    pub webhook_takes_known_clients: bool,
    /// A reporter too, with this kubeconfig file, and views for its scans.
    pub reporter: Option<PathBuf>,
    /// Flags of the reporter.
    pub reporter_args: Vec<(&'static str, String)>,
    /// The watchers come to the API server by a [`Proxy`](crate::proxy::Proxy).
    pub proxied: bool,
    /// There is a second API server over the same etcd, and the proxy leads to both in turn.
    pub second_api_server: bool,
    /// The only webhook takes its reviews by a [`Proxy`](crate::proxy::Proxy).
    pub is_webhook_proxied: bool,
    /// The servers of NATS.
    pub nats: NatsPlan,
}

impl Default for SystemPlan {
    fn default() -> Self {
        Self {
            watchers: 1,
            replicas: REPLICAS,
            webhooks: 1,
            env: Vec::new(),
            watcher_args: Vec::new(),
            replica_args: Vec::new(),
            webhook_args: Vec::new(),
            webhook_takes_known_clients: false,
            reporter: None,
            reporter_args: Vec::new(),
            proxied: false,
            second_api_server: false,
            is_webhook_proxied: false,
            nats: NatsPlan::default(),
        }
    }
}

fn with_args(recipe: Recipe, args: &[(&'static str, String)]) -> Recipe {
    args.iter()
        .fold(recipe, |recipe, (flag, value)| recipe.arg(flag, value))
}

/// Watchers, replicas, webhooks, and perhaps a reporter.
#[derive(Debug)]
pub struct System {
    /// The first watcher; `None` while it is killed.
    pub watcher: Option<Running>,
    /// The other watchers; each is `None` while it is killed.
    pub other_watchers: Vec<Option<Running>>,
    /// Each is `None` while it is killed.
    pub replicas: Vec<Option<Running>>,
    /// The first webhook.
    pub webhook: Running,
    /// The other webhooks; each is `None` while it is killed.
    pub other_webhooks: Vec<Option<Running>>,
    /// The reporter; `None` where the plan has none, or while it is killed.
    pub reporter: Option<Running>,
}

impl System {
    /// Starts all of them; nothing is waited for. Logs go to `folder`.
    pub fn start(
        folder: &Path,
        nats: &NatsLogins,
        watcher_kubeconfig: &Path,
        webhook_kubeconfig: &Path,
    ) -> anyhow::Result<Self> {
        let plan = SystemPlan::default();
        Self::start_as(&plan, folder, nats, watcher_kubeconfig, webhook_kubeconfig)
    }

    /// Starts a system as [`System::start`] does, with these environment variables in every process.
    pub fn start_with(
        folder: &Path,
        nats: &NatsLogins,
        watcher_kubeconfig: &Path,
        webhook_kubeconfig: &Path,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let plan = SystemPlan {
            env: env.iter().map(owned).collect(),
            ..SystemPlan::default()
        };
        Self::start_as(&plan, folder, nats, watcher_kubeconfig, webhook_kubeconfig)
    }

    /// Starts a system as [`System::start`] does, with the plan's services and flags.
    pub fn start_as(
        plan: &SystemPlan,
        folder: &Path,
        nats: &NatsLogins,
        watcher_kubeconfig: &Path,
        webhook_kubeconfig: &Path,
    ) -> anyhow::Result<Self> {
        let recipe = |name: &str, binary, user: &str| -> anyhow::Result<Recipe> {
            let recipe = Recipe::new(name, binary, folder)?.envs(nats.env(user));
            Ok(recipe.envs(plan.env.clone()))
        };
        let watcher = |index: usize| -> anyhow::Result<_> {
            let name = match index {
                0 => "watcher".to_owned(),
                index => format!("watcher-{index}"),
            };
            let recipe = recipe(&name, "watcher", "watcher")?
                .arg("--kubeconfig", watcher_kubeconfig.display())
                .arg("--holder", format!("watcher-{index}"))
                // Endpoints of tests are on loopback.
                .arg("--trusted-service", "127.0.0.1");
            let recipe = match &plan.reporter {
                Some(_) => recipe.env("ANTEROOM_BACKGROUND_SCANS", "true"),
                None => recipe,
            };
            with_args(recipe, &plan.watcher_args).start()
        };
        let replica = |index: usize| -> anyhow::Result<_> {
            let name = format!("replica-{index}");
            let recipe = recipe(&name, "replica", "replica")?.arg("--replica-id", &name);
            Ok(Some(with_args(recipe, &plan.replica_args).start()?))
        };
        let first = watcher(0)?;
        let other_watchers = (1..plan.watchers)
            .map(|index| watcher(index).map(Some))
            .collect::<anyhow::Result<_>>()?;
        let replicas = (0..plan.replicas)
            .map(replica)
            .collect::<anyhow::Result<_>>()?;
        let webhook = |index: usize| -> anyhow::Result<_> {
            let name = match index {
                0 => "webhook".to_owned(),
                index => format!("webhook-{index}"),
            };
            let address = free_address()?;
            let recipe = recipe(&name, "webhook", "webhook")?
                .env("KUBECONFIG", webhook_kubeconfig.display())
                .env(DRAIN_VARIABLE, 0)
                .arg("--listen-address", address)
                .arg("--webhook-url", format!("https://{address}"))
                .arg("--service-namespace", SYSTEM_NAMESPACE);
            with_args(recipe, &plan.webhook_args).start()
        };
        let reporter = match &plan.reporter {
            Some(kubeconfig) => {
                let recipe = recipe("reporter", "reporter", "reporter")?
                    .env("KUBECONFIG", kubeconfig.display())
                    .arg("--reporter-namespace", SYSTEM_NAMESPACE);
                Some(with_args(recipe, &plan.reporter_args).start()?)
            }
            None => None,
        };
        Ok(Self {
            reporter,
            watcher: Some(first),
            other_watchers,
            replicas,
            webhook: webhook(0)?,
            other_webhooks: (1..plan.webhooks)
                .map(|index| webhook(index).map(Some))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// The watchers that were not killed.
    pub fn watchers(&self) -> impl Iterator<Item = &Running> {
        let others = self.other_watchers.iter().flatten();
        self.watcher.iter().chain(others)
    }

    /// The webhooks that were not killed.
    pub fn webhooks(&self) -> impl Iterator<Item = &Running> {
        let others = self.other_webhooks.iter().flatten();
        [&self.webhook].into_iter().chain(others)
    }

    /// Waits until every service says that it is ready.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        for running in self
            .watcher
            .iter_mut()
            .chain(self.other_watchers.iter_mut().flatten())
            .chain(self.replicas.iter_mut().flatten())
            .chain(self.reporter.iter_mut())
            .chain(self.other_webhooks.iter_mut().flatten())
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
            .chain(self.other_watchers.into_iter().flatten())
            .chain([self.webhook])
            .chain(self.other_webhooks.into_iter().flatten())
            .chain(self.reporter)
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
        let webhooks = found.data["webhooks"].as_array();
        // Not the one through which policies themselves are admitted.
        let of_objects = |webhook: &&Value| {
            let name = webhook["name"].as_str().unwrap_or_default();
            name.ends_with(".validate.anteroom.svc")
        };
        let webhook = webhooks.into_iter().flatten().find(of_objects);
        let webhook = &webhook.context("no webhook yet")?["clientConfig"];
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
