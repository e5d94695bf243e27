//! Everything at once: a real cluster, NATS, and every service as a process of its own.

use std::{path::Path, sync::Arc};

use anteroom_load::Oracle;
use anyhow::Context;
use futures::{TryStreamExt, stream};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, Identity},
    folder::Folder,
    manifests,
    nats::Nats,
    proxy::Proxy,
    system::{SYSTEM_NAMESPACE, System, SystemPlan},
    turn::{self, Turn},
    webhook_client,
    webhook_service::WebhookService,
};

/// The namespace of the test's own objects.
pub const NAMESPACE: &str = "shop";

/// Requests in flight while the cluster is filled.
const CREATES_IN_FLIGHT: usize = 32;

/// A running system over a running cluster. Fields drop in order: services, NATS, cluster, files, turn.
pub struct World {
    /// The services.
    pub system: System,
    /// The way to the webhooks, where the plan has several.
    pub webhook_service: Option<WebhookService>,
    /// The NATS server.
    pub nats: Nats,
    /// Between the watchers and the API server, where it was asked for.
    pub proxy: Option<Proxy>,
    /// Before the only webhook, where it was asked for.
    pub webhook_proxy: Option<Proxy>,
    /// The cluster.
    pub cluster: Cluster,
    /// The user's client: an administrator's.
    pub client: Client,
    /// The hosts that are taken.
    pub oracle: Arc<Oracle>,
    /// Everything's files and logs.
    pub folder: Folder,
    _turn: Turn,
}

impl World {
    /// The outcome of a story. If it failed, its logs are kept, and the error says where.
    ///
    /// # Errors
    /// Those of the outcome.
    pub fn with_logs<T>(&mut self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        outcome.with_context(|| {
            self.folder.disable_cleanup(true);
            format!("the logs are kept in {}", self.folder.path().display())
        })
    }

    /// Starts everything and waits until the API server is ready. The services may still be on
    /// their way: that is a state that must work too.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_as(&SystemPlan::default()).await
    }

    /// Starts a world as [`World::start`] does, with a reporter.
    pub async fn start_reporting() -> anyhow::Result<Self> {
        let plan = SystemPlan {
            reporter: Some(std::path::PathBuf::new()), // It is written with the cluster.
            // The identity survives a restart, so that the reporter keeps its lease.
            reporter_args: vec![("--reporter-id", "reporter".to_owned())],
            ..SystemPlan::default()
        };
        Self::start_as(&plan).await
    }

    /// Starts a world as [`World::start`] does, with the plan's services and flags.
    pub async fn start_as(plan: &SystemPlan) -> anyhow::Result<Self> {
        anteroom_runtime::process::install_crypto_provider();
        let turn = turn::take().await?;
        let folder = Folder::new()?;
        let path = folder.path();
        let nats = Nats::start(plan.nats, path).await?;
        let mut cluster = Cluster::start(path).await?;
        if plan.second_api_server {
            cluster.start_second().await?;
        }
        let client = cluster.client(Identity::Admin).await?;
        manifests::apply_crds(&client).await?;
        for namespace in [SYSTEM_NAMESPACE, NAMESPACE] {
            manifests::apply_namespace(&client, namespace).await?;
        }
        for manifest in manifests::rbac()? {
            manifests::apply(&client, &manifest).await?;
        }

        manifests::apply(&client, &empty_certificate()).await?;

        let proxy = match plan.proxied {
            true => Some(Proxy::start_before(cluster.addresses()).await?),
            false => None,
        };
        let way = proxy.as_ref().map_or(cluster.address(), Proxy::address);
        let to_webhooks = match plan.webhooks > 1 || plan.is_webhook_proxied {
            true => Some(Proxy::start_before(Vec::new()).await?),
            false => None,
        };
        let system = System::start_as(
            &completed(plan, &cluster, path, to_webhooks.as_ref())?,
            path,
            &nats.logins(),
            &cluster.kubeconfig_file_by(Identity::Watcher, way)?,
            &cluster.kubeconfig_file(Identity::Webhook)?,
        )?;
        let (webhook_service, webhook_proxy) = match to_webhooks {
            Some(proxy) if plan.webhooks > 1 => {
                let service = WebhookService::start(proxy, system.webhooks())?;
                (Some(service), None)
            }
            Some(proxy) => {
                proxy.lead_to(vec![system.webhook.listens_at()?]);
                (None, Some(proxy))
            }
            None => (None, None),
        };
        let oracle = Arc::default();
        Ok(Self {
            system,
            webhook_service,
            nats,
            proxy,
            webhook_proxy,
            cluster,
            client,
            oracle,
            folder,
            _turn: turn,
        })
    }

    /// Creates Services and Ingresses as a user does, before any policy is there; their hosts are
    /// taken for the oracle.
    pub async fn fill(&self, services: usize, ingresses: usize) -> anyhow::Result<()> {
        let services = (0..services).map(|index| service(&format!("service-{index}")));
        let ingresses = (0..ingresses).map(|index| ingress(index, &host(index)));
        stream::iter(services.chain(ingresses).map(anyhow::Ok))
            .try_for_each_concurrent(CREATES_IN_FLIGHT, async |object| {
                self.create(&object).await?;
                if let Some(host) = host_of(&object) {
                    self.oracle.take(host.to_owned());
                }
                Ok(())
            })
            .await
    }

    /// Creates one object; the error is what the user would see. Its host is taken for the oracle
    /// once it was seen to be: see [`crate::check::is_denied`].
    pub async fn create(&self, object: &Value) -> Result<(), kube::Error> {
        let api = self.api(object);
        let parsed = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        if let Some(host) = host_of(object) {
            self.oracle.unsettle(host);
        }
        api.create(&PostParams::default(), &parsed).await?;
        Ok(())
    }

    /// Deletes one object. The oracle expects nothing of its host from then on.
    pub async fn delete(&self, object: &Value) -> anyhow::Result<()> {
        if let Some(host) = host_of(object) {
            self.oracle.unsettle(host);
        }
        let name = object["metadata"]["name"].as_str().context("no name")?;
        self.api(object).delete(name, &Default::default()).await?;
        Ok(())
    }

    /// The resource of an object, in its namespace.
    pub fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Every object of a kind as the API server lists it: (namespace, name, resource version).
    pub async fn listed(&self, object: &Value) -> anyhow::Result<Vec<(String, String, String)>> {
        let mut api_all = object.clone();
        if let Some(metadata) = api_all["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        let listed = self.api(&api_all).list(&ListParams::default()).await?;
        let mut keys: Vec<_> = listed
            .items
            .into_iter()
            .map(|item| {
                let metadata = item.metadata;
                (
                    metadata.namespace.unwrap_or_default(),
                    metadata.name.unwrap_or_default(),
                    metadata.resource_version.unwrap_or_default(),
                )
            })
            .collect();
        keys.sort();
        Ok(keys)
    }
}

/// Adds to a plan what is known once the cluster runs. `to_webhooks` leads to the webhooks.
fn completed(
    plan: &SystemPlan,
    cluster: &Cluster,
    folder: &Path,
    to_webhooks: Option<&Proxy>,
) -> anyhow::Result<SystemPlan> {
    let mut plan = plan.clone();
    if plan.reporter.is_some() {
        plan.reporter = Some(cluster.kubeconfig_file(Identity::Reporter)?);
    }
    let owner = ("--owner-cluster-role", "anteroom-webhook".to_owned());
    plan.webhook_args.insert(0, owner);
    if plan.webhook_takes_known_clients {
        let authority = folder.join(webhook_client::AUTHORITY);
        let of_api_server = [
            ("--client-ca-file", authority.display().to_string()),
            ("--client-names", webhook_client::NAME.to_owned()),
        ];
        plan.webhook_args.extend(of_api_server);
    }
    if let Some(proxy) = to_webhooks {
        let url = format!("https://{}", proxy.address());
        plan.webhook_args.push(("--webhook-url", url));
    }
    Ok(plan)
}

/// The host of the Ingress with this number.
pub fn host(index: usize) -> String {
    format!("shop-{index}.example.com")
}

/// The host of an Ingress; `None` for anything else.
fn host_of(object: &Value) -> Option<&str> {
    object["spec"]["rules"][0]["host"].as_str()
}

/// The Ingress with this number.
pub fn ingress(index: usize, host: &str) -> Value {
    anteroom_load::ingress(NAMESPACE, &format!("ingress-{index}"), host)
}

/// The Secret that the webhook keeps its certificate in, as `anteroom init` makes it.
fn empty_certificate() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "namespace": SYSTEM_NAMESPACE, "name": "anteroom-webhook-tls" },
        "stringData": { "tls.crt": "", "tls.key": "" },
    })
}

/// A Service without an address of its own, which the API server makes ten times faster.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "namespace": NAMESPACE, "name": name, "labels": { "app": name } },
        "spec": { "clusterIP": "None", "selector": { "app": name }, "ports": [{ "port": 80 }] },
    })
}
