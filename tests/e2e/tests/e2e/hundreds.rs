//! Entries that come and go by the hundred while what they are on changes, and what is left of them.
//!
//! Held: every view that survives a round holds, in every replica, exactly what the API
//! server lists; a policy that reads an entry which stays is never without a right decision; what all
//! entries leave behind is nothing: no view, no watch on the API server, no memory.
//!
//! `ANTEROOM_HUNDREDS_SEED` and `ANTEROOM_HUNDREDS_ROUNDS` choose another and a longer story.

use std::collections::BTreeMap;

use anteroom_e2e::{
    audit,
    check::condition,
    rights::{RightPart, Rights},
    steady,
    stock::{Histories, NAMESPACES, STOCK, Stock},
    system::SystemPlan,
    views,
    wait::{self, setting},
    world::World,
};
use anyhow::{Context, ensure};
use futures::future::try_join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const SEED_DEFAULT: u64 = 1;
const ROUNDS_DEFAULT: u64 = 2;

/// The number of entries that a round makes and deletes.
const DEEDS: usize = 400;
const DOERS: usize = 4;

/// Names of one who does: few enough that many come again, as something else.
const NAMES: usize = 40;

/// Types of which the watcher may read namespaces alone, so that nothing can be derived from a watch of
/// all.
const CONFINED: [Stock; 3] = [STOCK[1], STOCK[5], STOCK[6]];

/// The factor by which memory may be above that after the first round: a process keeps some for the next.
const MEMORY_FACTOR: f64 = 1.3;
const MEMORY_SLACK_BYTES: f64 = 24.0 * 1024.0 * 1024.0;

#[tokio::test(flavor = "multi_thread")]
async fn entries_by_the_hundred_hold_what_is_there_and_leave_nothing() -> anyhow::Result<()> {
    let seed = setting("ANTEROOM_HUNDREDS_SEED", SEED_DEFAULT)?;
    let rounds = setting("ANTEROOM_HUNDREDS_ROUNDS", ROUNDS_DEFAULT)?;
    let mut world = World::start_as(&SystemPlan::default()).await?;
    let outcome = Box::pin(story(&mut world, seed, rounds)).await;
    let outcome = outcome.with_context(|| format!("ANTEROOM_HUNDREDS_SEED={seed}"));
    world.with_logs(outcome)
}

async fn story(world: &mut World, seed: u64, rounds: u64) -> anyhow::Result<()> {
    let histories = Histories::begin(world, &STOCK).await?;
    let rights = Rights::begin(&world.client).await?;
    for of in CONFINED {
        rights
            .take(&world.client, (of, None), RightPart::Whole)
            .await?;
    }
    world.system.ready().await?;
    let asker = steady::begin(world).await?;

    let mut memory: Vec<BTreeMap<String, u64>> = Vec::new();
    for round in 0..rounds {
        let (quiet, stop) = (CancellationToken::new(), CancellationToken::new());
        let (one, other) = STOCK.split_at(STOCK.len() / 2);
        let seed = seed ^ (round << 16);
        let changes = [one, other]
            .map(|stock| histories.change(world, stock, seed ^ stock.len() as u64, &quiet));
        let asking = steady::ask(&histories, &asker, &stop);
        let comings = async {
            let doers = (0..DOERS).map(|doer| come_and_go(world, seed, doer));
            let left = try_join_all(doers).await?;
            quiet.cancel();
            anyhow::Ok(left.into_iter().flatten().collect::<Vec<_>>())
        };
        let survey = async {
            let (_, left) = tokio::try_join!(try_join_all(changes), comings)?;
            for entry in &left {
                condition(world, entry, "True", "").await?;
            }
            let compared = views::equal_the_api_server(world).await?;
            let watches = watches(world)?;
            tell(&format!(
                "round {round}: {} entries are left on {compared} views and objects, with {} watches",
                left.len(),
                watches.len()
            ));
            // A view of two namespaces may be made of two.
            ensure!(watches.len() <= 2 * compared, "{watches:?}");
            for entry in &left {
                world.delete(entry).await?;
            }
            only_what_stays(world).await?;
            stop.cancel();
            anyhow::Ok(())
        };
        let (asked, ()) = tokio::try_join!(asking, survey)?;
        tell(&format!("  {asked} decisions meanwhile"));
        memory.push(rss(world)?);
    }
    tell(&format!("{memory:#?}"));
    memory_is_back(&memory)?;
    world.delete(&steady::policy()).await?;
    world.delete(&steady::entry()).await?;
    views::none_is_left(world).await?;
    no_watch_is_left(world, 0).await?;
    for running in world.system.watcher.iter_mut() {
        running.process.check()?;
    }
    for running in world.system.replicas.iter_mut().flatten() {
        running.process.check()?;
    }
    world.system.webhook.process.check()
}

/// Makes and deletes entries; returns those that are left.
async fn come_and_go(world: &World, seed: u64, doer: usize) -> anyhow::Result<Vec<Value>> {
    let mut rng = StdRng::seed_from_u64(seed ^ ((doer as u64 + 1) << 32));
    let mut there: BTreeMap<usize, Value> = BTreeMap::new();
    for _ in 0..DEEDS / DOERS {
        let index = rng.random_range(0..NAMES);
        match there.remove(&index) {
            Some(entry) => world.delete(&entry).await?,
            None => {
                let entry = entry(&mut rng, &format!("many-{doer}-{index}"))?;
                world.create(&entry).await?;
                there.insert(index, entry);
            }
        }
    }
    Ok(there.into_values().collect())
}

/// An entry of either kind on any type, narrowed or not.
fn entry(rng: &mut StdRng, name: &str) -> anyhow::Result<Value> {
    let of = STOCK.choose(rng).context("no stock")?;
    let &namespace = NAMESPACES.choose(rng).context("no namespace")?;
    let (group, confined) = (of.group, CONFINED.contains(of) || rng.random_bool(0.4));
    let (kind, spec) = if rng.random_bool(0.3) {
        let mut resource = json!({ "group": group, "version": "v1", "resource": of.plural });
        if confined {
            resource["namespace"] = namespace.into();
        }
        (
            "GlobalContextEntry",
            json!({ "kubernetesResource": resource }),
        )
    } else {
        let mut resource = json!({ "group": group, "kind": of.plural });
        if confined {
            resource["namespace"] = namespace.into();
        }
        let other = format!("other-{}", rng.random_range(0..4));
        match rng.random_range(0..6) {
            0 if confined => resource["name"] = other.into(),
            1 if confined => {
                resource["namespaces"] = json!([NAMESPACES[0], namespace]);
                resource["namespace"].take();
            }
            2 => resource["labelSelector"] = json!({ "matchLabels": { "days": "other" } }),
            3 => {
                resource["labelSelector"] = json!({ "matchExpressions": [
                    { "key": "days", "operator": "In", "values": ["state", name] }] });
            }
            4 => resource["fieldSelector"] = format!("metadata.name!={other}").into(),
            _ => {}
        }
        ("CachedContextEntry", json!({ "resource": resource }))
    };
    Ok(json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": kind,
        "metadata": { "name": name }, "spec": spec }))
}

/// The watches that are open on the types of the entries, by the API server's own record.
fn watches(world: &World) -> anyhow::Result<Vec<String>> {
    let asked = world.cluster.asked()?;
    let of_stock = |resource: &str| STOCK.iter().any(|of| of.resource() == resource);
    let open = audit::open_watches(&asked).into_iter();
    let open = open.filter(|asked| of_stock(&asked.resource));
    Ok(open.map(|asked| asked.uri.clone()).collect())
}

async fn no_watch_is_left(world: &World, but: usize) -> anyhow::Result<()> {
    wait::until("the API server to have no watch left", async || {
        let watches = watches(world)?;
        ensure!(watches.len() <= but, "{watches:?}");
        Ok(())
    })
    .await
}

/// One view is wanted, and watched once.
async fn only_what_stays(world: &World) -> anyhow::Result<()> {
    no_watch_is_left(world, 1).await?;
    views::only_are_left(world, &[&steady::view()]).await
}

/// Resident memory of each service.
fn rss(world: &World) -> anyhow::Result<BTreeMap<String, u64>> {
    let system = &world.system;
    let running = system
        .watcher
        .iter()
        .chain(system.replicas.iter().flatten())
        .chain([&system.webhook]);
    running
        .map(|of| Ok((of.recipe().name.clone(), of.process.rss_bytes()?)))
        .collect()
}

fn memory_is_back(memory: &[BTreeMap<String, u64>]) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (memory.first(), memory.last()) else {
        return Ok(());
    };
    for (name, bytes) in last {
        let before = first.get(name).copied().unwrap_or_default() as f64;
        let bytes_max = before * MEMORY_FACTOR + MEMORY_SLACK_BYTES;
        ensure!(
            (*bytes as f64) <= bytes_max,
            "{name}: {bytes} bytes, {before} before"
        );
    }
    Ok(())
}

/// Seen with `--nocapture`, and when the story ends badly.
#[expect(
    clippy::print_stdout,
    reason = "the story, for whoever reads a test's output"
)]
fn tell(text: &str) {
    println!("{text}");
}
