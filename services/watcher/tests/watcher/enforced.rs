//! A policy says Ready once the webhooks enforce it: heartbeats by hand, against the coordinator.

use std::time::Duration;

use crate::support::{CLUSTER_POLICIES, World};
use anteroom_bus::{Bus, BusExt as _};
use anteroom_model::Revision;
use anteroom_wire::webhook_beat::WebhookBeat;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, sync::DropGuard};

/// A policy on this kind, that reads nothing.
fn policy(name: &str, kind: &str, message: &str) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name},
        "spec": {"rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": [kind]}}]},
            "validate": {"message": message, "deny": {}},
        }]},
    })
}

/// A webhook that enforces the log up to this position, and no further than it goes, until the guard is dropped.
fn webhook(world: &World, name: &str, enforced: Revision) -> DropGuard {
    let (bus, stop) = (world.bus.join(), CancellationToken::new());
    let (guard, name) = (stop.clone().drop_guard(), name.to_owned());
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(100));
        loop {
            interval.tick().await;
            let Ok(head) = bus.head().await else { continue };
            let beat = WebhookBeat {
                webhook: name.clone(),
                incarnation: head.incarnation,
                compiled: enforced.min(head.last),
                enforced: enforced.min(head.last),
                ..WebhookBeat::default()
            };
            let _ = bus.send(&beat).await;
        }
    }));
    guard
}

async fn is(world: &World, name: &str, status: &str, reason: &str) -> Value {
    let ready = world.until_ready(CLUSTER_POLICIES, name, status, reason);
    ready.await
}

async fn head(world: &World) -> Revision {
    world.bus.head().await.unwrap().last
}

#[tokio::test]
async fn a_policy_and_each_change_of_it_wait_for_every_webhook() {
    let world = World::start().await;
    let watcher = world.watch_as("w");
    watcher.until_ready().await;
    let first = webhook(&world, "w1", Revision(u64::MAX));
    let before = head(&world).await;
    let behind = webhook(&world, "w2", before);
    let put = |message| {
        let policy = policy("p", "Ingress", message);
        world.sim.put(CLUSTER_POLICIES, policy).unwrap();
    };
    put("one");
    let said = is(&world, "p", "False", "NotEnforced").await;
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("webhook w2 has not read the policy"),
        "{message}"
    );
    drop(behind);
    let behind = webhook(&world, "w2", head(&world).await);
    let ready = is(&world, "p", "True", "Succeeded").await;
    assert_eq!(ready["observedGeneration"], 1);

    put("two");
    let said = is(&world, "p", "False", "NotEnforced").await;
    assert_eq!(said["observedGeneration"], 2);
    drop(behind);
    // Silent for long enough, it is not waited for any more.
    let ready = is(&world, "p", "True", "Succeeded").await;
    assert_eq!(ready["observedGeneration"], 2);

    // The next coordinator hears of nobody at first, and moves nothing.
    let policies = world.log().written("anteroom:policies");
    drop(first);
    watcher.stop().await;
    let watcher = world.watch_as("next");
    watcher.until_ready().await;
    world
        .sim
        .put(CLUSTER_POLICIES, policy("q", "Ingress", "q"))
        .unwrap();
    is(&world, "q", "False", "NoWebhook").await;
    assert_eq!(world.ready(CLUSTER_POLICIES, "p"), ready);
    assert_eq!(world.log().written("anteroom:policies"), policies + 1);
    let _first = webhook(&world, "w1", Revision(u64::MAX));
    is(&world, "q", "True", "Succeeded").await;
    assert_eq!(world.ready(CLUSTER_POLICIES, "p"), ready);
    watcher.stop().await;
}

/// The webhooks register a kind once they know that it is served.
#[tokio::test]
async fn a_kind_whose_definition_was_made_a_moment_before_is_known_first() {
    let world = World::start().await;
    let watcher = world.watch_as("w");
    watcher.until_ready().await;
    let _webhook = webhook(&world, "w1", Revision(u64::MAX));
    world
        .sim
        .put(CLUSTER_POLICIES, policy("warm", "Ingress", "m"))
        .unwrap();
    is(&world, "warm", "True", "Succeeded").await;

    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    });
    let definitions = "customresourcedefinitions.apiextensions.k8s.io";
    world.sim.put(definitions, definition).unwrap();
    world
        .sim
        .put(CLUSTER_POLICIES, policy("new", "Widget", "m"))
        .unwrap();
    is(&world, "new", "True", "Succeeded").await;
    let kinds = world.log();
    assert!(
        kinds
            .names("anteroom:kinds")
            .contains(&"Widget.v1.example.com")
    );

    // One that is not served at all keeps nobody waiting for ever.
    world
        .sim
        .put(CLUSTER_POLICIES, policy("never", "Gadget", "m"))
        .unwrap();
    is(&world, "never", "True", "Succeeded").await;
    watcher.stop().await;
}
