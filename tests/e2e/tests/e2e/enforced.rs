//! Ready means enforced, on real parts: whoever waits for a policy's status and then breaks the policy
//! is refused, the first time and every time. Also while webhooks come and go.

use std::time::{Duration, Instant};

use anteroom_e2e::{
    check::condition,
    process::free_address,
    wait::PATIENCE,
    world::{NAMESPACE, World},
};
use anyhow::{Context, bail, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

/// The number of policies created in sequence.
const POLICIES: usize = 20;

/// Kinds with what an object of each needs; each is new to the webhook configuration once. The last
/// policies are on kinds that are known by then.
fn kinds() -> Vec<(&'static str, &'static str, bool, Value)> {
    let rbac = "rbac.authorization.k8s.io/v1";
    vec![
        ("v1", "ConfigMap", true, json!({})),
        ("v1", "ServiceAccount", true, json!({})),
        (
            "v1",
            "Service",
            true,
            json!({ "spec": { "ports": [{ "port": 80 }] } }),
        ),
        ("v1", "Secret", true, json!({})),
        (
            "v1",
            "LimitRange",
            true,
            json!({ "spec": { "limits": [] } }),
        ),
        ("v1", "ResourceQuota", true, json!({})),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            true,
            json!({ "spec": { "podSelector": {} } }),
        ),
        (
            "networking.k8s.io/v1",
            "IngressClass",
            false,
            json!({ "spec": { "controller": "a.b/c" } }),
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            true,
            json!({ "spec": {} }),
        ),
        (rbac, "Role", true, json!({ "rules": [] })),
        (rbac, "ClusterRole", false, json!({ "rules": [] })),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            false,
            json!({ "value": 1 }),
        ),
        ("coordination.k8s.io/v1", "Lease", true, json!({})),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            false,
            json!({ "provisioner": "a.b/c" }),
        ),
        (
            "node.k8s.io/v1",
            "RuntimeClass",
            false,
            json!({ "handler": "a" }),
        ),
    ]
}

/// The object of the kind with this number, labelled `breaks: label`.
fn object(number: usize, name: &str, label: &str) -> Value {
    let kinds = kinds();
    let (api_version, kind, namespaced, mut object) = kinds[number % kinds.len()].clone();
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"] = json!({ "name": name, "labels": { "breaks": label } });
    if namespaced {
        object["metadata"]["namespace"] = NAMESPACE.into();
    }
    object
}

/// No object of the kind with this number may be labelled `breaks: label`. Every other one reads a view.
fn policy(number: usize, label: &str) -> Value {
    let kinds = kinds();
    let (_, kind, _, _) = &kinds[number % kinds.len()];
    let label_of = "{{ request.object.metadata.labels.breaks || '' }}";
    let mut all = vec![json!({ "key": label_of, "operator": "Equals", "value": label })];
    let mut context = Vec::new();
    let paths = [
        "/api/v1/services".to_owned(),
        format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"),
    ];
    if number % 2 == 1 {
        let path = &paths[number / 2 % 2];
        context.push(json!({ "name": "count", "apiCall": {
            "urlPath": path, "jmespath": "length(items)", "cache": true } }));
        all.push(json!({ "key": "{{ count }}", "operator": "GreaterThanOrEquals", "value": 0 }));
    }
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": { "name": format!("policy-{number}") },
        "spec": { "failurePolicy": "Fail", "rules": [{
            "name": "label",
            "match": { "any": [{ "resources": { "kinds": [kind], "operations": ["CREATE"] } }] },
            "context": context,
            "validate": { "failureAction": "Enforce", "message": format!("no {label} here"),
                "deny": { "conditions": { "all": all } } },
        }] },
    })
}

/// The `Ready` condition of the policy as it stands, if it speaks of the generation that the policy has.
async fn ready(world: &World, policy: &Value) -> anyhow::Result<Option<Value>> {
    let name = policy["metadata"]["name"].as_str().context("no name")?;
    let found = world.api(policy).get(name).await?;
    let conditions = found.data["status"]["conditions"].as_array();
    let ready = conditions.and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
    let generation = found.metadata.generation;
    Ok(ready
        .filter(|ready| ready["observedGeneration"].as_i64() == generation)
        .cloned())
}

/// Waits until the policy says that it is ready, looking as often as the API server answers.
async fn becomes_ready(world: &World, policy: &Value) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    loop {
        let ready = ready(world, policy).await?;
        if ready.as_ref().is_some_and(|r| r["status"] == "True") {
            return Ok(begun.elapsed());
        }
        ensure!(begun.elapsed() < PATIENCE, "{policy}: {ready:?}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Refused at the first attempt, and for no other reason.
async fn refused_at_once(world: &World, object: &Value, label: &str) -> anyhow::Result<()> {
    match world.create(object).await {
        Err(kube::Error::Api(status)) if status.message.contains(&format!("no {label} here")) => {
            Ok(())
        }
        Err(other) => bail!("refused otherwise: {other}: {object}"),
        Ok(()) => bail!("admitted although the policy is ready: {object}"),
    }
}

/// Creates the policy, waits for it, and breaks it at once; then creates an object that the policy allows.
async fn made_and_broken(world: &World, number: usize) -> anyhow::Result<()> {
    let (name, policy) = (
        format!("object-{number}"),
        policy(number, &format!("label-{number}")),
    );
    world.create(&policy).await?;
    let took = becomes_ready(world, &policy).await?;
    let label = format!("label-{number}");
    refused_at_once(world, &object(number, &name, &label), &label).await?;
    let good = object(number, &name, "nothing");
    world
        .create(&good)
        .await
        .with_context(|| format!("what the policy allows: {good}"))?;
    world.delete(&good).await?;
    tell(&format!(
        "policy-{number} ready and enforced after {} ms",
        took.as_millis()
    ));
    Ok(())
}

/// A policy that waits for its view takes the webhook from no other, and is enforced by refusing.
async fn waits_alone(world: &World) -> anyhow::Result<()> {
    // Whoever calls it waits for an answer.
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", endpoint.local_addr()?);
    let entry = json!({
        "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": "hangs" }, "spec": { "apiCall": { "service": { "url": url } } },
    });
    let number = POLICIES + 10;
    let mut waiting = policy(number, "waits");
    let read =
        json!([{ "name": "it", "cachedContextEntry": { "name": "hangs", "jmespath": "a" } }]);
    waiting["spec"]["rules"][0]["context"] = read;
    waiting["spec"]["rules"][0]["validate"]["deny"]["conditions"]["all"] =
        json!([{ "key": "{{ it }}", "operator": "Equals", "value": "x" }]);
    for made in [&entry, &waiting] {
        world.create(made).await?;
    }
    let begun = Instant::now();
    loop {
        // An error is a webhook that is not ready.
        let told = world.system.webhook.get("/readyz?verbose").await?;
        if told.contains("CachedContextEntry `hangs` for policy policy-30") {
            break;
        }
        ensure!(begun.elapsed() < PATIENCE, "{told}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    condition(world, &waiting, "False", "`hangs` is not ready").await?;
    match world.create(&object(number, "waits", "nothing")).await {
        Err(kube::Error::Api(status)) if status.message.contains("AR1") => {}
        other => bail!("not refused for what is missing: {other:?}"),
    }
    made_and_broken(world, number + 1).await?;
    for made in [&waiting, &entry] {
        world.delete(made).await?;
    }
    Ok(())
}

/// A policy says Ready once it is enforced, and stays so while webhooks come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_says_ready_is_enforced() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    world.system.ready().await?;

    tell("# policies, one after the other");
    for number in 0..POLICIES {
        made_and_broken(&world, number).await?;
    }

    tell("# a policy that changes");
    for round in 0..3 {
        let label = format!("changed-{round}");
        let changed = policy(round, &label);
        let name = changed["metadata"]["name"].as_str().context("no name")?;
        let api = world.api(&changed);
        let patch = Patch::Merge(json!({ "spec": changed["spec"] }));
        api.patch(name, &PatchParams::default(), &patch).await?;
        let took = becomes_ready(&world, &changed).await?;
        refused_at_once(&world, &object(round, "changed", &label), &label).await?;
        tell(&format!(
            "{name} changed and enforced after {} ms",
            took.as_millis()
        ));
    }

    tell("# a policy whose view does not come");
    waits_alone(&world).await?;

    tell("# a second webhook joins");
    let mut before = Vec::new();
    for number in 0..POLICIES {
        before.push(
            ready(&world, &policy(number, ""))
                .await?
                .context("no condition")?,
        );
    }
    let recipe = world.system.webhook.recipe().named("webhook-2")?;
    let mut second = recipe.arg("--listen-address", free_address()?).start()?;
    made_and_broken(&world, POLICIES).await?;
    second.ready().await?;
    made_and_broken(&world, POLICIES + 1).await?;

    tell("# it hangs: nobody waits for it for long");
    second.process.signal("STOP")?;
    made_and_broken(&world, POLICIES + 2).await?;
    second.process.signal("CONT")?;
    made_and_broken(&world, POLICIES + 3).await?;

    tell("# it leaves");
    ensure!(second.process.terminate().await?.success(), "it ends well");
    made_and_broken(&world, POLICIES + 4).await?;

    tell("# the only one is started again");
    let webhook = &mut world.system.webhook;
    webhook.process.kill()?;
    *webhook = webhook.recipe().start()?;
    made_and_broken(&world, POLICIES + 5).await?;
    for (number, before) in before.iter().enumerate() {
        let now = ready(&world, &policy(number, ""))
            .await?
            .context("no condition")?;
        ensure!(
            now == *before,
            "policy-{number} has moved from {before} to {now}"
        );
    }

    tell("# there is none: a new policy says so");
    let last = POLICIES + 6;
    world.system.webhook.process.signal("STOP")?;
    let policy = policy(last, "last");
    world.create(&policy).await?;
    condition(&world, &policy, "False", "start anteroom-webhook").await?;
    world.system.webhook.process.signal("CONT")?;
    becomes_ready(&world, &policy).await?;
    refused_at_once(&world, &object(last, "last", "last"), "last").await
}

/// Seen with `--nocapture`, and when the story ends badly.
#[expect(
    clippy::print_stdout,
    reason = "the story, for whoever reads a test's output"
)]
fn tell(text: &str) {
    println!("{text}");
}
