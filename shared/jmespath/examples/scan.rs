//! Measures how long an object of a list takes to scan: `cargo run --release -p anteroom-jmespath --example scan`.

#![allow(clippy::print_stdout)] // The example prints its measurements.

use std::time::Instant;

use anteroom_jmespath::{Environment, Expression};
use serde_json::{Value, json};

const OBJECTS: usize = 3_000;
const ROUNDS: usize = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let document = json!({ "items": (0..OBJECTS).map(ingress).collect::<Vec<_>>() });
    let expressions = [
        "items[].spec.rules[].host",
        "items[?spec.rules[].host | contains(@, 'host-17.example.com')]",
        "items[?metadata.name == 'ingress-17'] | [0].metadata.namespace",
        "items[?metadata.namespace == $namespace].metadata.name | length(@)",
        "items[].{name: metadata.name, hosts: spec.rules[].host}",
    ];
    let parameters = [("namespace", &json!("team-3"))];
    for text in expressions {
        let expression = Expression::parse(text)?;
        let environment = Environment::standard().with_parameters(&parameters);
        let mut rounds_ns = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let value = expression.evaluate(&document, &environment)?;
            std::hint::black_box(&value);
            rounds_ns.push(start.elapsed().as_nanos() / OBJECTS as u128);
        }
        rounds_ns.sort_unstable();
        println!("{:>6} ns/object  {text}", rounds_ns[ROUNDS / 2]);
    }
    Ok(())
}

fn ingress(number: usize) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": format!("ingress-{number}"),
            "namespace": format!("team-{}", number % 40),
            "labels": { "app": format!("app-{number}"), "tier": "web" },
            "annotations": { "example.com/owner": "somebody", "example.com/note": "x".repeat(200) },
            "uid": format!("00000000-0000-0000-0000-{number:012}"),
        },
        "spec": {
            "ingressClassName": "public",
            "rules": [{
                "host": format!("host-{number}.example.com"),
                "http": { "paths": [{ "path": "/", "pathType": "Prefix",
                    "backend": { "service": { "name": "web", "port": { "number": 80 } } } }] },
            }],
        },
        "status": { "loadBalancer": { "ingress": [{ "ip": "10.0.0.1" }] } },
    })
}
