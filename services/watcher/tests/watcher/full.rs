//! A log that is full: the view that does not fit fails alone, and comes back by itself.

use std::time::Duration;

use anteroom_model::ViewState;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::{ENTRIES, INGRESS_VIEW, Log, World};

const MAPS: &str = "configmaps";
const MAPS_VIEW: &str = "configmaps.v1";

/// The limit of the log, and the size of an object.
const LOG_BYTES_MAX: u64 = 2 * 1024 * 1024;
const MAP_BYTES: usize = 100 * 1024;

/// The time within which a view is whole again once there is room.
const RECOVERY_MAX: Duration = Duration::from_secs(30);

fn put_map(world: &World, at: usize) {
    let map = json!({
        "metadata": {"name": format!("map-{at}"), "namespace": "default"},
        "data": {"text": "x".repeat(MAP_BYTES)},
    });
    world.sim.put(MAPS, map).unwrap();
}

/// Changes the second view, and waits until its readers have the change.
async fn the_other_view_goes_on(world: &World, name: &str) {
    world.ingress(name, name);
    let key = format!("default/{name}");
    let has = |log: &Log| log.names(INGRESS_VIEW).contains(&key.as_str());
    let log = world.until(name, has).await;
    assert!(log.is_synced(INGRESS_VIEW), "{name}");
}

async fn recovers(world: &World, objects: usize) {
    let begun = Instant::now();
    world
        .until("all that is left", |log| {
            log.is_synced(MAPS_VIEW) && log.names(MAPS_VIEW).len() == objects
        })
        .await;
    assert!(begun.elapsed() < RECOVERY_MAX);
}

#[tokio::test]
async fn a_view_that_fills_the_log_fails_alone_and_recovers_once_objects_are_deleted() {
    let world = World::start().await;
    world.bus.faults().limit_log(Some(LOG_BYTES_MAX));
    world.ingress_entry("hosts");
    world.entry("maps", json!({"resource": {"kind": "configmaps"}}));
    (0..5).for_each(|at| put_map(&world, at));
    let watcher = world.watch_as("w");
    recovers(&world, 5).await;
    the_other_view_goes_on(&world, "before").await;

    for at in 5..30 {
        put_map(&world, at);
        the_other_view_goes_on(&world, &format!("while-{at}")).await;
    }
    world
        .until("no room", |log| log.failure(MAPS_VIEW) == Some("LogFull"))
        .await;
    assert!(world.log().names(MAPS_VIEW).is_empty());
    world.until_ready(ENTRIES, "maps", "False", "LogFull").await;
    world.until_ready(ENTRIES, "hosts", "True", "Synced").await;
    the_other_view_goes_on(&world, "full").await;
    let figures = watcher.service.metrics.encode();
    assert!(
        figures.contains("anteroom_log_bytes_max 2097152"),
        "{figures}"
    );
    // The figures are of the last second, in which objects came.
    let refused = format!("anteroom_watch_refused_bytes{{view=\"{MAPS_VIEW}\"}} ");
    assert!(figures.contains(&refused) && !figures.contains(&format!("{refused}0")));

    for at in 8..30 {
        world
            .sim
            .delete(MAPS, "default", &format!("map-{at}"))
            .unwrap();
        the_other_view_goes_on(&world, &format!("deleting-{at}")).await;
    }
    recovers(&world, 8).await;
    world.until_ready(ENTRIES, "maps", "True", "Synced").await;
    watcher.stop().await;
}

#[tokio::test]
async fn a_view_without_room_recovers_once_the_limit_is_raised() {
    let world = World::start().await;
    world.bus.faults().limit_log(Some(LOG_BYTES_MAX));
    world.entry("maps", json!({"resource": {"kind": "configmaps"}}));
    (0..30).for_each(|at| put_map(&world, at));
    let watcher = world.watch_as("w");
    world
        .until("no room", |log| log.failure(MAPS_VIEW) == Some("LogFull"))
        .await;
    world.bus.faults().limit_log(Some(4 * LOG_BYTES_MAX));
    recovers(&world, 30).await;
    watcher.stop().await;
}

/// The entry of the view that fills the log is deleted, and the one that waits for room has it.
#[tokio::test]
async fn a_view_without_room_recovers_once_another_entry_is_deleted() {
    let world = World::start().await;
    world.bus.faults().limit_log(Some(LOG_BYTES_MAX));
    world.entry("maps", json!({"resource": {"kind": "configmaps"}}));
    (0..10).for_each(|at| put_map(&world, at));
    let watcher = world.watch_as("w");
    recovers(&world, 10).await;
    let lease = |at: usize| {
        json!({
            "metadata": {"name": format!("lease-{at}"), "namespace": "default"},
            "spec": {"holderIdentity": "x".repeat(MAP_BYTES)},
        })
    };
    for at in 0..12 {
        world
            .sim
            .put("leases.coordination.k8s.io", lease(at))
            .unwrap();
    }
    let resource = json!({"group": "coordination.k8s.io", "kind": "leases"});
    world.entry("leases", json!({"resource": resource}));
    let view = "leases.v1.coordination.k8s.io";
    world
        .until("no room", |log| log.failure(view) == Some("LogFull"))
        .await;
    assert!(world.log().is_synced(MAPS_VIEW));
    world.sim.delete(ENTRIES, "", "maps").unwrap();
    let dropped = |log: &Log| log.state(MAPS_VIEW) == Some(&ViewState::Dropped);
    world.until("the other to be dropped", dropped).await;
    let whole = |log: &Log| log.is_synced(view) && log.names(view).len() == 12;
    let recovered = timeout(RECOVERY_MAX, world.until("all leases", whole)).await;
    assert!(recovered.is_ok());
    watcher.stop().await;
}

/// A policy of the default namespace that reads its ConfigMaps under many selectors, one view each.
fn policy_with_selectors(count: usize) -> serde_json::Value {
    let context = |at| {
        json!({"name": format!("v{at}"), "resourceCache": {
            "version": "v1", "kind": "configmaps", "labelSelector": format!("copy notin (none{at})"),
        }})
    };
    let context: Vec<_> = (0..count).map(context).collect();
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": {"name": "hoarder", "namespace": "default"},
        "spec": {"rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Ingress"]}}]},
            "context": context,
            "validate": {"message": "m", "deny": {"conditions": {"any": [{
                "key": "{{ length(v0) }}", "operator": "Equals", "value": 0}]}}},
        }]},
    })
}

#[tokio::test]
async fn views_that_only_a_tenant_reads_hold_no_more_than_its_quota() {
    const VIEWS: usize = 20;
    const OBJECTS: usize = 3;
    let world = World::start().await;
    world.ingress_entry("hosts");
    world.entry("maps", json!({"resource": {"kind": "configmaps"}}));
    (0..OBJECTS).for_each(|at| put_map(&world, at));
    let args = anteroom_watcher::Args {
        namespace_log_bytes_max: 10 * (OBJECTS * MAP_BYTES) as u64,
        ..anteroom_watcher::Args::default()
    };
    let watcher = world.watch_with("w", std::sync::Arc::new(world.bus.join()), args);
    recovers(&world, OBJECTS).await;
    let policy = policy_with_selectors(VIEWS);
    world.sim.put("policies.kyverno.io", policy).unwrap();
    let own_views = |log: &Log, wanted: &dyn Fn(&str) -> bool| {
        let views = log.views.keys().map(String::as_str);
        let own = views.filter(|view| *view != MAPS_VIEW && view.starts_with(MAPS_VIEW));
        own.filter(|view| wanted(view)).count()
    };
    let log = world
        .until("a verdict on each view", |log| {
            let is_settled = |view: &str| log.is_synced(view) || log.failure(view).is_some();
            own_views(log, &is_settled) == VIEWS
        })
        .await;
    let over = own_views(&log, &|view| log.failure(view) == Some("QuotaExceeded"));
    assert_eq!(own_views(&log, &|view| log.is_synced(view)), VIEWS - over);
    assert!((VIEWS - 9..VIEWS).contains(&over), "{over}");
    assert!(log.is_synced(MAPS_VIEW), "an entry has no quota");
    the_other_view_goes_on(&world, "beside").await;

    // An administrator's policy that reads the same has no quota, and then its views have none.
    let mut cluster = policy_with_selectors(VIEWS);
    cluster["kind"] = json!("ClusterPolicy");
    cluster["metadata"] = json!({"name": "administrator"});
    for context in cluster["spec"]["rules"][0]["context"]
        .as_array_mut()
        .unwrap()
    {
        context["resourceCache"]["namespace"] = json!("default");
    }
    world
        .sim
        .put("clusterpolicies.kyverno.io", cluster)
        .unwrap();
    world
        .until("all views", |log| {
            own_views(log, &|view| log.is_synced(view)) == VIEWS
        })
        .await;
    watcher.stop().await;
}
