//! Measures the cost of one change of a view for ten indexes over it, for a given number of objects. A change
//! replaces nearly all of an object (`all`), one of its hosts (`host`), or its state alone (`status`). The changes go
//! through a given number of objects in turn (by default all).
//!
//! ```sh
//! cargo build --release -p anteroom-plan --example deltas
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='deltas::follow*' \
//!     target/release/examples/deltas 100000 all 100
//! ```
//!
//! The instructions of [`follow`], divided by [`CHANGES`], are the cost of one change in all ten indexes. The output
//! also has the time, for orientation, with the time of the change itself.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement, run by hand"
)]

use std::time::{Duration, Instant};

use anteroom_plan::{Changes, Document, Index, IndexKey, Language, narrow};
use anteroom_view::{Snapshot, testing::TestView};
use serde_json::json;

/// Changes that are measured.
const CHANGES: u64 = 500;

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
    let mut view = TestView::new("networking.k8s.io", "ingresses", "Ingress");
    for n in 0..objects {
        put(&mut view, n + 2, n, [n, n, 0]);
    }
    let mut state = view.snapshot();
    let mut indexes = indexes(&state);
    let mut following = Duration::ZERO;
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
        let to = view.snapshot();
        let now = Instant::now();
        follow(&state, &to, &mut indexes);
        following += now.elapsed();
        state = to;
    }
    let changes = u32::try_from(CHANGES).unwrap();
    println!(
        "{objects} objects, {} bytes of indexes: {:?} for a change, {:?} of it for indexes",
        indexes.iter().map(Index::bytes).sum::<usize>(),
        begun.elapsed() / changes,
        following / changes,
    );
}

fn indexes(state: &Snapshot) -> Vec<Index> {
    let language = Language {
        functions: anteroom_functions::query_functions(),
        matches: anteroom_functions::wildcard::matches,
    };
    let indexes = LOOKUPS.iter().map(|text| {
        let narrow = narrow(&text.parse().unwrap(), Document::List { plural: None }).unwrap();
        let key = IndexKey::of(narrow.probes()[0], true, false);
        Index::new(key, language, state)
    });
    indexes.collect()
}

/// Brings all indexes up.
#[inline(never)]
fn follow(from: &Snapshot, to: &Snapshot, indexes: &mut [Index]) {
    let changes = Changes::between(from, to);
    for index in indexes {
        index.follow(&changes);
    }
}

fn put(view: &mut TestView, revision: u64, n: u64, [seed, host, status]: [u64; 3]) {
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
    view.put(&namespace, &name, &object);
}
