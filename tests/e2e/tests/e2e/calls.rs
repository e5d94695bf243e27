//! Calls of the API server in published policies, on real parts: which of them a view answers, which
//! are read live, and that both decide alike. The webhook's own record of a decision says which it was.

use anteroom_e2e::{
    endpoint::Endpoint,
    guard::{Asker, Decided, guard},
    manifests,
    services::Running,
    system::SystemPlan,
    world::{NAMESPACE, World, host, ingress},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

const INGRESSES: usize = 7;

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_call_is_answered_by_a_view_and_decides_as_live() -> anyhow::Result<()> {
    let mut world = World::start_as(&SystemPlan::default()).await?;
    manifests::apply(&world.client, &may_review_access()).await?;
    world.fill(0, INGRESSES).await?;
    for policy in [
        counting("counted", &called()),
        counting("kept", &kept()),
        access("access"),
        version("version"),
        one("one"),
    ] {
        world.create(&policy).await?;
    }
    world.system.ready().await?;
    let asker = Asker::new(&world).await?;

    a_view_answers(&world, &asker).await?;
    calls_that_no_view_answers_are_read_live(&asker).await?;
    without_views_undeclared_calls_are_read_live_and_decide_the_same(&mut world, &asker).await?;
    the_last_good_answer_outlives_its_watcher(&mut world, &asker).await
}

/// Returns the right that the watcher needs for `SubjectAccessReview`, as docs/install.md says to add it.
fn may_review_access() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" },
        "rules": [{ "apiGroups": ["authorization.k8s.io"],
            "resources": ["subjectaccessreviews"], "verbs": ["create"] }],
    })
}

fn called() -> Value {
    json!({ "name": "count", "apiCall": {
        "urlPath": "/apis/networking.k8s.io/v1/namespaces/{{ request.namespace }}/ingresses",
        "jmespath": "length(items)" } })
}

fn kept() -> Value {
    json!({ "name": "count", "resourceCache": {
        "group": "networking.k8s.io", "version": "v1", "kind": "ingresses",
        "namespace": NAMESPACE, "jmesPath": "length(items)" } })
}

/// Refused while there are as many Ingresses as at first.
fn counting(name: &str, context: &Value) -> Value {
    let condition = json!({ "key": "{{ count }}", "operator": "GreaterThanOrEquals",
        "value": INGRESSES });
    guard(name, context, "there are {{ count }} already", &condition)
}

/// Refused unless the user may delete namespaces, which nobody has said.
fn access(name: &str) -> Value {
    let context = json!({ "name": "access", "apiCall": {
        "urlPath": "/apis/authorization.k8s.io/v1/subjectaccessreviews", "method": "POST",
        "data": [
            { "key": "kind", "value": "SubjectAccessReview" },
            { "key": "apiVersion", "value": "authorization.k8s.io/v1" },
            { "key": "spec", "value": {
                "resourceAttributes": { "resource": "namespaces", "verb": "delete", "group": "" },
                "user": "{{ request.userInfo.username }}" } },
        ],
        "jmesPath": "status.allowed" } });
    let condition = json!({ "key": "{{ access }}", "operator": "NotEquals", "value": true });
    guard(name, &context, "you may not delete namespaces", &condition)
}

fn version(name: &str) -> Value {
    let context = json!({ "name": "major", "apiCall": {
        "urlPath": "/version", "jmesPath": "major" } });
    let condition = json!({ "key": "{{ major }}", "operator": "Equals", "value": "1" });
    guard(name, &context, "this is version {{ major }}", &condition)
}

/// One object by a variable name, in a path that a view answers as the API server does.
fn one(name: &str) -> Value {
    let context = json!({ "name": "host", "apiCall": {
        "urlPath": "/apis/networking.k8s.io/v1/namespaces/{{ request.namespace }}/ingresses/ingress-3",
        "jmesPath": "spec.rules[0].host" } });
    let condition = json!({ "key": "{{ host }}", "operator": "Equals", "value": host(3) });
    guard(name, &context, "{{ host }} is taken", &condition)
}

fn is_of_a_view(decided: &Decided) -> bool {
    let fact = decided.fact();
    fact["view"].is_string() && fact["replica"].is_string() && fact["from"] == "view"
}

fn is_live(decided: &Decided) -> bool {
    decided.fact()["from"] == "live"
}

/// Undeclared and declared calls are answered from views, with what is in the cluster now,
/// and the record says so.
async fn a_view_answers(world: &World, asker: &Asker) -> anyhow::Result<()> {
    let says = format!("there are {INGRESSES} already");
    for name in ["counted", "kept"] {
        let what = "refused by what a view says";
        let refused = |decided: &Decided| !decided.allowed && is_of_a_view(decided);
        let decided = asker.until(name, what, refused).await?;
        ensure!(decided.message.contains(&says), "{decided:?}");
    }
    let what = "refused by what a view says";
    let refused = |decided: &Decided| !decided.allowed && is_of_a_view(decided);
    let decided = asker.until("one", what, refused).await?;
    let taken = format!("{} is taken", host(3));
    ensure!(decided.message.contains(&taken), "{decided:?}");

    let live_reads = live_reads(&world.system.webhook).await?;
    world.delete(&ingress(0, &host(0))).await?;
    for name in ["counted", "kept"] {
        let decided = asker.admitted(name).await?;
        ensure!(is_of_a_view(&decided), "{decided:?}");
    }
    world.create(&ingress(0, &host(0))).await?;
    for name in ["counted", "kept"] {
        let decided = asker.refused(name, &says).await?;
        ensure!(is_of_a_view(&decided), "{decided:?}");
    }
    let read = self::live_reads(&world.system.webhook).await? - live_reads;
    ensure!(read == 0.0, "{read} live reads");
    // A name that is not there is the API server's 404, from a view too.
    world.delete(&ingress(3, &host(3))).await?;
    let says = "ingresses.networking.k8s.io \"ingress-3\" not found";
    asker.refused("one", says).await?;
    world.create(&ingress(3, &host(3))).await?;
    asker.refused("one", &taken).await.map(drop)
}

async fn live_reads(webhook: &Running) -> anyhow::Result<f64> {
    let name = "anteroom_webhook_live_read_duration_seconds_count";
    webhook.metric(name, &[]).await
}

/// A POST and a raw path are read live, each time.
async fn calls_that_no_view_answers_are_read_live(asker: &Asker) -> anyhow::Result<()> {
    for (name, says) in [
        ("access", "you may not delete namespaces"),
        ("version", "this is version 1"),
    ] {
        let decided = asker.refused(name, says).await?;
        ensure!(is_live(&decided), "{decided:?}");
    }
    Ok(())
}

/// With `--cache-api-calls=off` the undeclared call is read live and decides the same; what is
/// declared is kept as before.
async fn without_views_undeclared_calls_are_read_live_and_decide_the_same(
    world: &mut World,
    asker: &Asker,
) -> anyhow::Result<()> {
    let running = world.system.watcher.take().context("the watcher runs")?;
    let recipe = running.recipe().clone().arg("--cache-api-calls", "off");
    running.process.terminate().await?;
    let mut again = recipe.start()?;
    again.ready().await?;
    world.system.watcher = Some(again);
    let says = format!("there are {INGRESSES} already");
    for (name, says) in [("counted", says), ("one", format!("{} is taken", host(3)))] {
        let decided = asker.until(name, "decided live", is_live).await?;
        ensure!(decided.message.contains(&says), "{decided:?}");
    }
    let decided = asker.refused("kept", "already").await?;
    ensure!(is_of_a_view(&decided), "{decided:?}");
    world.delete(&ingress(0, &host(0))).await?;
    let decided = asker.ask("counted").await?;
    ensure!(decided.allowed && is_live(&decided), "{decided:?}");
    asker.admitted("kept").await.map(drop)
}

/// A watcher that takes over while the endpoint is down serves the last good answer on, also by
/// replicas that have read nothing but the log since.
async fn the_last_good_answer_outlives_its_watcher(
    world: &mut World,
    asker: &Asker,
) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&json!({ "team": "red" })).await?;
    world.create(&teams(&endpoint.url())).await?;
    let context = json!({ "name": "team", "cachedContextEntry": {
        "name": "teams", "jmesPath": "team" } });
    let condition = json!({ "key": "{{ team }}", "operator": "Equals", "value": "red" });
    let says = "the team is red";
    world
        .create(&guard("team", &context, says, &condition))
        .await?;
    asker.refused("team", says).await?;
    drop(endpoint);
    let watcher = world.system.watcher.take().context("the watcher runs")?;
    world.system.watcher = Some(killed_and_started(watcher).await?);
    for replica in &mut world.system.replicas {
        let running = replica.take().context("the replica runs")?;
        *replica = Some(killed_and_started(running).await?);
        let decided = asker.refused("team", says).await?;
        ensure!(is_of_a_view(&decided), "{decided:?}");
    }
    Ok(())
}

fn teams(url: &str) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": "teams" },
        "spec": {
            "apiCall": { "url": url, "refreshIntervalSeconds": 1, "retryLimit": 1 },
            "onFailure": "ServeStale", "maxStalenessSeconds": 3600,
        } })
}

async fn killed_and_started(mut running: Running) -> anyhow::Result<Running> {
    let recipe = running.recipe().clone();
    running.process.kill()?;
    let mut again = recipe.start()?;
    again.ready().await?;
    Ok(again)
}
