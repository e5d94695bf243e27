//! What one change of a view costs what is kept beside it: ten aggregates, at this many objects.
//!
//! ```sh
//! cargo build --release -p anteroom-plan --example deltas
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='deltas::follow*' \
//!     target/release/examples/deltas 100000
//! ```
//!
//! Instructions of [`follow`], divided by [`CHANGES`], are those of one change in all ten. It says the
//! time too, for orientation, with that of the change itself.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement, run by hand"
)]

use std::time::{Duration, Instant};

use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_plan::{Aggregate, AggregateKey, Document, Parameters, aggregate};
use anteroom_view::{Snapshot, View};
use anteroom_wire::body;
use bytes::Bytes;
use serde_json::json;

/// Changes that are measured.
const CHANGES: u64 = 500;

const EXPRESSIONS: [&str; 10] = [
    "length(items[].spec.rules[])",
    "items[?metadata.labels.team == 'a'] | length(@)",
    "max(items[].spec.rules[].host)",
    "min(items[].spec.rules[].http.paths[].path)",
    "sum(items[].spec.weight)",
    "avg(items[?metadata.labels.team == 'c'].spec.weight)",
    "items[?spec.weight > `500`].metadata.name | length(@)",
    "items[?spec.tls] && 'some'",
    "max(items[?metadata.labels.team == 'b'].spec.weight)",
    "length(items[].spec.rules[].http.paths[].path)",
];

fn main() {
    let objects = std::env::args().nth(1);
    let objects: u64 = objects.map_or(1_000, |count| count.parse().unwrap());
    let mut view = view();
    for n in 0..objects {
        put(&mut view, n + 2, n, n);
    }
    let state = view.snapshot(0, 0).unwrap();
    let mut kept: Vec<_> = EXPRESSIONS
        .iter()
        .map(|text| {
            let document = Document::List { plural: None };
            let found = aggregate(&text.parse().unwrap(), document, Parameters::Refused).unwrap();
            let key = AggregateKey::of(&found.terms[0], false, true, false);
            Aggregate::new(key, anteroom_policy::query_functions(), &state).unwrap()
        })
        .collect();
    drop(state);
    let (mut following, begun) = (Duration::ZERO, Instant::now());
    for change in 0..CHANGES {
        let n = change * 7_919 % objects;
        put(&mut view, objects + 2 + change, n, n + change + 1);
        let state = view.snapshot(0, 0).unwrap();
        let now = Instant::now();
        follow(&state, &mut kept);
        following += now.elapsed();
    }
    let changes = u32::try_from(CHANGES).unwrap();
    println!(
        "{objects} objects, {} kept in {} bytes: {:?} for a change, {:?} of it to follow",
        kept.len(),
        kept.iter().map(Aggregate::bytes).sum::<usize>(),
        begun.elapsed() / changes,
        following / changes,
    );
}

/// Brings everything up.
#[inline(never)]
fn follow(state: &Snapshot, kept: &mut [Aggregate]) {
    for aggregate in kept {
        aggregate.advance(state);
    }
}

fn view() -> View {
    let gvr = GroupVersionResource::new("networking.k8s.io", "v1", "ingresses");
    let info = SourceInfo {
        source: Source::Collection(Collection::all(gvr)),
        kind: "Ingress".into(),
        namespaced: true,
    };
    let mut view = View::live(info.source.view_id());
    let record = ViewRecord {
        view: view.id().clone(),
        info,
        epoch: Epoch::new(1, 0),
        state: ViewState::Synced,
        version: ResourceVersion::new("1"),
        objects: 0,
        digest: Digest::EMPTY,
        origin: Epoch::default(),
        age_max_ms: None,
    };
    view.control(Revision(1), record);
    view
}

fn put(view: &mut View, revision: u64, n: u64, seed: u64) {
    let (namespace, name) = (format!("ns-{}", n % 50), format!("ingress-{n:06}"));
    let team = ["a", "b", "c"][usize::try_from(seed % 3).unwrap()];
    let object = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"team": team, "app": format!("app-{seed}")},
            "annotations": {"note": "x".repeat(600)},
        },
        "spec": {
            "weight": seed % 1_000,
            "rules": [{
                "host": format!("host-{seed}.example.com"),
                "http": {"paths": [{"path": "/a", "pathType": "Prefix"}, {"path": "/b"}]},
            }],
        },
    });
    let delta: Delta<Bytes> = Delta {
        key: ObjectKey::new(namespace, name),
        epoch: Epoch::new(1, 0),
        version: ResourceVersion::new(revision.to_string()),
        op: Op::Put(body::encode_json(&object).unwrap()),
    };
    view.apply(Revision(revision), &delta);
}
