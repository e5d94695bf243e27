//! Subresources, each judged by the object that it belongs to: `scale`, `exec`, `eviction`.

use anteroom_e2e::world::World;
use anyhow::Context;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    HOME,
    Verdict::{Admitted, Refused},
    alike::install,
    comes_to, created, said,
};

pub(crate) async fn every_one(world: &World) -> anyhow::Result<()> {
    scaling(world).await?;
    entering(world).await?;
    evicting(world).await
}

const SCALE: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: restrict-scale}
spec:
  validationFailureAction: Enforce
  rules:
  - name: by-parent
    match: {any: [{resources: {kinds: [Deployment/scale]}}]}
    context:
    - name: most
      apiCall:
        urlPath: "/apis/apps/v1/namespaces/{{ request.namespace }}/deployments/{{ request.name }}"
        jmesPath: "metadata.annotations.most || '100'"
    validate:
      message: "{{ request.name }} has {{ most }} at most"
      deny: {conditions: {any: [{key: "{{ request.object.spec.replicas }}", operator: GreaterThan, value: "{{ to_number(most) }}"}]}}
"#;

/// A subresource is judged by the object that it belongs to.
async fn scaling(world: &World) -> anyhow::Result<()> {
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": HOME, "name": "scaled", "annotations": { "most": "4" } },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "s" } }, "template": {
            "metadata": { "labels": { "app": "s" } },
            "spec": { "containers": [{ "name": "c", "image": "nginx" }] } } } });
    created(world, &deployment).await?;
    let policy = install(world, SCALE).await?;
    for (replicas, verdict) in [(5, Refused("scaled has 4 at most")), (4, Admitted)] {
        let what = format!("{replicas} replicas");
        comes_to(&what, &verdict, async || {
            let patch = json!({ "spec": { "replicas": replicas } });
            let patch = Patch::Merge(&patch);
            let (api, params) = (world.api(&deployment), PatchParams::default());
            let scaled = api.patch_scale("scaled", &params, &patch);
            said(scaled.await.map(drop))
        })
        .await?;
    }
    world.delete(&policy).await?;
    world.delete(&deployment).await
}

fn pod(name: &str, important: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": HOME, "name": name, "labels": { "important": important } },
        "spec": { "containers": [{ "name": "c", "image": "nginx" }] } })
}

/// Posts to a subresource of a Pod: what the API server says against it.
async fn post(world: &World, path: &str, body: &Value) -> anyhow::Result<Option<String>> {
    let path = format!("/api/v1/namespaces/{HOME}/pods/{path}");
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(body.to_string().into_bytes())?;
    said(world.client.request_text(request).await.map(drop))
}

const EXEC: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: block-exec}
spec:
  validationFailureAction: Enforce
  background: false
  rules:
  - name: by-label
    match: {any: [{resources: {kinds: [Pod/exec]}}]}
    context:
    - name: important
      apiCall:
        urlPath: "/api/v1/namespaces/{{ request.namespace }}/pods/{{ request.name }}"
        jmesPath: "metadata.labels.important || ''"
    preconditions: {all: [{key: "{{ request.operation || 'BACKGROUND' }}", operator: Equals, value: CONNECT}]}
    validate:
      message: "nobody enters {{ request.name }}"
      deny: {conditions: {any: [{key: "{{ important }}", operator: Equals, value: "yes"}]}}
"#;

/// One that is admitted fails later, since the Pod runs nowhere.
async fn entering(world: &World) -> anyhow::Result<()> {
    for (name, important) in [("kept", "yes"), ("open", "no")] {
        created(world, &pod(name, important)).await?;
    }
    let policy = install(world, EXEC).await?;
    for (name, says) in [
        ("kept", "nobody enters kept"),
        ("open", "does not have a host assigned"),
    ] {
        let path = format!("{name}/exec?command=ls&stdout=true");
        let refused = Refused(says);
        comes_to(name, &refused, async || {
            post(world, &path, &Value::Null).await
        })
        .await?;
    }
    world.delete(&policy).await
}

const EVICTION: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: block-eviction}
spec:
  validationFailureAction: Enforce
  background: false
  rules:
  - name: by-label
    match: {any: [{resources: {kinds: [Pod/eviction]}}]}
    context:
    - name: important
      apiCall:
        urlPath: "/api/v1/namespaces/{{ request.namespace }}/pods/{{ request.name }}"
        jmesPath: "metadata.labels.important"
    validate:
      message: "{{ request.name }} stays"
      deny: {conditions: {any: [{key: "{{ important }}", operator: Equals, value: "yes"}]}}
"#;

async fn evicting(world: &World) -> anyhow::Result<()> {
    let policy = install(world, EVICTION).await?;
    for (name, verdict) in [("kept", Refused("kept stays")), ("open", Admitted)] {
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "namespace": HOME, "name": name },
            "deleteOptions": { "dryRun": ["All"] } });
        let path = format!("{name}/eviction");
        comes_to(name, &verdict, async || post(world, &path, &eviction).await).await?;
    }
    world.delete(&policy).await?;
    for name in ["kept", "open"] {
        let object = pod(name, "");
        world.delete(&object).await.context(name)?;
    }
    Ok(())
}
