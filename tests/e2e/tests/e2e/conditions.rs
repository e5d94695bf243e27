//! Policies with `matchConditions`, on real parts: which requests they decide on, and that one whose condition cannot
//! be evaluated here keeps no other from being enforced.

use anteroom_e2e::{
    check::{condition, is_refused},
    world::{NAMESPACE, World},
};
use anyhow::{Context, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn match_conditions_say_which_requests_a_policy_decides_on() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

/// A policy on ConfigMaps; `expression`, if there is one, is its condition.
fn policy(name: &str, expression: Option<&str>, rule: &Value) -> Value {
    let mut rule = rule.clone();
    rule["name"] = "rule".into();
    rule["match"] = json!({ "any": [{ "resources": { "kinds": ["ConfigMap"] } }] });
    let conditions = expression.map(|text| json!([{ "name": "asked", "expression": text }]));
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": name },
        "spec": { "webhookConfiguration": { "matchConditions": conditions }, "rules": [rule] },
    })
}

/// Refuses what is labelled so.
fn refuses(label: &str) -> Value {
    json!({ "validate": { "failureAction": "Enforce", "message": format!("refused as {label}"),
        "pattern": { "metadata": { "=(labels)": { format!("X({label})"): "null" } } } } })
}

fn marks() -> Value {
    json!({ "mutate": { "patchStrategicMerge": { "metadata": { "annotations": { "marked": "yes" } } } } })
}

const ASKED: &str = "!object.metadata.name.startsWith('spared')";

/// Only the API server has an authorizer.
const AUTHORIZER: &str = "authorizer.path('/x').check('get').allowed()";

/// Whoever writes this is told at once.
const NO_CEL: &str = "object.metadata.name.isNope()";

fn config_map(name: &str, label: Option<&str>) -> Value {
    let labels: Value = label.map_or(json!({}), |label| json!({ label: "yes" }));
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": NAMESPACE, "name": name, "labels": labels } })
}

async fn refused(world: &World, object: &Value, says: &str) -> anyhow::Result<()> {
    match world.create(object).await {
        Err(kube::Error::Api(status)) if status.message.contains(says) => Ok(()),
        other => anyhow::bail!("not refused with {says:?}: {other:?}: {object}"),
    }
}

async fn mark(world: &World, name: &str) -> anyhow::Result<Option<String>> {
    let found = world.api(&config_map(name, None)).get(name).await?;
    let mut annotations = found.metadata.annotations.unwrap_or_default();
    Ok(annotations.remove("marked"))
}

async fn webhooks(world: &World, kind: &str) -> anyhow::Result<Vec<String>> {
    let configuration = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind, "metadata": {} });
    let found = world.api(&configuration).get("anteroom").await?;
    let text = found.data.to_string();
    ensure!(!text.contains("matchConditions"), "{text}");
    let webhooks = found.data["webhooks"].as_array().context("no webhooks")?;
    let names = webhooks
        .iter()
        .filter_map(|webhook| webhook["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.system.ready().await?;
    let malformed = policy("malformed", Some(NO_CEL), &refuses("malformed"));
    let bad = policy("bad", Some(AUTHORIZER), &refuses("bad"));
    let sound = [
        policy("asked", Some(ASKED), &refuses("asked")),
        policy("marks", Some(ASKED), &marks()),
        policy("plain", None, &refuses("plain")),
    ];
    world.create(&bad).await?;
    for policy in &sound {
        world.create(policy).await?;
    }
    for policy in &sound {
        condition(world, policy, "True", "").await?;
    }
    condition(
        world,
        &bad,
        "False",
        "AR301 spec.webhookConfiguration.matchConditions[0].expression: `authorizer`",
    )
    .await?;
    let field = "AR302 spec.webhookConfiguration.matchConditions[0].expression";
    is_refused(world, &malformed, field).await?;
    for (kind, verb) in [
        ("ValidatingWebhookConfiguration", "validate"),
        ("MutatingWebhookConfiguration", "mutate"),
    ] {
        let found = webhooks(world, kind).await?;
        let shared = format!("fail-10.{verb}.anteroom.svc");
        ensure!(found.contains(&shared), "{found:?}");
    }

    // The first object counts.
    refused(world, &config_map("a", Some("asked")), "refused as asked").await?;
    refused(world, &config_map("a", Some("plain")), "refused as plain").await?;
    refused(
        world,
        &config_map("spared-a", Some("plain")),
        "refused as plain",
    )
    .await?;
    world.create(&config_map("spared-b", Some("asked"))).await?;
    world.create(&config_map("b", Some("bad"))).await?;
    ensure!(mark(world, "spared-b").await?.is_none());
    ensure!(mark(world, "b").await?.as_deref() == Some("yes"));

    // The policy is in force once its author has mended it.
    let mended = json!({ "spec": { "webhookConfiguration": {
        "matchConditions": [{ "name": "asked", "expression": ASKED }] } } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(&mended));
    world.api(&bad).patch("bad", &params, &patch).await?;
    condition(world, &bad, "True", "").await?;
    refused(world, &config_map("c", Some("bad")), "refused as bad").await?;
    world.create(&config_map("spared-c", Some("bad"))).await?;
    world.system.webhook.process.check()
}
