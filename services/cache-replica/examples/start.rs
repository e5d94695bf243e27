//! Measures the time and memory of a replica's start. It writes a view of Pods to NATS, or uses the view that is
//! there, and starts the given replica program. When the replica answers and its memory has settled, it prints one
//! line of JSON.
//!
//! ```text
//! nats-server -js -sd /tmp/log &
//! cargo run --release -p anteroom-cache-replica --example start -- --pods 200000 \
//!     --replica target/release/anteroom-cache-replica
//! ```

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for developers, which has nobody to report to but the terminal"
)]

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
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
use bytes::Bytes;
use clap::Parser;
use serde_json::{Value, json};

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    nats: NatsArgs,
    /// Pods to write.
    #[arg(long, default_value_t = 40_000)]
    pods: usize,
    /// The mean size of one as MessagePack; they differ by up to a fifth.
    #[arg(long, default_value_t = 3_700)]
    object_bytes: usize,
    /// Write the Pods in an order that has nothing to do with their names, as after days of updates.
    #[arg(long)]
    shuffled: bool,
    /// The program to start.
    #[arg(long)]
    replica: PathBuf,
    /// The arguments that it is started with beside the bus and its ports, separated by blanks.
    #[arg(long, default_value = "")]
    replica_args: String,
    /// Starts of the replica, one after the other.
    #[arg(long, default_value_t = 3)]
    starts: usize,
    /// The time that the replica is left alone before its memory is measured, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    settle_ms: u64,
}

const PATIENCE: Duration = Duration::from_secs(5);

/// Pods that are made and written at a time.
const BATCH: usize = 5_000;

#[tokio::main]
async fn main() {
    let cli = Cli::parse();
    let bus = NatsBus::connect(cli.nats.config("start")).await.unwrap();
    let bus: Arc<dyn Bus> = Arc::new(bus);
    let mut connection = bus.connection();
    connection
        .wait_for(|now| *now == Connection::Up)
        .await
        .unwrap();
    let mut writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
    let view = writer.open(collection("pods", "Pod"));
    let mut bytes = 0;
    let order: Vec<usize> = match cli.shuffled {
        true => (0..cli.pods).map(|n| n * 7_919 % cli.pods).collect(),
        false => (0..cli.pods).collect(),
    };
    for batch in order.chunks(BATCH) {
        let pods: Vec<_> = batch.iter().map(|n| pod(*n, cli.object_bytes)).collect();
        bytes += pods.iter().map(|(_, body)| body.len()).sum::<usize>();
        writer.put_bodies(&view, pods).await;
    }
    writer.synced(&view).await;
    let measuring = async {
        for _ in 0..cli.starts {
            println!("{}", start(&cli, bus.as_ref(), &view, bytes).await);
        }
    };
    let beating = async {
        loop {
            writer.beat().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        () = measuring => {}
        () = beating => {}
    }
    bus.close().await;
}

/// The process, which ends with the measurement.
struct Replica(Child);

impl Drop for Replica {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Replica {
    /// A field of the kernel's account of its memory, in bytes.
    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1_024
    }

    /// Seconds of CPU so far.
    fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<_> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let ticks: f64 = fields[11..13]
            .iter()
            .map(|t| t.parse::<f64>().unwrap())
            .sum();
        ticks / 100.0
    }
}

async fn start(cli: &Cli, bus: &dyn Bus, view: &ViewId, bytes: usize) -> Value {
    let url = std::env::var("ANTEROOM_NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".into());
    let begun = Instant::now();
    let child = Command::new(&cli.replica)
        .env("ANTEROOM_NATS_URL", url)
        .args(["--admin-address", "127.0.0.1:0"])
        .args(cli.replica_args.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let replica = Replica(child);
    while ask(bus, view).await != Some(cli.pods as u64) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (synced, cpu_s) = (begun.elapsed(), replica.cpu_s());
    tokio::time::sleep(Duration::from_millis(cli.settle_ms)).await;
    let (rss, peak) = (replica.memory("VmRSS"), replica.memory("VmHWM"));
    json!({
        "pods": cli.pods,
        "bytes": bytes,
        "synced_ms": u64::try_from(synced.as_millis()).unwrap(),
        "cpu_to_synced_ms": (cpu_s * 1_000.0).round(),
        "settled": rss,
        "settled_anonymous": replica.memory("RssAnon"),
        "peak": peak,
        "settled_by_bytes": rss as f64 / bytes as f64,
        "peak_by_settled": peak as f64 / rss as f64,
    })
}

/// Returns the number of objects in a replica's answer; `None`: no replica answers.
async fn ask(bus: &dyn Bus, view: &ViewId) -> Option<u64> {
    let request = QueryRequest {
        queries: vec![Query {
            expression: "`1`".to_owned(),
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
    Some(reply.objects)
}

/// Returns a Pod as in a real cluster, without the fields that the watcher removes.
fn pod(n: usize, bytes: usize) -> (ObjectKey, Bytes) {
    let namespace = format!("team-{:03}", n * 200 / 1_000_000 + n % 200);
    let (app, name) = (
        format!("service-{:04}", n / 12),
        format!("service-{:04}-7d9f8b6c4-{:05x}", n / 12, n),
    );
    let wanted = bytes * (80 + (n * 37) % 41) / 100;
    let mut pod = template(n, &namespace, &app, &name);
    let size = body::encode_json(&pod).unwrap().len();
    pod["metadata"]["annotations"]["example.com/notes"] =
        "x".repeat(wanted.saturating_sub(size + 20)).into();
    (
        ObjectKey::new(namespace, name),
        body::encode_json(&pod).unwrap(),
    )
}

fn template(n: usize, namespace: &str, app: &str, name: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let variable = |at: usize| json!({"name": format!("SETTING_{at}"), "value": format!("value-{at}-{}", n % 977)});
    let container = |of: &str| {
        json!({
            "name": of, "image": format!("registry.example.com/{app}/{of}:1.{}.{}", n % 30, n % 7),
            "imagePullPolicy": "IfNotPresent",
            "env": (0..6).map(variable).collect::<Vec<_>>(),
            "ports": [{"containerPort": 8_080, "name": "http", "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10},
            "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access", "readOnly": true}],
        })
    };
    let status = |of: &str| {
        json!({
            "containerID": format!("containerd://{n:064x}"), "image": format!("registry.example.com/{app}/{of}"),
            "imageID": format!("registry.example.com/{app}/{of}@sha256:{n:064x}"), "name": of, "ready": true,
            "restartCount": n % 3, "started": true, "state": {"running": {"startedAt": time}},
        })
    };
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"lastProbeTime": null, "lastTransitionTime": time, "status": "True", "type": kind}));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{n:08x}-0000-4000-8000-{n:012x}"),
            "resourceVersion": n.to_string(), "creationTimestamp": time,
            "labels": {"app.kubernetes.io/name": app, "pod-template-hash": "7d9f8b6c4", "team": namespace},
            "annotations": {"checksum/config": format!("{n:064x}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "blockOwnerDeletion": true, "controller": true,
                "kind": "ReplicaSet", "name": format!("{app}-7d9f8b6c4"), "uid": format!("{n:032x}")}],
        },
        "spec": {
            "containers": [container("app"), container("proxy")],
            "dnsPolicy": "ClusterFirst", "nodeName": format!("node-{:04}", n % 1_500), "restartPolicy": "Always",
            "securityContext": {}, "serviceAccountName": app, "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420}}],
        },
        "status": {
            "conditions": conditions,
            "containerStatuses": [status("app"), status("proxy")],
            "hostIP": "10.0.0.1", "phase": "Running", "podIP": "10.1.0.1", "qosClass": "Burstable", "startTime": time,
        },
    })
}
