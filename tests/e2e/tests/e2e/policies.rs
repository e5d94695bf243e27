//! Policies as users write them, one for each road to a fact, against a real API server: what they say
//! of objects by what is in the cluster now. A call that a view answers is asked live beside it, and
//! both must say the same.

mod alike;
mod changes;
mod confined;
mod lists;
mod reads;
mod subresources;

use anteroom_e2e::{manifests, system::SystemPlan, wait, world::World};
use anyhow::{Context, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// The namespace of the objects that policies judge.
const HOME: &str = "cases";

/// Another namespace.
const OTHER: &str = "elsewhere";

#[tokio::test(flavor = "multi_thread")]
async fn policies_decide_by_the_current_state_of_the_cluster() -> anyhow::Result<()> {
    let keys = tempfile::NamedTempFile::new()?;
    let key = BASE64_STANDARD.encode([7; 32]);
    std::fs::write(keys.path(), format!("one {key}\n"))?;
    let seal = ("--seal-keys-file", keys.path().display().to_string());
    let asks = ("--asker-keys-file", keys.path().display().to_string());
    let readers = (
        "--allow-secrets",
        "clusterpolicy/secrets-by-label".to_owned(),
    );
    let plan = SystemPlan {
        watcher_args: vec![readers, seal.clone(), asks.clone()],
        replica_args: vec![seal, asks.clone()],
        webhook_args: vec![asks],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    world.system.ready().await?;
    for namespace in [HOME, OTHER] {
        manifests::apply_namespace(&world.client, namespace).await?;
    }
    manifests::apply(&world.client, &rights()).await?;
    reads::every_road(&world).await?;
    lists::every_shape(&world).await?;
    alike::every_case(&world).await?;
    subresources::every_one(&world).await?;
    changes::every_operation(&world).await?;
    confined::every_road(&world).await
}

/// Returns the additional rights that the watcher needs.
fn rights() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" },
        "rules": [
            { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"],
                "verbs": ["create"] },
            { "apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"],
                "verbs": ["get", "list", "watch"] },
            { "apiGroups": [""], "resources": ["services/status"], "verbs": ["get"] },
            { "apiGroups": [""], "resources": ["secrets", "pods"],
                "verbs": ["get", "list", "watch"] },
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
                "verbs": ["get", "list", "watch"] },
        ],
    })
}

/// A policy on ConfigMaps labelled `guard: NAME`.
struct Guard {
    name: &'static str,
    /// The contents of `context`.
    context: Value,
    /// The contents of `validate`, but for the action.
    validate: Value,
    /// `preconditions`, if there are any.
    preconditions: Value,
    operations: Value,
}

/// Refused with `message` where `key` stands so to `value`.
fn deny(message: &str, key: &str, operator: &str, value: &Value) -> Value {
    json!({ "message": message, "deny": { "conditions": { "any": [
        { "key": key, "operator": operator, "value": value }] } } })
}

impl Guard {
    fn new(name: &'static str, context: Value, validate: Value) -> Self {
        Self {
            name,
            context,
            validate,
            preconditions: json!({}),
            operations: json!(["CREATE"]),
        }
    }

    fn policy(&self) -> Value {
        let mut validate = self.validate.clone();
        validate["failureAction"] = "Enforce".into();
        json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
            "metadata": { "name": self.name },
            "spec": { "failurePolicy": "Fail", "rules": [{
                "name": "guard", "context": self.context, "preconditions": self.preconditions,
                "match": { "any": [{ "resources": { "kinds": ["ConfigMap"],
                    "operations": self.operations,
                    "selector": { "matchLabels": { "guard": self.name } } } }] },
                "validate": validate,
            }] },
        })
    }

    /// The same, asked live; `None` where nothing in it is a call that a view may answer.
    fn live(&self) -> Option<Value> {
        let mut policy = self.policy();
        policy["metadata"]["name"] = format!("{}-live", self.name).into();
        let calls = ask_live(&mut policy);
        (calls > 0).then_some(policy)
    }

    /// A ConfigMap that the policy speaks of.
    fn object(&self, data: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": { "namespace": HOME, "name": format!("guarded-{}", self.name),
                "labels": { "guard": self.name, "tier": "front" } },
        })
    }
}

/// Has every call in a policy asked live; how many there are.
fn ask_live(value: &mut Value) -> usize {
    match value {
        Value::Array(elements) => elements.iter_mut().map(ask_live).sum(),
        Value::Object(fields) => {
            let call = fields.get_mut("apiCall").filter(|call| call.is_object());
            let own = call.map_or(0, |call| {
                call["cache"] = false.into();
                1
            });
            own + fields.values_mut().map(ask_live).sum::<usize>()
        }
        _ => 0,
    }
}

/// Created, as soon as no policy of a case before speaks of it any more.
async fn created(world: &World, object: &Value) -> anyhow::Result<()> {
    let what = format!("{} to be created", object["metadata"]["name"]);
    wait::until(&what, async || world.create(object).await).await
}

/// The verdict that a request is to have.
enum Verdict<'a> {
    Admitted,
    /// With a message that says this.
    Refused(&'a str),
}

/// Creates the object as a dry run; returns the message of a refusal.
async fn tried(world: &World, object: &Value) -> anyhow::Result<Option<String>> {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let parsed = serde_json::from_value(object.clone())?;
    let api = world.api(object);
    said(api.create(&dry_run, &parsed).await.map(drop))
}

/// Asks as [`tried`] does about a change of an object that is there.
async fn tried_change(
    world: &World,
    object: &Value,
    patch: &Value,
) -> anyhow::Result<Option<String>> {
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let name = object["metadata"]["name"].as_str().context("no name")?;
    let (api, patch) = (world.api(object), Patch::Merge(patch));
    let changed = api.patch(name, &dry_run, &patch);
    said(changed.await.map(drop))
}

/// Asks as [`tried`] does about a deletion.
async fn tried_deletion(world: &World, object: &Value) -> anyhow::Result<Option<String>> {
    let dry_run = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let name = object["metadata"]["name"].as_str().context("no name")?;
    let api = world.api(object);
    said(api.delete(name, &dry_run).await.map(drop))
}

fn said(answer: Result<(), kube::Error>) -> anyhow::Result<Option<String>> {
    match answer {
        Ok(()) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
        Err(other) => Err(other.into()),
    }
}

/// Waits until what is said is the verdict.
async fn comes_to(
    what: &str,
    verdict: &Verdict<'_>,
    mut ask: impl AsyncFnMut() -> anyhow::Result<Option<String>>,
) -> anyhow::Result<()> {
    let what = match verdict {
        Verdict::Admitted => format!("{what}: to be admitted"),
        Verdict::Refused(says) => format!("{what}: to be refused: {says}"),
    };
    wait::until(&what, async || {
        let said = ask().await?;
        match (&said, verdict) {
            (None, Verdict::Admitted) => Ok(()),
            (Some(message), Verdict::Refused(says)) => {
                ensure!(message.contains(says), "{message}");
                Ok(())
            }
            _ => anyhow::bail!("{said:?}"),
        }
    })
    .await
}

/// In force, and its live twin.
async fn install(world: &World, guard: &Guard) -> anyhow::Result<()> {
    for policy in [Some(guard.policy()), guard.live()].into_iter().flatten() {
        world.create(&policy).await?;
        anteroom_e2e::check::condition(world, &policy, "True", "").await?;
    }
    Ok(())
}

async fn remove(world: &World, guard: &Guard) -> anyhow::Result<()> {
    for policy in [Some(guard.policy()), guard.live()].into_iter().flatten() {
        world.delete(&policy).await?;
    }
    Ok(())
}

/// Checks what both say of an object: a refusal names each of them with the same words.
async fn says(
    world: &World,
    guard: &Guard,
    data: &Value,
    verdict: Verdict<'_>,
) -> anyhow::Result<()> {
    let object = guard.object(data);
    let what = format!("{} of {data}", guard.name);
    comes_to(&what, &verdict, async || tried(world, &object).await).await?;
    let (Verdict::Refused(says), Some(live)) = (&verdict, guard.live()) else {
        return Ok(());
    };
    // Both policies are in force, and give the same answers.
    let twin = live["metadata"]["name"].as_str().context("no name")?;
    wait::until(&format!("{twin} to say the same of {data}"), async || {
        let message = tried(world, &object).await?.context("admitted")?;
        let of_twin = message.split_once(&format!("{twin}:\n"));
        let (before, of_twin) = of_twin.with_context(|| message.clone())?;
        let name = format!("{}:\n", guard.name);
        let (_, own) = before.split_once(&name).with_context(|| message.clone())?;
        ensure!(words(own) == words(of_twin), "{own} / {of_twin}");
        ensure!(own.contains(says), "{own}");
        Ok(())
    })
    .await
}

/// A denial without the codes of errors: that a live read found nothing has another one.
fn words(denial: &str) -> String {
    let is_code = |word: &&str| !(word.starts_with("AR1") && word.len() == 5);
    let words = denial.split_whitespace().filter(is_code);
    words.collect::<Vec<_>>().join(" ")
}
