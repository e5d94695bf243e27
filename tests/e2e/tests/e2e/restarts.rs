//! An API server that is killed and started again, on real parts, and what entries on definitions and
//! on an aggregated group make of what it does not serve yet.
//!
//! Held: what is known stays known and right, whatever an API server that starts does not
//! know of itself yet: there is never a decision without its fact; and what changes then is seen.

use std::time::Duration;

use anteroom_e2e::{
    aggregated::{self, Aggregated},
    check::condition,
    guard::{Asker, guard},
    manifests,
    process::free_address,
    system::SystemPlan,
    wait::{self, setting},
    world::World,
};
use anyhow::ensure;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const STARTS_DEFAULT: u64 = 3;

const GROUP: &str = "days.example.com";
const PLURAL: &str = "gizmos";

/// The entries, and the policies that read them.
const NAMES: [&str; 2] = ["defined", "aggregated"];

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_starts_again_costs_no_fact() -> anyhow::Result<()> {
    let starts = setting("ANTEROOM_RESTARTS", STARTS_DEFAULT)?;
    let mut world = World::start_as(&SystemPlan::default()).await?;
    let outcome = Box::pin(story(&mut world, starts)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, starts: u64) -> anyhow::Result<()> {
    let more = [(GROUP, PLURAL), (aggregated::GROUP, aggregated::PLURAL)];
    manifests::apply(&world.client, &manifests::watcher_may_read(&more)).await?;
    let address = free_address()?;
    let server = Aggregated::start(address).await?;
    server.put("one")?;
    for manifest in aggregated::manifests(address) {
        manifests::apply(&world.client, &manifest).await?;
    }
    manifests::apply(&world.client, &definition()).await?;
    let created = async |object: Value| {
        let what = format!("{object} to be created");
        wait::until(&what, async || world.create(&object).await).await
    };
    created(gizmo("one")).await?;
    let entries = [
        entry(NAMES[0], GROUP, PLURAL),
        entry(NAMES[1], aggregated::GROUP, aggregated::PLURAL),
    ];
    for entry in &entries {
        world.create(entry).await?;
        world.create(&tells(entry)).await?;
    }
    world.system.ready().await?;
    let asker = Asker::new(world).await?;
    for name in NAMES {
        asker.refused(name, "there are 1;").await?;
    }

    let stop = CancellationToken::new();
    let asking = ask(&asker, &stop);
    let story = async {
        for start in 0..starts {
            world.cluster.kill_apiserver()?;
            tokio::time::sleep(Duration::from_secs(start)).await;
            world.cluster.start_apiserver().await?;
            let created = async || world.create(&gizmo("two")).await;
            wait::until("a gizmo to be made", created).await?;
            asker.refused(NAMES[0], "there are 2;").await?;
            world.delete(&gizmo("two")).await?;
            asker.refused(NAMES[0], "there are 1;").await?;
            for entry in &entries {
                condition(world, entry, "True", "").await?;
            }
        }
        stop.cancel();
        anyhow::Ok(())
    };
    tokio::try_join!(asking, story)?;
    server.put("two")?;
    asker.refused(NAMES[1], "there are 2;").await?;
    for running in world.system.watcher.iter_mut() {
        running.process.check()?;
    }
    world.system.webhook.process.check()
}

/// Asks all the while: what is known stays right until it is too old, so there is never an error.
async fn ask(asker: &Asker, stop: &CancellationToken) -> anyhow::Result<()> {
    while !stop.is_cancelled() {
        for name in NAMES {
            let decided = asker.ask(name).await?;
            let read = ["there are 1;", "there are 2;"];
            let right = read.iter().any(|read| decided.message.contains(read));
            ensure!(right, "{} {decided:?}", anteroom_runtime::wall_clock::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{PLURAL}.{GROUP}") },
        "spec": { "group": GROUP, "scope": "Namespaced",
            "names": { "kind": "Gizmo", "plural": PLURAL, "singular": "gizmo" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": { "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true } } }] },
    })
}

fn gizmo(name: &str) -> Value {
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Gizmo",
        "metadata": { "namespace": "default", "name": name } })
}

fn entry(name: &str, group: &str, plural: &str) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": name },
        "spec": { "resource": { "group": group, "kind": plural } } })
}

/// A policy that tells how many an entry holds.
fn tells(entry: &Value) -> Value {
    let name = entry["metadata"]["name"].as_str().unwrap_or_default();
    let context = json!({ "name": "value", "cachedContextEntry": {
        "name": name, "jmesPath": "length(items)" } });
    let is = json!({ "key": "{{ value }}", "operator": "NotEquals", "value": "never" });
    guard(name, &context, "there are {{ value }};", &is)
}
