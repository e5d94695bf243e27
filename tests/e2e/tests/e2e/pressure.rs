//! Memory limits under real pressure, as the kernel counts memory: views that come to several times
//! the limit, objects that change, and queries that want all of them back.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anteroom_e2e::{process::Peak, simulated::Simulated, system::SystemPlan, wait};
use anteroom_load::QueryResult;
use anteroom_model::{Collection, FactError, GroupVersionResource, Source, ViewId};
use anteroom_simapi::SimApi;
use anyhow::{Context, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

const CONFIGMAPS: &str = "configmaps";

/// The least limit that there is.
const LIMIT: u64 = 64 << 20;

/// Namespaces with an entry each: together three times the limit.
const SPACES: usize = 48;
const OBJECTS: usize = 1_150;

/// One that is larger than the limit by itself.
const HUGE: usize = SPACES;
const HUGE_OBJECTS: usize = 24_000;

/// The entry that stays.
const PINNED: usize = 0;

/// The time for which it is pressed.
const PRESSED: Duration = Duration::from_secs(15);

fn space(index: usize) -> String {
    format!("space-{index}")
}

/// An object of 2 to 5 KB, no two alike.
fn object(index: usize, n: usize, random: &mut StdRng) -> Value {
    let words = random.random_range(130..310);
    let text: String = (0..words)
        .map(|_| format!("{:016x}", random.random::<u64>()))
        .collect();
    json!({ "metadata": { "namespace": space(index), "name": format!("big-{n}") },
        "data": { "text": text } })
}

fn entry(index: usize) -> Value {
    json!({ "pinned": index == PINNED,
        "resource": { "version": "v1", "kind": CONFIGMAPS, "namespace": space(index) } })
}

fn view(index: usize) -> ViewId {
    let gvr = GroupVersionResource::new("", "v1", CONFIGMAPS);
    Source::Collection(Collection::in_namespace(gvr, space(index))).view_id()
}

fn objects(index: usize) -> usize {
    if index == HUGE { HUGE_OBJECTS } else { OBJECTS }
}

fn fill(sim: &SimApi, index: usize, random: &mut StdRng) -> anyhow::Result<()> {
    let namespace = json!({ "metadata": { "name": space(index) } });
    sim.put("namespaces", namespace)?;
    let all = (0..objects(index)).map(|n| object(index, n, random));
    Ok(sim.put_all(CONFIGMAPS, all)?)
}

/// Either all of it, or why not; never some.
fn is_honest(index: usize, said: &QueryResult) -> bool {
    match said {
        Ok(count) => *count == json!(objects(index)),
        Err(FactError::Evicted { .. }) => index != PINNED,
        Err(FactError::NotSynced { .. } | FactError::Busy { .. }) => true,
        Err(_) => false,
    }
}

/// A replica's memory stays within its limit under any load. Evicted entries report the eviction and come back when
/// asked for; pinned entries stay, and a huge entry evicts no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_under_pressure_stays_within_its_limit() -> anyhow::Result<()> {
    let plan = SystemPlan {
        replicas: 1,
        replica_args: vec![("--memory-limit", LIMIT.to_string())],
        ..SystemPlan::default()
    };
    let mut random = StdRng::seed_from_u64(7);
    let world = Simulated::start(&plan, |sim| {
        (0..SPACES).try_for_each(|index| fill(sim, index, &mut random))
    });
    let mut world = world.await?;
    world.ready().await?;
    let replica = &world.replicas[0];
    let empty = replica.process.own_bytes()?;
    let peak = Peak::watch_own(&replica.process);
    for index in 0..SPACES {
        world.entry(&space(index), &entry(index))?;
    }
    wait::until("the pinned one", async || {
        let said = world.ask(&view(PINNED), "length(items)").await?;
        ensure!(said.is_ok(), "{said:?}");
        anyhow::Ok(())
    })
    .await?;

    let (began, mut back, mut evicted) = (Instant::now(), BTreeSet::new(), 0_u64);
    while began.elapsed() < PRESSED {
        for _ in 0..20 {
            let (index, n) = (
                random.random_range(0..SPACES),
                random.random_range(0..OBJECTS),
            );
            world.sim.put(CONFIGMAPS, object(index, n, &mut random))?;
        }
        // Most requests are for a few views, so that the rest may be evicted.
        let index = match random.random_range(0..4) {
            0 => random.random_range(0..SPACES),
            _ => usize::try_from(began.elapsed().as_secs())? / 8 % SPACES,
        };
        let said = world.ask(&view(index), "length(items)").await?;
        ensure!(is_honest(index, &said), "{index}: {said:?}");
        match said {
            Ok(_) => drop(back.insert(index)),
            Err(_) => evicted += 1,
        }
        let most = peak.bytes();
        ensure!(
            most <= LIMIT,
            "{} MiB after {:?}",
            most >> 20,
            began.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let told = replica.metric("anteroom_view_evictions_total", &[]).await?;
    println!(
        "{} MiB when empty, {} MiB at most; {} views answered, {evicted} times not; {told} evictions",
        empty >> 20,
        peak.bytes() >> 20,
        back.len(),
    );
    ensure!(told > 0.0 && evicted > 0, "nothing was evicted");

    let held_then = held(&world).await?;
    let gone = (0..SPACES).rev().find(|index| !held_then.contains(index));
    let gone = gone.context("all of them are held")?;
    wait::until("what is asked for to come back", async || {
        let said = world.ask(&view(gone), "length(items)").await?;
        ensure!(said == Ok(json!(objects(gone))), "{said:?}");
        anyhow::Ok(())
    })
    .await?;

    // One that is huge takes no more than half of the others' place before it is known to be, and
    // that not for long. The others are used all the while, so that none of them goes for one that
    // was asked for before and wants to come back.
    let held_before = held(&world).await?;
    use_all(&world, &held_before).await?;
    fill(&world.sim, HUGE, &mut random)?;
    world.entry(&space(HUGE), &entry(HUGE))?;
    wait::until("the huge one to be evicted", async || {
        use_all(&world, &held_before).await?;
        let said = world.ask(&view(HUGE), "length(items)").await?;
        ensure!(matches!(said, Err(FactError::Evicted { .. })), "{said:?}");
        anyhow::Ok(())
    })
    .await?;
    let after = held(&world).await?;
    println!("held {held_before:?}, then {after:?}");
    ensure!(after.contains(&PINNED), "the pinned one went");
    let left = held_before.intersection(&after).count();
    ensure!(
        (left + 1) * 2 >= held_before.len(),
        "{held_before:?}, then {after:?}"
    );
    wait::until("as many as before", async || {
        let now = held(&world).await?;
        ensure!(
            now.len() + 1 >= held_before.len(),
            "{held_before:?}, now {now:?}"
        );
        anyhow::Ok(())
    })
    .await?;
    println!("{} MiB at most", peak.bytes() >> 20);
    ensure!(peak.bytes() <= LIMIT, "{} MiB", peak.bytes() >> 20);
    Ok(())
}

async fn use_all(world: &Simulated, views: &BTreeSet<usize>) -> anyhow::Result<()> {
    for index in views {
        let said = world.ask(&view(*index), "length(items)").await?;
        ensure!(is_honest(*index, &said), "{index}: {said:?}");
    }
    Ok(())
}

/// The views that are answered for, as the replica's metrics have it: asking would be a use.
async fn held(world: &Simulated) -> anyhow::Result<BTreeSet<usize>> {
    let mut held = BTreeSet::new();
    for index in 0..SPACES {
        let label = format!("view=\"{}\"", view(index));
        let objects = world.replicas[0]
            .metric("anteroom_view_answering", &[&label])
            .await?;
        if objects > 0.0 {
            held.insert(index);
        }
    }
    Ok(held)
}
