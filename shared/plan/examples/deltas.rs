//! What one change of a view costs what is kept beside it: ten aggregates and ten indexes, at this many
//! objects, where nearly all of an object changes (`all`), one of its hosts (`host`), or its state alone
//! (`status`). The changes are of so many objects in turn (all, unless said otherwise).
//!
//! ```sh
//! cargo build --release -p anteroom-plan --example deltas
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='deltas::follow_aggregates*' \
//!     target/release/examples/deltas 100000 all 100
//! ```
//!
//! Instructions of [`follow_aggregates`] or [`follow_indexes`], divided by [`CHANGES`], are those of one
//! change in all ten. It says the time too, for orientation, with that of the change itself.
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
use anteroom_plan::{
    Aggregate, AggregateKey, Changes, Document, Index, IndexKey, Language, Parameters, aggregate,
    narrow,
};
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

const LOOKUPS: [&str; 10] = [
    "items[?metadata.name == $p]",
    "items[?spec.rules[0].host == $p]",
    "items[?contains(spec.rules[].host, $p)]",
    "items[?metadata.labels.team == $p]",
    "items[?metadata.labels.app == $p]",
    "items[?metadata.annotations.note == $p]",
    "items[?spec.weight == $p]",
    "items[?spec.rules[0].http.paths[0].path == $p]",
    "items[?kind == $p]",
    "any_in($p, items[].spec.rules[].host)",
];

fn main() {
    let mut args = std::env::args().skip(1);
    let objects: u64 = args.next().map_or(1_000, |count| count.parse().unwrap());
    let what = args.next().unwrap_or_default();
    let changing = args.next().map_or(objects, |count| count.parse().unwrap());
    let mut view = view();
    for n in 0..objects {
        put(&mut view, n + 2, n, [n, n, 0]);
    }
    let mut state = view.snapshot(0, 0).unwrap();
    let (mut aggregates, mut indexes) = (aggregates(&state), indexes(&state));
    let mut following = [Duration::ZERO; 2];
    let begun = Instant::now();
    for change in 0..CHANGES {
        let n = change % changing * 7_919 % objects;
        let other = n + change + 1;
        let seeds = match what.as_str() {
            "status" => [n, n, change + 1],
            "host" => [n, other, 0],
            _ => [other, other, 0],
        };
        put(&mut view, objects + 2 + change, n, seeds);
        let to = view.snapshot(0, 0).unwrap();
        let now = Instant::now();
        follow_aggregates(&state, &to, &mut aggregates);
        following[0] += now.elapsed();
        let now = Instant::now();
        follow_indexes(&state, &to, &mut indexes);
        following[1] += now.elapsed();
        state = to;
    }
    let changes = u32::try_from(CHANGES).unwrap();
    println!(
        "{objects} objects, {} and {} bytes kept: {:?} for a change, {:?} of it for aggregates, {:?} for \
         indexes",
        aggregates.iter().map(Aggregate::bytes).sum::<usize>(),
        indexes.iter().map(Index::bytes).sum::<usize>(),
        begun.elapsed() / changes,
        following[0] / changes,
        following[1] / changes,
    );
}

fn aggregates(state: &Snapshot) -> Vec<Aggregate> {
    let kept = EXPRESSIONS.iter().map(|text| {
        let document = Document::List { plural: None };
        let found = aggregate(&text.parse().unwrap(), document, Parameters::Refused).unwrap();
        let key = AggregateKey::of(&found.terms[0], false, true, false);
        Aggregate::new(key, anteroom_policy::query_functions(), state).unwrap()
    });
    kept.collect()
}

fn indexes(state: &Snapshot) -> Vec<Index> {
    let language = Language {
        functions: anteroom_policy::query_functions(),
        matches: anteroom_policy::wildcard_matches,
    };
    let kept = LOOKUPS.iter().map(|text| {
        let narrow = narrow(&text.parse().unwrap(), Document::List { plural: None }).unwrap();
        let key = IndexKey::of(narrow.probes()[0], true, false);
        Index::new(key, language, state)
    });
    kept.collect()
}

/// Brings all aggregates up.
#[inline(never)]
fn follow_aggregates(from: &Snapshot, to: &Snapshot, kept: &mut [Aggregate]) {
    let changes = Changes::between(from, to);
    for aggregate in kept {
        aggregate.follow(&changes);
    }
}

/// Brings all indexes up.
#[inline(never)]
fn follow_indexes(from: &Snapshot, to: &Snapshot, kept: &mut [Index]) {
    let changes = Changes::between(from, to);
    for index in kept {
        index.follow(&changes);
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

fn put(view: &mut View, revision: u64, n: u64, [seed, host, status]: [u64; 3]) {
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
            "resourceVersion": revision.to_string(),
        },
        "spec": {
            "weight": seed % 1_000,
            "rules": [{
                "host": format!("host-{host}.example.com"),
                "http": {"paths": [{"path": "/a", "pathType": "Prefix"}, {"path": "/b"}]},
            }],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": format!("10.0.0.{}", status % 250)}]}},
    });
    let delta: Delta<Bytes> = Delta {
        key: ObjectKey::new(namespace, name),
        epoch: Epoch::new(1, 0),
        version: ResourceVersion::new(revision.to_string()),
        op: Op::Put(body::encode_json(&object).unwrap()),
    };
    view.apply(Revision(revision), &delta);
}
