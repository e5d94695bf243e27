//! kube's client, as the watcher uses it, against the simulator.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_simapi::{
    Fault, Matching, SimApi, SimConfig,
    conformance::Target,
    generate::{Cluster, ingress_host},
};
use futures::{StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Service},
    networking::v1::Ingress,
};
use kube::{
    Client, Config,
    api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

async fn start(config: SimConfig) -> (SimApi, Client) {
    let sim = SimApi::start(config).await.unwrap();
    let client = Client::try_from(Config::new(sim.url().parse().unwrap())).unwrap();
    (sim, client)
}

fn configmap(name: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"a": "1"}}),
    )
    .unwrap()
}

/// Returns the object of an event, and its type.
fn told(event: &WatchEvent<ConfigMap>) -> String {
    let name = |object: &ConfigMap| object.metadata.name.clone().unwrap();
    match event {
        WatchEvent::Added(object) => format!("added {}", name(object)),
        WatchEvent::Modified(object) => format!("modified {}", name(object)),
        WatchEvent::Deleted(object) => format!("deleted {}", name(object)),
        WatchEvent::Bookmark(_) => "bookmark".into(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

#[tokio::test]
async fn objects_are_made_changed_watched_and_deleted() {
    let (sim, client) = start(SimConfig::default()).await;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let list = api.list(&ListParams::default()).await.unwrap();
    let since = list.metadata.resource_version.unwrap();
    let params = WatchParams::default().labels("app in (a)");
    let mut events = api.watch(&params, &since).await.unwrap().boxed();
    let made = api
        .create(&PostParams::default(), &configmap("a"))
        .await
        .unwrap();
    api.create(&PostParams::default(), &configmap("b"))
        .await
        .unwrap();
    let change = json!({"data": {"a": "2"}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&change))
        .await
        .unwrap();
    api.patch(
        "a",
        &PatchParams::default(),
        &Patch::Strategic(&json!({"data": {"b": "1"}})),
    )
    .await
    .unwrap();
    let conflict = api
        .replace("a", &PostParams::default(), &made)
        .await
        .unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.is_conflict()));
    api.delete("a", &DeleteParams::default()).await.unwrap();
    for expected in ["added a", "modified a", "modified a", "deleted a"] {
        let event = timeout(PATIENCE, events.try_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(told(&event), expected);
    }
    drop(events);
    timeout(PATIENCE, sim.wait_until(|stats| stats.watches() == 0))
        .await
        .unwrap();
    assert_eq!(sim.stats().count_status("create", "configmaps", 201), 2);
}

#[tokio::test]
async fn bookmarks_come_while_nothing_changes() {
    let bookmark_interval = Duration::from_millis(20);
    let (sim, client) = start(SimConfig {
        bookmark_interval,
        ..SimConfig::default()
    })
    .await;
    let api: Api<ConfigMap> = Api::all(client);
    let since = sim.version();
    let mut events = api
        .watch(&WatchParams::default(), &since.to_string())
        .await
        .unwrap()
        .boxed();
    // News of another resource moves the bookmark on.
    let newer = sim
        .put(
            "services",
            json!({"metadata": {"namespace": "default", "name": "s"}}),
        )
        .unwrap();
    let reached = async {
        while let Some(event) = events.try_next().await.unwrap() {
            let WatchEvent::Bookmark(bookmark) = event else {
                panic!("{event:?}")
            };
            if bookmark.metadata.resource_version == newer.to_string() {
                return;
            }
        }
    };
    timeout(PATIENCE, reached).await.unwrap();
}

#[tokio::test]
async fn seven_thousand_objects_are_loaded_and_listed() {
    let (sim, client) = start(SimConfig::default()).await;
    let cluster = Cluster {
        seed: 1,
        namespaces: 200,
    };
    let started = Instant::now();
    sim.put_all("namespaces", cluster.namespaces()).unwrap();
    sim.put_all("services", cluster.services(4_000)).unwrap();
    sim.put_all("ingresses.networking.k8s.io", cluster.ingresses(3_000, 1))
        .unwrap();
    println!("loaded in {:?}", started.elapsed());
    let bytes: usize = sim
        .objects("services")
        .unwrap()
        .iter()
        .map(bytes::Bytes::len)
        .sum();
    println!("a service is {} bytes", bytes / 4_000);
    let services: Api<Service> = Api::all(client.clone());
    let mut params = ListParams::default().limit(500);
    let (mut names, mut versions, started) = (Vec::new(), Vec::new(), Instant::now());
    loop {
        let page = services.list(&params).await.unwrap();
        names.extend(
            page.items
                .into_iter()
                .map(|item| (item.metadata.namespace, item.metadata.name)),
        );
        versions.push(page.metadata.resource_version);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => break,
        }
    }
    println!("listed in {:?}", started.elapsed());
    versions.dedup();
    assert_eq!(versions.len(), 1, "all pages are of one moment");
    assert!(names.is_sorted(), "in order");
    names.dedup();
    assert_eq!(names.len(), 4_000);
    let ingress: Api<Ingress> = Api::namespaced(client, &cluster.namespace(77));
    let ingress = ingress.get("ing-77").await.unwrap();
    assert_eq!(
        ingress.spec.unwrap().rules.unwrap()[0].host,
        Some(ingress_host(77, 0))
    );
    assert!(ingress.metadata.managed_fields.is_some());
}

#[tokio::test]
async fn requests_fail_as_ordered() {
    let (sim, client) = start(SimConfig::default()).await;
    let api: Api<ConfigMap> = Api::all(client.clone());
    let code = async |params: ListParams| match api.list(&params).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    };
    let configmaps = || "configmaps".into();
    sim.fault(Fault::Forbid {
        resource: configmaps(),
    })
    .unwrap();
    assert_eq!(code(ListParams::default()).await, 403);
    sim.fault(Fault::Allow {
        resource: configmaps(),
    })
    .unwrap();
    sim.fault(Fault::Hide {
        resource: configmaps(),
    })
    .unwrap();
    assert_eq!(code(ListParams::default()).await, 404);
    let served = client.list_core_api_resources("v1").await.unwrap();
    assert!(
        !served
            .resources
            .iter()
            .any(|resource| resource.name == "configmaps")
    );
    sim.fault(Fault::Show {
        resource: configmaps(),
    })
    .unwrap();
    let matching = Matching::new("list", "configmaps");
    sim.fault(Fault::Fail {
        matching,
        status: 429,
        retry_after_seconds: Some(3),
        count: Some(1),
    })
    .unwrap();
    // kube's client would wait for as long as it is told, and try again.
    let target = Target {
        url: sim.url(),
        headers: HeaderMap::new(),
        tls: None,
        compact: None,
    };
    let refused = target.get("/api/v1/configmaps").await.unwrap();
    assert_eq!(
        (refused.code, &refused.headers["retry-after"]),
        (429, &HeaderValue::from_static("3"))
    );
    assert_eq!(refused.body["details"]["retryAfterSeconds"], 3);
    assert_eq!(code(ListParams::default()).await, 200);
    let malformed = |body: &str| Fault::Malform {
        resource: configmaps(),
        namespace: "default".into(),
        name: "bad".into(),
        body: body.into(),
    };
    sim.fault(malformed(r#"{"metadata":[]}"#)).unwrap();
    assert!(matches!(
        api.list(&ListParams::default()).await,
        Err(kube::Error::SerdeError(_))
    ));
}

#[tokio::test]
async fn watches_are_cut_stalled_and_expired() {
    let bookmark_interval = Duration::from_millis(10);
    let (sim, client) = start(SimConfig {
        bookmark_interval,
        ..SimConfig::default()
    })
    .await;
    let sim = Arc::new(sim);
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let old = sim.version();
    let put = |name: &str| {
        sim.put(
            "configmaps",
            json!({"metadata": {"namespace": "default", "name": name}}),
        )
        .unwrap()
    };
    let watch = async |version: u64| {
        api.watch(&WatchParams::default(), &version.to_string())
            .await
            .unwrap()
            .boxed()
    };
    let all = || None;

    // kube's client takes a broken body for its end, so both are looked at without it.
    let target = Target {
        url: sim.url(),
        headers: HeaderMap::new(),
        tls: None,
        compact: None,
    };
    let path = format!("/api/v1/configmaps?watch=true&resourceVersion={old}");
    for clean in [false, true] {
        let mut watch = target.watch(&path).await.unwrap();
        sim.fault(Fault::CutWatches {
            resource: all(),
            clean,
        })
        .unwrap();
        assert_eq!(watch.end().await.is_ok(), clean);
    }

    sim.fault(Fault::StallWatches {
        resource: Some("configmaps".into()),
    })
    .unwrap();
    let mut events = watch(old).await;
    put("a");
    // Many bookmarks' time: nothing comes, whatever the machine's pace.
    assert!(
        timeout(Duration::from_millis(100), events.try_next())
            .await
            .is_err()
    );
    sim.fault(Fault::ResumeWatches { resource: all() }).unwrap();
    let event = timeout(PATIENCE, events.try_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(told(&event), "added a");

    sim.fault(Fault::Compact { resource: all() }).unwrap();
    let event = timeout(PATIENCE, watch(old).await.try_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(told(&event), "error 410");
    let kept = sim.version();
    put("b");
    sim.fault(Fault::Restore {
        resource_version: kept,
        raised_by: 0,
    })
    .unwrap();
    assert_eq!(sim.version(), kept);
    let names = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(names.items.len(), 1, "as it was");
    assert!(
        sim.fault(Fault::Restore {
            resource_version: old,
            raised_by: 0
        })
        .is_err(),
        "out of reach"
    );
}
