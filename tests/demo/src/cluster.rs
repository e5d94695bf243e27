//! The demo's cluster: simulated, or the one of a kubeconfig.

use std::{path::PathBuf, sync::Arc};

use anteroom_load::{Oracle, ingress};
use anteroom_simapi::{Fault, SimApi, SimConfig, generate};
use anyhow::Context;
use futures::{TryStreamExt, stream};
use kube::{
    Client, Config,
    api::{
        Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};

use crate::{args::DemoArgs, show::Show};

/// The namespace of the demo's objects in a real cluster, so that they go with it.
const NAMESPACE: &str = "anteroom-demo";

/// Namespaces of the simulated cluster.
const NAMESPACES: usize = 200;

/// Requests in flight while a real cluster is filled.
const CREATES_IN_FLIGHT: usize = 32;

/// Entries and the policy, in the order in which a user creates them.
const MANIFESTS: [&str; 3] = [
    include_str!("../manifests/entry.yaml"),
    include_str!("../manifests/entry-services.yaml"),
    include_str!("../manifests/policy.yaml"),
];

/// The policy of the tour, whose query no index answers.
pub(crate) const SCAN: &str = include_str!("../manifests/scan.yaml");

pub(crate) struct Cluster {
    client: Client,
    oracle: Arc<Oracle>,
    /// `None`: the cluster is real.
    sim: Option<SimApi>,
    /// The namespace of the Ingresses that the demo creates while it runs.
    namespace: String,
}

impl Cluster {
    /// Starts or reaches the cluster, and fills it.
    pub(crate) async fn start(args: &DemoArgs, show: &Show) -> anyhow::Result<Self> {
        let (services, ingresses) = counts(args.objects);
        show.step(&format!("{services} Services and {ingresses} Ingresses"));
        let source = generate::Cluster {
            seed: 1,
            namespaces: NAMESPACES,
        };
        let hosts = (0..ingresses).map(|index| generate::ingress_host(index, 0));
        let oracle = Arc::new(Oracle::new(hosts));
        match &args.kubeconfig {
            None => Self::simulated(source, services, ingresses, oracle).await,
            Some(file) => Self::real(file, services, ingresses, oracle).await,
        }
    }

    async fn simulated(
        source: generate::Cluster,
        services: usize,
        ingresses: usize,
        oracle: Arc<Oracle>,
    ) -> anyhow::Result<Self> {
        let sim = SimApi::start(SimConfig::default()).await?;
        let client = Client::try_from(Config::new(sim.url().parse()?))?;
        let cluster = Self {
            client,
            oracle,
            namespace: source.namespace(0),
            sim: Some(sim),
        };
        cluster.install_crds().await?;
        if let Some(sim) = &cluster.sim {
            sim.put_all("namespaces", source.namespaces())?;
            sim.put_all("services", source.services(services))?;
            sim.put_all(
                "ingresses.networking.k8s.io",
                source.ingresses(ingresses, 1),
            )?;
        }
        Ok(cluster)
    }

    async fn real(
        file: &PathBuf,
        services: usize,
        ingresses: usize,
        oracle: Arc<Oracle>,
    ) -> anyhow::Result<Self> {
        let kubeconfig = kube::config::Kubeconfig::read_from(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let client = Client::try_from(config)?;
        let cluster = Self {
            client,
            oracle,
            namespace: NAMESPACE.into(),
            sim: None,
        };
        cluster.install_crds().await?;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
        });
        cluster.apply(&namespace).await?;
        let services = (0..services).map(|index| service(&format!("service-{index}")));
        let ingresses = (0..ingresses).map(|index| {
            let host = generate::ingress_host(index, 0);
            ingress(NAMESPACE, &format!("ingress-{index}"), &host)
        });
        stream::iter(services.chain(ingresses).map(anyhow::Ok))
            .try_for_each_concurrent(CREATES_IN_FLIGHT, async |object| {
                cluster.apply(&object).await
            })
            .await?;
        Ok(cluster)
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn oracle(&self) -> Arc<Oracle> {
        self.oracle.clone()
    }

    /// Watches open on the API server; `None` where only the API server knows.
    pub(crate) fn watches(&self) -> Option<u64> {
        self.sim.as_ref().map(|sim| sim.stats().watches() as u64)
    }

    /// The cluster in words.
    pub(crate) fn description(&self) -> &'static str {
        match self.sim {
            Some(_) => "a simulated API server",
            None => "the API server of a kubeconfig",
        }
    }

    /// Creates the entries and the policy, as a user does.
    pub(crate) async fn install(&self) -> anyhow::Result<()> {
        for text in MANIFESTS {
            self.apply_text(text).await?;
        }
        Ok(())
    }

    /// Creates an Ingress with that host.
    pub(crate) async fn create_ingress(&self, name: &str, host: &str) -> anyhow::Result<()> {
        let object = ingress(&self.namespace, name, host);
        let api = self.api(&object)?;
        api.create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        self.oracle.take(host.to_owned());
        Ok(())
    }

    /// Has an Ingress own these hosts, until [`Cluster::free_hosts`].
    pub(crate) async fn own_hosts(&self, name: &str, hosts: &[&str]) -> anyhow::Result<()> {
        let mut object = ingress(&self.namespace, name, "");
        object["apiVersion"] = "networking.k8s.io/v1".into();
        object["kind"] = "Ingress".into();
        let rule = object["spec"]["rules"][0].take();
        let rules = hosts.iter().map(|&host| {
            let mut rule = rule.clone();
            rule["host"] = host.into();
            rule
        });
        object["spec"]["rules"] = rules.collect();
        self.apply(&object).await
    }

    /// Deletes the Ingress that owns hosts.
    pub(crate) async fn free_hosts(&self, name: &str) -> anyhow::Result<()> {
        self.delete(&ingress(&self.namespace, name, "")).await
    }

    /// Creates what a manifest says.
    pub(crate) async fn apply_text(&self, text: &str) -> anyhow::Result<()> {
        self.apply(&serde_saphyr::from_str::<Value>(text)?).await
    }

    /// Deletes what a manifest says, if it is there.
    pub(crate) async fn delete_text(&self, text: &str) -> anyhow::Result<()> {
        self.delete(&serde_saphyr::from_str::<Value>(text)?).await
    }

    /// Has a simulated API server misbehave; false: the cluster is real.
    pub(crate) fn fault(&self, fault: Fault) -> anyhow::Result<bool> {
        if let Some(sim) = &self.sim {
            sim.fault(fault)?;
        }
        Ok(self.sim.is_some())
    }

    /// Leaves a real cluster as it was found, but for the CRDs.
    pub(crate) async fn clean_up(self) -> anyhow::Result<()> {
        if self.sim.is_none() {
            for text in MANIFESTS.iter().rev().chain([&SCAN]) {
                self.delete_text(text).await?;
            }
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
            self.delete(&namespace).await?;
        }
        if let Some(sim) = self.sim {
            sim.shutdown().await;
        }
        Ok(())
    }

    async fn delete(&self, manifest: &Value) -> anyhow::Result<()> {
        let (_, name) = place(manifest)?;
        let api = self.api(manifest)?;
        match api.delete(&name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) if gone(&error) => Ok(()),
            Err(error) => Err(error).context(format!("deleting {name}")),
        }
    }

    async fn install_crds(&self) -> anyhow::Result<()> {
        for crd in anteroom_watcher::crds() {
            let manifest = serde_json::to_value(crd)?;
            self.apply(&manifest).await?;
        }
        Ok(())
    }

    async fn apply(&self, manifest: &Value) -> anyhow::Result<()> {
        let (_, name) = place(manifest)?;
        let parameters = PatchParams::apply("anteroom-demo").force();
        let applied = self
            .api(manifest)?
            .patch(&name, &parameters, &Patch::Apply(manifest))
            .await;
        applied.with_context(|| format!("applying {} {name}", manifest["kind"]))?;
        Ok(())
    }

    fn api(&self, manifest: &Value) -> anyhow::Result<Api<DynamicObject>> {
        let (resource, _) = place(manifest)?;
        Ok(match manifest["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        })
    }
}

fn gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Four Services for every three Ingresses.
fn counts(objects: u32) -> (usize, usize) {
    let objects = objects as usize;
    let ingresses = objects * 3 / 7;
    (objects - ingresses, ingresses)
}

/// The resource and the name of a manifest.
fn place(manifest: &Value) -> anyhow::Result<(ApiResource, String)> {
    let text = |value: &Value, what| value.as_str().map(str::to_owned).context(what);
    let api_version = text(&manifest["apiVersion"], "a manifest without apiVersion")?;
    let kind = text(&manifest["kind"], "a manifest without kind")?;
    let name = text(
        &manifest["metadata"]["name"],
        "a manifest without metadata.name",
    )?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    Ok((
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind)),
        name,
    ))
}

/// A Service without an address of its own, which a real API server makes ten times faster.
fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "namespace": NAMESPACE, "name": name, "labels": { "app": name } },
        "spec": { "clusterIP": "None", "selector": { "app": name }, "ports": [{ "port": 80 }] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_size_is_the_one_of_the_users_report() {
        assert_eq!(counts(7_000), (4_000, 3_000));
        assert_eq!(counts(7), (4, 3));
    }

    #[test]
    fn every_manifest_has_a_place() {
        let places: Vec<_> = MANIFESTS
            .iter()
            .map(|text| place(&serde_saphyr::from_str(text).unwrap()).unwrap())
            .map(|(resource, name)| format!("{}/{name}", resource.plural))
            .collect();
        assert_eq!(
            places,
            [
                "cachedcontextentries/ingresses",
                "cachedcontextentries/services",
                "clusterpolicies/unique-ingress-host"
            ]
        );
    }
}
