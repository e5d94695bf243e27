//! Memory limits under pressure, on real parts: what does not fit is evicted, says so and comes back;
//! what is pinned stays; and the process stays within its limit.

use anteroom_e2e::{
    check::condition,
    guard::{Asker, guard},
    manifests,
    process::Peak,
    system::SystemPlan,
    wait,
    world::World,
};
use anyhow::{Context, ensure};
use futures::{TryStreamExt, stream};
use serde_json::{Value, json};

const LIMIT: u64 = 96 * 1024 * 1024;

/// A namespace of ConfigMaps each, and an entry on it: more than fit together.
const SPACES: usize = 8;
const OBJECTS: usize = 450;
const BODY_BYTES: usize = 24 * 1024;

/// The entry that stays.
const PINNED: usize = 0;

#[tokio::test(flavor = "multi_thread")]
async fn views_that_do_not_fit_are_evicted_and_say_so() -> anyhow::Result<()> {
    let plan = SystemPlan {
        replicas: 1,
        replica_args: vec![("--memory-limit", LIMIT.to_string())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    fill(&world).await?;
    for space in 0..SPACES {
        world.create(&reading(space)).await?;
    }
    world.create(&entry(PINNED)).await?;
    condition(&world, &entry(PINNED), "True", "").await?;
    world.system.ready().await?;
    let asker = Asker::new(&world).await?;
    let before = rss(&world)?;

    let replica = world.system.replicas[0].as_ref();
    let peak = Peak::watch(&replica.context("it runs")?.process);
    for space in 0..SPACES {
        if space != PINNED {
            world.create(&entry(space)).await?;
        }
    }
    eviction_is_told(&world, &asker).await?;
    an_evicted_entry_comes_back_when_asked_for(&world, &asker).await?;
    let peak = peak.bytes();
    ensure!(
        peak <= LIMIT + LIMIT / 5,
        "{} MB at most (of {} MB; {} MB before)",
        peak >> 20,
        LIMIT >> 20,
        before >> 20
    );
    Ok(())
}

fn space(index: usize) -> String {
    format!("space-{index}")
}

async fn fill(world: &World) -> anyhow::Result<()> {
    for index in 0..SPACES {
        manifests::apply_namespace(&world.client, &space(index)).await?;
    }
    // Of no two alike, so that nothing is kept once for several.
    let objects = (0..SPACES * OBJECTS).map(|at| {
        let word = format!("{:016x}", (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": space(at % SPACES), "name": format!("big-{at}") },
            "data": { "text": word.repeat(BODY_BYTES / 16) } })
    });
    stream::iter(objects.map(anyhow::Ok))
        .try_for_each_concurrent(16, async |object| Ok(world.create(&object).await?))
        .await
}

fn entry(index: usize) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": space(index) },
        "spec": { "pinned": index == PINNED, "resource": {
            "version": "v1", "kind": "configmaps", "namespace": space(index) } } })
}

/// Refused by an answer that says all, and by nothing less.
fn reading(index: usize) -> Value {
    let name = space(index);
    let context = json!({ "name": "count", "cachedContextEntry": {
        "name": name, "jmesPath": "length(items)" } });
    let condition = json!({ "key": "{{ count }}", "operator": "GreaterThanOrEquals", "value": 0 });
    guard(&name, &context, "there are {{ count }} of them", &condition)
}

fn rss(world: &World) -> anyhow::Result<u64> {
    let replica = world.system.replicas[0].as_ref();
    replica.context("replica 0 runs")?.process.rss_bytes()
}

/// Either all, or that it was evicted or is on its way: never some, and never none.
fn is_honest(message: &str) -> bool {
    let all = format!("there are {OBJECTS} of them");
    let codes = ["AR108", "AR103", "AR101"];
    message.contains(&all)
        || message.contains(&format!("there are {} of them", OBJECTS + 1))
        || codes.iter().any(|code| message.contains(code))
}

/// An evicted entry reports the eviction to readers and in its status; a pinned entry stays.
async fn eviction_is_told(world: &World, asker: &Asker) -> anyhow::Result<()> {
    wait::until("an entry's status to say that it was evicted", async || {
        for index in 0..SPACES {
            let decided = asker.ask(&space(index)).await?;
            ensure!(is_honest(&decided.message), "not honest: {decided:?}");
            let pinned = index == PINNED && !decided.message.contains("there are");
            ensure!(!pinned, "{decided:?}");
        }
        let replica = world.system.replicas[0].as_ref().context("it runs")?;
        let evictions = replica.metric("anteroom_view_evictions_total", &[]).await?;
        ensure!(evictions > 0.0, "no metric of evictions");
        let mut found = Vec::new();
        for index in 0..SPACES {
            let found_entry = world.api(&entry(index)).get(&space(index)).await?;
            found.push(found_entry.data["status"]["conditions"][0]["reason"].clone());
        }
        ensure!(found.iter().any(|reason| reason == "Evicted"), "{found:?}");
        ensure!(found[PINNED] != "Evicted", "{found:?}");
        Ok(())
    })
    .await
}

/// An evicted entry is loaded again completely when policies ask for it and no longer for the rest.
async fn an_evicted_entry_comes_back_when_asked_for(
    world: &World,
    asker: &Asker,
) -> anyhow::Result<()> {
    let mut last = Ok(());
    for index in [SPACES - 1, 1] {
        // Room is made by what goes: those in between.
        for gone in 2..SPACES - 1 {
            if index != 1 {
                world.delete(&entry(gone)).await?;
            }
        }
        last = asker
            .until(&space(index), "back, and whole", |decided| {
                let all = format!("there are {OBJECTS} of them");
                let more = format!("there are {} of them", OBJECTS + 1);
                decided.message.contains(&all) || decided.message.contains(&more)
            })
            .await
            .map(drop);
    }
    last
}
