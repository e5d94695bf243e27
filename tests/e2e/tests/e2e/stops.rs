//! `onForbidden: Stop`, on real parts.
//!
//! This must hold:
//!
//! - An entry that is not to be asked for again is not, and says why until its spec changes.
//! - Another entry on the same objects comes back by itself.
//! - An API server that starts again, and does not know its own rules for a moment, makes nobody give up.

use std::time::Duration;

use anteroom_e2e::{
    check::condition,
    guard::{Asker, guard},
    manifests,
    stock::{Histories, NAMESPACES, STATE, STOCK, Stock},
    system::SystemPlan,
    wait,
    world::World,
};
use anyhow::ensure;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The type.
const OF: Stock = STOCK[5];

/// The entries, and the policies that read them.
const NAMES: [&str; 2] = ["stops", "retries"];

/// The number of times that the API server is started again.
const STARTS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_stops_is_left_alone_until_it_changes() -> anyhow::Result<()> {
    let plan = SystemPlan {
        watcher_args: vec![("--stale-after", "20s".into())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    let may_read = manifests::watcher_may_read(&[]);
    manifests::apply(&world.client, &may_read).await?;
    Histories::begin(world, &[OF]).await?;
    let [stops, retries] = [entry(NAMES[0], "Stop"), entry(NAMES[1], "Retry")];
    for entry in [&stops, &retries] {
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
        for _ in 0..STARTS {
            start_again(world, &asker).await?;
        }
        stop.cancel();
        anyhow::Ok(())
    };
    tokio::try_join!(asking, story)?;

    let mut may_not = may_read.clone();
    may_not["rules"] = json!([]);
    manifests::apply(&world.client, &may_not).await?;
    for entry in [&stops, &retries] {
        condition(world, entry, "False", "is forbidden").await?;
    }
    manifests::apply(&world.client, &may_read).await?;
    condition(world, &retries, "True", "").await?;
    asker.refused("retries", "there are 1;").await?;
    condition(world, &stops, "False", "is forbidden").await?;
    asker.refused("stops", "is forbidden").await?;
    let patch = json!({ "spec": { "pinned": true } });
    let api = world.api(&stops);
    api.patch("stops", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    condition(world, &stops, "True", "").await?;
    asker.refused("stops", "there are 1;").await?;
    for running in world.system.watcher.iter_mut() {
        running.process.check()?;
    }
    world.system.webhook.process.check()
}

/// The API server is killed and started again, and what changes then is seen.
async fn start_again(world: &mut World, asker: &Asker) -> anyhow::Result<()> {
    world.cluster.kill_apiserver()?;
    world.cluster.start_apiserver().await?;
    world.system.ready().await?;
    let object = OF.object(NAMESPACES[0], "new", STATE);
    let created = async || world.create(&object).await;
    wait::until("an object to be made", created).await?;
    for name in NAMES {
        asker.refused(name, "there are 2;").await?;
    }
    world.delete(&object).await?;
    for name in NAMES {
        asker.refused(name, "there are 1;").await?;
    }
    Ok(())
}

/// Asks all the while: what is known stays right until it is too old, so there is never an error.
async fn ask(asker: &Asker, stop: &CancellationToken) -> anyhow::Result<()> {
    while !stop.is_cancelled() {
        for name in NAMES {
            let decided = asker.ask(name).await?;
            ensure!(decided.message.contains("there are "), "{decided:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// An entry of the objects of one namespace.
fn entry(name: &str, on_forbidden: &str) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": name },
        "spec": { "onForbidden": on_forbidden, "resource": {
            "group": OF.group, "kind": OF.plural, "namespace": NAMESPACES[0] } } })
}

/// A policy that tells how many an entry holds.
fn tells(entry: &Value) -> Value {
    let name = entry["metadata"]["name"].as_str().unwrap_or_default();
    let context = json!({ "name": "value", "cachedContextEntry": {
        "name": name, "jmesPath": "length(items)" } });
    let is = json!({ "key": "{{ value }}", "operator": "NotEquals", "value": "never" });
    guard(name, &context, "there are {{ value }};", &is)
}
