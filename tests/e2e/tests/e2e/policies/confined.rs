//! A namespaced `Policy` reads its own namespace alone, by every road.

use anteroom_e2e::{check::condition, wait, world::World};
use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    HOME, OTHER,
    Verdict::{Admitted, Refused},
    comes_to, tried,
};

pub(crate) async fn every_road(world: &World) -> anyhow::Result<()> {
    for (namespace, colour) in [(HOME, "own"), (OTHER, "other")] {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": namespace, "name": "colour" }, "data": { "is": colour } });
        world.create(&object).await?;
    }
    literal_reads_outside_the_namespace_are_refused_with_the_policy(world).await?;
    variable_reads_outside_the_namespace_are_refused_at_evaluation(world).await?;
    a_policy_reads_its_own_namespace(world).await
}

fn policy(name: &str, context: &Value) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": { "namespace": HOME, "name": name },
        "spec": { "failurePolicy": "Fail", "rules": [{
            "name": "guard", "context": [context],
            "match": { "any": [{ "resources": { "kinds": ["ConfigMap"], "operations": ["CREATE"],
                "selector": { "matchLabels": { "guard": name } } } }] },
            "validate": { "failureAction": "Enforce", "message": "found {{ to_string(found) }}",
                "deny": { "conditions": { "any": [{ "key": "{{ to_string(found) }}", "operator": "NotEquals", "value": "nothing" }] } } },
        }] },
    })
}

fn object(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": { "namespace": HOME, "name": format!("guarded-{name}"),
            "labels": { "guard": name } } })
}

/// At the admission of the policy.
async fn literal_reads_outside_the_namespace_are_refused_with_the_policy(
    world: &World,
) -> anyhow::Result<()> {
    let whole = json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": "cases-whole" },
        "spec": { "resource": { "version": "v1", "kind": "configmaps" } } });
    let global = json!({ "apiVersion": "kyverno.io/v2", "kind": "GlobalContextEntry",
        "metadata": { "name": "cases-global" },
        "spec": { "kubernetesResource": { "version": "v1", "resource": "configmaps" } } });
    for entry in [&whole, &global] {
        world.create(entry).await?;
        condition(world, entry, "True", "").await?;
    }
    for (name, source) in [
        (
            "out-map",
            json!({ "configMap": { "name": "colour", "namespace": OTHER } }),
        ),
        (
            "out-path",
            json!({ "apiCall": { "urlPath": format!("/api/v1/namespaces/{OTHER}/configmaps") } }),
        ),
        (
            "out-all",
            json!({ "apiCall": { "urlPath": "/api/v1/configmaps" } }),
        ),
        (
            "out-version",
            json!({ "apiCall": { "urlPath": "/version" } }),
        ),
        (
            "out-service",
            json!({ "apiCall": { "service": { "url": "http://127.0.0.1:1/" } } }),
        ),
        (
            "out-inline",
            json!({ "resourceCache": { "version": "v1", "kind": "configmaps", "namespace": OTHER } }),
        ),
        (
            "out-entry",
            json!({ "cachedContextEntry": { "name": "cases-whole" } }),
        ),
        (
            "out-global",
            json!({ "globalReference": { "name": "cases-global" } }),
        ),
    ] {
        let mut context = source;
        context["name"] = "found".into();
        let policy = policy(name, &context);
        wait::until(&format!("{name} to be refused"), async || {
            match world.create(&policy).await {
                Err(kube::Error::Api(status)) => {
                    ensure!(status.message.contains("AR304"), "{}", status.message);
                    Ok(())
                }
                Err(other) => Err(other.into()),
                Ok(()) => {
                    world.delete(&policy).await?;
                    anyhow::bail!("it is accepted")
                }
            }
        })
        .await?;
    }
    for entry in [&whole, &global] {
        world.delete(entry).await?;
    }
    Ok(())
}

/// At evaluation.
async fn variable_reads_outside_the_namespace_are_refused_at_evaluation(
    world: &World,
) -> anyhow::Result<()> {
    let of = "{{ request.object.data.of }}";
    let data = |namespace: &str| json!({ "of": namespace });
    for (name, source) in [
        (
            "var-map",
            json!({ "configMap": { "name": "colour", "namespace": of } }),
        ),
        (
            "var-path",
            json!({ "apiCall": {
            "urlPath": format!("/api/v1/namespaces/{of}/configmaps/colour") } }),
        ),
        (
            "var-list",
            json!({ "apiCall": {
            "urlPath": format!("/api/v1/namespaces/{of}/configmaps?fieldSelector=metadata.name=colour") } }),
        ),
        (
            "var-live",
            json!({ "apiCall": { "cache": false,
            "urlPath": format!("/api/v1/namespaces/{of}/configmaps/colour") } }),
        ),
    ] {
        let mut context = source;
        context["name"] = "found".into();
        let policy = policy(name, &context);
        world.create(&policy).await?;
        condition(world, &policy, "True", "").await?;
        let (own, other) = (object(name, &data(HOME)), object(name, &data(OTHER)));
        let reads = Refused("\"is\":\"own\"");
        comes_to(name, &reads, async || tried(world, &own).await).await?;
        let refused = Refused("AR304");
        comes_to(name, &refused, async || tried(world, &other).await).await?;
        world.delete(&policy).await?;
    }
    Ok(())
}

/// And an entry that is confined to its namespace.
async fn a_policy_reads_its_own_namespace(world: &World) -> anyhow::Result<()> {
    let entry = json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
        "metadata": { "name": "cases-confined" },
        "spec": { "resource": { "version": "v1", "kind": "configmaps", "namespace": HOME } } });
    world.create(&entry).await?;
    let context = json!({ "name": "found", "cachedContextEntry": { "name": "cases-confined",
        "jmesPath": "items[?metadata.name=='colour'].data.is" } });
    let policy = policy("confined", &context);
    // Elsewhere it says nothing.
    world.create(&policy).await?;
    condition(world, &policy, "True", "").await?;
    let own = object("confined", &json!({}));
    comes_to("confined", &Refused("found [\"own\"]"), async || {
        tried(world, &own).await
    })
    .await?;
    let mut elsewhere = own.clone();
    elsewhere["metadata"]["namespace"] = OTHER.into();
    comes_to("elsewhere", &Admitted, async || {
        tried(world, &elsewhere).await
    })
    .await?;
    world.delete(&policy).await?;
    world.delete(&entry).await
}
