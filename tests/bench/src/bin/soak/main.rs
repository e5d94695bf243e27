//! Runs the services for long, under changes, reviews, entries and policies that come and go, and restarts of NATS. Prints
//! a table of what every process holds at the begin and at the end. It is an error if a decision was wrong, or if
//! something grew.

mod growth;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anteroom_bus::{Address, nats::NatsBus};
use anteroom_e2e::{
    check::{ENTRY, POLICY, SERVICES_ENTRY},
    manifests,
    nats::{Nats, NatsPlan},
    services::Running,
    system::{SYSTEM_NAMESPACE, System, SystemPlan, target},
    wait,
};
use anteroom_load::{Answer, Client as Poster, Target, ask_one, ingress, review};
use anteroom_model::ViewId;
use anteroom_simapi::{SimApi, SimConfig};
use anteroom_wire::query::Query;
use anyhow::{Context, ensure};
use clap::Parser;
use growth::{Figure, Growth, Look, NATS};
use kube::{Client, Config};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Runs the services for long, under changes.
#[derive(Parser)]
#[command(after_help = "Example:\n  cargo xtask soak -- --events 10000000")]
struct Args {
    /// Changes of objects.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,

    /// Changes in a second.
    #[arg(long, default_value_t = 4_000)]
    events_per_second: u64,

    /// The time between two restarts of NATS, in seconds.
    #[arg(long, default_value_t = 600)]
    nats_restarts_every_s: u64,
}

const INGRESSES: &str = "ingresses.networking.k8s.io";
const ENTRIES: &str = "cachedcontextentries.kyverno.io";
const POLICIES: &str = "clusterpolicies.kyverno.io";

/// The view that is compared at the end.
const VIEW: &str = "ingresses.v1.networking.k8s.io";

/// Objects of each kind that change.
const OBJECTS: u32 = 2_000;

/// Ingresses that never change: their hosts are always taken.
const STEADY: u32 = 50;

/// The time between two reviews.
const REVIEW_INTERVAL: Duration = Duration::from_millis(20);

/// The time for which an entry and a policy stay, and then are away.
const COMES_AND_GOES_S: u64 = 7;

/// The share of the run after which it is looked at: caches are full then.
const WARM: f64 = 0.1;

/// The time after a restart of NATS in which nobody looks: clients connect again, and streams are read.
const SETTLES_S: u64 = 10;

/// The time between two waits for the pace.
const TICK: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    anteroom_runtime::process::install_crypto_provider();
    let args = Args::parse();
    let folder = tempfile::tempdir()?;
    let mut soak = Soak::start(folder.path()).await?;
    let outcome = soak.run(&args).await?;
    let growth = Growth::over(&outcome.looks);
    let table = growth
        .as_ref()
        .map_or_else(|_| String::new(), Growth::table);
    print(&format!("{}\n{table}", outcome.summary()));
    ensure!(
        Counts::read(&outcome.counts.wrong) == 0,
        "a decision was wrong"
    );
    let grown = growth?.too_much();
    ensure!(
        grown.is_empty(),
        "more than it may be: {}",
        grown.join(", ")
    );
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "progress")]
fn say(text: &str) {
    eprintln!("{text}");
}

/// Fields drop in order: services, NATS, the API server.
struct Soak {
    system: System,
    nats: Nats,
    sim: Arc<SimApi>,
    target: Target,
}

#[derive(Default)]
struct Counts {
    events: AtomicU64,
    decisions: AtomicU64,
    wrong: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn read(of: &AtomicU64) -> u64 {
        of.load(Ordering::Relaxed)
    }

    fn count(of: &AtomicU64) {
        of.fetch_add(1, Ordering::Relaxed);
    }
}

/// The outcome of a run.
struct Outcome {
    counts: Arc<Counts>,
    seconds: f64,
    /// From the begin's end on, in order.
    looks: Vec<Look>,
}

impl Outcome {
    fn summary(&self) -> String {
        let counts = &self.counts;
        format!(
            "{} changes in {:.0} s; {} decisions, {} wrong, {} failed",
            Counts::read(&counts.events),
            self.seconds,
            Counts::read(&counts.decisions),
            Counts::read(&counts.wrong),
            Counts::read(&counts.failed)
        )
    }
}

impl Soak {
    async fn start(folder: &Path) -> anyhow::Result<Self> {
        let sim = Arc::new(SimApi::start(SimConfig::default()).await?);
        let client = Client::try_from(Config::new(sim.url().parse()?))?;
        manifests::apply_crds(&client).await?;
        manifests::apply_namespace(&client, SYSTEM_NAMESPACE).await?;
        sim.put("namespaces", json!({ "metadata": { "name": "soak" } }))?;
        for number in 0..STEADY {
            sim.put(INGRESSES, of_ingress(&format!("steady-{number}"), number))?;
        }
        let nats = Nats::start(NatsPlan::one(), folder).await?;
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, sim.kubeconfig_yaml())?;
        let plan = SystemPlan {
            reporter: Some(kubeconfig.clone()),
            ..SystemPlan::default()
        };
        let mut system = System::start_as(&plan, folder, &nats.logins(), &kubeconfig, &kubeconfig)?;
        for text in [ENTRY, SERVICES_ENTRY, POLICY] {
            for manifest in manifests::parse(text)? {
                manifests::apply(&client, &manifest).await?;
            }
        }
        system.ready().await?;
        Ok(Self {
            system,
            nats,
            sim,
            target: target(&client).await?,
        })
    }

    async fn run(&mut self, args: &Args) -> anyhow::Result<Outcome> {
        let (counts, stop) = (Arc::<Counts>::default(), CancellationToken::new());
        let mut asker = Poster::new(self.target.clone())?;
        wait::until("the policy to decide", async || {
            let answer = asker.post(asked(&host_of_steady(0))).await?;
            ensure!(is_denied(&answer)? == Some(true), "{answer:?}");
            anyhow::Ok(())
        })
        .await?;
        let begun = Instant::now();
        let change = tokio::spawn(change(
            Arc::clone(&self.sim),
            Arc::clone(&counts),
            args.events,
            args.events_per_second,
        ));
        let ask = tokio::spawn(ask(self.target.clone(), Arc::clone(&counts), stop.clone()));
        let mut looks = Vec::new();
        let mut restarted: Option<u64> = None;
        for second in 1_u64.. {
            tokio::time::sleep_until((begun + Duration::from_secs(second)).into()).await;
            let share = Counts::read(&counts.events) as f64 / args.events as f64;
            let is_settled = restarted.is_none_or(|at| second >= at + SETTLES_S);
            if share >= WARM && is_settled {
                looks.push(self.look().await?);
            }
            if second % COMES_AND_GOES_S == 0 {
                self.come_or_go(second / COMES_AND_GOES_S)?;
            }
            // The first time before anybody looks, so that what a restart leaves behind is there from the first look on.
            let is_first = restarted.is_none() && share >= WARM / 2.0;
            if is_first || second % args.nats_restarts_every_s == 0 {
                self.nats.kill()?;
                self.nats.start_again().await?;
                restarted = Some(second);
            }
            if second % 60 == 0 {
                let (decisions, failed) = (&counts.decisions, &counts.failed);
                say(&format!(
                    "{second} s: {:.0} % of the events, {} decisions, {} failed",
                    share * 100.0,
                    Counts::read(decisions),
                    Counts::read(failed)
                ));
            }
            if change.is_finished() {
                break;
            }
        }
        change.await??;
        let seconds = begun.elapsed().as_secs_f64();
        self.leave()?;
        self.is_equal().await?;
        stop.cancel();
        ask.await??;
        Ok(Outcome {
            counts,
            seconds,
            looks,
        })
    }

    /// An entry and a policy come with every odd number, and go with every even one.
    fn come_or_go(&self, number: u64) -> anyhow::Result<()> {
        if number.is_multiple_of(2) {
            return self.leave();
        }
        let resource = json!({ "group": "", "version": "v1", "kind": "configmaps" });
        let entry = json!({ "metadata": { "name": "passing" }, "spec": { "resource": resource } });
        self.sim.put(ENTRIES, entry)?;
        let mut policy: Value = serde_saphyr::from_str(POLICY)?;
        // Each has another name, as of tenants that come and go.
        policy["metadata"]["name"] = format!("passing-{number}").into();
        // Every other one is in the reports too.
        policy["spec"]["background"] = (number % 4 == 1).into();
        self.sim.put(POLICIES, policy)?;
        Ok(())
    }

    fn leave(&self) -> anyhow::Result<()> {
        let _ = self.sim.delete(ENTRIES, "", "passing");
        for policy in self.sim.objects(POLICIES)? {
            let policy: Value = serde_json::from_slice(&policy)?;
            let name = policy["metadata"]["name"].as_str().unwrap_or_default();
            if name.starts_with("passing-") {
                self.sim.delete(POLICIES, "", name)?;
            }
        }
        Ok(())
    }

    /// Returns what the processes and NATS hold.
    async fn look(&self) -> anyhow::Result<Look> {
        let mut look = Look::new();
        for (name, running) in self.services() {
            let metrics = running.get("/metrics").await?;
            let series = metrics.lines().filter(|line| !line.starts_with('#'));
            let series = series.count() as u64;
            look.insert(
                (name.clone(), Figure::RssBytes),
                running.process.rss_bytes()?,
            );
            look.insert((name, Figure::Series), series);
        }
        let log = self.nats.figures(0, "/jsz").await?;
        let server = self.nats.figures(0, "/varz").await?;
        let process = self.nats.processes().next().context("NATS runs")?;
        let number = |value: &Value| value.as_u64().context("a figure of NATS");
        for (figure, value) in [
            (Figure::RssBytes, process.rss_bytes()?),
            (Figure::LogBytes, number(&log["bytes"])?),
            (Figure::LogMessages, number(&log["messages"])?),
            (Figure::DiskBytes, self.nats.stored_bytes(0)?),
            (Figure::Consumers, number(&log["consumers"])?),
            (Figure::Connections, number(&server["connections"])?),
            (Figure::Subscriptions, number(&server["subscriptions"])?),
        ] {
            look.insert((NATS.to_owned(), figure), value);
        }
        Ok(look)
    }

    fn services(&self) -> Vec<(String, &Running)> {
        let watcher = self.system.watcher.iter();
        let watcher = watcher.map(|running| ("watcher".to_owned(), running));
        let replicas = self.system.replicas.iter().flatten().enumerate();
        let replicas = replicas.map(|(number, running)| (format!("replica-{number}"), running));
        let webhook = [("webhook".to_owned(), &self.system.webhook)];
        let reporter = self.system.reporter.iter();
        let reporter = reporter.map(|running| ("reporter".to_owned(), running));
        let services = watcher.chain(replicas).chain(webhook);
        services.chain(reporter).collect()
    }

    /// Waits until every replica has exactly the Ingresses of the API server, in their versions.
    async fn is_equal(&self) -> anyhow::Result<()> {
        let bus = NatsBus::connect(self.nats.config_of_webhook()).await?;
        let mut wanted = Vec::new();
        for object in self.sim.objects(INGRESSES)? {
            let object: Value = serde_json::from_slice(&object)?;
            let metadata = &object["metadata"];
            wanted.push(json!([metadata["name"], metadata["resourceVersion"]]).to_string());
        }
        wanted.sort();
        for number in 0..self.system.replicas.len() {
            let to = Address::Replica {
                replica: format!("replica-{number}"),
                view: ViewId::new(VIEW),
            };
            wait::until("a replica to have all", async || {
                let query = Query {
                    expression: "items[].[metadata.name, metadata.resourceVersion]".to_owned(),
                    ..Query::default()
                };
                let found = ask_one(&bus, &to, query, Duration::from_secs(5)).await??;
                let found = found.as_array().context("a list")?;
                let mut found: Vec<_> = found.iter().map(Value::to_string).collect();
                found.sort();
                ensure!(found == wanted, "{} of {}", found.len(), wanted.len());
                anyhow::Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

fn host_of_steady(number: u32) -> String {
    format!("steady-{number}.soak.test")
}

fn of_ingress(name: &str, number: u32) -> Value {
    ingress(
        "soak",
        name,
        &format!(
            "{}.soak.test",
            name.replace("ingress", &format!("h{number}"))
        ),
    )
}

fn asked(host: &str) -> bytes::Bytes {
    review("00000000-soak", &ingress("soak", "somebody-else", host))
}

/// Returns whether the review was denied; `None` if it failed.
fn is_denied(answer: &[u8]) -> anyhow::Result<Option<bool>> {
    match Answer::parse("00000000-soak", answer).map_err(anyhow::Error::msg)? {
        Answer::Denied { .. } => Ok(Some(true)),
        Answer::Allowed => Ok(Some(false)),
        Answer::Failed { .. } => Ok(None),
    }
}

/// Changes objects at an even pace.
async fn change(
    sim: Arc<SimApi>,
    counts: Arc<Counts>,
    events: u64,
    per_second: u64,
) -> anyhow::Result<()> {
    let (begun, mut random) = (Instant::now(), StdRng::seed_from_u64(1));
    for event in 0..events {
        let due = begun + Duration::from_secs_f64(event as f64 / per_second as f64);
        if due > Instant::now() + TICK {
            tokio::time::sleep_until(due.into()).await;
        } else if event % 64 == 0 {
            tokio::task::yield_now().await;
        }
        let number = random.random_range(0..OBJECTS);
        let is_ingress = random.random_bool(0.5);
        let (resource, name) = match is_ingress {
            true => (INGRESSES, format!("ingress-{number}")),
            false => ("services", format!("service-{number}")),
        };
        if random.random_bool(0.1) {
            // It may not be there.
            let _ = sim.delete(resource, "soak", &name);
        } else {
            sim.put(resource, object(is_ingress, &name, random.random()))?;
        }
        Counts::count(&counts.events);
    }
    Ok(())
}

fn object(is_ingress: bool, name: &str, number: u32) -> Value {
    match is_ingress {
        true => of_ingress(name, number),
        false => json!({
            "metadata": { "namespace": "soak", "name": name, "labels": { "n": number.to_string() } },
            "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] },
        }),
    }
}

/// Asks in turns for hosts that are always taken and for hosts that never are.
async fn ask(target: Target, counts: Arc<Counts>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut client = Poster::new(target)?;
    for number in (0..STEADY).cycle() {
        if stop.is_cancelled() {
            break;
        }
        for (host, is_taken) in [
            (host_of_steady(number), true),
            (format!("never-{number}.soak.test"), false),
        ] {
            match is_denied(&client.post(asked(&host)).await?)? {
                Some(denied) => {
                    Counts::count(&counts.decisions);
                    if denied != is_taken {
                        say(&format!("wrong: {host} denied={denied}"));
                        Counts::count(&counts.wrong);
                    }
                }
                None => Counts::count(&counts.failed),
            }
        }
        tokio::time::sleep(REVIEW_INTERVAL).await;
    }
    Ok(())
}
