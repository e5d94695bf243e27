//! What it costs to find objects by indexes, and to keep ten of them up, on views of any size.
//!
//! `lookups OBJECTS LOOKUPS DELTAS` prints microseconds; under callgrind, the difference between two
//! numbers of lookups or of deltas is what those took:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/lookups 100000 1000 0
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{collections::BTreeMap, time::Instant};

use anteroom_jmespath::{Environment, Expression};
use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_plan::{Document, Index, IndexKey, Language, Narrow, Terms, narrow};
use anteroom_view::{Object, Select, Snapshot, View};
use anteroom_wire::{body, query::Selection};
use bytes::Bytes;
use serde_json::{Value, json};

/// What policies ask of Ingresses.
const EXPRESSIONS: [&str; 10] = [
    "items[?metadata.name == $name].metadata.uid",
    "items[?metadata.uid == $uid] | length(@)",
    "items[?metadata.namespace == $namespace && metadata.name == $name] | length(@)",
    "(items[].spec.rules[]) | ([?host == $host][].http.paths[].path)",
    "any_in($host, (items[].spec.rules[].host))",
    "any_in($host, (items[?metadata.uid != $uid].spec.rules[].host))",
    "all_not_in($path, (items[].spec.rules[].http.paths[].path))",
    "contains((items[].spec.rules[].host), $host)",
    "items[?label_match($labels, metadata.labels)] | length(@)",
    "items[].spec.tls[].hosts[] | [?@ == $host] | length(@)",
];

fn language() -> Language {
    Language {
        functions: anteroom_policy::query_functions(),
        matches: anteroom_policy::wildcard_matches,
    }
}

fn ingress(n: u64, generation: u64) -> Value {
    let host = format!("host-{n}.example.com");
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": format!("ingress-{n}"),
            "namespace": format!("team-{}", n % 100),
            "uid": format!("uid-{n}"),
            "generation": generation,
            "labels": {"app": format!("app-{}", n / 10), "tier": "front"},
            "annotations": {"note": "x".repeat(900)},
        },
        "spec": {
            "ingressClassName": "nginx",
            "tls": [{"hosts": [host], "secretName": format!("tls-{n}")}],
            "rules": [{"host": host, "http": {"paths": [
                {"path": "/", "pathType": "Prefix"},
                {"path": format!("/api/{n}"), "pathType": "Exact"},
            ]}}],
        },
    })
}

fn parameters(n: u64) -> BTreeMap<String, Value> {
    [
        ("name", json!(format!("ingress-{n}"))),
        ("uid", json!(format!("uid-{n}"))),
        ("namespace", json!(format!("team-{}", n % 100))),
        ("host", json!(format!("host-{n}.example.com"))),
        ("path", json!(["/", format!("/api/{n}")])),
        (
            "labels",
            json!({"app": format!("app-{}", n / 10), "tier": "front"}),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

struct World {
    view: View,
    revision: u64,
}

impl World {
    fn new(objects: u64) -> Self {
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
        let mut world = Self { view, revision: 1 };
        (0..objects).for_each(|n| world.put(n));
        world
    }

    fn put(&mut self, n: u64) {
        self.revision += 1;
        let delta: Delta<Bytes> = Delta {
            key: ObjectKey::new(format!("team-{}", n % 100), format!("ingress-{n}")),
            epoch: Epoch::new(1, 0),
            version: ResourceVersion::new(self.revision.to_string()),
            op: Op::Put(body::encode(&ingress(n, self.revision)).unwrap()),
        };
        self.view.apply(Revision(self.revision), &delta);
    }

    fn state(&self) -> Snapshot {
        self.view.snapshot(0, 0).unwrap()
    }
}

struct Asked {
    expression: Expression,
    narrow: Narrow,
    index: Index,
}

impl Asked {
    fn new(text: &str, state: &Snapshot) -> Self {
        let expression = Expression::parse(text).unwrap();
        let plural = Some("ingresses");
        let narrow = narrow(&expression, Document::List { plural }).unwrap();
        // Of several ways the last, which finds fewer here.
        let key = IndexKey::of(narrow.probes().last().unwrap(), true, false);
        Self {
            index: Index::new(key, language(), state),
            narrow,
            expression,
        }
    }

    /// How many objects it takes.
    fn answer(&self, state: &Snapshot, parameters: &BTreeMap<String, Value>) -> u64 {
        let probes = self.narrow.probes();
        let probe = probes.last().unwrap();
        let terms = Terms {
            objects_max: usize::MAX,
            steps_max: usize::MAX,
            admits: &|_: &Object| true,
            parameters,
        };
        let found = self.index.gather(probe, terms).unwrap();
        let select = Select::new(&Selection::default()).unwrap();
        let few = select.among(state.read(), found.iter()).unwrap();
        let environment = Environment {
            functions: anteroom_policy::query_functions(),
            parameters,
            ..Environment::standard()
        };
        few.evaluate(&self.expression, &environment).unwrap();
        found.len() as u64
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "they are counts of what was done"
)]
fn per(sum: u128, times: u64) -> f64 {
    sum as f64 / times as f64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        arguments
            .next()
            .map_or(default, |text| text.parse().unwrap())
    };
    let (objects, lookups, deltas) = (number(1_000_u64), number(1_000_u64), number(1_000_u64));
    let mut world = World::new(objects);
    let state = world.state();
    let begun = Instant::now();
    let new = |text: &&str| Asked::new(text, &state);
    let mut asked: Vec<_> = EXPRESSIONS.iter().map(new).collect();
    println!(
        "{objects} objects, {} indexes in {:?}",
        asked.len(),
        begun.elapsed()
    );
    let keys = (0..lookups).map(|n| parameters(n * 7_919 % objects));
    let keys: Vec<_> = keys.collect();
    for one in asked.iter().filter(|_| lookups > 0) {
        let begun = Instant::now();
        let found: u64 = keys.iter().map(|keys| one.answer(&state, keys)).sum();
        println!(
            "{:8.2} us, {:5.1} objects, {:9} bytes: {}",
            per(begun.elapsed().as_nanos(), lookups) / 1e3,
            per(found.into(), lookups),
            one.index.bytes(),
            one.expression
        );
    }
    let mut took_ns = 0;
    for n in 0..deltas {
        world.put(n * 104_729 % objects);
        let state = world.state();
        let begun = Instant::now();
        asked.iter_mut().for_each(|one| one.index.advance(&state));
        took_ns += begun.elapsed().as_nanos();
    }
    if deltas > 0 {
        let took_us = per(took_ns, deltas) / 1e3;
        println!("{took_us:8.2} us for a delta with {} indexes", asked.len());
    }
}
