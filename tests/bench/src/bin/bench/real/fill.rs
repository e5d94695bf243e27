//! Fills a real API server with Pods, and weighs them.

use anteroom_e2e::cluster::{Cluster, Identity};
use anteroom_wire::body;
use anyhow::Context;
use kube::Client;
use serde_json::{Value, json};

use crate::{fill, ground};

/// The number of objects that are weighed, for the size of all.
const WEIGHED: usize = 500;

/// Creates Pods as the generator makes them, in their namespaces, and says how many bytes they are. The
/// API server takes no status of a Pod that is made, and nobody runs them; but it writes managed fields
/// several times as long as the generator's. So they are as long as listed Pods of a real cluster.
pub(super) async fn pods(cluster: &Cluster, count: usize) -> anyhow::Result<Value> {
    let mut clients = Vec::new();
    for _ in 0..fill::CLIENTS {
        clients.push(cluster.client(Identity::Admin).await?);
    }
    let source = ground::cluster();
    fill::namespaces(&clients, source).await?;
    fill::create(&clients, "api/v1", "pods", source.pods(count)).await?;
    weigh(&clients[0], count).await
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
