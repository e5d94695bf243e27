//! Measures the cost of changes for a replica that runs elsewhere. It writes a view of Ingresses to NATS, and has the
//! replica build an index for each of some expressions. Then it changes objects one by one at a given rate, and
//! prints one line of JSON: CPU and wake-ups of the replica for each change.
//!
//! ```text
//! nats-server -js -sd /tmp/log &
//! target/release/anteroom-cache-replica & replica=$!
//! cargo run --release -p anteroom-cache-replica --example changes -- --pid $replica --expressions 10
//! ```
//!
//! Run the replica under `valgrind --tool=callgrind` or `strace -c -f` to see where the time goes.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for developers, which has nobody to report to but the terminal"
)]

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_bus::{
    Address, Bus, Call, Connection,
    nats::{NatsArgs, NatsBus},
};
use anteroom_mirror::testing::{ViewWriter, collection};
use anteroom_model::ViewId;
use anteroom_simapi::generate::Cluster;
use anteroom_wire::query::{self, QueryRequest};
use clap::Parser;
use serde_json::{Value, json};

/// Expressions over all Ingresses, each of which selects few of them by another field.
const EXPRESSIONS: [&str; 10] = [
    "items[?metadata.name == $p].metadata.namespace",
    "items[?metadata.uid == $p].metadata.name",
    "items[?spec.rules[0].host == $p].metadata.name",
    "items[?contains(spec.rules[].host, $p)].metadata.name",
    "items[?contains(spec.tls[].hosts[], $p)].metadata.name",
    "items[?spec.tls[0].secretName == $p].metadata.name",
    "items[?metadata.labels.\"app.kubernetes.io/instance\" == $p].metadata.name",
    "items[?metadata.annotations.\"example.com/revision\" == $p].metadata.name",
    "items[?metadata.annotations.\"example.com/runbook\" == $p].metadata.name",
    "items[?spec.rules[0].http.paths[0].backend.service.name == $p].metadata.name",
];

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    nats: NatsArgs,
    /// The replica's process, whose CPU is looked at.
    #[arg(long)]
    pid: Option<u32>,
    /// Ingresses to write first.
    #[arg(long, default_value_t = 3_000)]
    ingresses: usize,
    /// The number of expressions that are asked, ten times a second each.
    #[arg(long, default_value_t = 0)]
    expressions: usize,
    /// The number of changes.
    #[arg(long, default_value_t = 1_000)]
    changes: usize,
    /// The number of changes a second.
    #[arg(long, default_value_t = 500)]
    per_second: u32,
}

const PATIENCE: Duration = Duration::from_secs(60);

const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Ingresses that change, in turn.
const CHANGING: usize = 500;

/// The kernel's account of a process: CPU in nanoseconds, and the wake-ups of its threads.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    cpu_ns: u64,
    wakes: u64,
}

impl Took {
    fn by(pid: Option<u32>) -> Self {
        let mut took = Self::default();
        let tasks = pid.and_then(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
        for task in tasks.into_iter().flatten().flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let word = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
            took.cpu_ns += word(&read("schedstat")).unwrap_or(0);
            let status = read("status");
            let mut switches = status
                .lines()
                .filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            took.wakes += switches.next().and_then(word).unwrap_or(0);
        }
        took
    }
}

#[tokio::main]
async fn main() {
    let cli = Cli::parse();
    let bus = NatsBus::connect(cli.nats.config("changes")).await.unwrap();
    let bus: Arc<dyn Bus> = Arc::new(bus);
    let mut connection = bus.connection();
    connection
        .wait_for(|now| *now == Connection::Up)
        .await
        .unwrap();
    let mut writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
    let view = writer.open(collection("ingresses", "Ingress"));
    let cluster = Cluster {
        seed: 1,
        namespaces: 40,
    };
    let objects: Vec<Value> = cluster.ingresses(cli.ingresses, 1).map(pruned).collect();
    let keyed = objects.iter().map(|object| {
        let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
        let key = anteroom_model::ObjectKey::new(text("namespace"), text("name"));
        (key, object.clone())
    });
    writer.put_all(&view, keyed.collect()).await;
    writer.synced(&view).await;
    let expressions = &EXPRESSIONS[..cli.expressions.min(EXPRESSIONS.len())];
    let asked = ["length(items)"];
    let first = if expressions.is_empty() {
        &asked
    } else {
        expressions
    };
    // The first questions make the indexes; they are in use once they answer as many as are asked.
    for _ in 0..5 {
        writer.beat().await;
        ask_all(bus.as_ref(), &view, first).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    let (before, begun) = (Took::by(cli.pid), Instant::now());
    let asking = async {
        let mut ticks = tokio::time::interval(ASKED_EVERY);
        loop {
            ticks.tick().await;
            ask_all(bus.as_ref(), &view, expressions).await;
        }
    };
    let changing = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / cli.per_second);
        for turn in 0..cli.changes {
            ticks.tick().await;
            let from = objects.len().saturating_sub(CHANGING);
            let mut changed = objects[from + turn % (objects.len() - from)].clone();
            changed["spec"]["rules"][0]["host"] = format!("turn-{turn}.example.com").into();
            changed["metadata"]["labels"]["turn"] = turn.to_string().into();
            let text = |field: &str| changed["metadata"][field].as_str().unwrap().to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            writer.put(&view, &namespace, &name, changed).await;
            if turn % 250 == 0 {
                writer.beat().await;
            }
        }
    };
    tokio::select! {
        () = changing => {}
        () = asking => {}
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let after = Took::by(cli.pid);
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / cli.changes as f64;
    println!(
        "{}",
        json!({ "ingresses": cli.ingresses, "expressions": expressions.len(), "changes": cli.changes,
            "seconds": begun.elapsed().as_secs_f64(),
            "cpu_us": each(before.cpu_ns, after.cpu_ns) / 1e3, "wakes": each(before.wakes, after.wakes) })
    );
    bus.close().await;
}

/// An object in the form that the watcher publishes.
fn pruned(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

async fn ask_all(bus: &dyn Bus, view: &ViewId, expressions: &[&str]) {
    for expression in expressions {
        let request = json!({ "entry": "",
            "queries": [{ "expression": expression, "parameters": { "p": "nobody" } }] });
        let request: QueryRequest = serde_json::from_value(request).unwrap();
        let call = Call {
            body: query::encode_request(&request).unwrap(),
            deadline: PATIENCE,
            trace: None,
        };
        let to = Address::View(view.clone());
        if let Err(error) = bus.request(&to, call, PATIENCE).await {
            println!("{expression}: {error}");
        }
    }
}
