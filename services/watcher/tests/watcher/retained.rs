//! With `retain: Referenced`, an entry keeps only the fields that policies read.

use crate::support::{CLUSTER_POLICIES, ENTRIES, INGRESS_VIEW, INGRESSES, Log, World};
use serde_json::{Value, json};

/// A policy that asks this of the entry `hosts`.
fn asking(name: &str, expression: Option<&str>) -> Value {
    let mut entry = json!({"name": "hosts"});
    if let Some(expression) = expression {
        entry["jmesPath"] = expression.into();
    }
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name},
        "spec": {"rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Ingress"]}}]},
            "context": [{"name": "found", "cachedContextEntry": entry}],
            "validate": {"message": "m", "deny": {"conditions": {"all": [
                {"key": "{{ found }}", "operator": "Equals", "value": "x"}]}}},
        }]},
    })
}

fn narrowed() -> Value {
    json!({"retain": "Referenced", "resource": {"group": "networking.k8s.io", "kind": "ingresses"}})
}

fn full() -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "default", "uid": "u", "labels": {"l": "x"},
            "annotations": {"a": "b"}, "managedFields": []},
        "spec": {"ingressClassName": "nginx", "rules": [{"host": "h", "http": {"paths": []}}]},
        "status": {"loadBalancer": {}},
    })
}

/// The one object of the view that the entry is bound to, once that is synced.
fn held(log: &Log) -> Option<(String, Value)> {
    let entry = log.entry("hosts")?;
    let view = entry["state"]["view"].as_str()?;
    let mut object = log
        .is_synced(view)
        .then(|| log.object(view, "default/a"))??
        .clone();
    // Of the API server's making.
    object["metadata"].as_object_mut()?.remove("uid");
    object["metadata"]
        .as_object_mut()?
        .remove("resourceVersion");
    Some((view.to_owned(), object))
}

fn kept(spec: Value) -> Value {
    let mut object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "a", "namespace": "default", "labels": {"l": "x"}}});
    if !spec.is_null() {
        object["spec"] = spec;
    }
    object
}

async fn holds(world: &World, what: &str, object: Value) -> String {
    let log = world
        .until(what, |log| {
            held(log).is_some_and(|(_, held)| held == object)
        })
        .await;
    held(&log).unwrap().0
}

#[tokio::test]
async fn an_entry_keeps_what_policies_read_and_widens_with_them() {
    let world = World::start().await;
    world.sim.put(INGRESSES, full()).unwrap();
    let hosts = asking("hosts", Some("items[].spec.rules[].host"));
    world.sim.put(CLUSTER_POLICIES, hosts).unwrap();
    world.entry("hosts", narrowed());
    let watcher = world.watch_as("w");
    let of_hosts = kept(json!({"rules": [{"host": "h"}]}));
    let first = holds(&world, "what one policy reads", of_hosts.clone()).await;
    assert_ne!(first, INGRESS_VIEW);

    let class = asking(
        "class",
        Some("items[?spec.ingressClassName == 'nginx'] | length(@)"),
    );
    world.sim.put(CLUSTER_POLICIES, class).unwrap();
    let both = kept(json!({"rules": [{"host": "h"}], "ingressClassName": "nginx"}));
    let second = holds(&world, "what two policies read", both).await;
    assert_ne!(second, first, "a view that keeps more is another one");

    // A change goes the same way as a list.
    let mut changed = full();
    changed["spec"]["rules"][0]["host"] = "i".into();
    world.sim.put(INGRESSES, changed).unwrap();
    let changed = kept(json!({"rules": [{"host": "i"}], "ingressClassName": "nginx"}));
    assert_eq!(holds(&world, "a change", changed).await, second);
    world.sim.put(INGRESSES, full()).unwrap();

    world.sim.delete(CLUSTER_POLICIES, "", "class").unwrap();
    assert_eq!(holds(&world, "one policy again", of_hosts).await, first);

    // The policy reads whole objects, so all readers of whole Ingresses share its view.
    world
        .sim
        .put(CLUSTER_POLICIES, asking("all", None))
        .unwrap();
    let log = world
        .until("everything", |log| {
            held(log).is_some_and(|(view, _)| view == INGRESS_VIEW)
        })
        .await;
    assert_eq!(
        held(&log).unwrap().1["metadata"]["annotations"],
        json!({"a": "b"})
    );
    watcher.stop().await;
}

#[tokio::test]
async fn an_entry_retains_only_identity_and_fields_its_projections_read() {
    let world = World::start().await;
    world.sim.put(INGRESSES, full()).unwrap();
    world.entry("hosts", narrowed());
    let watcher = world.watch_as("w");
    holds(&world, "what tells it from others", kept(Value::Null)).await;
    let mut spec = narrowed();
    spec["projections"] =
        json!([{"name": "p", "jmesPath": "ingresses.items[].spec.ingressClassName"}]);
    world.sim.delete(ENTRIES, "", "hosts").unwrap();
    world.entry("hosts", spec);
    let class = kept(json!({"ingressClassName": "nginx"}));
    holds(&world, "what a projection reads", class).await;
    watcher.stop().await;
}

#[tokio::test]
async fn an_entry_on_one_object_cannot_retain_referenced_fields_only() {
    let world = World::start().await;
    let mut spec = narrowed();
    spec["resource"]["name"] = "a".into();
    spec["resource"]["namespace"] = "default".into();
    world.entry("hosts", spec);
    let watcher = world.watch_as("w");
    let log = world
        .until("its error", |log| {
            log.entry("hosts")
                .is_some_and(|entry| entry["state"]["type"] == "invalid")
        })
        .await;
    let failure = log.entry("hosts").unwrap()["state"]["failure"]["message"].to_string();
    assert!(failure.contains("retain: Referenced"), "{failure}");
    watcher.stop().await;
}
