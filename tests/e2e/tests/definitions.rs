//! What a real API server says to manifests of entries and policies, by the definitions in
//! `deploy/crds` alone: in the words that Kyverno's clients and tests match on.

use anteroom_e2e::{
    cluster::{Cluster, Identity},
    manifests::apply_crds,
};
use anyhow::{Context as _, ensure};
use kube::Client;
use serde_json::{Value, json};

async fn create(client: &Client, version: &str, kind: &str, spec: &Value) -> Result<Value, String> {
    let plural = match kind {
        "GlobalContextEntry" => "globalcontextentries",
        "CachedContextEntry" => "cachedcontextentries",
        _ => "clusterpolicies",
    };
    let manifest = json!({
        "apiVersion": format!("kyverno.io/{version}"), "kind": kind,
        "metadata": {"generateName": "e-"}, "spec": spec,
    });
    let request = http::Request::post(format!("/apis/kyverno.io/{version}/{plural}"))
        .header("content-type", "application/json")
        .body(manifest.to_string().into_bytes());
    let created = client.request::<Value>(request.map_err(|error| error.to_string())?);
    created.await.map_err(|error| error.to_string())
}

fn resource() -> Value {
    json!({"group": "apps", "version": "v1", "resource": "deployments", "namespace": "a"})
}

/// Point B, and section 3.1's validate-crd, validate-apicall-data: manifests of Kyverno's own are
/// accepted in every version and as they are, or refused in its words.
async fn global_entries(client: &Client) -> anyhow::Result<()> {
    let path = json!({"urlPath": "/apis/apps/v1/deployments", "refreshInterval": "1h"});
    for version in ["v2alpha1", "v2beta1", "v2"] {
        for spec in [
            json!({"kubernetesResource": resource()}),
            json!({"kubernetesResource": {"version": "v1", "resource": "pods"}}),
            json!({"apiCall": path, "projections": [{"name": "p", "jmesPath": "items[0]"}]}),
            json!({"apiCall": {"service": {"url": "https://x", "caBundle": "pem"}}}),
        ] {
            let created = create(client, version, "GlobalContextEntry", &spec).await;
            created.map_err(|error| anyhow::anyhow!("{spec}: {error}"))?;
        }
    }
    let bare = json!({"apiCall": {"urlPath": "/version"}});
    let with_defaults = create(client, "v2", "GlobalContextEntry", &bare);
    let with_defaults = with_defaults.await.map_err(anyhow::Error::msg)?;
    let expected = json!({
        "urlPath": "/version", "method": "GET", "refreshInterval": "10m", "retryLimit": 3,
    });
    ensure!(
        with_defaults["spec"]["apiCall"] == expected,
        "{with_defaults}"
    );
    let data = json!([{"key": "a", "value": 1}]);
    for (spec, says) in [
        (
            json!({"kubernetesResource": resource(), "apiCall": path}),
            "must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ),
        (
            json!({}),
            "must validate one and only one schema (oneOf). Found none valid, \
             spec.kubernetesResource: Required value",
        ),
        (
            json!({"apiCall": {"urlPath": "/x", "method": "GET", "data": data}}),
            "An External API call with data should have method as POST",
        ),
        (
            json!({"apiCall": {"urlPath": "/x", "service": {"url": "http://x"}}}),
            "An External API call should either have Service or URLPath",
        ),
        (
            json!({"apiCall": {}}),
            "An External API call should either have Service or URLPath",
        ),
        (
            json!({"apiCall": {"urlPath": "/x", "refreshInterval": "0s"}}),
            "requires a refresh interval greater than 0 seconds",
        ),
        (
            json!({"apiCall": {"urlPath": "/x", "retryLimit": 0}}),
            "should be greater than or equal to 1",
        ),
        (
            json!({"kubernetesResource": {"version": "v2", "resource": "things"}}),
            "A Resource entry requires a group",
        ),
        (
            json!({"kubernetesResource": {"version": "v1"}}),
            "spec.kubernetesResource.resource: Required value",
        ),
        (
            json!({"apiCall": path, "projections": [{"name": "p"}]}),
            "spec.projections[0].jmesPath: Required value",
        ),
    ] {
        refused(client, ("v2alpha1", "GlobalContextEntry"), &spec, says).await?;
    }
    let named = json!({
        "apiVersion": "kyverno.io/v2", "kind": "GlobalContextEntry", "metadata": {"name": "same"},
        "spec": {"apiCall": path, "projections": [{"name": "same", "jmesPath": "@"}]},
    });
    let request = http::Request::post("/apis/kyverno.io/v2/globalcontextentries")
        .header("content-type", "application/json")
        .body(named.to_string().into_bytes())?;
    let error = client
        .request::<Value>(request)
        .await
        .err()
        .context("it was accepted")?;
    let says = "a name different from the global context entry name";
    ensure!(error.to_string().contains(says), "{error}");
    Ok(())
}

/// Points A, E, F and G: the fields of our own.
async fn cached_entries(client: &Client) -> anyhow::Result<()> {
    for spec in [
        json!({"resource": {"kind": "pods", "namespaces": ["a", "b"]}, "onForbidden": "Stop"}),
        json!({"resource": {"kind": "pods", "namespace": "a", "name": "x"}, "pinned": true}),
        json!({"resource": {"kind": "pods"}, "maxBytes": "64Mi"}),
        json!({"resource": {"kind": "pods"}, "maxBytes": 65536}),
        json!({
            "apiCall": {"url": "https://x/y", "caBundle": "pem", "refreshIntervalSeconds": 5},
            "onFailure": "ServeStale", "maxStalenessSeconds": 60,
        }),
        json!({"apiCall": {"urlPath": "/version", "refreshInterval": "1m", "retryLimit": 1}}),
    ] {
        let created = create(client, "v2alpha1", "CachedContextEntry", &spec).await;
        created.map_err(|error| anyhow::anyhow!("{spec}: {error}"))?;
    }
    for (spec, says) in [
        (json!({}), "exactly one of `resource` and `apiCall`"),
        (
            json!({"apiCall": {"urlPath": "/x", "url": "http://x"}}),
            "exactly one of `url`",
        ),
        (
            json!({"apiCall": {"urlPath": "/x", "caBundle": "x"}}),
            "`caBundle` goes with `url`",
        ),
        (
            json!({"apiCall": {"urlPath": "/x"}, "maxStalenessSeconds": 5}),
            "ServeStale",
        ),
        (
            json!({"apiCall": {"urlPath": "/x"}, "onFailure": "Never"}),
            "Unsupported value",
        ),
        (
            json!({"resource": {"kind": "pods"}, "maxBytes": "many"}),
            "spec.maxBytes",
        ),
        (
            json!({"resource": {"kind": "pods", "name": "x", "namespaces": ["a"]}}),
            "`name` names one object",
        ),
        (
            json!({"resource": {"kind": "pods", "namespace": "a", "namespaces": ["a"]}}),
            "only one of `namespace` and `namespaces`",
        ),
    ] {
        refused(client, ("v2alpha1", "CachedContextEntry"), &spec, says).await?;
    }
    Ok(())
}

/// Section 3.1's validate-reference, and the same for every other source of facts.
async fn policies(client: &Client) -> anyhow::Result<()> {
    let with = |context: Value| json!({"rules": [{"name": "r", "context": [context]}]});
    let kept = with(json!({"name": "v", "variable": {"value": {"a": [1]}, "default": 5}}));
    let created = create(client, "v1", "ClusterPolicy", &kept).await;
    let created = created.map_err(anyhow::Error::msg)?;
    ensure!(created["spec"] == kept, "nothing is taken away: {created}");
    let at = "spec.rules[0].context[0]";
    for (context, says) in [
        (
            json!({"name": "v", "globalReference": {"jmesPath": "a"}}),
            format!("{at}.globalReference.name: Required value"),
        ),
        (
            json!({"name": "v", "cachedContextEntry": {}}),
            format!("{at}.cachedContextEntry.name: Required value"),
        ),
        (
            json!({"name": "v", "configMap": {}}),
            format!("{at}.configMap.name: Required value"),
        ),
        (
            json!({"name": "v", "apiCall": {"service": {}}}),
            format!("{at}.apiCall.service.url: Required value"),
        ),
        (
            json!({"variable": {}}),
            format!("{at}.name: Required value"),
        ),
    ] {
        refused(client, ("v1", "ClusterPolicy"), &with(context), &says).await?;
    }
    Ok(())
}

async fn refused(
    client: &Client,
    (version, kind): (&str, &str),
    spec: &Value,
    says: &str,
) -> anyhow::Result<()> {
    let created = create(client, version, kind, spec).await;
    let error = created
        .err()
        .with_context(|| format!("it was accepted: {spec}"))?;
    ensure!(error.contains(says), "{spec}: {error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_what_means_nothing_in_words_that_are_known() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let cluster = Cluster::start(folder.path()).await?;
    let client = cluster.client(Identity::Admin).await?;
    apply_crds(&client).await?;
    global_entries(&client).await?;
    cached_entries(&client).await?;
    policies(&client).await
}
