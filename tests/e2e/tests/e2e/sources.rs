//! Every source of facts on real parts, under change: what policies read without an entry, what
//! entries of both kinds hold, and what becomes of them when rights, definitions, the API server and
//! a watcher go and come back.
//!
//! One cluster and one story: starting is what takes the time.

use std::time::Duration;

use anteroom_e2e::{
    check::{ENTRY, condition, entry_is_ready, is_admitted, is_refused},
    guard::{guard, guarded},
    manifests,
    process::workspace_binary,
    system::SystemPlan,
    wait,
    world::{NAMESPACE, World, host, ingress},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

const INGRESSES: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_every_source_stay_right_under_change() -> anyhow::Result<()> {
    let plan = SystemPlan {
        watchers: 2,
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    world.fill(0, INGRESSES).await?;
    let entry: Value = serde_saphyr::from_str(ENTRY)?;
    world.create(&entry).await?;
    world.system.ready().await?;
    entry_is_ready(&world, "ingresses", INGRESSES).await?;

    calls_without_an_entry(&world).await?;
    config_maps(&world).await?;
    global_entries(&world).await?;
    rights_taken_and_given_back(&world, &entry).await?;
    a_definition_that_comes_later(&world).await?;
    entries_by_the_hundred(&world, &entry).await?;
    the_api_server_away(&mut world).await?;
    a_watcher_killed(&mut world).await
}

/// A published policy's live call is answered from a view, with what is in the cluster now.
async fn calls_without_an_entry(world: &World) -> anyhow::Result<()> {
    let path = "/apis/networking.k8s.io/v1/namespaces/{{ request.namespace }}/ingresses";
    let context = json!({ "name": "count", "apiCall": {
        "urlPath": path, "jmespath": "length(items)" } });
    let says = format!("there are {INGRESSES} already");
    let condition = json!({ "key": "{{ count }}", "operator": "GreaterThanOrEquals",
        "value": INGRESSES });
    let policy = guard(
        "called",
        &context,
        "there are {{ count }} already",
        &condition,
    );
    world.create(&policy).await?;
    is_refused(world, &guarded("called"), &says).await?;
    world.delete(&ingress(0, &host(0))).await?;
    is_admitted(world, &guarded("called")).await?;
    world.create(&ingress(0, &host(0))).await?;
    is_refused(world, &guarded("called"), &says).await?;
    world.delete(&policy).await
}

/// A ConfigMap that a policy names is read by name, and again when it changes.
async fn config_maps(world: &World) -> anyhow::Result<()> {
    let settings = |allowed: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": NAMESPACE, "name": "settings" },
            "data": { "allowed": allowed } })
    };
    manifests::apply(&world.client, &settings("no")).await?;
    let context = json!({ "name": "settings", "configMap": {
        "namespace": NAMESPACE, "name": "settings" } });
    let condition = json!({ "key": "{{ settings.data.allowed }}", "operator": "Equals",
        "value": "no" });
    let policy = guard("configured", &context, "settings say no", &condition);
    world.create(&policy).await?;
    is_refused(world, &guarded("configured"), "settings say no").await?;
    manifests::apply(&world.client, &settings("yes")).await?;
    is_admitted(world, &guarded("configured")).await?;
    world.delete(&settings("yes")).await?;
    // Not there is not *no*, and not *yes*.
    is_refused(world, &guarded("configured"), "settings").await?;
    world.delete(&policy).await
}

/// A `GlobalContextEntry` on a resource is an array with projections, and one on a
/// path of the API server is its response.
async fn global_entries(world: &World) -> anyhow::Result<()> {
    let entry = |name: &str, spec: Value| {
        json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry",
            "metadata": { "name": name }, "spec": spec })
    };
    let resource = entry(
        "hosts",
        json!({
            "kubernetesResource": { "group": "networking.k8s.io", "version": "v1",
                "resource": "ingresses", "namespace": NAMESPACE },
            "projections": [{ "name": "names", "jmesPath": "[].metadata.name" }],
        }),
    );
    let called = entry(
        "version",
        json!({ "apiCall": { "urlPath": "/version", "refreshInterval": "1s" } }),
    );
    for entry in [&resource, &called] {
        world.create(entry).await?;
        condition(world, entry, "True", "").await?;
    }
    for (asked, expression, expected) in [
        ("hosts", "length(@)", json!(INGRESSES)),
        ("hosts.names", "length(@)", json!(INGRESSES)),
        ("version", "major", json!("1")),
    ] {
        wait::until(&format!("{asked} to be answered"), async || {
            let answer = asked_by_hand(world, asked, expression).await?;
            ensure!(answer == expected, "{answer}");
            Ok(())
        })
        .await?;
    }
    for entry in [&resource, &called] {
        world.delete(entry).await?;
    }
    Ok(())
}

/// Returns what `anteroom query` prints of a `GlobalContextEntry`.
async fn asked_by_hand(world: &World, entry: &str, expression: &str) -> anyhow::Result<Value> {
    let output = tokio::process::Command::new(workspace_binary("anteroom")?)
        .args(["query", "--kind", "global", entry, expression])
        .envs(world.nats.logins().env("webhook"))
        .output()
        .await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Rights taken away fail what needed them, in the API server's words, and nothing else; given
/// back, it recovers by itself.
async fn rights_taken_and_given_back(world: &World, entry: &Value) -> anyhow::Result<()> {
    let rbac = manifests::rbac()?;
    let binding = rbac
        .iter()
        .find(|manifest| {
            manifest["kind"] == "ClusterRoleBinding"
                && manifest["metadata"]["name"] == "anteroom-watcher-sources"
        })
        .context("the binding of the sources")?;
    world.delete(binding).await?;
    // An open watch stays open; a new watch learns that the right is gone.
    let mut other = entry.clone();
    other["metadata"]["name"] = "budgets".into();
    other["spec"]["resource"] = json!({ "group": "policy", "kind": "poddisruptionbudgets" });
    world.create(&other).await?;
    condition(world, &other, "False", "forbidden").await?;
    condition(world, entry, "True", "").await?;
    manifests::apply(&world.client, binding).await?;
    condition(world, &other, "True", "").await?;
    world.delete(&other).await
}

/// A definition that is installed after the entry that names it, and removed.
async fn a_definition_that_comes_later(world: &World) -> anyhow::Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": { "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true } } }] },
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" },
        "rules": [{ "apiGroups": ["example.com"], "resources": ["widgets"],
            "verbs": ["get", "list", "watch"] }],
    });
    manifests::apply(&world.client, &role).await?;
    let entry = json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": "widgets" },
        "spec": { "resource": { "group": "example.com", "version": "v1", "kind": "widgets" } } });
    world.create(&entry).await?;
    condition(world, &entry, "False", "").await?;
    manifests::apply(&world.client, &definition).await?;
    condition(world, &entry, "True", "").await?;
    world.delete(&definition).await?;
    condition(world, &entry, "False", "").await?;
    world.delete(&entry).await
}

/// Entries come and go by the hundred, and those that stay are served.
async fn entries_by_the_hundred(world: &World, entry: &Value) -> anyhow::Result<()> {
    const ENTRIES: usize = 200;
    let many: Vec<Value> = (0..ENTRIES)
        .map(|index| {
            let mut entry = entry.clone();
            entry["metadata"]["name"] = format!("many-{index}").into();
            entry["spec"]["resource"]["namespace"] = format!("space-{}", index % 20).into();
            entry
        })
        .collect();
    for entry in &many {
        world.create(entry).await?;
    }
    for entry in many.iter().step_by(2) {
        world.delete(entry).await?;
    }
    for entry in many.iter().skip(1).step_by(2) {
        condition(world, entry, "True", "").await?;
    }
    for entry in many.iter().skip(1).step_by(2) {
        world.delete(entry).await?;
    }
    Ok(())
}

/// An API server that was killed and is back, soon or late, costs no fact and no process.
async fn the_api_server_away(world: &mut World) -> anyhow::Result<()> {
    for (round, away_s) in [5, 12].into_iter().enumerate() {
        world.cluster.kill_apiserver()?;
        tokio::time::sleep(Duration::from_secs(away_s)).await;
        world.cluster.start_apiserver().await?;
        world.system.ready().await?;
        let new = ingress(INGRESSES + round, &host(INGRESSES + round));
        wait::until("a new Ingress to be created", async || {
            world.create(&new).await
        })
        .await?;
        entry_is_ready(world, "ingresses", INGRESSES + round + 1).await?;
        for running in world.system.replicas.iter_mut().flatten() {
            running.process.check()?;
        }
        for running in world.system.watcher.iter_mut() {
            running.process.check()?;
        }
    }
    Ok(())
}

/// A watcher dies, and the other goes on with its groups; replicas read nothing again.
async fn a_watcher_killed(world: &mut World) -> anyhow::Result<()> {
    let before = resyncs(world).await?;
    let mut killed = world
        .system
        .watcher
        .take()
        .context("the first watcher runs")?;
    killed.process.kill()?;
    let new = ingress(INGRESSES + 9, &host(INGRESSES + 9));
    world.create(&new).await?;
    entry_is_ready(world, "ingresses", INGRESSES + 3).await?;
    ensure!(
        resyncs(world).await? == before,
        "replicas read the log again"
    );
    Ok(())
}

/// Counts how often replicas have read the log from its start.
async fn resyncs(world: &World) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for replica in world.system.replicas.iter().flatten() {
        sum += replica.metric("anteroom_log_resyncs_total", &[]).await?;
    }
    Ok(sum)
}
