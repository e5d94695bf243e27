//! Rules that change objects, on real parts: what a `mutate` policy adds, a `validate` policy may require. The
//! policies are waited for as users wait for them, and the first object counts.

use anteroom_e2e::{
    check::condition,
    world::{NAMESPACE, World},
};
use anyhow::{Context, ensure};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_may_require_a_field_that_another_policy_adds() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

fn policy(name: &str, failure: &str, rule: &Value) -> Value {
    let mut rule = rule.clone();
    rule["name"] = "rule".into();
    rule["match"] = json!({ "any": [{ "resources": { "kinds": ["Pod"] } }] });
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": name },
        "spec": { "failurePolicy": failure, "rules": [rule] },
    })
}

fn policies() -> [Value; 4] {
    let team = "{{ request.object.metadata.labels.team || 'nobody' }}";
    let metadata =
        |patch: &Value| json!({ "mutate": { "patchStrategicMerge": { "metadata": patch } } });
    [
        // The name sorts after the first policy of the webhook, and the rule reads the field added by the first
        // policy.
        policy(
            "b-notes",
            "Fail",
            &metadata(&json!({ "annotations": { "noted": team } })),
        ),
        policy(
            "a-labels",
            "Fail",
            &metadata(&json!({ "labels": { "+(team)": "nobody-yet" } })),
        ),
        // Of a webhook that is asked before theirs, and once more after it.
        policy(
            "c-early",
            "Ignore",
            &metadata(&json!({ "annotations": { "early": team } })),
        ),
        policy(
            "d-requires",
            "Fail",
            &json!({ "validate": { "failureAction": "Enforce", "message": "whose is it?",
                "pattern": { "metadata": { "labels": { "team": "?*" },
                    "annotations": { "noted": "?*", "early": "?*" } } } } }),
        ),
    ]
}

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": { "containers": [{ "name": "c", "image": "nginx" }] } })
}

fn deployment() -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": NAMESPACE, "name": "made" },
        "spec": { "selector": { "matchLabels": { "app": "s" } }, "template": {
            "metadata": { "labels": { "app": "s" } },
            "spec": { "containers": [{ "name": "c", "image": "nginx" }] } } } })
}

/// The labels and annotations of an object, which are these.
fn has(metadata: &Value, labels: &Value, annotations: &Value) -> anyhow::Result<()> {
    ensure!(metadata["labels"] == *labels, "{metadata}");
    ensure!(metadata["annotations"] == *annotations, "{metadata}");
    Ok(())
}

/// The API server asks in the order in which it has the webhooks, whichever came first.
async fn in_order(world: &World) -> anyhow::Result<()> {
    let configuration = json!({ "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration", "metadata": {} });
    let found = world.api(&configuration).get("anteroom").await?;
    let webhooks = found.data["webhooks"].as_array().context("no webhooks")?;
    let names: Vec<_> = webhooks.iter().map(|webhook| &webhook["name"]).collect();
    let expected = [
        "ignore-10.mutate.anteroom.svc",
        "fail-10.mutate.anteroom.svc",
        "probe.anteroom.svc",
    ];
    ensure!(names == expected, "{names:?}");
    Ok(())
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.system.ready().await?;
    for policy in policies() {
        world.create(&policy).await?;
    }
    for policy in policies() {
        condition(world, &policy, "True", "").await?;
    }
    in_order(world).await?;
    let (pod, api) = (pod("plain"), world.api(&pod("plain")));
    let parsed: DynamicObject = serde_json::from_value(pod.clone())?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let told = api.create(&dry, &parsed).await?;
    let nobody = json!({ "team": "nobody-yet" });
    let noted = |team: &str| json!({ "noted": team, "early": team });
    has(
        &serde_json::to_value(told.metadata)?,
        &nobody,
        &noted("nobody-yet"),
    )?;

    world.create(&pod).await?;
    let found = serde_json::to_value(api.get("plain").await?.metadata)?;
    has(&found, &nobody, &noted("nobody-yet"))?;

    // What is taken away comes back; what is given is kept.
    for (given, expected) in [(json!("ours"), "ours"), (Value::Null, "nobody-yet")] {
        let patch = json!({ "metadata": { "labels": { "team": given } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = api.patch("plain", &params, &patch).await?;
        let metadata = serde_json::to_value(patched.metadata)?;
        has(&metadata, &json!({ "team": expected }), &noted(expected))?;
    }

    // The Deployment gets the change in its Pod template.
    world.create(&deployment()).await?;
    let found = world.api(&deployment()).get("made").await?;
    let template = &found.data["spec"]["template"]["metadata"];
    let labels = json!({ "app": "s", "team": "nobody-yet" });
    ensure!(template["labels"] == labels, "{template}");

    world.delete(&pod).await?;
    world.system.webhook.process.check()
}
