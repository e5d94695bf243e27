//! Leading, standing by, taking over; and a bus that goes away or is another one.

use anteroom_bus::{Bus as _, BusExt as _};
use std::time::Duration;

use crate::support::{CLUSTER_POLICIES, ENTRIES, INGRESS_VIEW, INGRESSES, Log, World};

use anteroom_model::{ViewId, ViewState};
use anteroom_simapi::{Fault, Matching};
use anteroom_wire::replica_beat::ReplicaBeat;
use serde_json::json;

#[tokio::test]
async fn a_successor_publishes_only_the_difference() {
    let world = World::start().await;
    for n in 0..50 {
        world.ingress(&format!("i{n}"), "x");
    }
    world.ingress_entry("hosts");
    world.entry("services", json!({"resource": {"kind": "services"}}));
    let first = world.watch_as("a");
    world
        .until("the views", |log| {
            log.is_synced(INGRESS_VIEW) && log.is_synced("services.v1")
        })
        .await;
    first.kill().await;
    // Nobody watches while this happens.
    world.sim.delete(INGRESSES, "default", "i7").unwrap();
    world.ingress("i8", "y");
    world.ingress("new", "z");
    world.sim.delete(ENTRIES, "", "services").unwrap();
    let before = world.log();

    let second = world.watch_as("b");
    let after = world
        .until("the next term", |log| {
            log.is_synced(INGRESS_VIEW)
                && log.views[INGRESS_VIEW].epoch > before.views[INGRESS_VIEW].epoch
        })
        .await;
    assert_eq!(
        after.written(INGRESS_VIEW) - before.written(INGRESS_VIEW),
        3
    );
    assert_eq!(after.names(INGRESS_VIEW).len(), 50);
    assert_eq!(
        after.object(INGRESS_VIEW, "default/i8").unwrap()["spec"]["rules"][0]["host"],
        "y"
    );
    world
        .until("what nobody needs to be freed", |log| {
            log.state("services.v1") == Some(&ViewState::Dropped)
        })
        .await;
    assert_eq!(
        after.written("anteroom:kinds"),
        before.written("anteroom:kinds"),
        "nothing new"
    );
    second.stop().await;
}

/// A successor whom the endpoint does not answer serves what its predecessor read, once a
/// replica says how old that is.
#[tokio::test]
async fn a_successor_serves_the_last_answer_of_a_call_that_fails() {
    let world = World::start().await;
    let call = json!({"apiCall": {"urlPath": "/api/v1/services", "retryLimit": 0},
        "onFailure": "ServeStale", "maxStalenessSeconds": 600});
    world.entry("services", call);
    let view = |log: &Log| {
        let of_a_call = |view: &&String| view.starts_with("apicall:");
        log.views.keys().find(of_a_call).cloned()
    };
    let first = world.watch_as("a");
    let is_synced = |log: &Log| view(log).is_some_and(|view| log.is_synced(&view));
    let before = world.until("the answer", is_synced).await;
    first.kill().await;
    world
        .sim
        .fault(Fault::Fail {
            matching: Matching::new("list", "services"),
            status: 500,
            retry_after_seconds: None,
            count: None,
        })
        .unwrap();

    let view = view(&before).unwrap();
    let second = world.watch_as("b");
    let beat = ReplicaBeat {
        replica: "r".to_owned(),
        ages_ms: vec![(ViewId::new(view.as_str()), 5_000)],
        ..ReplicaBeat::default()
    };
    let told = async {
        loop {
            world.bus.send(&beat).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let served = world.until("the last answer to be served", |log| {
        log.is_synced(&view) && log.views[&view].epoch > before.views[&view].epoch
    });
    let after = tokio::select! {
        after = served => after,
        () = told => unreachable!(),
    };
    assert_eq!(after.written(&view), before.written(&view));
    assert_eq!(after.names(&view), before.names(&view));
    second.stop().await;
}

/// The writer remembers the record, and its digests claim that the log has the record.
#[tokio::test]
async fn a_record_that_the_log_lost_within_a_term_is_written_again_once_a_reader_misses_it() {
    let world = World::start().await;
    world.ingress("a", "x");
    world.ingress_entry("hosts");
    let watcher = world.watch_as("a");
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let head = world.bus.head().await.unwrap();
    world.ingress("late", "y");
    let before = world
        .until("its record", |log| log.names(INGRESS_VIEW).len() == 2)
        .await;
    world.bus.faults().lose_in_log(head.last, usize::MAX);

    let beat = ReplicaBeat {
        replica: "r".to_owned(),
        contradicted: vec![ViewId::new(INGRESS_VIEW)],
        ..ReplicaBeat::default()
    };
    let told = async {
        loop {
            world.bus.send(&beat).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let mended = world.until("the next term", |log| {
        log.is_synced(INGRESS_VIEW)
            && log.views[INGRESS_VIEW].epoch > before.views[INGRESS_VIEW].epoch
    });
    let after = tokio::select! {
        after = mended => after,
        () = told => unreachable!(),
    };
    let written = after.written(INGRESS_VIEW) - before.written(INGRESS_VIEW);
    assert_eq!(written, 1, "the others are there");
    assert_eq!(after.names(INGRESS_VIEW).len(), 2);
    watcher.stop().await;
}

#[tokio::test]
async fn a_standby_is_ready_does_nothing_and_is_handed_over_to() {
    let world = World::start().await;
    world.ingress_entry("hosts");
    let leader = world.watch_as("a");
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let standby = world.watch_as("b");
    standby.until_ready().await;
    let term = world.log().views[INGRESS_VIEW].epoch.term();
    leader.stop().await; // Its leases are handed back.
    world
        .until("the standby to lead", |log| {
            log.is_synced(INGRESS_VIEW) && log.views[INGRESS_VIEW].epoch.term() > term
        })
        .await;
    standby.stop().await;
}

#[tokio::test]
async fn a_leader_that_was_cut_off_stops_writing_and_stands_by() {
    let world = World::start().await;
    world.ingress_entry("hosts");
    let link = std::sync::Arc::new(world.bus.join());
    let faults = link.faults();
    let first = world.watch_on("a", link);
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let term = world.log().views[INGRESS_VIEW].epoch.term();
    faults.cut();
    let second = world.watch_as("b");
    world
        .until("the second to lead", |log| {
            log.views[INGRESS_VIEW].epoch.term() > term
        })
        .await;
    world.ingress("late", "x");
    world
        .until("its write", |log| {
            log.names(INGRESS_VIEW) == ["default/late"]
        })
        .await;
    faults.mend();
    // Both see every change; the first may write none of them.
    world
        .until_asked("the first to stop watching", |stats| {
            stats.watches_on(INGRESSES) == 1
        })
        .await;
    first.until_ready().await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn changes_wait_for_a_bus_that_is_away_and_are_written_once() {
    let world = World::start().await;
    world.ingress("a", "0");
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let before = world.log().written(INGRESS_VIEW);
    world.bus.faults().stop();
    for n in 1..=100 {
        world.ingress("a", &n.to_string());
    }
    let watched = format!("anteroom_watch_events_total{{view=\"{INGRESS_VIEW}\"}} 100");
    while !watcher.service.metrics.encode().contains(&watched) {
        tokio::task::yield_now().await;
    }
    world.bus.faults().start();
    let last = |log: &crate::support::Log| {
        let object = log.object(INGRESS_VIEW, "default/a").unwrap();
        object["spec"]["rules"][0]["host"] == "100"
    };
    let log = world.until("the last state", last).await;
    assert!(
        log.written(INGRESS_VIEW) - before <= 2,
        "what was on its way, and the last"
    );
    watcher.stop().await;
}

#[tokio::test]
async fn a_log_made_anew_is_filled_again() {
    let world = World::start().await;
    world.ingress("a", "a");
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    let before = world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    world.bus.faults().remake_log();
    world.ingress("b", "b");
    let after = world
        .until("everything again", |log| {
            log.is_synced(INGRESS_VIEW) && log.names(INGRESS_VIEW) == ["default/a", "default/b"]
        })
        .await;
    assert!(after.views[INGRESS_VIEW].epoch.term() > before.views[INGRESS_VIEW].epoch.term());
    watcher.until_ready().await;
    watcher.stop().await;
}

#[tokio::test]
async fn a_watcher_waits_for_an_absent_bus_or_definitions_and_says_so() {
    let world = World::bare().await;
    world.bus.faults().stop();
    let watcher = world.watch_as("w");
    let waits = |check: &'static str, what: &'static str| {
        let watcher = &watcher;
        async move {
            let waited = tokio::time::timeout(crate::support::PATIENCE, async {
                while !watcher
                    .waits_for(check)
                    .is_some_and(|waits| waits.contains(what))
                {
                    tokio::task::yield_now().await;
                }
            });
            assert!(
                waited.await.is_ok(),
                "{:?}",
                watcher.service.readiness.report()
            );
        }
    };
    waits("bus", "the bus").await;
    world.bus.faults().start();
    waits("entries", "CachedContextEntry").await;
    waits("policies", "Policy").await;
    world.install_crds();
    world.ingress_entry("hosts");
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    watcher.until_ready().await;
    watcher.stop().await;
}

#[tokio::test]
async fn policies_are_published_without_their_status_and_told_what_they_lack() {
    let world = World::start().await;
    let policy = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "unique-host", "managedFields": []},
        "spec": {"rules": [{
            "name": "unique-host",
            "match": {"any": [{"resources": {"kinds": ["Ingress"]}}]},
            "context": [{"name": "hosts", "cachedContextEntry": {"name": "hosts", "jmespath": "items[].spec.rules[].host"}}],
            "validate": {"message": "taken", "deny": {"conditions": {"any": [{
                "key": "{{ request.object.spec.rules[].host }}", "operator": "AnyIn", "value": "{{ hosts }}"}]}}},
        }]},
    });
    world.sim.put(CLUSTER_POLICIES, policy).unwrap();
    let watcher = world.watch_as("w");
    world
        .until_ready(CLUSTER_POLICIES, "unique-host", "False", "EntryNotFound")
        .await;
    world.ingress_entry("hosts");
    world
        .until_ready(CLUSTER_POLICIES, "unique-host", "False", "NoWebhook")
        .await;
    let _enforcing = world.enforcing(&[INGRESS_VIEW]);
    world
        .until_ready(CLUSTER_POLICIES, "unique-host", "True", "Succeeded")
        .await;
    let log = world
        .until("the policies", |log| log.is_synced("anteroom:policies"))
        .await;
    let published = log.object("anteroom:policies", "unique-host").unwrap();
    assert_eq!(published["kind"], "ClusterPolicy");
    assert!(published.get("status").is_none());
    assert_eq!(
        log.written("anteroom:policies"),
        1,
        "its status is no change"
    );
    watcher.stop().await;
}

#[tokio::test]
async fn authors_are_told_by_figures_and_events() {
    let world = World::start().await;
    world.ingress("a", "a");
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    let ready = world.until_ready(ENTRIES, "hosts", "True", "Synced").await;
    assert_eq!(ready["observedGeneration"], 1);
    let has_figures =
        |world: &World| world.sim.get(ENTRIES, "", "hosts").unwrap()["status"]["objects"] == 1;
    world.until_asked("figures", |_| has_figures(&world)).await;
    let status = world.sim.get(ENTRIES, "", "hosts").unwrap()["status"].clone();
    assert_eq!(status["view"], INGRESS_VIEW);
    assert!(status["bytes"].as_i64().unwrap() > 50);
    let events = || world.sim.objects("events.events.k8s.io").unwrap();
    world
        .until_asked("an event", |_| {
            events().iter().any(|event| {
                let event: serde_json::Value = serde_json::from_slice(event).unwrap();
                event["reason"] == "Synced" && event["regarding"]["name"] == "hosts"
            })
        })
        .await;
    // What was written comes back by the watch, and changes nothing.
    let log = world.log();
    assert_eq!(log.written("anteroom:entries"), 1);
    watcher.stop().await;
}
