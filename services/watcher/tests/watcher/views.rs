//! Entries become views: one watch for each source, freed with its last entry, and no fault of one
//! touches another.

use crate::support::{ENTRIES, INGRESS_VIEW, INGRESSES, World};
use anteroom_model::{ObjectKey, ViewState};
use anteroom_simapi::{Fault, Matching};
use serde_json::json;

#[tokio::test]
async fn an_entry_becomes_a_view_that_is_kept_up_to_date() {
    let world = World::start().await;
    world.ingress("a", "a.example");
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    let log = world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let object = log.object(INGRESS_VIEW, "default/a").unwrap();
    assert_eq!(object["kind"], "Ingress");
    assert_eq!(object["metadata"]["annotations"], json!({"a": "b"}));
    assert!(object["metadata"].get("managedFields").is_none());
    let entry = log.entry("hosts").unwrap();
    assert_eq!(entry["state"]["type"], "bound");
    assert_eq!(entry["state"]["view"], INGRESS_VIEW);
    assert!(
        log.object("anteroom:kinds", "Ingress.v1.networking.k8s.io")
            .is_some()
    );

    world.ingress("b", "b.example");
    world
        .until("an addition", |log| log.names(INGRESS_VIEW).len() == 2)
        .await;
    world.sim.delete(INGRESSES, "default", "a").unwrap();
    world
        .until("a deletion", |log| log.names(INGRESS_VIEW) == ["default/b"])
        .await;
    watcher.until_ready().await;
    watcher.stop().await;
}

#[tokio::test]
async fn two_entries_on_one_source_are_one_watch_and_the_last_frees_it() {
    let world = World::start().await;
    world.ingress("a", "a.example");
    world.ingress_entry("one");
    world.entry("two", json!({"resource": {"group": "apis/networking.k8s.io", "version": "v1", "kind": "ingresses"}}));
    let watcher = world.watch_as("w");
    let bound = |log: &crate::support::Log, name| {
        log.entry(name)
            .is_some_and(|e| e["state"]["view"] == INGRESS_VIEW)
    };
    world
        .until("both entries", |log| bound(log, "one") && bound(log, "two"))
        .await;
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    world
        .until_asked("a watch", |stats| stats.watches_on(INGRESSES) > 0)
        .await;
    assert_eq!(world.sim.stats().count("watch", INGRESSES), 1);
    assert_eq!(world.sim.stats().count("list", INGRESSES), 1);

    world.sim.delete(ENTRIES, "", "one").unwrap();
    world
        .until("one to be gone", |log| {
            log.names("anteroom:entries") == ["cachedcontextentries/two"]
        })
        .await;
    assert!(world.log().is_synced(INGRESS_VIEW));
    world.sim.delete(ENTRIES, "", "two").unwrap();
    world
        .until("the view to be freed", |log| {
            log.state(INGRESS_VIEW) == Some(&ViewState::Dropped)
        })
        .await;
    world
        .until_asked("the watch to end", |stats| stats.watches_on(INGRESSES) == 0)
        .await;

    world.ingress_entry("three");
    let log = world
        .until("the view again", |log| log.is_synced(INGRESS_VIEW))
        .await;
    assert_eq!(log.names(INGRESS_VIEW), ["default/a"]);
    watcher.stop().await;
}

#[tokio::test]
async fn an_expired_version_is_listed_again_and_the_difference_is_published() {
    let world = World::start().await;
    for name in ["a", "b", "c"] {
        world.ingress(name, name);
    }
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let resource = Some(INGRESSES.into());
    world
        .sim
        .fault(Fault::StallWatches {
            resource: resource.clone(),
        })
        .unwrap();
    world.sim.delete(INGRESSES, "default", "a").unwrap();
    world.ingress("d", "d");
    world
        .sim
        .fault(Fault::Compact {
            resource: resource.clone(),
        })
        .unwrap();
    world
        .sim
        .fault(Fault::CutWatches {
            resource: resource.clone(),
            clean: true,
        })
        .unwrap();
    world.sim.fault(Fault::ResumeWatches { resource }).unwrap();
    let log = world
        .until("the difference", |log| {
            log.names(INGRESS_VIEW) == ["default/b", "default/c", "default/d"]
        })
        .await;
    assert_eq!(
        log.written(INGRESS_VIEW),
        5,
        "three, then one deletion and one addition"
    );
    watcher.stop().await;
}

#[tokio::test]
async fn a_forbidden_view_fails_alone_and_recovers_by_itself() {
    let world = World::start().await;
    world.ingress("a", "a");
    world.ingress_entry("hosts");
    world.entry("services", json!({"resource": {"kind": "services"}}));
    world
        .sim
        .fault(Fault::Forbid {
            resource: "services".into(),
        })
        .unwrap();
    let watcher = world.watch_as("w");
    world
        .until("a failure", |log| {
            log.failure("services.v1") == Some("Forbidden")
        })
        .await;
    world
        .until("the other view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    world
        .until_ready(ENTRIES, "services", "False", "Forbidden")
        .await;
    watcher.until_ready().await;
    world
        .sim
        .fault(Fault::Allow {
            resource: "services".into(),
        })
        .unwrap();
    world
        .until("recovery", |log| log.is_synced("services.v1"))
        .await;
    world
        .until_ready(ENTRIES, "services", "True", "Synced")
        .await;

    // Revoked while the watch is open.
    let resource: anteroom_simapi::ResourceName = "services".into();
    world
        .sim
        .fault(Fault::Forbid {
            resource: resource.clone(),
        })
        .unwrap();
    world
        .sim
        .fault(Fault::CutWatches {
            resource: Some(resource),
            clean: false,
        })
        .unwrap();
    world
        .until("a failure", |log| {
            log.failure("services.v1") == Some("Forbidden")
        })
        .await;
    assert!(world.log().is_synced(INGRESS_VIEW));
    watcher.stop().await;
}

#[tokio::test]
async fn a_definition_installed_later_makes_the_entry_work() {
    let world = World::start().await;
    world.entry(
        "widgets",
        json!({"resource": {"group": "example.dev", "kind": "widgets"}}),
    );
    let watcher = world.watch_as("w");
    world
        .until_ready(ENTRIES, "widgets", "False", "ResourceNotFound")
        .await;
    let invalid = |log: &crate::support::Log| {
        let entry = log.entry("widgets");
        entry.is_some_and(|entry| entry["state"]["failure"]["reason"] == "ResourceNotFound")
    };
    world.until("the invalid entry", invalid).await;
    let crd = json!({
        "metadata": {"name": "widgets.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {}}],
        },
    });
    world
        .sim
        .put("customresourcedefinitions.apiextensions.k8s.io", crd)
        .unwrap();
    let widget = json!({"metadata": {"name": "w", "namespace": "default"}});
    world.sim.put("widgets.example.dev", widget).unwrap();
    world
        .until("the view", |log| {
            log.names("widgets.v1.example.dev") == ["default/w"]
        })
        .await;
    world
        .until_ready(ENTRIES, "widgets", "True", "Synced")
        .await;
    watcher.stop().await;
}

#[tokio::test]
async fn a_busy_api_server_is_given_the_time_it_asks_for() {
    let world = World::start().await;
    world.ingress("a", "a");
    world.ingress_entry("hosts");
    for status in [429, 503] {
        let fault = Fault::Fail {
            matching: Matching::new("list", INGRESSES),
            status,
            retry_after_seconds: Some(1),
            count: Some(1),
        };
        world.sim.fault(fault).unwrap();
    }
    let watcher = world.watch_as("w");
    world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let stats = world.sim.stats();
    assert_eq!(
        stats.count_status("list", INGRESSES, 429),
        1,
        "asked once, and then not before"
    );
    assert_eq!(stats.count_status("list", INGRESSES, 503), 1);
    watcher.stop().await;
}

#[tokio::test]
async fn a_malformed_object_is_skipped_and_its_view_goes_on() {
    let world = World::start().await;
    world.ingress("a", "a");
    world.ingress("b", "b");
    let fault = Fault::Malform {
        resource: INGRESSES.into(),
        namespace: "default".into(),
        name: "a".into(),
        body: r#"{"metadata":{}}"#.into(),
    };
    world.sim.fault(fault).unwrap();
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    let log = world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    assert_eq!(log.names(INGRESS_VIEW), ["default/b"]);
    // The writer's beat says it, which may come after the first word of the view.
    world
        .until_asked("the author to be told", |_| {
            let ready = world.ready(ENTRIES, "hosts");
            let message = ready["message"].as_str().unwrap_or_default();
            ready["status"] == "True" && message.contains("1 malformed")
        })
        .await;
    world.ingress("c", "c");
    world
        .until("another object", |log| {
            log.names(INGRESS_VIEW).contains(&"default/c")
        })
        .await;
    let text = watcher.service.metrics.encode();
    let label = format!("anteroom_watch_malformed_objects_total{{view=\"{INGRESS_VIEW}\"}} 1");
    assert!(text.contains(&label), "{text}");
    watcher.stop().await;
}

/// Puts an object of this body into the place of the Ingress `default/NAME`.
fn malform(world: &World, name: &str, body: String) {
    let fault = Fault::Malform {
        resource: INGRESSES.into(),
        namespace: "default".into(),
        name: name.into(),
        body,
    };
    world.sim.fault(fault).unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_carried_is_a_stub_and_its_view_goes_on() {
    let world = World::start().await;
    world.ingress("a", "a");
    world.ingress("deep", "deep");
    let nested = format!("{}1{}", "[".repeat(600), "]".repeat(600));
    let body = format!(
        r#"{{"metadata":{{"name":"deep","namespace":"default","resourceVersion":"1","labels":{{"app":"web"}}}},"x":{nested}}}"#
    );
    malform(&world, "deep", body);
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    let log = world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    assert_eq!(log.names(INGRESS_VIEW), ["default/a", "default/deep"]);
    let stub = log.object(INGRESS_VIEW, "default/deep").unwrap();
    assert_eq!(stub["metadata"], json!({"labels": {"app": "web"}}));
    let reason = stub["unreadable"].as_str().unwrap();
    assert!(reason.contains("deeper than 512 levels"), "{reason}");
    world.sim.fault(Fault::Clear {}).unwrap();
    world.ingress("deep", "flat");
    world
        .until("the object", |log| {
            log.object(INGRESS_VIEW, "default/deep")
                .is_some_and(|object| object.get("unreadable").is_none())
        })
        .await;
    watcher.stop().await;
}

#[tokio::test]
async fn an_object_with_a_long_name_is_in_its_view_until_it_goes() {
    let world = World::start().await;
    world.ingress("a", "a");
    let name = ":".repeat(4_000);
    world.ingress(&name, "long");
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    let log = world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let key = ObjectKey::of("default", &name).to_string();
    let object = log.object(INGRESS_VIEW, &key).unwrap();
    assert_eq!(object["metadata"]["name"], name);
    world.sim.delete(INGRESSES, "default", &name).unwrap();
    world
        .until("its end", |log| log.names(INGRESS_VIEW) == ["default/a"])
        .await;
    watcher.stop().await;
}

#[tokio::test]
async fn a_restored_source_is_written_anew() {
    let world = World::start().await;
    world.ingress("a", "before");
    let backup = world.sim.version();
    world.ingress_entry("hosts");
    let watcher = world.watch_as("w");
    let before = world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    for n in 0..20 {
        world.ingress("b", &format!("b{n}"));
    }
    world
        .until("b", |log| log.names(INGRESS_VIEW).len() == 2)
        .await;
    // The entry is younger than the backup, so it is made again.
    world
        .sim
        .fault(Fault::Restore {
            resource_version: backup,
            raised_by: 0,
        })
        .unwrap();
    world.ingress_entry("hosts");
    let after = world
        .until("the restored state", |log| {
            log.is_synced(INGRESS_VIEW) && log.names(INGRESS_VIEW) == ["default/a"]
        })
        .await;
    let epoch = |log: &crate::support::Log| log.views[INGRESS_VIEW].epoch;
    assert!(epoch(&after) > epoch(&before));
    watcher.stop().await;
}

/// A restore of etcd may raise the versions, as is advised. No version goes back then.
#[tokio::test]
async fn a_source_restored_with_raised_versions_is_written_anew() {
    let world = World::start().await;
    world.ingress_entry("hosts");
    for name in ["changed", "deleted", "same"] {
        world.ingress(name, "before");
    }
    let watcher = world.watch_as("w");
    let before = world
        .until("the view", |log| log.is_synced(INGRESS_VIEW))
        .await;
    let backup = world.sim.version();
    world.ingress("changed", "after");
    world.ingress("new", "after");
    world.sim.delete(INGRESSES, "default", "deleted").unwrap();
    let names = ["default/changed", "default/new", "default/same"];
    world
        .until("the changes", |log| log.names(INGRESS_VIEW) == names)
        .await;
    world
        .sim
        .fault(Fault::Restore {
            resource_version: backup,
            raised_by: 1_000_000,
        })
        .unwrap();
    let after = world
        .until("the restored state", |log| {
            log.is_synced(INGRESS_VIEW)
                && log.names(INGRESS_VIEW)[..2] == ["default/changed", "default/deleted"]
        })
        .await;
    let changed = after.object(INGRESS_VIEW, "default/changed").unwrap();
    assert_eq!(changed["spec"]["rules"][0]["host"], "before");
    assert_eq!(after.names(INGRESS_VIEW).len(), 3);
    let epoch = |log: &crate::support::Log| log.views[INGRESS_VIEW].epoch;
    assert!(
        epoch(&after) > epoch(&before),
        "readers forget the later versions"
    );
    watcher.stop().await;
}

#[tokio::test]
async fn bad_entries_say_what_is_wrong_with_them() {
    let world = World::start().await;
    world.ingress_entry("good");
    let ingresses = json!({"kind": "ingresses"});
    let like = json!([{"key": "a", "operator": "Like", "values": ["b"]}]);
    let selector = json!({"kind": "ingresses", "labelSelector": {"matchExpressions": like}});
    let field = json!({"kind": "ingresses", "fieldSelector": "spec.nonsense=1"});
    let cases = [
        ("neither", json!({}), "InvalidSpec"),
        (
            "both",
            json!({"resource": ingresses, "apiCall": {"url": "https://x"}}),
            "InvalidSpec",
        ),
        (
            "api-call",
            json!({"apiCall": {"url": "ftp://x"}}),
            "InvalidSpec",
        ),
        (
            "no-such",
            json!({"resource": {"kind": "nonsense"}}),
            "ResourceNotFound",
        ),
        ("selector", json!({"resource": selector}), "InvalidSpec"),
        ("field", json!({"resource": field}), "BadRequest"),
        ("type", json!({"resource": {"kind": 5}}), "InvalidSpec"),
    ];
    for (name, spec, _) in &cases {
        world.entry(name, spec.clone());
    }
    let watcher = world.watch_as("w");
    for (name, _, reason) in &cases {
        let ready = world.until_ready(ENTRIES, name, "False", reason).await;
        assert!(ready["message"].as_str().unwrap().len() > 20, "{ready}");
    }
    world.until_ready(ENTRIES, "good", "True", "Synced").await;
    watcher.stop().await;
}
