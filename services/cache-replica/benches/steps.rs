//! Sends deltas and queries to a replica in the same process, one after the other, and prints their number.
//!
//! The cost of an evaluation step without NATS. Run under callgrind with two numbers of rounds: the difference is the
//! cost of the rounds, without the cost of the start. `cargo xtask instructions` does that.
//!
//! ```text
//! cargo bench -p anteroom-cache-replica --bench steps -- --expressions 10 --deltas --rounds 100
//! ```
#![allow(clippy::print_stdout, reason = "it is what this program is for")]
#![allow(clippy::unwrap_used, reason = "nothing here comes from outside")]

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, Call, local::LocalBus};
use anteroom_mirror::testing::{ViewWriter, collection};
use anteroom_model::{ObjectKey, Revision, ViewId};
use anteroom_runtime::Service;
use anteroom_simapi::generate::Cluster;
use anteroom_wire::{
    body,
    query::{QueryRequest, decode_outcome, encode_request},
};
use clap::Parser;
use serde_json::{Value, json};

/// Expressions over all Ingresses, each of which selects few of them by another field.
const EXPRESSIONS: [&str; 10] = [
    "items[?metadata.name == $p].metadata.namespace",
    "items[?spec.rules[0].host == $p].metadata.name",
    "items[?contains(spec.rules[].host, $p)].metadata.name",
    "items[?contains(spec.tls[].hosts[], $p)].metadata.name",
    "items[?spec.tls[0].secretName == $p].metadata.name",
    "items[?metadata.labels.\"app.kubernetes.io/instance\" == $p].metadata.name",
    "items[?metadata.labels.\"app.kubernetes.io/name\" == $p].metadata.name",
    "items[?metadata.annotations.\"example.com/revision\" == $p].metadata.name",
    "items[?metadata.annotations.\"example.com/runbook\" == $p].metadata.name",
    "items[?spec.rules[0].http.paths[0].backend.service.name == $p].metadata.name",
];

/// A deadline that no answer exceeds: time stands still unless every task waits.
const DEADLINE: Duration = Duration::from_secs(5);

/// The interval of the writer's beats, until the replica is ready.
const BEAT_INTERVAL: Duration = Duration::from_millis(200);

/// The most attempts to get every expression answered by an index.
const INDEX_ATTEMPTS_MAX: usize = 100;

#[derive(Parser)]
struct Cli {
    /// Rounds: in each, every expression is asked once.
    #[arg(long, default_value_t = 100)]
    rounds: usize,

    /// The number of expressions.
    #[arg(long, default_value_t = 1)]
    expressions: usize,

    /// One object changes before each round.
    #[arg(long)]
    deltas: bool,

    /// Ingresses in the view.
    #[arg(long, default_value_t = 3_000)]
    objects: usize,

    /// An argument that `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run(&cli));
    println!(
        "{}",
        json!({ "rounds": cli.rounds, "expressions": cli.expressions, "deltas": cli.deltas,
            "objects": cli.objects })
    );
}

async fn run(cli: &Cli) {
    let bus = LocalBus::new();
    let mut writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
    let view = writer.open(collection("ingresses", "Ingress"));
    let cluster = Cluster {
        seed: 1,
        namespaces: 40,
    };
    let objects: Vec<Value> = cluster.ingresses(cli.objects, 1).map(pruned).collect();
    let keyed = objects.iter().map(|object| (key(object), object.clone()));
    writer.put_all(&view, keyed.collect()).await;
    writer.synced(&view).await;
    let service = Service::new("steps");
    let args = anteroom_cache_replica::Args {
        replica_id: Some("replica-0".to_owned()),
        ..Default::default()
    };
    let replica = anteroom_cache_replica::run(args, Arc::new(bus.join()), service.clone());
    tokio::spawn(replica);
    let beating = async {
        loop {
            writer.beat().await;
            tokio::time::sleep(BEAT_INTERVAL).await;
        }
    };
    tokio::select! {
        () = service.readiness.wait_ready() => {}
        () = beating => {}
    }

    let asker = bus.join();
    let expressions = &EXPRESSIONS[..cli.expressions.min(EXPRESSIONS.len())];
    // The first questions make the indexes, beside the answers. A scan costs as much as two hundred indexed queries, so it
    // must not fall among the rounds of one run alone.
    for attempt in 1.. {
        let p = format!("nobody yet {attempt}");
        if ask_all(&asker, &view, expressions, &p, None).await == 0 {
            break;
        }
        assert!(attempt < INDEX_ATTEMPTS_MAX, "no index answers");
        writer.beat().await;
        tokio::time::sleep(BEAT_INTERVAL).await;
    }
    for round in 0..cli.rounds {
        let mut at = None;
        if cli.deltas {
            let mut object = objects[round % objects.len()].clone();
            object["spec"]["rules"][0]["host"] = format!("round-{round}.example.com").into();
            let key = key(&object);
            at = Some(writer.put(&view, &key.namespace, &key.name, object).await);
        }
        // A parameter of its own for each round: no answer is one that is remembered.
        let p = format!("nobody-{round}");
        ask_all(&asker, &view, expressions, &p, at).await;
    }
}

/// An object in the form that the watcher publishes.
fn pruned(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

fn key(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    ObjectKey::new(text("namespace"), text("name"))
}

/// Asks each expression once. Returns the number of objects that were examined for the answers.
async fn ask_all(
    bus: &impl Bus,
    view: &ViewId,
    expressions: &[&str],
    p: &str,
    at: Option<Revision>,
) -> u64 {
    let mut examined = 0;
    for expression in expressions {
        let request = json!({ "entry": "", "queries": [{ "expression": expression, "parameters": { "p": p } }] });
        let mut request: QueryRequest = serde_json::from_value(request).unwrap();
        request.revision_min = at;
        let call = Call {
            body: encode_request(&request).unwrap(),
            deadline: DEADLINE,
            trace: None,
        };
        let reply = bus
            .request(&Address::View(view.clone()), call, DEADLINE)
            .await;
        let reply = decode_outcome(&reply.unwrap()).unwrap().unwrap();
        let found = body::to_json(reply.results[0].as_ref().unwrap()).unwrap();
        assert_eq!(found, json!([]), "{expression}");
        examined += reply.examined;
    }
    examined
}
