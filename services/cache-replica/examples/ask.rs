//! Measures a replica that runs elsewhere: writes views of a realistic size to NATS, beats, and asks
//! one query after the other. Prints one line for each expression: median, 99th percentile and the
//! largest, in microseconds.
//!
//! ```text
//! cargo run --release -p anteroom-cache-replica &
//! cargo run --release -p anteroom-cache-replica --example ask -- --ingresses 3000 --services 4000
//! ```

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for developers, which has nobody to report to but the terminal"
)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_bus::{
    Address, Bus, Call, Connection,
    nats::{NatsArgs, NatsBus},
};
use anteroom_mirror::testing::{ViewWriter, collection};
use anteroom_model::{ObjectKey, ViewId};
use anteroom_wire::{
    body,
    query::{self, Query, QueryRequest},
};
use clap::Parser;
use serde_json::{Value, json};

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    nats: NatsArgs,
    /// Ingresses to write.
    #[arg(long, default_value_t = 3_000)]
    ingresses: usize,
    /// Services to write.
    #[arg(long, default_value_t = 4_000)]
    services: usize,
    /// The size of one object as MessagePack, about.
    #[arg(long, default_value_t = 2_048)]
    object_bytes: usize,
    /// Queries of each expression.
    #[arg(long, default_value_t = 500)]
    queries: usize,
}

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    let cli = Cli::parse();
    let bus = NatsBus::connect(cli.nats.config("measure")).await.unwrap();
    let bus: Arc<dyn Bus> = Arc::new(bus);
    let mut connection = bus.connection();
    connection
        .wait_for(|now| *now == Connection::Up)
        .await
        .unwrap();
    let mut writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
    let ingresses = writer.open(collection("ingresses", "Ingress"));
    let services = writer.open(collection("services", "Service"));
    for (view, objects) in [(&ingresses, cli.ingresses), (&services, cli.services)] {
        let objects = (0..objects).map(|n| object(n, cli.object_bytes));
        writer.put_all(view, objects.collect()).await;
        writer.synced(view).await;
    }
    let asking = ask_all(bus.as_ref(), &ingresses, cli.queries);
    let beating = async {
        loop {
            writer.beat().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = asking => {}
        () = beating => {}
    }
    bus.close().await;
}

async fn ask_all(bus: &dyn Bus, view: &ViewId, queries: usize) {
    let count = "length(items[?spec.rules[?host == $host]])";
    let none = |n: usize| json!({"host": format!("free-{n}.example.com")});
    while ask(bus, view, "length(items)", json!({})).await.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    measure(bus, view, "length(items)", queries, |n| json!({"n": n})).await;
    measure(bus, view, count, queries, none).await;
    measure(
        bus,
        view,
        "items[].spec.rules[].host",
        queries,
        |n| json!({"n": n}),
    )
    .await;
    measure(bus, view, count, queries, |_| json!({"host": "same"})).await;
}

async fn measure(
    bus: &dyn Bus,
    view: &ViewId,
    expression: &str,
    queries: usize,
    parameters: impl Fn(usize) -> Value,
) {
    let mut micros = Vec::with_capacity(queries);
    let mut bytes = 0;
    for n in 0..queries {
        let begun = Instant::now();
        bytes = ask(bus, view, expression, parameters(n)).await.unwrap_or(0);
        micros.push(begun.elapsed().as_micros());
    }
    micros.sort_unstable();
    let at = |share: f64| micros[((queries - 1) as f64 * share) as usize];
    let (p50, p99, max) = (at(0.5), at(0.99), at(1.0));
    println!("{expression}: p50 {p50} us, p99 {p99} us, max {max} us, {bytes} bytes of result");
}

/// Returns the size of the result; `None`: there was no answer.
async fn ask(bus: &dyn Bus, view: &ViewId, expression: &str, parameters: Value) -> Option<usize> {
    let request = QueryRequest {
        queries: vec![Query {
            expression: expression.to_owned(),
            parameters: serde_json::from_value(parameters).unwrap(),
            ..Query::default()
        }],
        ..QueryRequest::default()
    };
    let call = Call {
        body: query::encode_request(&request).unwrap(),
        deadline: PATIENCE,
        trace: None,
    };
    let to = Address::View(view.clone());
    let reply = bus.request(&to, call, PATIENCE).await.ok()?;
    let reply = query::decode_outcome(&reply).unwrap().ok()?;
    Some(reply.results[0].as_ref().unwrap().len())
}

/// Returns an Ingress as in a real cluster: metadata, annotations, one rule, and a status.
fn object(n: usize, bytes: usize) -> (ObjectKey, Value) {
    let (namespace, name) = (format!("team-{:03}", n % 200), format!("app-{n:05}"));
    let object = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{n:032x}"), "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": n.to_string(),
            "labels": {"app.kubernetes.io/name": name, "team": namespace},
            "annotations": {"cert-manager.io/cluster-issuer": "letsencrypt"},
        },
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{"host": format!("host-{n}.example.com"), "http": {"paths": [{
                "path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": name, "port": {"number": 80}}},
            }]}}],
            "tls": [{"hosts": [format!("host-{n}.example.com")], "secretName": name}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}},
    });
    let size = body::encode_json(&object).unwrap().len();
    let mut object = object;
    object["metadata"]["annotations"]["padding"] = "x".repeat(bytes.saturating_sub(size)).into();
    (ObjectKey::new(namespace, name), object)
}
