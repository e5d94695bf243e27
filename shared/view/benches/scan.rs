//! Measures the memory of an object, and the time to scan one.
//!
//! `cargo bench -p anteroom-view` prints one JSON object.
#![allow(clippy::print_stdout)] // It is what this program is for.
#![allow(clippy::unwrap_used)] // Nothing here comes from outside.

use std::{hint::black_box, time::Instant};

use anteroom_jmespath::{Environment, Expression, Node};
use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, ObjectKey, Op, ResourceVersion,
    Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use anteroom_view::{Read, View, ViewNode};
use anteroom_wire::body::{self, BodyNode};
use bytes::Bytes;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const OBJECTS: usize = 7_000;
const NAMESPACES: usize = 40;
const ROUNDS: usize = 30;

/// An Ingress of about 2 KB, as an ingress controller leaves it.
fn ingress(n: usize) -> (ObjectKey, Value) {
    let (namespace, name) = (format!("team-{}", n % NAMESPACES), format!("shop-web-{n}"));
    let backend = |path: &str| {
        json!({"path": path, "pathType": "Prefix", "backend": {
            "service": {"name": format!("{name}-backend"), "port": {"number": 8080}}}})
    };
    let rule = |host: &str| json!({"host": host, "http": {"paths": [backend("/"), backend("/api"), backend("/static")]}});
    let hosts = [
        format!("www-{n}.shop.example.com"),
        format!("api-{n}.shop.example.com"),
    ];
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "annotations": {
                "cert-manager.io/cluster-issuer": "letsencrypt-production",
                "nginx.ingress.kubernetes.io/proxy-body-size": "16m",
                "nginx.ingress.kubernetes.io/proxy-read-timeout": "120",
                "nginx.ingress.kubernetes.io/configuration-snippet": "more_set_headers \"X-Frame-Options: DENY\"; more_set_headers \"X-Content-Type-Options: nosniff\"; more_set_headers \"Referrer-Policy: same-origin\";",
            },
            "creationTimestamp": "2026-03-01T08:00:00Z",
            "generation": 3,
            "labels": {
                "app.kubernetes.io/instance": name,
                "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/name": "shop-web",
                "helm.sh/chart": "shop-web-4.12.1",
            },
            "name": name,
            "namespace": namespace,
            "resourceVersion": (100_000 + n).to_string(),
            "uid": format!("0e1c5c1a-7d59-4b51-9a2b-{n:012}"),
        },
        "spec": {
            "ingressClassName": "nginx",
            "rules": hosts.iter().map(|host| rule(host)).collect::<Vec<_>>(),
            "tls": [{"hosts": hosts, "secretName": format!("{name}-tls")}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}},
    });
    (ObjectKey::new(namespace, name), value)
}

fn allocated() -> usize {
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap()
}

fn record(view: &View) -> ViewRecord {
    let gvr = GroupVersionResource::new("networking.k8s.io", "v1", "ingresses");
    let source = Source::Collection(Collection::all(gvr));
    ViewRecord {
        view: view.id().clone(),
        info: SourceInfo {
            source,
            kind: "Ingress".into(),
            namespaced: true,
        },
        epoch: Epoch(1),
        state: ViewState::Synced,
        version: ResourceVersion::new("1"),
        objects: OBJECTS as u64,
        digest: Digest::EMPTY,
        origin: anteroom_model::Epoch::default(),
        age_max_ms: None,
    }
}

fn filled() -> View {
    let gvr = GroupVersionResource::new("networking.k8s.io", "v1", "ingresses");
    let mut view = View::reading(Source::Collection(Collection::all(gvr)).view_id());
    for (position, n) in (1..).zip(0..OBJECTS) {
        // In no order, as a log has them.
        let (key, value) = ingress((n * 4_001) % OBJECTS);
        let delta = Delta {
            key,
            epoch: Epoch(1),
            version: ResourceVersion::new((100_000 + n).to_string()),
            op: Op::Put(body::encode_json(&value).unwrap()),
        };
        view.apply::<Bytes>(Revision(position), &delta);
    }
    view.control(Revision(OBJECTS as u64 + 1), record(&view));
    view.caught_up();
    view
}

/// Nanoseconds for each object: the least of several rounds.
fn nanoseconds(mut round: impl FnMut() -> usize) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        black_box(round());
        start.elapsed().as_nanos() as f64
    });
    times.fold(f64::INFINITY, f64::min) / OBJECTS as f64
}

fn scan(read: Read<'_>, of_one: impl Fn(BodyNode<'_>) -> usize) -> f64 {
    nanoseconds(|| read.objects().map(|object| of_one(object.node())).sum())
}

fn hosts(node: BodyNode<'_>) -> usize {
    let rules = node.field("spec").and_then(|spec| spec.field("rules"));
    let hosts = rules.into_iter().flat_map(Node::elements);
    hosts
        .filter_map(|rule| rule.field("host")?.as_str())
        .map(str::len)
        .sum()
}

fn name(node: BodyNode<'_>) -> usize {
    let name = node.field("metadata").and_then(|m| m.field("name"));
    name.and_then(BodyNode::as_str).map_or(0, str::len)
}

fn evaluate(read: Read<'_>, expression: &str) -> f64 {
    let expression = Expression::parse(expression).unwrap();
    let environment = Environment::default();
    nanoseconds(|| read.evaluate(&expression, &environment).unwrap().len())
}

fn main() {
    let before = allocated();
    let view = filled();
    let held = allocated() - before;
    let counted = view.bytes();
    let read = view.read(0, 0).unwrap();
    let bodies = counted.bodies as f64 / OBJECTS as f64;
    let per_object = |bytes: usize| bytes as f64 / OBJECTS as f64;
    let whole: usize = read.objects().map(|o| o.body().len()).sum();
    let validate = scan(read, |node| {
        usize::from(body::validate(node.body()).is_ok())
    });
    let report = json!({
        "objects": OBJECTS,
        "body_bytes": bodies,
        "overhead_bytes_counted": per_object(counted.total()) - bodies,
        "overhead_bytes_allocated": per_object(held) - bodies,
        "ns_name": scan(read, name),
        "ns_hosts": scan(read, hosts),
        "ns_skip_whole": scan(read, |node| node.body().len()),
        "ns_skip_and_validate": validate,
        "ns_evaluate_names": evaluate(read, "items[].metadata.name"),
        "ns_evaluate_hosts": evaluate(read, "items[].spec.rules[].host"),
        "ns_evaluate_filter": evaluate(read, "items[?metadata.name=='shop-web-77'].metadata.uid"),
        "ns_evaluate_unique_host":
            evaluate(read, "length(items[?spec.rules[?host=='api-77.shop.example.com']])"),
        "body_bytes_sum": whole,
    });
    println!("{report:#}");
    black_box(ViewNode::object(read.objects().next().unwrap()));
}
