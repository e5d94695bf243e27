//! Beside another engine: what is decided is recorded, and has no effect.

use anteroom_e2e::{
    check::{ENTRY, POLICY, entry_is_ready},
    system::SystemPlan,
    wait,
    world::{World, host, ingress},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

const INGRESSES: usize = 20;

/// The metric of decisions, and what marks a refusal.
const DECISIONS: &str = "anteroom_admission_decisions_total";
const DENIED: &str = "decision=\"denied\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_records_what_it_would_do_and_does_nothing() -> anyhow::Result<()> {
    let plan = SystemPlan {
        env: vec![("ANTEROOM_SHADOW".to_owned(), "true".to_owned())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

/// Adds a label to each Ingress.
fn mutation() -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "labels" },
        "spec": { "rules": [{ "name": "r",
            "match": { "any": [{ "resources": { "kinds": ["Ingress"] } }] },
            "mutate": { "patchStrategicMerge": { "metadata": { "labels": { "added": "yes" } } } } }] },
    })
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.fill(0, INGRESSES).await?;
    let policy: Value = serde_saphyr::from_str(POLICY)?;
    world.create(&serde_saphyr::from_str(ENTRY)?).await?;
    for policy in [&policy, &mutation()] {
        world.create(policy).await?;
    }
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", INGRESSES).await?;

    // Somebody takes a host that is taken, until the refusal is recorded.
    let mut number = INGRESSES;
    wait::until("a refusal to be recorded", async || {
        number += 1;
        world.create(&ingress(number, &host(7))).await?;
        let denied = world.system.webhook.metric(DECISIONS, &[DENIED]).await?;
        ensure!(denied > 0.0, "{denied} refusals");
        Ok(())
    })
    .await?;
    let created = ingress(number, &host(7));
    let name = created["metadata"]["name"].as_str().context("a name")?;
    let found = world.api(&created).get(name).await?;
    let labels = found.metadata.labels.unwrap_or_default();
    ensure!(!labels.contains_key("added"), "{labels:?}");

    // Policies belong to the other engine, and so do their statuses.
    let name = policy["metadata"]["name"].as_str().context("a name")?;
    let found = world.api(&policy).get(name).await?;
    ensure!(found.data["status"].is_null(), "{}", found.data["status"]);
    let odd = json!({ "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": { "name": "odd" }, "spec": { "rules": [{ "name": "r",
            "match": { "any": [{ "resources": { "kinds": ["Pod"] } }] },
            "validate": { "message": "{{ nobody_has_said }}", "deny": {} } }] } });
    world
        .create(&odd)
        .await
        .context("a policy that is not for this engine")?;

    // Nothing waits for a shadow.
    world.system.webhook.process.kill()?;
    world.create(&ingress(9_999, &host(7))).await?;
    Ok(())
}
