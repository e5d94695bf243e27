//! What a policy of one namespace does to the rest of the cluster, and what changes of a policy let by: nothing.

use anteroom_e2e::{
    check::condition,
    manifests::apply_namespace,
    wait,
    world::{NAMESPACE, World},
};
use anyhow::{Context, bail, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// A namespace of somebody else.
const OTHER: &str = "other";

/// Times that a policy in force is changed.
const CHANGES: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_policy_stops_nobody_else() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_changes_lets_nothing_by() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(changes(&mut world)).await;
    world.with_logs(outcome)
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": namespace, "name": name, "labels": { "refused": "yes" } } })
}

fn cluster_role(name: &str) -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": name }, "rules": [] })
}

/// A policy of one namespace about everything, whose condition cannot be evaluated for most objects.
fn hostile(name: &str, kinds: &str, condition: Option<&str>) -> Value {
    let conditions = condition.map(|expression| json!([{ "name": "c", "expression": expression }]));
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "failurePolicy": "Fail",
            "webhookConfiguration": { "matchConditions": conditions },
            "rules": [{ "name": "r", "match": { "any": [{ "resources": { "kinds": [kinds] } }] },
                "validate": { "failureAction": "Enforce", "message": "hostile", "deny": {} } }],
        },
    })
}

async fn refused(world: &World, object: &Value, says: &str) -> anyhow::Result<()> {
    match world.create(object).await {
        Err(kube::Error::Api(status)) if status.message.contains(says) => Ok(()),
        other => bail!("not refused with {says:?}: {other:?}: {object}"),
    }
}

/// Creates the policy once the policy before, which refuses everything in its namespace, is out of force.
async fn created(world: &World, policy: &Value) -> anyhow::Result<()> {
    wait::until("a policy to be created", async || {
        world.create(policy).await
    })
    .await
}

/// Nobody outside of the namespace notices.
async fn others_are_free(world: &World, name: &str) -> anyhow::Result<()> {
    world.create(&config_map(OTHER, name)).await?;
    world.create(&cluster_role(name)).await?;
    apply_namespace(&world.client, &format!("new-{name}")).await
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.system.ready().await?;
    apply_namespace(&world.client, OTHER).await?;
    let no_such_key = Some("object.spec.nope.nope == 'x'");
    for (name, kinds, expression, says) in [
        ("condition", "*", no_such_key, "no such key"),
        ("subresources", "*/*", None, "hostile"),
    ] {
        let policy = hostile(name, kinds, expression);
        created(world, &policy).await?;
        condition(world, &policy, "True", "").await?;
        refused(world, &config_map(NAMESPACE, name), says).await?;
        others_are_free(world, name).await?;
        // The policy forbids all deletions in its namespace, but not its own deletion.
        world.delete(&policy).await?;
    }

    // Nor does anybody notice that the webhook is away.
    let policy = hostile("away", "*/*", None);
    created(world, &policy).await?;
    condition(world, &policy, "True", "").await?;
    world.system.webhook.process.kill()?;
    refused(world, &config_map(NAMESPACE, "a"), "failed calling webhook").await?;
    others_are_free(world, "away").await?;
    world.delete(&policy).await
}

/// A policy of the whole cluster that refuses all ConfigMaps of the test.
fn refuses(failure: &str, seconds: u32) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "refuses" },
        "spec": {
            "failurePolicy": failure, "webhookTimeoutSeconds": seconds,
            "rules": [{ "name": "r", "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
                "validate": { "failureAction": "Enforce", "message": "refused by both versions",
                    "pattern": { "metadata": { "=(labels)": { "X(refused)": "null" } } } } }],
        },
    })
}

async fn changes(world: &mut World) -> anyhow::Result<()> {
    world.system.ready().await?;
    let first = refuses("Fail", 10);
    world.create(&first).await?;
    condition(world, &first, "True", "").await?;
    let mut asked = 0;
    for change in 0..CHANGES {
        let failure = if change % 2 == 0 { "Ignore" } else { "Fail" };
        let changed = refuses(failure, 10 + (change % 5) as u32);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&changed));
        let api = world.api(&first);
        let mut patching = std::pin::pin!(api.patch("refuses", &params, &patch));
        let mut patched = false;
        // While it is written, and until the API server goes by the new configuration and beyond.
        for _ in 0..12 {
            let name = format!("c-{asked}");
            let object = config_map(NAMESPACE, &name);
            let refusing = refused(world, &object, "refused by both versions");
            tokio::select! {
                biased;
                outcome = &mut patching, if !patched => {
                    outcome?;
                    patched = true;
                }
                outcome = refusing => {
                    outcome.with_context(|| format!("change {change}"))?;
                    asked += 1;
                }
            }
        }
        if !patched {
            patching.await?;
        }
    }
    ensure!(asked >= CHANGES, "only {asked} requests were made");
    world.system.webhook.process.check()?;
    breaks(world, &first).await
}

/// Breaks the policy while no webhook is there to refuse that, and starts everything again that could remember it.
async fn breaks(world: &mut World, policy: &Value) -> anyhow::Result<()> {
    world.system.webhook.process.kill()?;
    let mut broken = refuses("Fail", 10);
    broken["spec"]["rules"][0]["validate"]["pattern"] =
        json!({ "metadata": { "labels": "{{ ( }}" } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&broken));
    world.api(policy).patch("refuses", &params, &patch).await?;
    condition(world, policy, "False", "stays in force").await?;
    for running in world.system.watcher.iter_mut() {
        running.process.kill()?;
        *running = running.recipe().start()?;
    }
    for running in world.system.replicas.iter_mut().flatten() {
        running.process.kill()?;
        *running = running.recipe().start()?;
    }
    world.system.webhook = world.system.webhook.recipe().start()?;
    world.system.ready().await?;
    let object = config_map(NAMESPACE, "after");
    refused(world, &object, "refused by both versions").await?;
    let patch = Patch::Merge(json!({ "spec": { "rules": [] } }));
    let emptied = world.api(policy).patch("refuses", &params, &patch).await;
    ensure!(
        emptied.is_err(),
        "the webhook is there again and refuses what does not compile"
    );
    world.delete(policy).await?;
    wait::until("the policy to be out of force", async || {
        world.create(&object).await
    })
    .await
}
