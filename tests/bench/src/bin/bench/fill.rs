//! Fills a real API server with the objects that the simulated one serves, over many connections at once.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use anteroom_simapi::generate;
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};

use crate::say;

/// Clients, each with connections of its own, and requests under way over all of them.
pub(crate) const CLIENTS: usize = 8;
const IN_FLIGHT: usize = 64;

/// After how many objects progress is told.
const TOLD_EVERY: usize = 5_000;

/// Creates the namespaces of a cluster; one that is there is left as it is.
pub(crate) async fn namespaces(
    clients: &[Client],
    source: generate::Cluster,
) -> anyhow::Result<()> {
    let client = clients.first().context("no client")?;
    for namespace in source.namespaces() {
        let name = &namespace["metadata"]["name"];
        let made = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        post(client, "/api/v1/namespaces", &made).await?;
    }
    Ok(())
}

/// Creates objects in their namespaces, as in `create(.., "api/v1", "pods", ..)`; one that is there is
/// left as it is.
pub(crate) async fn create(
    clients: &[Client],
    group: &str,
    plural: &str,
    objects: impl Iterator<Item = Value>,
) -> anyhow::Result<()> {
    ensure!(!clients.is_empty(), "no client");
    let (begun, done) = (Instant::now(), AtomicUsize::new(0));
    let created = stream::iter(objects.enumerate()).map(|(index, object)| {
        let (client, done) = (&clients[index % clients.len()], &done);
        async move {
            let namespace = object["metadata"]["namespace"].as_str();
            let namespace = namespace.context("an object without a namespace")?;
            let path = format!("/{group}/namespaces/{namespace}/{plural}");
            post(client, &path, &as_made(object.clone())).await?;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done % TOLD_EVERY == 0 {
                let seconds = begun.elapsed().as_secs_f64();
                say(&format!("{done} {plural} after {seconds:.0} s"));
            }
            anyhow::Ok(())
        }
    });
    created
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<()>()
        .await
}

/// Builds the object that is posted: without what only an API server, a controller and a kubelet write. Of an
/// environment each variable is told twice, in the managed fields too; without it a Pod is as long as it
/// should be. A Service gets an address of the API server's own choice.
fn as_made(mut object: Value) -> Value {
    let taken: [(&str, &[&str]); 4] = [
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
        ("/spec", &["clusterIP", "clusterIPs"]),
        ("/spec/containers/0", &["env"]),
    ];
    for (at, names) in taken {
        let fields = object.pointer_mut(at).and_then(Value::as_object_mut);
        if let Some(fields) = fields {
            fields.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
    object
}

async fn post(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())?;
    match client.request_text(request).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        answered => answered
            .map(drop)
            .with_context(|| format!("creating at {path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_only_an_api_server_writes_are_not_posted() {
        let source = generate::Cluster {
            seed: 1,
            namespaces: 3,
        };
        let made: Vec<Value> = [source.services(1).next(), source.ingresses(1, 1).next()]
            .into_iter()
            .flatten()
            .map(as_made)
            .collect();
        assert_eq!(made.len(), 2);
        for object in &made {
            assert!(object["status"].is_null() && object["metadata"]["managedFields"].is_null());
            assert!(object["metadata"]["name"].is_string());
        }
        assert!(made[0]["spec"]["clusterIP"].is_null() && made[0]["spec"]["ports"].is_array());
        assert_eq!(
            made[1]["spec"]["rules"][0]["host"],
            generate::ingress_host(0, 0)
        );
    }
}
