//! Exceptions become a view where they are to be read, and none are there where they are not.

use std::sync::Arc;

use crate::support::World;
use serde_json::{Value, json};

const VIEW: &str = "anteroom:exceptions";

const EXCEPTIONS: &str = "policyexceptions.kyverno.io";

fn exception(namespace: &str, name: &str, selector: bool) -> Value {
    let mut resources = json!({"kinds": ["Pod"]});
    if selector {
        resources["namespaceSelector"] = json!({"matchLabels": {"env": "test"}});
    }
    json!({
        "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "match": {"any": [{"resources": resources}]},
            "exceptions": [{"policyName": "p", "ruleNames": ["*"]}],
        },
    })
}

fn watch(world: &World, namespace: Option<&str>) -> crate::support::Watcher {
    let args = anteroom_watcher::Args {
        exception_namespace: namespace.map(str::to_owned),
        ..anteroom_watcher::Args::default()
    };
    world.watch_with("w", Arc::new(world.bus.join()), args)
}

#[tokio::test]
async fn exceptions_of_the_namespace_are_published_with_what_they_need() {
    let world = World::start().await;
    for namespace in ["here", "there"] {
        world
            .sim
            .put(EXCEPTIONS, exception(namespace, "a", false))
            .unwrap();
    }
    let watcher = watch(&world, Some("here"));
    let log = world
        .until("the exception", |log| log.is_synced(VIEW))
        .await;
    assert_eq!(log.names(VIEW), ["here/a"]);
    let found = log.object(VIEW, "here/a").unwrap();
    assert_eq!(found["kind"], "PolicyException");
    assert!(found["metadata"].get("resourceVersion").is_none());

    world
        .sim
        .put(EXCEPTIONS, exception("here", "b", true))
        .unwrap();
    let log = world
        .until("another one, and what it is about", |log| {
            log.names(VIEW).len() == 2 && log.is_synced("namespaces.v1")
        })
        .await;
    assert!(log.object(VIEW, "here/b").is_some());
    world.sim.delete(EXCEPTIONS, "here", "b").unwrap();
    world
        .until("it to be gone with what it needed", |log| {
            log.names(VIEW) == ["here/a"] && !log.is_synced("namespaces.v1")
        })
        .await;
    watcher.stop().await;
}

#[tokio::test]
async fn exceptions_are_read_in_all_namespaces_or_in_none_by_option() {
    for (namespace, names) in [
        (Some("*"), vec!["here/a", "there/a"]),
        (Some("other"), vec![]),
        (None, vec![]),
    ] {
        let world = World::start().await;
        for namespace in ["here", "there"] {
            world
                .sim
                .put(EXCEPTIONS, exception(namespace, "a", false))
                .unwrap();
        }
        let watcher = watch(&world, namespace);
        let log = world.until("the view", |log| log.is_synced(VIEW)).await;
        assert_eq!(log.names(VIEW), names, "{namespace:?}");
        watcher.stop().await;
    }
}

#[tokio::test]
async fn the_exceptions_view_is_empty_where_their_kind_is_not_served() {
    let world = World::bare().await;
    let watcher = watch(&world, Some("*"));
    let log = world.until("the view", |log| log.is_synced(VIEW)).await;
    assert!(log.names(VIEW).is_empty());
    watcher.stop().await;
}
