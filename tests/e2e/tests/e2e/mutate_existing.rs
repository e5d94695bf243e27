//! Rules that change objects which exist already, on real parts: what is concerned is changed after the
//! trigger was admitted, what is not stays as it is, and a change is no trigger of its own.

use anteroom_e2e::{
    check::condition,
    manifests,
    system::target,
    wait,
    world::{NAMESPACE, World},
};
use anteroom_load::Client;
use anyhow::{Context, ensure};
use bytes::Bytes;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn existing_objects_are_changed_once_their_trigger_is_admitted() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

/// Copies the data of an updated ConfigMap to the ConfigMaps that follow it, except held ones.
fn policy() -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "follow" },
        "spec": { "rules": [{
            "name": "follow",
            "match": { "any": [{ "resources": { "kinds": ["ConfigMap"], "operations": ["UPDATE"],
                "selector": { "matchLabels": { "role": "leads" } } } }] },
            "mutate": {
                "targets": [{
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "namespace": "{{ request.namespace }}", "name": "follows-*",
                    "preconditions": { "all": [
                        { "key": "{{ target.data.held || 'no' }}", "operator": "NotEquals", "value": "yes" },
                    ] },
                }],
                "patchStrategicMerge": { "data": {
                    "said": "{{ request.object.data.says }} to {{ target.metadata.name }}" } },
            },
        }] },
    })
}

fn writes() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-writes" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"],
            "verbs": ["get", "list", "watch", "update"] }],
    })
}

fn config_map(name: &str, role: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": { "namespace": NAMESPACE, "name": name, "labels": { "role": role } } })
}

async fn said(world: &World, name: &str) -> anyhow::Result<(Value, String)> {
    let found = world
        .api(&config_map(name, "", &json!({})))
        .get(name)
        .await?;
    let version = found.metadata.resource_version.context("no version")?;
    Ok((found.data["data"]["said"].clone(), version))
}

/// Has the leader say something, and waits until this follower repeats it.
async fn lead(world: &World, word: &str, follower: &str) -> anyhow::Result<()> {
    let leader = config_map("leader", "leads", &json!({}));
    let patch = json!({ "data": { "says": word } });
    let api = world.api(&leader);
    api.patch("leader", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    let expected = format!("{word} to {follower}");
    wait::until(&format!("{expected:?}"), async || {
        let (said, _) = said(world, follower).await?;
        ensure!(said == expected, "{said}");
        anyhow::Ok(())
    })
    .await
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.system.ready().await?;
    manifests::apply(&world.client, &writes()).await?;
    for object in [
        config_map("leader", "leads", &json!({ "says": "nothing" })),
        config_map("follows-a", "follows", &json!({})),
        config_map("follows-held", "follows", &json!({ "held": "yes" })),
        config_map("else", "follows", &json!({})),
    ] {
        world.create(&object).await?;
    }
    manifests::apply(&world.client, &policy()).await?;
    condition(world, &policy(), "True", "").await?;

    lead(world, "hello", "follows-a").await?;
    let (_, version) = said(world, "follows-a").await?;
    for name in ["follows-held", "else"] {
        let (said, _) = said(world, name).await?;
        ensure!(said == Value::Null, "{name}: {said}");
    }

    // Where nothing would change nothing is written.
    let late = config_map("follows-b", "follows", &json!({}));
    world.create(&late).await?;
    lead(world, "hello", "follows-b").await?;
    let (_, again) = said(world, "follows-a").await?;
    ensure!(again == version, "{version} became {again}");

    lead(world, "goodbye", "follows-a").await?;
    lead(world, "goodbye", "follows-b").await?;
    made_up_reviews_change_nothing(world).await?;
    a_policy_in_cel_changes_its_targets(world).await?;
    a_policy_of_a_namespace_has_to_be_allowed(world).await
}

/// Returns the policy in CEL: a value of an updated ConfigMap becomes an annotation of its followers.
fn in_cel(kind: &str) -> Value {
    let config_maps = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["configmaps"] });
    let metadata = match kind.starts_with("Namespaced") {
        true => json!({ "name": "follow-in-cel", "namespace": NAMESPACE }),
        false => json!({ "name": "follow-in-cel" }),
    };
    json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": kind, "metadata": metadata,
        "spec": {
            "evaluation": { "mutateExisting": { "enabled": true } },
            "matchConstraints": {
                "resourceRules": [config_maps], "objectSelector": { "matchLabels": { "role": "leads" } },
            },
            "matchConditions": [{ "name": "speaks", "expression": "has(object.data.says)" }],
            "variables": [{ "name": "own", "expression": "object.metadata.name" }],
            "targetMatchConstraints": {
                "resourceRules": [config_maps], "objectSelector": { "matchLabels": { "role": "follows" } },
            },
            "targetMatchConditions": [{ "name": "free",
                "expression": "object.?data.?held.orValue('no') != 'yes' && variables.own.startsWith('follows-')" }],
            "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression":
                "Object{metadata: Object.metadata{annotations: Object.metadata.annotations{\
                    heard: (request.name == 'leader' ? request.object.data.says : 'nothing') + ' by ' + variables.own}}}",
            } }],
        },
    })
}

async fn heard(world: &World, name: &str) -> anyhow::Result<Option<String>> {
    let api = world.api(&config_map(name, "", &json!({})));
    let found = api.get(name).await?;
    let annotations = found.metadata.annotations.unwrap_or_default();
    Ok(annotations.get("heard").cloned())
}

async fn a_policy_in_cel_changes_its_targets(world: &World) -> anyhow::Result<()> {
    let policy = in_cel("MutatingPolicy");
    world.create(&policy).await?;
    wait::until("the policy to be in force", async || {
        let found = world.api(&policy).get("follow-in-cel").await?;
        let status = &found.data["status"]["conditionStatus"];
        ensure!(status["conditions"][0]["status"] == "True", "{status}");
        anyhow::Ok(())
    })
    .await?;
    // Nothing has triggered it, and nobody runs new policies here.
    ensure!(heard(world, "follows-a").await?.is_none());
    lead(world, "welcome", "follows-a").await?;
    for name in ["follows-a", "follows-b"] {
        let expected = format!("welcome by {name}");
        wait::until(&format!("{expected:?}"), async || {
            let heard = heard(world, name).await?;
            ensure!(heard.as_deref() == Some(&*expected), "{heard:?}");
            anyhow::Ok(())
        })
        .await?;
    }
    for name in ["follows-held", "else", "leader"] {
        let heard = heard(world, name).await?;
        ensure!(heard.is_none(), "{name}: {heard:?}");
    }
    world.delete(&policy).await
}

/// The watcher writes for those policies of namespaces alone that it was told to.
async fn a_policy_of_a_namespace_has_to_be_allowed(world: &World) -> anyhow::Result<()> {
    let policy = in_cel("NamespacedMutatingPolicy");
    world.create(&policy).await?;
    wait::until("what it may not", async || {
        let found = world.api(&policy).get("follow-in-cel").await?;
        let status = found.data["status"]["conditionStatus"].to_string();
        ensure!(status.contains("--allow-writes"), "{status}");
        anyhow::Ok(())
    })
    .await?;
    // The policy before, which was deleted just now, may follow some words more.
    let mut words = 0;
    wait::until("nothing to be written", async || {
        words += 1;
        let before = heard(world, "follows-a").await?;
        lead(world, &format!("farewell {words}"), "follows-a").await?;
        let after = heard(world, "follows-a").await?;
        ensure!(before == after, "{before:?} became {after:?}");
        Ok(())
    })
    .await?;
    world.delete(&policy).await
}

/// Somebody who has found out the webhook's path tells it of updates that there were not.
async fn made_up_reviews_change_nothing(world: &World) -> anyhow::Result<()> {
    let stored = world
        .api(&config_map("leader", "leads", &json!({})))
        .get("leader")
        .await?;
    let (_, version) = said(world, "follows-a").await?;
    let mut target = target(&world.client).await?;
    // Every policy is asked there.
    let (token, _) = target.path.split_once("/validate").context("no path")?;
    target.path = format!("{token}/validate?timeout=10s");
    let mut client = Client::new(target)?;
    let mut forged = config_map("leader", "leads", &json!({ "says": "forged" }));
    forged["metadata"]["uid"] = json!(stored.metadata.uid);
    let mut never_made = config_map("leader-2", "leads", &json!({ "says": "forged" }));
    never_made["metadata"]["uid"] = "7c1b6c3e-0000-0000-0000-000000000000".into();
    for object in [forged, never_made] {
        let answer = client.post(update(&object)).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        ensure!(answer["response"]["allowed"] == true, "{answer}");
    }
    let metric = "anteroom_webhook_mutate_existing_total";
    wait::until("both to be looked up", async || {
        let webhook = &world.system.webhook;
        let unchanged = webhook.metric(metric, &["unchanged"]).await?;
        let not_stored = webhook.metric(metric, &["not-stored"]).await?;
        ensure!(
            unchanged >= 1.0 && not_stored >= 4.0,
            "{unchanged}, {not_stored}"
        );
        anyhow::Ok(())
    })
    .await?;
    let (said, again) = said(world, "follows-a").await?;
    ensure!(said == "goodbye to follows-a" && again == version, "{said}");
    Ok(())
}

/// The review of an update of this ConfigMap.
fn update(object: &Value) -> Bytes {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "00000000-forged",
            "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
            "name": object["metadata"]["name"], "namespace": NAMESPACE, "operation": "UPDATE",
            "userInfo": { "username": "alice" }, "object": object, "oldObject": object,
        },
    });
    Bytes::from(review.to_string())
}
