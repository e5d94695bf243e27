//! A log that is full, on three NATS servers. A replicated log gives a write no credit for what it replaces, so
//! deletions have to fit without it.

use std::time::{Duration, Instant};

use anteroom_e2e::{
    check::condition, manifests::apply_namespace, system::SystemPlan, world::World,
};
use anyhow::ensure;
use serde_json::{Value, json};

use crate::load::{decides_by_hosts, one_more};

/// The limit of the log.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The bytes of a ConfigMap.
const MAP_BYTES: usize = 700_000;

/// The number of ConfigMaps, which is more than the log holds.
const MAPS: usize = 24;

const INGRESSES: usize = 20;

/// The namespace of the ConfigMaps.
const HOARD: &str = "hoard";

/// The time within which a view is whole again once there is room.
const RECOVERY_MAX: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_full_log_recovers_once_objects_are_deleted() -> anyhow::Result<()> {
    let plan = SystemPlan {
        watcher_args: vec![("--nats-log-bytes-max", LOG_BYTES_MAX.to_string())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

fn map(at: usize) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": HOARD, "name": format!("map-{at}") },
        "data": { "text": "x".repeat(MAP_BYTES) } })
}

fn entry() -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": "maps" },
        "spec": { "resource": { "version": "v1", "kind": "configmaps", "namespace": HOARD } } })
}

/// Another view takes changes.
async fn the_other_view_goes_on(world: &World, index: usize) -> anyhow::Result<()> {
    one_more(world, INGRESSES + index).await
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    decides_by_hosts(world, INGRESSES).await?;
    apply_namespace(&world.client, HOARD).await?;
    let entry = entry();
    world.create(&entry).await?;
    condition(world, &entry, "True", "").await?;

    for at in 0..MAPS {
        world.create(&map(at)).await?;
    }
    condition(world, &entry, "False", "the log has no room").await?;
    the_other_view_goes_on(world, 0).await?;

    // A new leader of the log finds it as full.
    let leader = world.nats.leader().await?;
    world.nats.kill_one(leader)?;
    the_other_view_goes_on(world, 1).await?;
    world.nats.start_one(leader).await?;
    world.nats.all_healthy().await?;
    condition(world, &entry, "False", "the log has no room").await?;

    for at in 4..MAPS {
        world.delete(&map(at)).await?;
    }
    let freed = Instant::now();
    condition(world, &entry, "True", "").await?;
    let recovered = freed.elapsed();
    ensure!(recovered < RECOVERY_MAX, "{recovered:?}");
    the_other_view_goes_on(world, 2).await
}
