//! A namespace that is deleted with all that is in it, and made again.

use anteroom_e2e::{
    check::{condition, is_refused},
    guard::{Asker, guard},
    manifests,
    stock::{STATE, STOCK, Stock},
    views, wait,
    world::World,
};
use anyhow::ensure;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

const GOES: &str = "goes";

/// The type of the entries.
const OF: Stock = STOCK[5];

/// Entries that are confined to the namespace hold nothing, which is so; policies in it go
/// with all that they referred to; both are back with the namespace.
pub(crate) async fn are_deleted(world: &World) -> anyhow::Result<()> {
    manifests::apply_namespace(&world.client, GOES).await?;
    let (object, settings) = (
        OF.object(GOES, STATE, STATE),
        STOCK[0].object(GOES, STATE, STATE),
    );
    let own = own_policy();
    for manifest in [&object, &settings, &own] {
        world.create(manifest).await?;
    }
    let confined = confined();
    world.create(&confined).await?;
    let context = json!({ "name": "value", "cachedContextEntry": {
        "name": "confined", "jmesPath": "length(items)" } });
    let is = json!({ "key": "{{ value }}", "operator": "NotEquals", "value": "never" });
    let policy = guard("confined", &context, "there are {{ value }};", &is);
    world.create(&policy).await?;
    let asker = Asker::new(world).await?;
    asker.refused("confined", "there are 1;").await?;
    let refused = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": GOES, "name": "new", "labels": { "guard": "own" } } });
    is_refused(world, &refused, "settings=0").await?;

    delete(world, &[&object, &settings, &own]).await?;
    asker.refused("confined", "there are 0;").await?;
    condition(world, &confined, "True", "").await?;
    let bus = views::bus(world).await?;
    wait::until("what the policy referred to to be let go", async || {
        let references = views::references(&bus).await?;
        ensure!(references.is_empty(), "{references:?}");
        Ok(())
    })
    .await?;

    wait::until("the namespace to be made again", async || {
        manifests::apply_namespace(&world.client, GOES).await?;
        world.create(&object).await?;
        anyhow::Ok(())
    })
    .await?;
    for manifest in [&settings, &own] {
        world.create(manifest).await?;
    }
    asker.refused("confined", "there are 1;").await?;
    is_refused(world, &refused, "settings=0").await?;
    views::equal_the_api_server(world).await.map(drop)
}

fn confined() -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": "confined" },
        "spec": { "resource": { "group": OF.group, "kind": OF.plural, "namespace": GOES } } })
}

/// A policy in the namespace, which reads a ConfigMap there.
fn own_policy() -> Value {
    let context = json!({ "name": "settings", "configMap": {
        "namespace": GOES, "name": STATE } });
    let value = "{{ settings.metadata.annotations.value }}";
    let is = json!({ "key": value, "operator": "NotEquals", "value": "never" });
    let mut policy = guard("own", &context, &format!("settings={value}"), &is);
    policy["kind"] = "Policy".into();
    policy["metadata"]["namespace"] = GOES.into();
    policy
}

/// Deletes a namespace as its controller does, which a bare API server has not.
async fn delete(world: &World, inside: &[&Value]) -> anyhow::Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": GOES } });
    world.delete(&namespace).await?;
    for object in inside {
        world.delete(object).await?;
    }
    let api: Api<DynamicObject> = world.api(&namespace);
    let mut found = serde_json::to_value(api.get(GOES).await?)?;
    found["spec"]["finalizers"] = json!([]);
    let request = http::Request::put(format!("/api/v1/namespaces/{GOES}/finalize"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&found)?)?;
    world.client.request_text(request).await?;
    wait::until("the namespace to be gone", async || {
        ensure!(api.get_opt(GOES).await?.is_none(), "still there");
        anyhow::Ok(())
    })
    .await
}
