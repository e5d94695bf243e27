//! Many views on one type: few watches, and no fault of theirs makes an answer wrong.

use std::collections::BTreeSet;

use crate::support::{ENTRIES, INGRESS_VIEW, Log, World};
use anteroom_model::ViewState;
use anteroom_simapi::{Fault, Matching, ResourceName};
use serde_json::{Value, json};

const CONFIGMAPS: &str = "configmaps";

fn put(world: &World, resource: &str, namespace: &str, name: &str, app: &str) {
    let metadata = json!({"name": name, "namespace": namespace, "labels": {"app": app}});
    world
        .sim
        .put(resource, json!({"metadata": metadata}))
        .unwrap();
}

fn labelled(world: &World, entry: &str, group: &str, kind: &str, app: &str) {
    let selector = json!({"matchLabels": {"app": app}});
    let resource =
        json!({"group": group, "version": "v1", "kind": kind, "labelSelector": selector});
    world.entry(entry, json!({"resource": resource}));
}

fn view_of<'a>(log: &'a Log, entry: &str) -> Option<&'a str> {
    log.entry(entry)?.pointer("/state/view")?.as_str()
}

fn is_synced(log: &Log, entry: &str) -> bool {
    view_of(log, entry).is_some_and(|view| log.is_synced(view))
}

fn names<'a>(log: &'a Log, entry: &str) -> BTreeSet<&'a str> {
    let view = view_of(log, entry).unwrap_or_default();
    log.names(view).into_iter().collect()
}

fn failure<'a>(log: &'a Log, view: &str) -> Option<&'a str> {
    match log.state(view)? {
        ViewState::Failed { failure } => Some(&failure.message),
        _ => None,
    }
}

/// ConfigMaps of ten applications, an entry for each, and one on another type.
async fn ten_views() -> World {
    let world = World::start().await;
    for n in 0..100 {
        put(
            &world,
            CONFIGMAPS,
            "default",
            &format!("c{n}"),
            &format!("a{}", n % 10),
        );
    }
    for n in 0..10 {
        labelled(&world, &format!("e{n}"), "", CONFIGMAPS, &format!("a{n}"));
    }
    world.ingress("a", "a");
    world.ingress_entry("hosts");
    world
}

fn ten_of_ten(log: &Log) -> bool {
    let mut entries = (0..10).map(|n| format!("e{n}"));
    entries.all(|entry| is_synced(log, &entry) && names(log, &entry).len() == 10)
        && log.is_synced(INGRESS_VIEW)
}

fn cut(world: &World, clean: bool) {
    let resource = Some(ResourceName::from(CONFIGMAPS));
    world
        .sim
        .fault(Fault::CutWatches { resource, clean })
        .unwrap();
}

/// 1,000 entries on 50 types are 50 watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_entries_on_fifty_types_are_fifty_watches() {
    let world = World::start().await;
    let plural = |n: usize| format!("things{n}");
    for n in 0..50 {
        let (plural, kind) = (plural(n), format!("Thing{n}"));
        let crd = json!({
            "metadata": {"name": format!("{plural}.example.dev")},
            "spec": {
                "group": "example.dev", "scope": "Namespaced",
                "names": {"plural": plural, "singular": format!("thing{n}"), "kind": kind,
                    "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {}}],
            },
        });
        world
            .sim
            .put("customresourcedefinitions.apiextensions.k8s.io", crd)
            .unwrap();
        for app in 0..20 {
            let resource = format!("{plural}.example.dev");
            put(
                &world,
                &resource,
                "default",
                &format!("o{app}"),
                &format!("a{app}"),
            );
            let entry = format!("e{n}-{app}");
            labelled(&world, &entry, "example.dev", &plural, &format!("a{app}"));
        }
    }
    let watcher = world.watch_as("w");
    let complete = |log: &Log| {
        let synced = log.views.iter().filter(|(view, record)| {
            view.starts_with("things") && record.state == ViewState::Synced && record.objects == 1
        });
        synced.count() == 1_000
    };
    world.until("a thousand views", complete).await;
    let on_things = |stats: &anteroom_simapi::Stats| -> usize {
        let all = (0..50).map(|n| stats.watches_on(&format!("{}.example.dev", plural(n))));
        all.sum()
    };
    world
        .until_asked("few watches", |stats| on_things(stats) == 50)
        .await;
    put(&world, "things7.example.dev", "default", "late", "a3");
    world
        .until("an addition", |log| {
            names(log, "e7-3") == BTreeSet::from(["default/late", "default/o3"])
        })
        .await;
    assert_eq!(on_things(&world.sim.stats()), 50);
    watcher.stop().await;
}

/// A resource that is allowed only in some namespaces is watched there; the forbidden namespaces
/// fail alone.
#[tokio::test]
async fn narrow_watches_serve_where_the_wide_one_is_forbidden() {
    let world = World::start().await;
    let resource = ResourceName::from(CONFIGMAPS);
    let everywhere = Fault::ForbidEverywhere {
        resource: resource.clone(),
    };
    world.sim.fault(everywhere).unwrap();
    for n in 0..20 {
        let namespace = format!("n{n}");
        put(&world, CONFIGMAPS, &namespace, "c", "x");
        let resource = json!({"version": "v1", "kind": CONFIGMAPS, "namespace": namespace});
        world.entry(&format!("e{n}"), json!({"resource": resource}));
    }
    world.entry(
        "all",
        json!({"resource": {"version": "v1", "kind": CONFIGMAPS}}),
    );
    let watcher = world.watch_as("w");
    let narrow = |log: &Log| {
        (0..20).all(|n| {
            let entry = format!("e{n}");
            is_synced(log, &entry) && names(log, &entry) == BTreeSet::from([&*format!("n{n}/c")])
        })
    };
    let wide_failed = |log: &Log| log.failure("configmaps.v1") == Some("Forbidden");
    world
        .until("the narrow ones", |log| narrow(log) && wide_failed(log))
        .await;
    put(&world, CONFIGMAPS, "n3", "late", "x");
    world
        .until("an addition", |log| {
            names(log, "e3").len() == 2 && wide_failed(log)
        })
        .await;
    world.sim.delete(CONFIGMAPS, "n3", "late").unwrap();
    world.sim.fault(Fault::Allow { resource }).unwrap();
    world
        .until("all of them", |log| {
            narrow(log) && is_synced(log, "all") && names(log, "all").len() == 20
        })
        .await;
    watcher.stop().await;
}

/// Rights that are taken away are told in the API server's words, touch nobody else, and
/// heal when they are given back.
#[tokio::test]
async fn rights_that_are_taken_away_fail_in_the_api_servers_words_and_heal() {
    let world = ten_views().await;
    let watcher = world.watch_as("w");
    world.until("every view", ten_of_ten).await;
    let resource = ResourceName::from(CONFIGMAPS);
    let forbid = Fault::Forbid {
        resource: resource.clone(),
    };
    world.sim.fault(forbid).unwrap();
    cut(&world, true);
    let told = |log: &Log, n: usize| {
        let view = view_of(log, &format!("e{n}"));
        let message = view.and_then(|view| failure(log, view));
        message.is_some_and(|message| message.contains("configmaps is forbidden: User"))
    };
    let log = world
        .until("every failure", |log| (0..10).all(|n| told(log, n)))
        .await;
    assert!(log.is_synced(INGRESS_VIEW));
    world.until_ready(ENTRIES, "e1", "False", "Forbidden").await;
    world.until_ready(ENTRIES, "hosts", "True", "Synced").await;
    world.sim.delete(CONFIGMAPS, "default", "c1").unwrap();
    put(&world, CONFIGMAPS, "default", "new", "a1");
    world.sim.fault(Fault::Allow { resource }).unwrap();
    let log = world.until("recovery", ten_of_ten).await;
    let names = names(&log, "e1");
    assert!(
        names.contains("default/new") && !names.contains("default/c1"),
        "{names:?}"
    );
    watcher.stop().await;
}

/// However often a watch is cut while objects change, nothing that is there is ever
/// missing, and in the end all is right.
#[tokio::test]
async fn a_watch_that_is_cut_again_and_again_gives_no_wrong_content() {
    let world = ten_views().await;
    let watcher = world.watch_as("w");
    world.until("every view", ten_of_ten).await;
    for round in 0..30 {
        cut(&world, round % 2 == 0);
        if round % 7 == 3 {
            let resource = Some(ResourceName::from(CONFIGMAPS));
            world.sim.fault(Fault::Compact { resource }).unwrap();
        }
        let (from, to) = (round % 9 + 1, (round + 1) % 9 + 1);
        put(&world, CONFIGMAPS, "default", "wanders", &format!("a{to}"));
        let gone = format!("c{}", 10 + from);
        world.sim.delete(CONFIGMAPS, "default", &gone).unwrap();
        put(&world, CONFIGMAPS, "default", &gone, &format!("a{from}"));
        let marker = format!("m{round}");
        put(&world, CONFIGMAPS, "default", &marker, "a0");
        let marker = format!("default/{marker}");
        let log = world
            .until("news", |log| names(log, "e0").contains(&*marker))
            .await;
        let still: Vec<Value> = (0..10)
            .map(|n| json!(format!("default/c{}", n * 10)))
            .collect();
        for name in &still {
            assert!(names(&log, "e0").contains(name.as_str().unwrap()), "{name}");
        }
    }
    let last = 30 % 9 + 1;
    let right = |log: &Log| {
        (1..10).all(|n| {
            let mut wanted: BTreeSet<String> = (0..10)
                .map(|m| format!("default/c{}", m * 10 + n))
                .collect();
            if n == last {
                wanted.insert("default/wanders".into());
            }
            names(log, &format!("e{n}")) == wanted.iter().map(String::as_str).collect()
        })
    };
    world.until("what is so", right).await;
    watcher.stop().await;
}

/// A type that is not served for a while fails its views, and they are right again after it.
#[tokio::test]
async fn a_wide_watch_that_turns_404_or_410_comes_back_with_current_content() {
    let world = ten_views().await;
    let watcher = world.watch_as("w");
    world.until("every view", ten_of_ten).await;
    let resource = ResourceName::from(CONFIGMAPS);

    let gone = Fault::Fail {
        matching: Matching::new("watch", CONFIGMAPS),
        status: 410,
        retry_after_seconds: None,
        count: Some(2),
    };
    world.sim.fault(gone).unwrap();
    cut(&world, true);
    world.sim.delete(CONFIGMAPS, "default", "c1").unwrap();
    put(&world, CONFIGMAPS, "default", "new", "a2");
    world
        .until("what changed meanwhile", |log| {
            names(log, "e1").len() == 9 && names(log, "e2").len() == 11
        })
        .await;

    let not_found = Fault::Fail {
        matching: Matching {
            resource: Some(resource),
            ..Matching::default()
        },
        status: 404,
        retry_after_seconds: None,
        count: None,
    };
    world.sim.fault(not_found).unwrap();
    cut(&world, true);
    let failed = |log: &Log| {
        (0..10).all(|n| {
            view_of(log, &format!("e{n}")).is_some_and(|view| failure(log, view).is_some())
        })
    };
    let log = world.until("every failure", failed).await;
    assert!(log.is_synced(INGRESS_VIEW));
    put(&world, CONFIGMAPS, "default", "c1", "a1");
    world.sim.delete(CONFIGMAPS, "default", "new").unwrap();
    world.sim.fault(Fault::Clear {}).unwrap();
    world.until("recovery", ten_of_ten).await;
    watcher.stop().await;
}
