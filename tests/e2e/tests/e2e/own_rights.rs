//! The watcher's own rights taken away: it may not read entries and policies any more.
//!
//! Held: it says so; what was in force stays so, and decisions by it are right; what came
//! and went meanwhile is seen once the rights are back; no process dies.

use anteroom_e2e::{
    check::condition, guard::guard, manifests, steady, stock::Histories, system::SystemPlan, wait,
    world::World,
};
use anyhow::Context;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// A watch is opened anew after half of it, which is when the API server looks at rights again.
const STALE_AFTER: &str = "20s";

/// The kinds that it may not read for a while.
const KINDS: [&str; 4] = [
    "cachedcontextentries",
    "clusterpolicies",
    "globalcontextentries",
    "policies",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_without_its_own_rights_says_so_and_recovers() -> anyhow::Result<()> {
    let plan = SystemPlan {
        watcher_args: vec![("--stale-after", STALE_AFTER.into())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    manifests::apply(&world.client, &manifests::watcher_may_read(&[])).await?;
    let histories = Histories::begin(world, &[steady::OF]).await?;
    world.system.ready().await?;
    let asker = steady::begin(world).await?;
    let goes = tells("goes", steady::NAME);
    world.create(&goes).await?;
    asker.refused("goes", "there are 3;").await?;

    let (quiet, stop) = (CancellationToken::new(), CancellationToken::new());
    let changes = histories.change(world, &[steady::OF], 1, &quiet);
    let asking = steady::ask(&histories, &asker, &stop);
    let story = async {
        let watcher = world.system.watcher.as_ref().context("the watcher runs")?;
        manifests::apply(&world.client, &own_role(&KINDS)?).await?;
        wait::until("the watcher to say what it may not read", async || {
            // Each watch ends in its own time, and until then it brings what comes and goes.
            let says = watcher.get("/readyz?verbose").await;
            let said = says
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            let of_both = ["CachedContextEntry", "ClusterPolicy"]
                .iter()
                .all(|kind| said.contains(&format!("serve {kind}: Forbidden")));
            if of_both { Ok(()) } else { Err(said) }
        })
        .await?;
        // What comes and goes now is seen later, and concerns nobody meanwhile.
        let (entry, comes) = (entry("comes"), tells("comes", "comes"));
        for manifest in [&entry, &comes] {
            world.create(manifest).await?;
        }
        world.delete(&goes).await?;
        asker.refused("goes", "there are 3;").await?;
        manifests::apply(&world.client, &own_role(&[])?).await?;
        asker.refused("comes", "there are 3;").await?;
        asker.admitted("goes").await?;
        condition(world, &entry, "True", "").await?;
        quiet.cancel();
        stop.cancel();
        anyhow::Ok(())
    };
    tokio::try_join!(changes, asking, story)?;
    for running in world.system.watcher.iter_mut() {
        running.ready().await?;
    }
    world.system.webhook.process.check()
}

fn entry(name: &str) -> Value {
    let mut entry = steady::entry();
    entry["metadata"]["name"] = name.into();
    entry["spec"]["resource"]["labelSelector"] = json!({ "matchLabels": { "days": "state" } });
    entry
}

/// A policy that tells how many objects with a number an entry holds.
fn tells(name: &str, entry: &str) -> Value {
    let context = json!({ "name": "value", "cachedContextEntry": { "name": entry,
        "jmesPath": "length(items[?metadata.name=='state'])" } });
    let condition = json!({ "key": "{{ value }}", "operator": "NotEquals", "value": "never" });
    guard(name, &context, "there are {{ value }};", &condition)
}

/// Returns the deployed role, but for the right to read these.
fn own_role(without: &[&str]) -> anyhow::Result<Value> {
    let rbac = manifests::rbac()?;
    let own = |manifest: &Value| {
        manifest["kind"] == "ClusterRole" && manifest["metadata"]["name"] == "anteroom-watcher"
    };
    let mut role = rbac.into_iter().find(own).context("the watcher's role")?;
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|of| !without.iter().any(|without| of == without));
        }
    }
    if let Some(rules) = role["rules"].as_array_mut() {
        rules.retain(|rule| rule["resources"].as_array().is_none_or(|of| !of.is_empty()));
    }
    Ok(role)
}
