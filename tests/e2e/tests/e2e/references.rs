//! Single objects by the thousand, referenced as users do it: by policies that name ConfigMaps and by
//! entries on one object, through a watcher and a replica that are processes, and NATS.
//!
//! `ANTEROOM_REFERENCES` says how many, and has it measured what they cost at rest; 20,000 otherwise.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use anteroom_e2e::{process::Process, simulated::Simulated, system::SystemPlan};
use anteroom_load::QueryResult;
use anteroom_model::{
    FactError, GroupVersionResource, ObjectKey, Source, ViewId, limits::QUERIES_PER_REQUEST_MAX,
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

const CONFIGMAPS: &str = "configmaps";
const POLICIES: &str = "clusterpolicies.kyverno.io";
const NAMESPACE: &str = "default";

/// ConfigMaps that one policy names.
const PER_POLICY: usize = 250;

/// Every so many of what is referenced is not there.
const ABSENT_EVERY: usize = 10;

/// The longest that all of it may take, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// Lists of the whole type, however fast references come.
const LISTS_MAX: u64 = 20;

/// The bytes that a reference may take, in the watcher and in the replica: its manifests and records included.
/// The watcher takes 6.6 KiB right after the burst, and 7.3 KiB at rest.
const BYTES_PER_REFERENCE_MAX: u64 = 10 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn references_by_the_thousand_are_answered_by_one_watch() -> anyhow::Result<()> {
    let asked = std::env::var("ANTEROOM_REFERENCES").ok();
    let measures = asked.is_some();
    let count = asked.map_or(Ok(20_000), |count| count.parse())?;
    let plan = SystemPlan {
        replicas: 1,
        ..SystemPlan::default()
    };
    let mut world = Simulated::start(&plan, |sim| {
        let there = (0..count).filter(|n| n % ABSENT_EVERY != 0);
        Ok(sim.put_all(CONFIGMAPS, there.map(config_map))?)
    })
    .await?;
    world.ready().await?;
    let before = Figures::of(&world)?;

    // Half by policies, half by entries.
    let (by_policies, by_entries) = (0..count / 2, count / 2..count);
    for first in by_policies.clone().step_by(PER_POLICY) {
        let names = first..(first + PER_POLICY).min(by_policies.end);
        world
            .sim
            .put(POLICIES, policy(&format!("p{first}"), names))?;
    }
    for n in by_entries.clone() {
        world.entry(&format!("e{n}"), &on_one_object(n))?;
    }
    answered(&world, 0..count, count)
        .await
        .context("all of them")?;
    let settled = Figures::of(&world)?;
    before.tell(&settled, &format!("{count} references"));
    few_watches(&world, count)?;
    if measures {
        let quiet = Duration::from_secs(10);
        tokio::time::sleep(quiet).await;
        let rested = Figures::of(&world)?;
        settled.tell(&rested, "after it");
        tokio::time::sleep(quiet).await;
        rested.tell(&Figures::of(&world)?, "and then");
    }
    let settled = Figures::of(&world)?;

    // A thousand more come, and go: only they are written.
    let more = count..count + 1_000;
    let lists = world.sim.stats().count("list", CONFIGMAPS);
    for first in more.clone().step_by(PER_POLICY) {
        let names = first..first + PER_POLICY;
        world
            .sim
            .put(POLICIES, policy(&format!("p{first}"), names))?;
    }
    answered(&world, more.clone(), count)
        .await
        .context("more of them")?;
    let with_more = Figures::of(&world)?;
    settled.tell(&with_more, "1,000 more");
    for first in more.clone().step_by(PER_POLICY) {
        world.sim.delete(POLICIES, "", &format!("p{first}"))?;
    }
    gone(&world, more).await.context("they go")?;
    with_more.tell(&Figures::of(&world)?, "1,000 less");
    let listed = world.sim.stats().count("list", CONFIGMAPS) - lists;
    println!("{listed} pages were listed for them");
    few_watches(&world, count)?;

    // The last one stops the watch.
    for first in by_policies.step_by(PER_POLICY) {
        world.sim.delete(POLICIES, "", &format!("p{first}"))?;
    }
    for n in by_entries {
        let entries = "cachedcontextentries.kyverno.io";
        world.sim.delete(entries, "", &format!("e{n}"))?;
    }
    let none = |stats: &anteroom_simapi::Stats| stats.watches_on(CONFIGMAPS) == 0;
    tokio::time::timeout(PATIENCE, world.sim.wait_until(none))
        .await
        .context("the watch to stop")?;
    let taken = |of: fn(&Figures) -> u64| of(&settled).saturating_sub(of(&before)) / count as u64;
    let (watcher, replica) = (taken(|f| f.watcher.rss), taken(|f| f.replica.rss));
    ensure!(
        watcher < BYTES_PER_REFERENCE_MAX && replica < BYTES_PER_REFERENCE_MAX,
        "a reference takes {watcher} bytes in the watcher and {replica} in the replica"
    );
    Ok(())
}

fn name(n: usize) -> String {
    format!("settings-{n}")
}

fn config_map(n: usize) -> Value {
    json!({ "metadata": { "namespace": NAMESPACE, "name": name(n) }, "data": { "n": n.to_string() } })
}

fn on_one_object(n: usize) -> Value {
    json!({ "resource": { "version": "v1", "kind": CONFIGMAPS, "namespace": NAMESPACE,
        "name": name(n) } })
}

/// A policy that reads these ConfigMaps, a few in each rule.
fn policy(named: &str, objects: Range<usize>) -> Value {
    let objects: Vec<usize> = objects.collect();
    let rules = objects.chunks(10).enumerate().map(|(rule, objects)| {
        let context = objects.iter().map(|n| {
            json!({ "name": format!("v{n}"),
                "configMap": { "name": name(*n), "namespace": NAMESPACE } })
        });
        json!({ "name": format!("rule-{rule}"),
            "match": { "any": [{ "resources": { "kinds": ["Pod"] } }] },
            "context": context.collect::<Vec<_>>(),
            "validate": { "message": "no", "deny": { "conditions": { "any": [{
                "key": format!("{{{{ v{}.data.n }}}}", objects[0]), "operator": "Equals",
                "value": "x" }] } } } })
    });
    json!({ "metadata": { "name": named }, "spec": { "rules": rules.collect::<Vec<_>>() } })
}

fn view() -> ViewId {
    let gvr = GroupVersionResource::new("", "v1", CONFIGMAPS);
    Source::Objects { gvr }.view_id()
}

/// Every one is answered for, with what the API server has, which are `there`.
async fn answered(world: &Simulated, objects: Range<usize>, there: usize) -> anyhow::Result<()> {
    until(world, objects, |n, said| {
        let absent = n % ABSENT_EVERY == 0 || n >= there;
        match said {
            Ok(found) => !absent && *found == json!(name(n)),
            Err(FactError::ObjectNotFound { .. }) => absent,
            Err(_) => false,
        }
    })
    .await
}

async fn gone(world: &Simulated, objects: Range<usize>) -> anyhow::Result<()> {
    until(world, objects, |_, said| {
        matches!(said, Err(FactError::ObjectNotRegistered { .. }))
    })
    .await
}

/// Asks for all of them until each answer is as it should be; none may ever be wrong.
async fn until(
    world: &Simulated,
    objects: Range<usize>,
    right: impl Fn(usize, &QueryResult) -> bool,
) -> anyhow::Result<()> {
    let (began, view) = (Instant::now(), view());
    let mut left: Vec<usize> = objects.collect();
    loop {
        let mut wrong = None;
        let mut still = Vec::new();
        for some in left.chunks(QUERIES_PER_REQUEST_MAX) {
            let keys: Vec<_> = some
                .iter()
                .map(|n| ObjectKey::new(NAMESPACE, name(*n)))
                .collect();
            match world.ask_objects(&view, &keys).await {
                Ok(said) => {
                    for (n, said) in some.iter().zip(&said) {
                        if !right(*n, said) {
                            wrong = Some(format!("{n}: {said:?}"));
                            still.push(*n);
                        }
                    }
                }
                Err(error) => {
                    wrong = Some(error.to_string());
                    still.extend(some);
                }
            }
            if !still.is_empty() {
                still.extend(left.iter().skip_while(|n| *n <= some.last().unwrap_or(n)));
                break; // Those that come later are not there yet either.
            }
        }
        if still.is_empty() {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{} left; {wrong:?}",
            still.len()
        );
        left = still;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// They are one watch, and few lists.
fn few_watches(world: &Simulated, count: usize) -> anyhow::Result<()> {
    let stats = world.sim.stats();
    let (watches, pages) = (
        stats.watches_on(CONFIGMAPS),
        stats.count("list", CONFIGMAPS),
    );
    println!("{watches} watches, {pages} pages listed");
    ensure!(watches == 1, "{watches} watches");
    let page = 500;
    let whole = count.div_ceil(page) as u64;
    ensure!(
        pages < LISTS_MAX * whole,
        "{pages} pages, and all of it is {whole}"
    );
    Ok(())
}

/// The cost of the two processes until now.
struct Figures {
    at: Instant,
    watcher: ProcessUsage,
    replica: ProcessUsage,
}

struct ProcessUsage {
    rss: u64,
    cpu_ms: f64,
}

impl Figures {
    fn of(world: &Simulated) -> anyhow::Result<Self> {
        let taken = |process: &Process| -> anyhow::Result<ProcessUsage> {
            Ok(ProcessUsage {
                rss: process.rss_bytes()?,
                cpu_ms: process.cpu_ms()?,
            })
        };
        let replica = world.replicas.first().context("one replica")?;
        Ok(Self {
            at: Instant::now(),
            watcher: taken(&world.watcher.process)?,
            replica: taken(&replica.process)?,
        })
    }

    fn tell(&self, after: &Self, what: &str) {
        let of = |before: &ProcessUsage, after: &ProcessUsage| {
            let (rss, cpu) = (after.rss >> 20, after.cpu_ms - before.cpu_ms);
            format!("{} -> {rss} MiB, {cpu:.0} ms of CPU", before.rss >> 20)
        };
        let (watcher, replica) = (&self.watcher, &self.replica);
        println!(
            "{what}: {} ms; watcher {}; replica {}",
            (after.at - self.at).as_millis(),
            of(watcher, &after.watcher),
            of(replica, &after.replica),
        );
    }
}
