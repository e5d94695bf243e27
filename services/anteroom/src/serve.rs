//! `anteroom serve`: watcher, replica, webhook and, where what exists is scanned, reporter in one process,
//! for a small cluster.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anteroom_bus::{
    Bus,
    local::{LocalBus, LocalOptions},
    nats::{NatsBus, NatsConfig},
};
use anteroom_runtime::{
    Service, kubernetes::KubernetesArgs, process::ProcessArgs, supervise::Tasks,
};
use anteroom_seal::{AskerArgs, Keys, SealArgs};
use clap::Args;
use kube::Client;

use crate::{console, output::warn};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom serve                                  inside a cluster\n  \
    anteroom serve --kubeconfig ~/.kube/config --webhook-url https://192.0.2.7:9443\n\n\
    Exit codes: 0 stopped when asked to, 1 failed, 2 wrong usage, 64 not finished within the grace time, 130 ended by a second signal.")]
pub(crate) struct ServeArgs {
    /// Use this NATS (with JetStream) instead of the in-process bus, beside other replicas.
    #[arg(long, value_name = "URL")]
    nats: Option<String>,

    /// Serve the console's pages on this loopback address, as in `127.0.0.1:8700`.
    #[arg(long, value_name = "ADDRESS")]
    console: Option<SocketAddr>,

    #[command(flatten)]
    kubernetes: KubernetesArgs,

    #[command(flatten)]
    parts: PartsArgs,

    #[command(flatten)]
    seal: SealArgs,

    #[command(flatten)]
    asker: AskerArgs,

    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

impl ServeArgs {
    /// Returns how long the webhook drains. On a bus of this process alone there is nobody else to decide, and the replica
    /// stops at once.
    pub(crate) fn drain_seconds(&self) -> u64 {
        match self.nats {
            Some(_) => self.parts.webhook.drain_seconds,
            None => 0,
        }
    }
}

/// The options of every part.
#[derive(Args, Clone, Debug)]
pub struct PartsArgs {
    #[command(flatten)]
    /// The watcher's options.
    pub watcher: anteroom_watcher::Args,

    #[command(flatten)]
    /// The replica's options.
    pub replica: anteroom_cache_replica::Args,

    #[command(flatten)]
    /// The webhook's options.
    pub webhook: anteroom_webhook::Args,

    /// Used with `--background-scans` alone: otherwise there is nothing to report on.
    #[command(flatten)]
    pub reporter: anteroom_reporter::Args,
}

impl Default for PartsArgs {
    /// The options of a command line on which nothing is given.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct ParsedArgs {
            #[command(flatten)]
            parts: PartsArgs,
        }
        <ParsedArgs as clap::Parser>::parse_from(["anteroom"]).parts
    }
}

pub(crate) async fn run(args: ServeArgs, service: Service) -> anyhow::Result<()> {
    let file = args.parts.webhook.exemption_args.clone();
    let serve = |exemptions| {
        let mut args = args;
        args.parts.webhook.exemptions = exemptions;
        run_parts(args, service.clone())
    };
    file.following(&service, serve).await
}

async fn run_parts(args: ServeArgs, service: Service) -> anyhow::Result<()> {
    let client = args.kubernetes.client().await?;
    let bus = connect(args.nats.as_deref()).await?;
    let drain_seconds = args.drain_seconds();
    let mut parts = args.parts;
    parts.webhook.drain_seconds = drain_seconds;
    let keys = keys(&args.seal, args.nats.is_none()).await?;
    parts.watcher.stale_after = Duration::from_millis(parts.replica.age_max_ms);
    parts.watcher.shadow = parts.webhook.shadow;
    // A shadow reports nothing.
    parts.watcher.background_scans &= !parts.webhook.shadow;
    parts.watcher.keys = keys.clone();
    parts.replica.keys = keys.clone();
    let asker_keys = match args.asker.asker_keys_file.is_none() && args.nats.is_none() {
        // All services of a process share the same keys.
        true => Keys::ephemeral()?,
        false => args.asker.keys().await?,
    };
    parts.watcher.asker_keys = asker_keys.clone();
    parts.replica.asker_keys = asker_keys.clone();
    parts.webhook.asker_keys = asker_keys.clone();
    parts.reporter.asker_keys = asker_keys.clone();
    let parts = RunningServices::start(parts, bus, client.clone(), Some(client), &service);
    if let Some(address) = args.console {
        parts.serve_console(address)?;
    }
    let work = args.asker.following(asker_keys, parts.join());
    args.seal.following(keys, work).await
}

/// The keys that Secrets are sealed with. In one process alone, a new one does: nothing that is
/// sealed with it outlives the process.
async fn keys(args: &SealArgs, alone: bool) -> anyhow::Result<Keys> {
    if args.seal_keys_file.is_none() && alone {
        return Ok(Keys::ephemeral()?);
    }
    Ok(args.keys().await?)
}

/// Watcher, replica and webhook, and perhaps a reporter, running.
#[derive(Debug)]
pub struct RunningServices {
    tasks: Tasks,
    bus: Arc<dyn Bus>,
}

impl RunningServices {
    /// Starts all of them as one process. A `webhook_client` lets the webhook register itself.
    pub fn start(
        args: PartsArgs,
        bus: Arc<dyn Bus>,
        client: Client,
        webhook_client: Option<Client>,
        service: &Service,
    ) -> Self {
        let (watcher, scope) = (args.watcher.clone(), service.scope("watcher"));
        let parts = Self::without_watcher(args, bus, client.clone(), webhook_client, service);
        let watches = anteroom_watcher::run(watcher, Arc::clone(&parts.bus), client, scope);
        parts.tasks.spawn("watcher", watches);
        parts
    }

    /// Starts all of them but the watcher, for a caller that starts and stops one by itself.
    pub fn without_watcher(
        args: PartsArgs,
        bus: Arc<dyn Bus>,
        client: Client,
        webhook_client: Option<Client>,
        service: &Service,
    ) -> Self {
        let tasks = Tasks::new(service.shutdown.clone());
        let PartsArgs {
            watcher,
            replica,
            mut webhook,
            mut reporter,
        } = args;
        // The webhook asks the replica beside it by a call. On the bus, it asks for what that one does not answer at once.
        let beside = Arc::<OnceLock<_>>::default();
        webhook.replica = Some(Arc::clone(&beside));
        let show = move |replica| {
            // There is one replica.
            let _ = beside.set(replica);
        };
        // One file says it for both.
        reporter.exemptions = webhook.exemptions.clone();
        let scope = |name| service.scope(name);
        if watcher.background_scans {
            tasks.spawn(
                "reporter",
                anteroom_reporter::run(reporter, bus.clone(), client, scope("reporter")),
            );
        }
        tasks.spawn(
            "cache-replica",
            Box::pin(anteroom_cache_replica::run_and_show(
                replica,
                bus.clone(),
                scope("cache-replica"),
                show,
            )),
        );
        tasks.spawn(
            "webhook",
            anteroom_webhook::run(webhook, bus.clone(), webhook_client, scope("webhook")),
        );
        Self { tasks, bus }
    }

    /// The bus between them.
    pub fn bus(&self) -> &Arc<dyn Bus> {
        &self.bus
    }

    /// Serves the console's pages on a loopback address too.
    ///
    /// # Errors
    /// As [`console::bind`].
    pub fn serve_console(&self, address: SocketAddr) -> anyhow::Result<()> {
        let listener = console::bind(address)?;
        let served = console::serve(
            listener,
            Arc::clone(&self.bus),
            "in this process".to_owned(),
        );
        self.tasks.spawn_until_shutdown("console", async {
            if let Err(error) = served.await {
                warn(&format!("the console has ended: {error:#}"));
            }
        });
        Ok(())
    }

    /// Waits until all of them have ended.
    ///
    /// # Errors
    /// One of them ended with an error.
    pub async fn join(self) -> anyhow::Result<()> {
        let ended = self.tasks.join().await;
        self.bus.close().await;
        ended
    }
}

/// Returns NATS where an address is given, else a bus of this process.
///
/// # Errors
/// NATS does not answer.
pub async fn connect(nats: Option<&str>) -> anyhow::Result<Arc<dyn Bus>> {
    Ok(match nats {
        None => Arc::new(LocalBus::with_options(LocalOptions {
            // Webhook configurations outlive this process, and name positions of its log.
            log_name: format!("local-{:016x}", rand::random::<u64>()),
            ..LocalOptions::default()
        })),
        Some(url) => Arc::new(NatsBus::connect(NatsConfig::new([url], "default")).await?),
    })
}

#[cfg(test)]
mod tests {
    use anteroom_simapi::{SimApi, SimConfig};
    use kube::{
        Config,
        api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams},
    };
    use serde_json::json;

    use super::*;

    const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

    /// A cluster with the webhook's namespace, and a policy that requires what it adds itself.
    fn cluster(sim: &SimApi) {
        for crd in anteroom_watcher::crds() {
            sim.put(CRDS, serde_json::to_value(crd).unwrap()).unwrap();
        }
        let reports = json!({
            "metadata": { "name": "policyreports.wgpolicyk8s.io" },
            "spec": { "group": "wgpolicyk8s.io", "scope": "Namespaced",
                "names": { "kind": "PolicyReport", "plural": "policyreports" },
                "versions": [{ "name": "v1alpha2", "served": true, "storage": true }] },
        });
        let mut of_cluster = reports.clone();
        of_cluster["metadata"]["name"] = "clusterpolicyreports.wgpolicyk8s.io".into();
        of_cluster["spec"]["scope"] = "Cluster".into();
        of_cluster["spec"]["names"] =
            json!({ "kind": "ClusterPolicyReport", "plural": "clusterpolicyreports" });
        for reports in [reports, of_cluster] {
            sim.put(CRDS, reports).unwrap();
        }
        for name in ["anteroom", "shop"] {
            let namespace = json!({ "metadata": { "name": name } });
            sim.put("namespaces", namespace).unwrap();
        }
        let of = json!({ "any": [{ "resources": { "kinds": ["ConfigMap"] } }] });
        let policy = json!({
            "metadata": { "name": "labels" },
            "spec": { "rules": [
                { "name": "requires", "match": of, "validate": { "failureAction": "Enforce",
                    "message": "whose?", "pattern": { "metadata": { "labels": { "team": "?*" } } } } },
                { "name": "adds", "match": of, "mutate": {
                    "patchStrategicMerge": { "metadata": { "labels": { "team": "ours" } } } } },
            ] },
        });
        sim.put("clusterpolicies.kyverno.io", policy).unwrap();
    }

    async fn ready(sim: &SimApi) {
        let mut stats = sim.subscribe();
        loop {
            let policy = sim.get("clusterpolicies.kyverno.io", "", "labels").unwrap();
            let conditions = policy["status"]["conditions"].as_array().into_iter();
            if conditions
                .flatten()
                .any(|c| c["type"] == "Ready" && c["status"] == "True")
            {
                return;
            }
            stats.changed().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_position_in_the_log_of_an_earlier_process_means_nothing_in_a_new_one() {
        let mut heads = Vec::new();
        for _ in 0..2 {
            let bus = connect(None).await.unwrap();
            heads.push(bus.ensure_log().await.unwrap().incarnation);
        }
        assert_ne!(heads[0], heads[1]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn in_one_process_an_object_is_changed_before_it_is_judged() {
        anteroom_runtime::process::install_crypto_provider();
        let sim = SimApi::start(SimConfig::default()).await.unwrap();
        cluster(&sim);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let mut parts = PartsArgs::default();
        parts.watcher.background_scans = true;
        parts.webhook.listen_address = address;
        parts.webhook.webhook_url = Some(format!("https://{address}"));
        parts.webhook.drain_seconds = 0;
        let client = Client::try_from(Config::new(sim.url().parse().unwrap())).unwrap();
        let service = Service::new("serve");
        let bus = connect(None).await.unwrap();
        let parts =
            RunningServices::start(parts, bus, client.clone(), Some(client.clone()), &service);
        ready(&sim).await;

        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let api: Api<DynamicObject> = Api::namespaced_with(client, "shop", &kind);
        let object = DynamicObject::new("c", &kind);
        let made = api.create(&PostParams::default(), &object).await.unwrap();
        let labels = made.metadata.labels.unwrap_or_default();
        assert_eq!(labels.get("team").map(String::as_str), Some("ours"));
        // The reporter reports the policies' results on the object.
        let uid = made.metadata.uid.unwrap();
        let reported = sim.wait_until(|_| {
            let report = sim.get("policyreports.wgpolicyk8s.io", "shop", &uid);
            report.is_some_and(|report| report["summary"]["pass"] == 1)
        });
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, reported).await.unwrap();
        service.shutdown.trigger("the test is over");
        parts.join().await.unwrap();
        sim.shutdown().await;
    }
}
