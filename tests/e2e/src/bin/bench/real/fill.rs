//! Fills a real API server with Pods, over many connections at once.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use anteroom_e2e::cluster::{Cluster, Identity};
use anteroom_wire::body;
use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};

use crate::{ground, say};

/// Clients, each with connections of its own, and requests under way over all of them.
const CLIENTS: usize = 8;
const IN_FLIGHT: usize = 64;

/// After how many Pods progress is told.
const TOLD_EVERY: usize = 5_000;

/// How many of them are weighed, for the size of all.
const WEIGHED: usize = 500;

/// Creates Pods as the generator makes them, in their namespaces, and says how many bytes they are. The
/// API server takes no status of a Pod that is made, and nobody runs them; but it writes managed fields
/// several times as long as the generator's. So they are as long as listed Pods of a real cluster.
pub(super) async fn pods(cluster: &Cluster, count: usize) -> anyhow::Result<Value> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(cluster.client(Identity::Admin).await?);
    }
    let source = ground::cluster();
    for namespace in source.namespaces() {
        let name = &namespace["metadata"]["name"];
        let made = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        post(&clients[0], "/api/v1/namespaces", &made).await?;
    }
    let (begun, done) = (Instant::now(), AtomicUsize::new(0));
    let pods = source.pods(count).enumerate();
    let created = stream::iter(pods).map(|(index, pod)| {
        let (client, done) = (&clients[index % CLIENTS], &done);
        async move {
            let namespace = pod["metadata"]["namespace"].as_str();
            let namespace = namespace.context("a Pod without a namespace")?;
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            post(client, &path, &as_made(pod.clone())).await?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done % TOLD_EVERY == 0 {
                let seconds = begun.elapsed().as_secs_f64();
                say(&format!("{done} of {count} Pods after {seconds:.0} s"));
            }
            anyhow::Ok(())
        }
    });
    created
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    weigh(&clients[0], count).await
}

/// What is posted to make it: without what only an API server and a kubelet write. Of an environment each
/// variable is told twice, in the managed fields too; without it a Pod is as long as it should be.
fn as_made(mut pod: Value) -> Value {
    let taken: [(&str, &[&str]); 3] = [
        ("", &["status"]),
        (
            "/metadata",
            &[
                "managedFields",
                "creationTimestamp",
                "uid",
                "resourceVersion",
            ],
        ),
        ("/spec/containers/0", &["env"]),
    ];
    for (at, names) in taken {
        let fields = pod.pointer_mut(at).and_then(Value::as_object_mut);
        if let Some(fields) = fields {
            fields.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
    pod
}

async fn post(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())?;
    let answered = client.request_text(request).await;
    answered.with_context(|| format!("creating at {path}"))?;
    Ok(())
}

/// Bytes of all, by those of the first: as the API server lists them, and as MessagePack without
/// managed fields.
async fn weigh(client: &Client, count: usize) -> anyhow::Result<Value> {
    let path = format!("/api/v1/pods?limit={WEIGHED}");
    let text = client
        .request_text(http::Request::get(path).body(Vec::new())?)
        .await?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("a list without items")?;
    let (mut json_bytes, mut packed_bytes) = (0, 0);
    for item in items {
        let mut object = item.clone();
        object["apiVersion"] = "v1".into();
        object["kind"] = "Pod".into();
        json_bytes += object.to_string().len();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        packed_bytes += body::encode_json(&object)?.len();
    }
    let all = |bytes: usize| bytes as f64 / items.len().max(1) as f64 * count as f64;
    Ok(
        json!({ "count": count, "json_bytes": all(json_bytes).round(),
        "packed_bytes": all(packed_bytes).round() }),
    )
}
