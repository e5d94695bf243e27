//! Reports of what exists, on real parts: they say what the policies say of the objects, soon after either
//! changes, and the API server is asked for nothing but reports.

use anteroom_e2e::{
    check::condition,
    wait,
    world::{NAMESPACE, World},
};
use anyhow::{Context, ensure};
use kube::{
    ResourceExt as _,
    api::{Api, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// All that the reporter may ask of the API server.
const OWN: [&str; 4] = [
    "clusterpolicyreports.wgpolicyk8s.io",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "policyreports.wgpolicyk8s.io",
];

#[tokio::test(flavor = "multi_thread")]
async fn reports_follow_objects_and_policies() -> anyhow::Result<()> {
    let mut world = World::start_reporting().await?;
    world.system.ready().await?;
    for (name, team) in [("good", Some("a")), ("bad", None)] {
        world.create(&config_map(name, team)).await?;
    }
    world.create(&policy()).await?;
    condition(&world, &policy(), "True", "").await?;

    // What was there before, and what comes.
    says(&world, "good", "pass").await?;
    says(&world, "bad", "fail").await?;
    world.create(&config_map("later", None)).await?;
    says(&world, "later", "fail").await?;
    is_told_of(&world, "later").await?;
    namespace_has_its_own_report(&world).await?;
    a_refusal_is_told_of(&world).await?;

    // It follows its object.
    for (team, result) in [(Some("b"), "pass"), (None, "fail"), (Some("b"), "pass")] {
        label(&world, "bad", team).await?;
        says(&world, "bad", result).await?;
    }
    results_of_a_namespaced_policy_stand_beside_the_rest(&world).await?;
    let later = uid(&world, "later").await?;
    world.delete(&config_map("later", None)).await?;
    is_gone(&world, &later).await?;

    // What happened while nobody looked is found out.
    let mut recipe = world.system.reporter.take().context("no reporter")?;
    let recipe = (recipe.recipe().clone(), recipe.process.kill()?).0;
    let good = uid(&world, "good").await?;
    world.delete(&config_map("good", None)).await?;
    label(&world, "bad", None).await?;
    world.system.reporter = Some(recipe.start()?);
    says(&world, "bad", "fail").await?;
    is_gone(&world, &good).await?;

    world.delete(&policy()).await?;
    wait::until("all reports to be gone", async || {
        let (reports, cluster) = (
            reports(&world).await?,
            world.listed(&cluster_report("")).await?,
        );
        ensure!(
            reports.is_empty() && cluster.is_empty(),
            "{reports:?} {cluster:?}"
        );
        anyhow::Ok(())
    })
    .await?;

    let asked = world.cluster.asked_by_reporter()?;
    let strange: Vec<_> = asked
        .iter()
        .filter(|asked| !OWN.contains(&asked.resource.as_str()))
        .collect();
    ensure!(!asked.is_empty() && strange.is_empty(), "{strange:?}");
    ensure!(
        asked.iter().all(|asked| asked.verb != "watch"),
        "it watches"
    );
    Ok(())
}

fn config_map(name: &str, team: Option<&str>) -> Value {
    let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": NAMESPACE } });
    if let Some(team) = team {
        object["metadata"]["labels"] = json!({ "team": team });
    }
    object
}

fn policy() -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": { "name": "has-team", "annotations": {
            "policies.kyverno.io/category": "Ownership", "policies.kyverno.io/severity": "high" } },
        "spec": { "validationFailureAction": "Audit", "rules": [{
            "name": "team",
            "match": { "any": [{ "resources": { "kinds": ["ConfigMap", "Namespace"],
                "namespaces": [NAMESPACE] } }] },
            "validate": { "message": "say whose it is",
                "pattern": { "metadata": { "labels": { "team": "?*" } } } },
        }] },
    })
}

fn report(name: &str) -> Value {
    json!({ "apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport",
        "metadata": { "name": name, "namespace": NAMESPACE } })
}

fn cluster_report(name: &str) -> Value {
    json!({ "apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "ClusterPolicyReport",
        "metadata": { "name": name } })
}

async fn uid(world: &World, name: &str) -> anyhow::Result<String> {
    let object = world.api(&config_map(name, None)).get(name).await?;
    object.uid().context("no uid")
}

async fn label(world: &World, name: &str, team: Option<&str>) -> anyhow::Result<()> {
    let patch = json!({ "metadata": { "labels": { "team": team } } });
    let api = world.api(&config_map(name, None));
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

async fn reports(world: &World) -> anyhow::Result<Vec<DynamicObject>> {
    let api = world.api(&report(""));
    Ok(api.list(&ListParams::default()).await?.items)
}

/// Waits until the report on this ConfigMap has the result.
async fn says(world: &World, name: &str, result: &str) -> anyhow::Result<()> {
    let uid = uid(world, name).await?;
    wait::until(
        &format!("the report on {name} to say {result}"),
        async || {
            let found = world.api(&report(&uid)).get(&uid).await?;
            let results = &found.data["results"];
            ensure!(
                results[0]["result"] == result
                    && found.data["summary"][result] == 1
                    && results.as_array().is_some_and(|all| all.len() == 1),
                "{results}"
            );
            is_as_kyverno_writes_it(&found, name, &uid)
        },
    )
    .await
}

fn is_as_kyverno_writes_it(found: &DynamicObject, name: &str, uid: &str) -> anyhow::Result<()> {
    let scope = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": NAMESPACE,
        "name": name, "uid": uid });
    ensure!(found.data["scope"] == scope, "{}", found.data["scope"]);
    let owners = found.owner_references();
    ensure!(
        owners.len() == 1 && owners[0].uid == uid && owners[0].kind == "ConfigMap",
        "{owners:?}"
    );
    let managed_by = found.labels().get("app.kubernetes.io/managed-by");
    ensure!(managed_by.is_some_and(|by| by == "kyverno"));
    let result = &found.data["results"][0];
    for (field, expected) in [
        ("policy", json!("has-team")),
        ("rule", json!("team")),
        ("category", json!("Ownership")),
        ("severity", json!("high")),
        ("scored", json!(true)),
        ("source", json!("kyverno")),
    ] {
        ensure!(result[field] == expected, "{field}: {result}");
    }
    Ok(())
}

/// A namespaced policy, which reads a fact: its results stand beside the other's, follow the fact, and go
/// with it.
async fn results_of_a_namespaced_policy_stand_beside_the_rest(world: &World) -> anyhow::Result<()> {
    world.create(&settings("b")).await?;
    let own = json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": { "name": "not-gone", "namespace": NAMESPACE },
        "spec": { "validationFailureAction": "Audit", "rules": [{
            "name": "team",
            "match": { "any": [{ "resources": { "kinds": ["ConfigMap"], "names": ["bad"] } }] },
            "context": [{ "name": "settings",
                "configMap": { "name": "settings", "namespace": NAMESPACE } }],
            "validate": { "message": "that team is gone", "deny": { "conditions": { "all": [{
                "key": "{{ request.object.metadata.labels.team || '' }}", "operator": "Equals",
                "value": "{{ settings.data.gone }}" }] } } },
        }] },
    });
    world.create(&own).await?;
    condition(world, &own, "True", "").await?;
    have(world, "bad", &[("has-team", "pass"), ("not-gone", "fail")]).await?;
    let patch = json!({ "data": { "gone": "c" } });
    let api = world.api(&settings(""));
    api.patch("settings", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    have(world, "bad", &[("has-team", "pass"), ("not-gone", "pass")]).await?;
    world.delete(&own).await?;
    says(world, "bad", "pass").await?;
    world.delete(&settings("")).await
}

fn settings(gone: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "gone": gone },
        "metadata": { "name": "settings", "namespace": NAMESPACE, "labels": { "team": "x" } } })
}

/// Waits until the report on this ConfigMap has exactly these results, counted by its summary.
async fn have(world: &World, name: &str, expected: &[(&str, &str)]) -> anyhow::Result<()> {
    let uid = uid(world, name).await?;
    wait::until(&format!("the report on {name} to be whole"), async || {
        let found = world.api(&report(&uid)).get(&uid).await?;
        let results = found.data["results"].as_array().cloned();
        let mut results: Vec<_> = results
            .iter()
            .flatten()
            .map(|result| {
                let policy = result["policy"].as_str().unwrap_or_default();
                let policy = policy.rsplit('/').next().unwrap_or_default().to_owned();
                (policy, result["result"].clone())
            })
            .collect();
        results.sort_by(|one, other| one.0.cmp(&other.0));
        let expected: Vec<_> = expected
            .iter()
            .map(|(policy, result)| ((*policy).to_owned(), json!(result)))
            .collect();
        ensure!(results == expected, "{results:?}");
        for result in ["pass", "fail"] {
            let count = expected.iter().filter(|(_, found)| found == result).count();
            ensure!(found.data["summary"][result] == count, "{}", found.data);
        }
        anyhow::Ok(())
    })
    .await
}

async fn is_gone(world: &World, uid: &str) -> anyhow::Result<()> {
    wait::until(&format!("the report {uid} to be gone"), async || {
        let found = world.api(&report(uid)).get_opt(uid).await?;
        ensure!(found.is_none(), "it is there");
        anyhow::Ok(())
    })
    .await
}

/// Checks that a cluster-scoped object has a report of another kind.
async fn namespace_has_its_own_report(world: &World) -> anyhow::Result<()> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {} });
    let namespace = world.api(&namespace).get(NAMESPACE).await?;
    let uid = namespace.uid().context("no uid")?;
    wait::until("the report on the namespace", async || {
        let found = world.api(&cluster_report(&uid)).get(&uid).await?;
        ensure!(found.data["summary"]["fail"] == 1, "{}", found.data);
        anyhow::Ok(())
    })
    .await
}

/// A request that is refused leaves no object: the policy has an Event.
async fn a_refusal_is_told_of(world: &World) -> anyhow::Result<()> {
    let mut enforces = policy();
    enforces["metadata"]["name"] = "no-secrets".into();
    enforces["spec"]["validationFailureAction"] = "Enforce".into();
    let matched = &mut enforces["spec"]["rules"][0]["match"];
    matched["any"][0]["resources"]["kinds"] = json!(["ServiceAccount"]);
    world.create(&enforces).await?;
    condition(world, &enforces, "True", "").await?;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "nobodys", "namespace": NAMESPACE } });
    ensure!(world.create(&account).await.is_err(), "it was admitted");
    let event = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {} });
    let api: Api<DynamicObject> = world.api(&event);
    wait::until("an Event of a refusal", async || {
        let all = api.list(&ListParams::default()).await?.items;
        let says = format!("ServiceAccount {NAMESPACE}/nobodys: [team] fail (blocked)");
        let is_told = |event: &DynamicObject| {
            let note = event.data["note"].as_str();
            note.is_some_and(|note| note.starts_with(&says))
        };
        ensure!(all.iter().any(is_told), "none of {}", all.len());
        anyhow::Ok(())
    })
    .await?;
    world.delete(&enforces).await
}

/// There are Events of the violation, on the object and on the policy.
async fn is_told_of(world: &World, name: &str) -> anyhow::Result<()> {
    let event = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {} });
    let api: Api<DynamicObject> = world.api(&event);
    wait::until("Events of a violation", async || {
        let all = api.list(&ListParams::default()).await?.items;
        let of = |kind: &str, about: &str| {
            let mut events = all.iter();
            let event = events.find(|event| {
                event.data["reason"] == "PolicyViolation"
                    && event.data["regarding"]["kind"] == kind
                    && event.data["note"]
                        .as_str()
                        .is_some_and(|note| note.contains(about))
            });
            event.with_context(|| format!("no Event on the {kind}"))
        };
        of("ConfigMap", "policy has-team/team fail:")?;
        of(
            "ClusterPolicy",
            &format!("ConfigMap {NAMESPACE}/{name}: [team] fail"),
        )?;
        anyhow::Ok(())
    })
    .await
}
