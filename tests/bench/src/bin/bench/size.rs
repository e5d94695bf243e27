//! The memory that holding objects takes, measured from outside, against their bytes as MessagePack.

use std::time::{Duration, Instant};

use anteroom_e2e::wait;
use anteroom_wire::body;
use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::{
    Settings,
    ground::{Ground, Layout},
    say, spent,
};

/// The quiet time before memory is read: allocators give back what was freed.
const SETTLE: Duration = Duration::from_secs(5);

/// A resource whose objects are all held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) resource: &'static str,
    /// Its name; of a view that keeps a part of each object, up to the `~` before what tells which.
    pub(crate) view: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
}

pub(crate) const PODS: Held = Held {
    resource: "pods",
    view: "pods.v1",
    api_version: "v1",
    kind: "Pod",
};
pub(crate) const PODS_REFERENCED: Held = Held {
    view: "pods.v1~",
    ..PODS
};
pub(crate) const SERVICES: Held = Held {
    resource: "services",
    view: "services.v1",
    api_version: "v1",
    kind: "Service",
};
pub(crate) const INGRESSES: Held = Held {
    resource: "ingresses.networking.k8s.io",
    view: "ingresses.v1.networking.k8s.io",
    api_version: "networking.k8s.io/v1",
    kind: "Ingress",
};

/// Memory of each process at rest.
pub(crate) async fn at_rest(
    layout: Layout,
    held: &[Held],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let ground = Ground::start(layout, settings).await?;
    synced(&ground, held).await?;
    tokio::time::sleep(SETTLE).await;
    let memory = spent::memory(&ground)?;
    let bytes = bytes(&ground, held)?;
    say(&format!("{bytes} {memory}"));
    let result = json!({ "objects": bytes, "memory": memory });
    ground.end().await?;
    Ok(result)
}

/// From a replica's start to its having all from the log, and what it takes meanwhile and after.
pub(crate) async fn start(
    layout: Layout,
    held: &[Held],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let mut ground = Ground::start(layout, settings).await?;
    synced(&ground, held).await?;
    say("filled; starting a replica over it");
    let running = ground.system.replicas[0].take().context("no replica")?;
    let recipe = running.recipe().clone();
    running.process.terminate().await?;
    let mut starts = Vec::new();
    for _ in 0..if settings.quick { 1 } else { 3 } {
        let begun = Instant::now();
        ground.system.replicas[0] = Some(recipe.start()?);
        synced(&ground, held).await?;
        let synced_s = begun.elapsed().as_secs_f64();
        let replica = ground.system.replicas[0].take().context("no replica")?;
        let cpu_ms = replica.process.cpu_ms()?;
        tokio::time::sleep(SETTLE).await;
        let memory = spent::memory_of(&replica.process)?;
        say(&format!("{synced_s:.2} s, {cpu_ms} ms of CPU, {memory}"));
        starts.push(json!({ "synced_s": synced_s, "cpu_ms": cpu_ms, "memory": memory }));
        replica.process.terminate().await?;
    }
    let result = json!({ "objects": bytes(&ground, held)?, "starts": starts });
    ground.end().await?;
    Ok(result)
}

/// Waits until the first replica answers for all of these.
pub(crate) async fn synced(ground: &Ground, held: &[Held]) -> anyhow::Result<()> {
    let replica = ground.system.replicas[0].as_ref().context("no replica")?;
    for of in held {
        let wanted = ground.sim.objects(of.resource)?.len();
        let end = if of.view.ends_with('~') { "" } else { "\"" };
        let view = format!("view=\"{}{end}", of.view);
        wait::until(&format!("{} to be held", of.view), async || {
            let objects = replica.metric("anteroom_view_objects", &[&view]).await?;
            let answering = replica.metric("anteroom_view_answering", &[&view]).await?;
            ensure!(
                objects == wanted as f64 && answering == 1.0,
                "{objects} of {wanted}, answering: {answering}"
            );
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Counts the objects, and their bytes as the API server gives them and as they are held at least: the
/// bodies as MessagePack, without managed fields.
fn bytes(ground: &Ground, held: &[Held]) -> anyhow::Result<Value> {
    let (mut count, mut json_bytes, mut packed_bytes) = (0, 0, 0);
    for of in held {
        for kept in ground.sim.objects(of.resource)? {
            let mut object: Value = serde_json::from_slice(&kept)?;
            object["apiVersion"] = of.api_version.into();
            object["kind"] = of.kind.into();
            json_bytes += object.to_string().len();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("managedFields");
            }
            packed_bytes += body::encode_json(&object)?.len();
            count += 1;
        }
    }
    Ok(json!({ "count": count, "json_bytes": json_bytes, "packed_bytes": packed_bytes }))
}
