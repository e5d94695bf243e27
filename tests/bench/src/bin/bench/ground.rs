//! The ground of a scenario: a filled cluster, NATS, and the services.

use std::path::Path;

use anteroom_e2e::{
    manifests,
    nats::{Nats, NatsPlan},
    process::Process,
    system::{SYSTEM_NAMESPACE, System, SystemPlan, target},
};
use anteroom_load::Target;
use anteroom_simapi::{SimApi, SimConfig, generate};
use anyhow::ensure;
use kube::{Client, Config};

use crate::Settings;

/// Objects are spread over this many namespaces.
const NAMESPACES: usize = 200;

/// The objects that are there, and the questions about them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) ingresses: usize,
    /// Every second Ingress has no host.
    pub(crate) half_have_hosts: bool,
    pub(crate) services: usize,
    pub(crate) pods: usize,
    /// NATS is reached over TLS. Without it, what a decision costs is comparable with earlier figures.
    pub(crate) is_encrypted: bool,
    /// Entries and policies, in YAML.
    pub(crate) manifests: &'static [&'static str],
}

/// Fields drop in order: services, NATS, the API server, files.
pub(crate) struct Ground {
    pub(crate) system: System,
    pub(crate) nats: Nats,
    pub(crate) sim: SimApi,
    client: Client,
    _folder: tempfile::TempDir,
}

/// The objects that all scenarios share the making of.
pub(crate) fn cluster() -> generate::Cluster {
    generate::Cluster {
        seed: 1,
        namespaces: NAMESPACES,
    }
}

impl Ground {
    /// Fills the cluster, then starts all, then applies the manifests; waits until all are ready, but
    /// not until policies are in force.
    pub(crate) async fn start(layout: Layout, settings: &Settings) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let logs = settings.logs.as_deref().unwrap_or(folder.path());
        std::fs::create_dir_all(logs)?;
        let sim = SimApi::start(SimConfig::default()).await?;
        let client = Client::try_from(Config::new(sim.url().parse()?))?;
        manifests::apply_crds(&client).await?;
        manifests::apply_namespace(&client, SYSTEM_NAMESPACE).await?;
        fill(&sim, &layout)?;
        let plan = NatsPlan {
            is_encrypted: layout.is_encrypted,
            ..NatsPlan::one()
        };
        let nats = Nats::start(plan, folder.path()).await?;
        let mut system = start_system(logs, &nats, &sim, folder.path(), settings)?;
        for text in layout.manifests {
            for manifest in manifests::parse(text)? {
                manifests::apply(&client, &manifest).await?;
            }
        }
        system.ready().await?;
        Ok(Self {
            system,
            nats,
            sim,
            client,
            _folder: folder,
        })
    }

    /// Returns the webhook's address, once it has registered itself: it does for a policy.
    pub(crate) async fn target(&self) -> anyhow::Result<Target> {
        target(&self.client).await
    }

    /// All processes by what they are.
    pub(crate) fn processes(&self) -> Vec<(&'static str, &Process)> {
        let watcher = self.system.watcher.iter().map(|r| ("watcher", &r.process));
        let replicas = self.system.replicas.iter().flatten();
        let replicas = replicas.map(|r| ("replica", &r.process));
        let nats = self.nats.processes().map(|process| ("nats", process));
        let webhook = [("webhook", &self.system.webhook.process)];
        watcher.chain(replicas).chain(nats).chain(webhook).collect()
    }

    /// Ends all; a service that does not end well is an error.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        for running in self.system.into_running() {
            let name = running.recipe().name.clone();
            let status = running.process.terminate().await?;
            ensure!(status.success(), "{name} ended with {status}");
        }
        self.sim.shutdown().await;
        Ok(())
    }
}

fn fill(sim: &SimApi, layout: &Layout) -> anyhow::Result<()> {
    let source = cluster();
    sim.put_all("namespaces", source.namespaces())?;
    sim.put_all("services", source.services(layout.services))?;
    let ingresses = source.ingresses(layout.ingresses, 1).enumerate();
    let ingresses = ingresses.map(|(index, mut ingress)| {
        if layout.half_have_hosts && index % 2 == 1 {
            let rule = ingress["spec"]["rules"][0].as_object_mut();
            rule.map(|rule| rule.remove("host"));
        }
        ingress
    });
    sim.put_all("ingresses.networking.k8s.io", ingresses)?;
    sim.put_all("pods", source.pods(layout.pods))?;
    Ok(())
}

/// The flags of the webhook.
fn webhook_args(settings: &Settings) -> Vec<(&'static str, String)> {
    let local = settings.local_views.iter();
    local
        .map(|patterns| ("--local-views", patterns.clone()))
        .collect()
}

fn start_system(
    logs: &Path,
    nats: &Nats,
    sim: &SimApi,
    folder: &Path,
    settings: &Settings,
) -> anyhow::Result<System> {
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, sim.kubeconfig_yaml())?;
    let plan = SystemPlan {
        replicas: settings.replicas,
        webhook_args: webhook_args(settings),
        ..SystemPlan::default()
    };
    System::start_as(&plan, logs, &nats.logins(), &kubeconfig, &kubeconfig)
}
