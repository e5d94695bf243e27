//! An API group whose server is down at first, comes up, goes down and comes up again.

use anteroom_e2e::{
    aggregated::{self, Aggregated, GROUP, PLURAL},
    check::condition,
    guard::{Asker, guard},
    manifests,
    process::free_address,
    world::World,
};
use serde_json::{Value, json};

use super::tell;

fn entry(name: &str) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": name },
        "spec": { "resource": { "group": GROUP, "kind": PLURAL } } })
}

/// Returns a policy whose message has the names of its entry's objects.
fn tells(name: &str) -> Value {
    let context = json!({ "name": "value", "cachedContextEntry": {
        "name": name, "jmesPath": "items[].metadata.name | join(' ', @)" } });
    let is = json!({ "key": "{{ value }}", "operator": "NotEquals", "value": "never" });
    guard(name, &context, "read={{ value }};", &is)
}

/// An entry on the group says what is wrong, and is served once the server is there.
pub(crate) async fn go_down_and_up(world: &World) -> anyhow::Result<()> {
    let address = free_address()?;
    for manifest in aggregated::manifests(address) {
        manifests::apply(&world.client, &manifest).await?;
    }
    let far = entry("far");
    world.create(&far).await?;
    let policy = tells("far");
    world.create(&policy).await?;
    let asker = Asker::new(world).await?;
    condition(world, &far, "False", GROUP).await?;
    asker.refused("far", "AR102").await?;

    tell("the group's server comes up");
    let server = Aggregated::start(address).await?;
    server.put("one")?;
    look_again(world, address).await?;
    condition(world, &far, "True", "").await?;
    asker.refused("far", "read=one;").await?;

    tell("it goes down");
    drop(server);
    // What is known stays right for as long as news may be old; what is not known yet is not nothing.
    let mut late = entry("late");
    late["spec"]["resource"]["namespace"] = "default".into();
    let read_late = tells("late");
    world.create(&late).await?;
    world.create(&read_late).await?;
    condition(world, &late, "False", "503").await?;
    asker.refused("late", "AR10").await?;
    asker.refused("far", "read=one;").await?;
    let server = Aggregated::start(address).await?;
    server.put("one")?;
    server.put("two")?;
    look_again(world, address).await?;
    for entry in [&far, &late] {
        condition(world, entry, "True", "").await?;
    }
    for name in ["far", "late"] {
        asker.refused(name, "read=one two;").await?;
    }

    tell("the group goes");
    for manifest in aggregated::manifests(address).iter().rev() {
        world.delete(manifest).await?;
    }
    condition(world, &far, "False", GROUP).await?;
    for object in [&policy, &read_late, &far, &late] {
        world.delete(object).await?;
    }
    Ok(())
}

/// The API server looks at a server that was away every 30 s; at once where what is said of it
/// changes.
async fn look_again(world: &World, address: std::net::SocketAddr) -> anyhow::Result<()> {
    let [_, mut service] = aggregated::manifests(address);
    let at = anteroom_runtime::wall_clock::now().to_string();
    service["metadata"]["annotations"] = json!({ "looked-at": at });
    manifests::apply(&world.client, &service).await
}
