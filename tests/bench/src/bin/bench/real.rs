//! A real API server full of Pods: how soon an entry on them answers, and what holding them takes.

mod fill;
mod phases;

use std::time::{Duration, Instant};

use anteroom_e2e::{
    manifests, nats::NatsPlan, process::Process, services::Running, system::SystemPlan, wait,
    world::World,
};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::{Settings, asked::Asker, say, spent};
use phases::Phases;

/// The quiet time before memory is read: allocators give back what was freed.
const SETTLE: Duration = Duration::from_secs(5);

/// Between two questions whether all objects are there yet: asking must not cost the cores that load.
const ASKED_APART: Duration = Duration::from_millis(10);

/// No entry takes longer, or something is wrong.
const USABLE_MAX: Duration = Duration::from_secs(90);

/// An entry whose way to its first answer is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    /// The name in the result.
    pub(crate) name: &'static str,
    /// Applied before: what says what of the objects is read.
    pub(crate) before: &'static [&'static str],
    /// The entry.
    pub(crate) entry: &'static str,
    /// The beginning of its view's name, and of no other's.
    pub(crate) view: &'static str,
}

/// From each entry's creation to its first answer over all Pods, and memory after that. Before the
/// second entry the services start anew, so that none holds memory of the first.
pub(crate) async fn run(
    pods: usize,
    entries: &[Timed],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let plan = SystemPlan {
        replicas: settings.replicas,
        nats: NatsPlan::one(),
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    world.folder.silence();
    let begun = Instant::now();
    let objects = fill::pods(&world.cluster, pods).await?;
    let filled_s = begun.elapsed().as_secs_f64();
    let mut result = json!({ "objects": objects, "filled_s": filled_s });
    for (turn, timed) in entries.iter().enumerate() {
        if turn > 0 {
            again(&mut world).await?;
        }
        world.system.ready().await?;
        tokio::time::sleep(SETTLE).await;
        result[timed.name] = one(&world, timed, pods).await?;
        say(&format!("{}: {}", timed.name, result[timed.name]));
        for text in timed.before.iter().chain([&timed.entry]).rev() {
            for manifest in manifests::parse(text)? {
                world.delete(&manifest).await?;
            }
        }
        gone(&world, timed).await?;
    }
    for running in world.system.into_running() {
        let name = running.recipe().name.clone();
        let status = running.process.terminate().await?;
        ensure!(status.success(), "{name} ended with {status}");
    }
    Ok(result)
}

async fn one(world: &World, timed: &Timed, pods: usize) -> anyhow::Result<Value> {
    for text in timed.before {
        apply(world, text).await?;
    }
    let phases = Phases::begin(world).await?;
    let begun = Instant::now();
    apply(world, timed.entry).await?;
    let replica = replica(world)?;
    let asker = loop {
        if let Some(view) = view_named(replica, timed.view).await? {
            break Asker::new(&world.nats, &view).await?;
        }
        ensure!(begun.elapsed() < USABLE_MAX, "no view {}", timed.view);
        tokio::time::sleep(ASKED_APART).await;
    };
    loop {
        let answer = asker.ask("length(items)", Value::Null).await;
        if matches!(&answer, Ok(count) if *count == json!(pods)) {
            break;
        }
        if begun.elapsed() > USABLE_MAX {
            bail!("not usable within {USABLE_MAX:?}: {answer:?}");
        }
        tokio::time::sleep(ASKED_APART).await;
    }
    let usable_s = begun.elapsed().as_secs_f64();
    let phases = phases.end(world, usable_s).await?;
    tokio::time::sleep(SETTLE).await;
    let memory = spent::memory_of_all(processes(world))?;
    Ok(json!({ "usable_s": usable_s, "phases": phases, "memory": memory }))
}

/// The services end, and start anew.
async fn again(world: &mut World) -> anyhow::Result<()> {
    let system = &mut world.system;
    for running in system.replicas.iter_mut().chain([&mut system.watcher]) {
        let ended = running.take().context("it runs")?;
        let recipe = ended.recipe().clone();
        ended.process.terminate().await?;
        *running = Some(recipe.start()?);
    }
    let recipe = system.webhook.recipe().clone();
    // The old one ends when its handle is dropped; its port is free by then.
    system.webhook.process.signal("TERM")?;
    wait::until("the webhook to end", async || {
        match system.webhook.process.check() {
            Ok(()) => Err("still running"),
            Err(_ended) => Ok(()),
        }
    })
    .await?;
    system.webhook = recipe.start()?;
    Ok(())
}

/// Waits until no replica holds the view any more, so that the next entry begins with nothing.
async fn gone(world: &World, timed: &Timed) -> anyhow::Result<()> {
    let replica = replica(world)?;
    wait::until(
        &format!("{} to be dropped", timed.view),
        async || match view_named(replica, timed.view).await? {
            None => Ok(()),
            Some(view) => bail!("{view} is held"),
        },
    )
    .await
}

async fn apply(world: &World, text: &str) -> anyhow::Result<()> {
    for manifest in manifests::parse(text)? {
        manifests::apply(&world.client, &manifest).await?;
    }
    Ok(())
}

/// Returns the replica's view whose name begins with `begins`.
async fn view_named(replica: &Running, begins: &str) -> anyhow::Result<Option<String>> {
    let metrics = replica.get("/metrics").await?;
    let mut views = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("anteroom_view_objects{view=\""))
        .filter_map(|rest| rest.split('"').next());
    Ok(views
        .find(|view| match begins.ends_with('~') {
            true => view.starts_with(begins),
            false => *view == begins,
        })
        .map(str::to_owned))
}

fn replica(world: &World) -> anyhow::Result<&Running> {
    let first = world.system.replicas.first().and_then(Option::as_ref);
    first.context("no replica")
}

/// All processes by what they are.
fn processes(world: &World) -> Vec<(&'static str, &Process)> {
    let system = &world.system;
    let watcher = system.watcher.iter().map(|of| ("watcher", &of.process));
    let replicas = system.replicas.iter().flatten();
    let replicas = replicas.map(|of| ("replica", &of.process));
    let nats = world.nats.processes().map(|process| ("nats", process));
    let apiserver = world.cluster.apiserver().map(|of| ("apiserver", of));
    let webhook = [("webhook", &system.webhook.process)];
    watcher
        .chain(replicas)
        .chain(webhook)
        .chain(nats)
        .chain(apiserver)
        .collect()
}
