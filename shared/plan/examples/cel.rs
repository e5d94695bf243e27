//! Measures a query in CEL for a unique host over a given number of Ingresses, every second of which has a rule
//! without a host. The query runs by an index, and by a scan of all objects. The output has steps, which are the same
//! on every machine, and the time, for orientation.
//!
//! ```sh
//! cargo run --release -p anteroom-plan --example cel -- 100000
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement, run by hand"
)]

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anteroom_cel::{Budget, Input, Machine, Names, Program, Roots};
use anteroom_model::Shape;
use anteroom_plan::{Index, IndexKey, Language, ListHost, ViewList};
use anteroom_view::{Lazy, Select, Snapshot, testing::TestView};
use anteroom_wire::query::Selection;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The number of evaluations per measurement; a scan is evaluated once.
const ROUNDS: u32 = 1_000;

const EXPRESSIONS: [&str; 4] = [
    "!view.exists(x, x.spec.rules.exists(r, r.host == host))",
    "!view.exists(x, x.spec.rules.exists(r, has(r.host) && r.host == host))",
    "!rules.exists(n, view.exists(x, x.spec.rules.exists(r, has(r.host) && r.host == n.host)))",
    "view.filter(x, x.metadata.name == host).size() == 0",
];

/// The objects of one state of a view, with indexes over them.
#[derive(Debug)]
struct Host<'s> {
    state: &'s Snapshot,
    indexes: Mutex<HashMap<IndexKey, Index>>,
    scans: bool,
}

impl ListHost for Host<'_> {
    fn ask(&self, key: &IndexKey, ask: &mut dyn FnMut(&Index)) -> bool {
        if self.scans {
            return false;
        }
        let language = Language {
            functions: anteroom_functions::query_functions(),
            matches: anteroom_functions::wildcard::matches,
        };
        let mut indexes = self.indexes.lock();
        let index = indexes.entry(key.clone());
        ask(index.or_insert_with(|| Index::new(key.clone(), language, self.state)));
        true
    }
}

fn main() {
    let objects = std::env::args().nth(1);
    let objects: u64 = objects.map_or(3_000, |count| count.parse().unwrap());
    let mut view = TestView::new("networking.k8s.io", "ingresses", "Ingress");
    (0..objects).for_each(|n| put(&mut view, n));
    let state = view.snapshot();
    let mut names = Names::default().without_request();
    ["view", "host", "rules"]
        .into_iter()
        .for_each(|name| names.add_input(name));
    let rules: Vec<_> = (0..100)
        .map(|n| json!({"host": format!("new-{n}.example.com")}))
        .collect();
    let parameters = [json!("new.example.com"), Value::Array(rules)];
    let hosts = [false, true].map(|scans| Host {
        state: &state,
        indexes: Mutex::default(),
        scans,
    });
    for source in EXPRESSIONS {
        let program = Program::compile(source, &names).unwrap();
        println!("{source}");
        for (host, rounds) in hosts.iter().zip([ROUNDS, 1]) {
            // Once beforehand, for the index.
            let (steps, examined, shown) = evaluate(&program, host, &parameters);
            let begun = Instant::now();
            for _ in 0..rounds {
                evaluate(&program, host, &parameters);
            }
            let way = if host.scans { "scan" } else { "index" };
            println!(
                "  {way}: {steps} steps, {examined} objects, {:?}: {shown}",
                per(begun.elapsed(), rounds)
            );
        }
    }
}

fn per(took: Duration, rounds: u32) -> Duration {
    took / rounds
}

fn evaluate(program: &Program, host: &Host<'_>, parameters: &[Value]) -> (u64, u64, String) {
    let select = Select::new(&Selection {
        shape: Shape::Array,
        ..Selection::default()
    });
    let select = select.unwrap();
    let Lazy::List(objects) = select.lazy(host.state.read()).unwrap() else {
        return (0, 0, String::new());
    };
    let list = ViewList::new(objects, host);
    let given: Vec<_> = std::iter::once(Input::objects(&list))
        .chain(parameters.iter().map(Input::json))
        .collect();
    let budget = Budget {
        steps: u64::MAX,
        built_bytes: u64::MAX,
        json_bytes: u64::MAX,
    };
    let mut machine = Machine::new(Roots::default(), &[], budget).with_inputs(&given);
    let shown = match machine.json(program) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    };
    (u64::MAX - machine.budget().steps, list.examined(), shown)
}

fn put(view: &mut TestView, n: u64) {
    let (namespace, name) = (format!("ns-{}", n % 50), format!("ingress-{n:06}"));
    let mut rule =
        json!({"http": {"paths": [{"path": "/a", "pathType": "Prefix"}, {"path": "/b"}]}});
    if n.is_multiple_of(2) {
        rule["host"] = format!("host-{n}.example.com").into();
    }
    let object = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"note": "x".repeat(600)}},
        "spec": {"rules": [rule]},
    });
    view.put(&namespace, &name, &object);
}
