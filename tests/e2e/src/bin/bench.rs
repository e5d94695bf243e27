//! Measures a decision's latency and a replica's memory over real NATS, with every service a process
//! of its own and the simulated API server in this one. Prints one JSON object.

use std::{sync::Arc, time::Duration};

use anteroom_e2e::{
    manifests,
    nats::Nats,
    process::Process,
    services::Running,
    system::{SYSTEM_NAMESPACE, System, target},
    wait,
};
use anteroom_load::{Live, Oracle, Plan, Report, Stop, Target};
use anteroom_simapi::{SimApi, SimConfig, generate};
use anyhow::ensure;
use clap::Parser;
use kube::{Client, Config};
use serde_json::{Value, json};

/// Objects are spread over this many namespaces.
const NAMESPACES: usize = 200;

const MANIFESTS: [&str; 3] = [
    include_str!("../../../../services/anteroom/src/demo/manifests/entry.yaml"),
    include_str!("../../../../services/anteroom/src/demo/manifests/entry-services.yaml"),
    include_str!("../../../../services/anteroom/src/demo/manifests/policy.yaml"),
];

/// Measures Anteroom over real NATS, every service a process of its own.
#[derive(Parser)]
#[command(after_help = "Example:\n  cargo xtask bench -- --objects 7000 --seconds 10")]
struct Args {
    /// Objects in the cluster: four Services for every three Ingresses.
    #[arg(long, default_value_t = 7_000)]
    objects: usize,

    /// How long each part lasts.
    #[arg(long, default_value_t = 10)]
    seconds: u64,

    /// Reviews in flight, part by part.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 16])]
    concurrency: Vec<usize>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    anteroom_runtime::process::install_crypto_provider();
    let folder = tempfile::tempdir()?;
    let sim = SimApi::start(SimConfig::default()).await?;
    let client = Client::try_from(Config::new(sim.url().parse()?))?;
    let oracle = fill(&sim, &client, args.objects).await?;
    let nats = Nats::start(folder.path()).await?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sim.kubeconfig_yaml())?;
    let mut system = System::start(folder.path(), &nats.url(), &kubeconfig, &kubeconfig)?;
    for text in MANIFESTS {
        manifests::apply(&client, &serde_saphyr::from_str(text)?).await?;
    }
    system.ready().await?;
    let target = target(&client).await?;
    enforced(&target, &oracle).await?;

    let replica_rss_bytes_idle = rss(&system.replicas)?;
    let mut parts = Vec::new();
    for concurrency in args.concurrency {
        let part = Duration::from_secs(args.seconds);
        parts.push(measure(&system, &target, &oracle, concurrency, part).await?);
    }
    let report = json!({
        "objects": args.objects,
        "watches": sim.stats().watches(),
        "parts": parts,
        "replica_rss_bytes_idle": replica_rss_bytes_idle,
        "replica_rss_bytes_after_load": rss(&system.replicas)?,
        "webhook_rss_bytes": system.webhook.process.rss_bytes()?,
        "watcher_rss_bytes": system.watcher.as_ref().map(|w| w.process.rss_bytes()).transpose()?,
    });
    println_json(&report)?;
    for running in system.into_running() {
        let status = running.process.terminate().await?;
        ensure!(status.success(), "a service ended with {status}");
    }
    sim.shutdown().await;
    Ok(())
}

async fn fill(sim: &SimApi, client: &Client, objects: usize) -> anyhow::Result<Arc<Oracle>> {
    manifests::apply_crds(client).await?;
    manifests::apply_namespace(client, SYSTEM_NAMESPACE).await?;
    let ingresses = objects * 3 / 7;
    let source = generate::Cluster {
        seed: 1,
        namespaces: NAMESPACES,
    };
    sim.put_all("namespaces", source.namespaces())?;
    sim.put_all("services", source.services(objects - ingresses))?;
    sim.put_all(
        "ingresses.networking.k8s.io",
        source.ingresses(ingresses, 1),
    )?;
    let hosts = (0..ingresses).map(|index| generate::ingress_host(index, 0));
    Ok(Arc::new(Oracle::new(hosts)))
}

/// Waits until duplicates are denied, so that nothing is measured that is not the real thing.
async fn enforced(target: &Target, oracle: &Arc<Oracle>) -> anyhow::Result<()> {
    wait::until("the policy to be enforced", async || {
        let plan = Plan {
            concurrency: 1,
            duplicate_share: 1.0,
            stop: Stop::Posts(1),
        };
        let live = Arc::new(Live::default());
        let report = anteroom_load::run(target.clone(), plan, oracle.clone(), live).await?;
        ensure!(report.decisions == 1 && report.wrong == 0, "{report:?}");
        Ok(())
    })
    .await
}

async fn measure(
    system: &System,
    target: &Target,
    oracle: &Arc<Oracle>,
    concurrency: usize,
    part: Duration,
) -> anyhow::Result<Value> {
    let before = cpu_ms(system)?;
    let plan = Plan {
        concurrency,
        duplicate_share: 0.1,
        stop: Stop::After(part),
    };
    let live = Arc::new(Live::default());
    let report: Report = anteroom_load::run(target.clone(), plan, oracle.clone(), live).await?;
    let spent = cpu_ms(system)? - before;
    Ok(json!({
        "concurrency": concurrency,
        "cpu_ms_per_decision": spent / report.decisions.max(1) as f64,
        "report": report,
    }))
}

fn rss(replicas: &[Option<Running>]) -> anyhow::Result<Vec<u64>> {
    replicas
        .iter()
        .flatten()
        .map(|replica| replica.process.rss_bytes())
        .collect()
}

/// CPU time of the webhook and the replicas so far, user and system.
fn cpu_ms(system: &System) -> anyhow::Result<f64> {
    let replicas = system
        .replicas
        .iter()
        .flatten()
        .map(|replica| &replica.process);
    replicas
        .chain([&system.webhook.process])
        .map(Process::cpu_ms)
        .sum()
}

#[expect(clippy::print_stdout, reason = "the benchmark's output")]
fn println_json(report: &Value) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(report)?);
    Ok(())
}
