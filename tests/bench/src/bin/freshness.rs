//! Measures how soon what changes in a real cluster changes decisions: from an entry's creation to its
//! first answer, and from a change's acknowledgement by the API server to its effect at every replica
//! and in the webhook's decision. Prints one JSON object.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anteroom_bus::{Address, Bus, nats::NatsBus};
use anteroom_e2e::{
    check, manifests,
    nats::NatsPlan,
    process::Process,
    system::{self, REPLICAS, SystemPlan},
    wait,
    world::{NAMESPACE, World, host, ingress},
};
use anteroom_load::{Answer, Client};
use anteroom_model::ViewId;
use anteroom_wire::query::Query;
use anyhow::{Context, bail, ensure};
use clap::Parser;
use futures::future::try_join_all;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// Measures freshness on a real kube-apiserver, etcd and nats-server.
#[derive(Parser)]
#[command(after_help = "Example:\n  cargo xtask freshness -- --objects 3000 --trials 40")]
struct Args {
    /// Ingresses in the cluster.
    #[arg(long, default_value_t = 3_000)]
    objects: usize,

    /// Changes that are timed, quiet and then beside updates.
    #[arg(long, default_value_t = 40)]
    trials: usize,

    /// Updates of other objects a second, in the second part.
    #[arg(long, default_value_t = 100)]
    updates_per_second: u64,

    /// The time for which CPU time is counted beside updates, in seconds.
    #[arg(long, default_value_t = 10)]
    counted_s: u64,

    /// The number of entries that are made and timed.
    #[arg(long, default_value_t = 5)]
    entries: usize,
}

const VIEW: &str = "ingresses.v1.networking.k8s.io";

/// No change takes longer, or something is wrong.
const WAIT_MAX: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let plan = SystemPlan {
        nats: NatsPlan::one(),
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    world.folder.silence();
    world.fill(0, args.objects).await?;
    world.system.ready().await?;
    let bus = NatsBus::connect(world.nats.config_of_webhook()).await?;

    let entry_first_answer_ms = first_answers(&world, &bus, args.entries, args.objects).await?;
    // Before there is a policy: decisions cost what they cost, updates what they do.
    let span = Duration::from_secs(args.counted_s);
    let idle = cpu(&world, span).await?;
    let updates = Arc::new(AtomicU64::new(0));
    let updating = tokio::spawn(update_for_ever(
        world.client.clone(),
        args.objects,
        args.updates_per_second,
        Arc::clone(&updates),
    ));
    let busy_begun = updates.load(Ordering::Relaxed);
    let busy = cpu(&world, span).await?;
    let made = updates.load(Ordering::Relaxed) - busy_begun;
    updating.abort();

    manifests::apply(&world.client, &serde_saphyr::from_str(check::POLICY)?).await?;
    check::is_denied(&world, &host(0)).await?;
    let trials = Trials {
        target: system::target(&world.client).await?,
        world: &world,
        bus: &bus,
    };
    let quiet = trials.run("quiet", args.trials).await?;
    let updating = tokio::spawn(update_for_ever(
        world.client.clone(),
        args.objects,
        args.updates_per_second,
        updates,
    ));
    let beside = trials.run("beside", args.trials).await?;
    updating.abort();

    let per_update = |name: &str| (busy[name] - idle[name]) / made.max(1) as f64;
    println_json(&json!({
        "objects": args.objects,
        "entry_first_answer_ms": entry_first_answer_ms,
        "quiet": quiet,
        "beside_updates": beside,
        "updates_per_second": made as f64 / span.as_secs_f64(),
        "idle_cpu_ms_per_s": idle.iter().map(|(name, ms)| (*name, ms / span.as_secs_f64())).collect::<BTreeMap<_, _>>(),
        "cpu_ms_per_update": {
            "watcher": per_update("watcher"),
            "nats": per_update("nats"),
            "replica": per_update("replica"),
        },
    }))?;
    bus.close().await;
    for running in world.system.into_running() {
        let status = running.process.terminate().await?;
        ensure!(status.success(), "a service ended with {status}");
    }
    Ok(())
}

/// From an entry's creation to the first answer over all of its objects.
async fn first_answers(
    world: &World,
    bus: &NatsBus,
    entries: usize,
    objects: usize,
) -> anyhow::Result<Vec<f64>> {
    let entry: Value = serde_saphyr::from_str(check::ENTRY)?;
    let to = Address::View(ViewId::new(VIEW));
    let mut taken = Vec::new();
    for round in 0..entries {
        let begun = Instant::now();
        manifests::apply(&world.client, &entry).await?;
        loop {
            if ask(bus, &to, "length(items)", json!(null)).await.ok() == Some(json!(objects)) {
                break;
            }
            ensure!(begun.elapsed() < WAIT_MAX, "no answer within {WAIT_MAX:?}");
        }
        taken.push(milliseconds(begun.elapsed()));
        if round + 1 < entries {
            world.delete(&entry).await?;
            wait::until("the view to be dropped", async || {
                match ask(bus, &to, "length(items)", json!(null)).await {
                    Err(_) => Ok(()),
                    Ok(answer) => bail!("it answers {answer}"),
                }
            })
            .await?;
        }
    }
    taken.sort_by(f64::total_cmp);
    Ok(taken)
}

struct Trials<'a> {
    world: &'a World,
    bus: &'a NatsBus,
    target: anteroom_load::Target,
}

impl Trials<'_> {
    async fn run(&self, name: &str, trials: usize) -> anyhow::Result<Value> {
        let (mut replicas, mut decisions) = (Vec::new(), Vec::new());
        let mut client = Client::new(self.target.clone())?;
        for trial in 0..trials {
            let host = format!("{name}-{trial}.fresh.example.com");
            let made = anteroom_load::ingress(NAMESPACE, &format!("{name}-{trial}"), &host);
            self.world.create(&made).await?;
            let acknowledged = Instant::now();
            let at_replicas = try_join_all((0..REPLICAS).map(|n| self.seen_by(n, &host)));
            let (at_replicas, at_decision) = tokio::try_join!(
                async { at_replicas.await.map(|all| all.into_iter().max()) },
                denied(&mut client, &host)
            )?;
            let since = |at: Instant| milliseconds(at.saturating_duration_since(acknowledged));
            replicas.push(since(at_replicas.context("no replica")?));
            decisions.push(since(at_decision));
            // Trials must not fall into step with the watcher's or the log's own rhythm.
            tokio::time::sleep(Duration::from_millis(20 + (trial as u64 * 37) % 60)).await;
        }
        Ok(json!({ "every_replica_ms": spread(replicas), "decision_ms": spread(decisions) }))
    }

    /// When the replica first counts the host.
    async fn seen_by(&self, replica: usize, host: &str) -> anyhow::Result<Instant> {
        let to = Address::Replica {
            replica: format!("replica-{replica}"),
            view: ViewId::new(VIEW),
        };
        let begun = Instant::now();
        loop {
            let found = ask(
                self.bus,
                &to,
                "length(items[?spec.rules[0].host == $host])",
                json!(host),
            )
            .await?;
            if found == json!(1) {
                return Ok(Instant::now());
            }
            ensure!(begun.elapsed() < WAIT_MAX, "not seen within {WAIT_MAX:?}");
        }
    }
}

/// When the webhook first denies the host to somebody else.
async fn denied(client: &mut Client, host: &str) -> anyhow::Result<Instant> {
    let object = anteroom_load::ingress("default", "somebody-else", host);
    let begun = Instant::now();
    loop {
        let answer = client.post(anteroom_load::review("u", &object)).await?;
        match Answer::parse("u", &answer).map_err(anyhow::Error::msg)? {
            Answer::Denied { .. } => return Ok(Instant::now()),
            Answer::Allowed => {}
            Answer::Failed { message } => bail!("{message}"),
        }
        ensure!(begun.elapsed() < WAIT_MAX, "not denied within {WAIT_MAX:?}");
    }
}

async fn ask(bus: &NatsBus, to: &Address, expression: &str, host: Value) -> anyhow::Result<Value> {
    let query = Query {
        expression: expression.to_owned(),
        parameters: Arc::new(BTreeMap::from([("host".to_owned(), host)])),
        ..Query::default()
    };
    Ok(anteroom_load::ask_one(bus, to, query, Duration::from_secs(5)).await??)
}

/// Relabels one Ingress after another.
async fn update_for_ever(
    client: kube::Client,
    objects: usize,
    per_second: u64,
    updates: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / per_second as u32);
    let api: kube::Api<k8s_openapi::api::networking::v1::Ingress> =
        kube::Api::namespaced(client, NAMESPACE);
    for number in 0_u64.. {
        tick.tick().await;
        let index = number as usize % objects;
        let name = ingress(index, "any")["metadata"]["name"].clone();
        let name = name.as_str().context("no name")?.to_owned();
        let (api, updates) = (api.clone(), Arc::clone(&updates));
        tokio::spawn(async move {
            let patch = json!({"metadata": {"labels": {"turn": number.to_string()}}});
            let params = PatchParams::default();
            if api
                .patch(&name, &params, &Patch::Merge(patch))
                .await
                .is_ok()
            {
                updates.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    Ok(())
}

/// CPU time that each part takes in `span`, in milliseconds.
async fn cpu(world: &World, span: Duration) -> anyhow::Result<BTreeMap<&'static str, f64>> {
    let now = || -> anyhow::Result<BTreeMap<&'static str, f64>> {
        let watcher = world.system.watcher.as_ref().context("a watcher")?;
        let replica = world.system.replicas[0].as_ref().context("a replica")?;
        let nats = world.nats.processes().next().context("a nats-server")?;
        let parts: [(_, &Process); 3] = [
            ("watcher", &watcher.process),
            ("nats", nats),
            ("replica", &replica.process),
        ];
        parts
            .into_iter()
            .map(|(name, process)| Ok((name, process.cpu_ms()?)))
            .collect()
    };
    let before = now()?;
    tokio::time::sleep(span).await;
    let after = now()?;
    Ok(after
        .into_iter()
        .map(|(name, ms)| (name, ms - before[name]))
        .collect())
}

fn spread(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    json!({ "trials": values.len(), "p50": at(0.5), "p95": at(0.95), "max": at(1.0) })
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[expect(clippy::print_stdout, reason = "the benchmark's output")]
fn println_json(report: &Value) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(report)?);
    Ok(())
}
