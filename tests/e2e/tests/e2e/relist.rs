//! A list that is read again: what it takes of the processes, as the kernel counts memory.
//!
//! `ANTEROOM_OBJECTS` says of how many objects; 20,000 otherwise.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::{ops::Range, time::Duration};

use anteroom_e2e::{process::Peak, simulated::Simulated, system::SystemPlan, wait};
use anteroom_model::{Collection, GroupVersionResource, Source, ViewId};
use anteroom_simapi::{Fault, Matching, ResourceName};
use anyhow::ensure;
use serde_json::{Value, json};

const CONFIGMAPS: &str = "configmaps";

/// The memory that a list that is read again may take, as a share of the settled memory.
const SHARE_MAX: f64 = 1.5;

/// Pages, batches and what the allocator keeps for a moment, whatever the number of objects: much only
/// beside few of them.
const ON_ITS_WAY: u64 = 8 << 20;

/// The time after a list within which freed memory returns to the system.
const SETTLING: Duration = Duration::from_secs(12);

/// About 2 KB, no two alike.
fn object(n: usize, round: usize) -> Value {
    let word = format!(
        "{:016x}",
        ((n + 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    );
    json!({ "metadata": { "namespace": format!("n{}", n % 20), "name": format!("c{n}") },
        "data": { "text": word.repeat(120), "round": round.to_string() } })
}

fn put(world: &Simulated, objects: Range<usize>, round: usize) -> anyhow::Result<()> {
    let all = objects.map(|n| object(n, round));
    Ok(world.sim.put_all(CONFIGMAPS, all)?)
}

fn view() -> ViewId {
    let gvr = GroupVersionResource::new("", "v1", CONFIGMAPS);
    Source::Collection(Collection::all(gvr)).view_id()
}

/// Waits until the replica has `count` objects of this round.
async fn has(world: &Simulated, round: usize, count: usize) -> anyhow::Result<()> {
    let expression = format!("length(items[?data.round == '{round}'])");
    wait::until(&format!("{count} of round {round}"), async || {
        let said = world.ask(&view(), &expression).await?;
        ensure!(said == Ok(json!(count)), "{said:?}");
        anyhow::Ok(())
    })
    .await
}

/// A list that is read again after a 410, with nothing changed or all of it, takes no more
/// than half as much again of the watcher and of the replica.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_read_again_takes_half_as_much_again_at_most() -> anyhow::Result<()> {
    let asked = std::env::var("ANTEROOM_OBJECTS").ok();
    let count: usize = asked.map_or(Ok(20_000), |count| count.parse())?;
    let plan = SystemPlan {
        replicas: 1,
        ..SystemPlan::default()
    };
    let mut world = Simulated::start(&plan, |sim| {
        Ok(sim.put_all(CONFIGMAPS, (0..count).map(|n| object(n, 0)))?)
    })
    .await?;
    world.ready().await?;
    let empty = rss(&world)?;
    let spec = json!({ "resource": { "version": "v1", "kind": CONFIGMAPS } });
    world.entry("all", &spec)?;
    has(&world, 0, count).await?;
    tokio::time::sleep(SETTLING).await;
    let settled = rss(&world)?;
    println!(
        "of {count} objects: {} when empty, {} when settled",
        told(empty),
        told(settled)
    );

    let relisted = async |round: usize, changed: usize| {
        let lists = world.sim.stats().count("list", CONFIGMAPS);
        let peaks = [&world.watcher, &world.replicas[0]].map(|of| Peak::watch(&of.process));
        // The API server forgets changes made during the outage, so the watch cannot resume.
        world.sim.fault(Fault::Fail {
            matching: Matching::new("watch", CONFIGMAPS),
            status: 503,
            retry_after_seconds: None,
            count: None,
        })?;
        let (resource, clean) = (Some(ResourceName::from(CONFIGMAPS)), false);
        world.sim.fault(Fault::CutWatches {
            resource: resource.clone(),
            clean,
        })?;
        put(&world, 0..changed, round)?;
        world.sim.fault(Fault::Compact { resource })?;
        world.sim.fault(Fault::Clear {})?;
        has(&world, round, changed).await?;
        let pages = (count / 500) as u64;
        wait::until("a list", async || {
            let listed = world.sim.stats().count("list", CONFIGMAPS) - lists;
            ensure!(listed >= pages, "{listed} pages");
            anyhow::Ok(())
        })
        .await?;
        let most = [peaks[0].bytes(), peaks[1].bytes()];
        println!("{changed} changed: {} at most", told(most));
        anyhow::Ok(most)
    };
    let mut most = [0, 0];
    for (round, changed) in [(1, 1), (2, count), (3, count / 2)] {
        let of = relisted(round, changed).await?;
        most = [most[0].max(of[0]), most[1].max(of[1])];
    }
    for (name, most, settled) in [
        ("the watcher", most[0], settled[0]),
        ("the replica", most[1], settled[1]),
    ] {
        let most = most.saturating_sub(if count < 50_000 { ON_ITS_WAY } else { 0 });
        let share = most as f64 / settled as f64;
        ensure!(
            share <= SHARE_MAX,
            "{name}: {share:.2} times what it took when settled"
        );
    }
    Ok(())
}

fn rss(world: &Simulated) -> anyhow::Result<[u64; 2]> {
    let (watcher, replica) = (&world.watcher.process, &world.replicas[0].process);
    Ok([watcher.rss_bytes()?, replica.rss_bytes()?])
}

fn told([watcher, replica]: [u64; 2]) -> String {
    format!(
        "watcher {} MiB, replica {} MiB",
        watcher >> 20,
        replica >> 20
    )
}
