//! Views of the webhook's own process: `--local-views`.

use std::{sync::Arc, time::Duration};

use anteroom_bus::local::LocalBus;
use anteroom_mirror::testing::{ViewWriter, collection};
use anteroom_model::{EntryKind, GroupVersionResource, KindRecord, ObjectKey, system};
use anteroom_runtime::Service;
use anteroom_webhook::Webhook;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    client::{Client, ingress},
    cluster::{Cluster, args, bound, ingresses, taken, unique_host},
};

/// The time limit of each review: a local view is there some time after the start.
const PATH: &str = "/validate?timeout=1s";

/// A log with a policy on hosts and these Ingresses, its writer, and a webhook. There is no replica.
struct Alone {
    bus: LocalBus,
    writer: Arc<Mutex<ViewWriter>>,
    service: Service,
    client: Client,
    _webhook: Webhook,
    _beats: AbortOnDropHandle<()>,
}

impl Alone {
    async fn with(hosts: usize, given: &[&str]) -> Self {
        let bus = LocalBus::new();
        let mut writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
        let view = writer.open(collection("ingresses", "Ingress"));
        assert_eq!(view, ingresses());
        writer
            .put_all(&view, (0..hosts).map(stored).collect())
            .await;
        writer.synced(&view).await;
        writer.desire(&view, false).await;
        let kind = KindRecord {
            gvr: GroupVersionResource::new("networking.k8s.io", "v1", "ingresses"),
            kind: "Ingress".into(),
            namespaced: true,
            subresources: Vec::new(),
            preferred: true,
            watchable: true,
        };
        let entry = bound(EntryKind::Cached, "ingresses", view);
        let policy = unique_host("hosts", |_| ());
        let kind_key = ObjectKey::new("", "Ingress.v1.networking.k8s.io");
        for (view, key, record) in [
            (system::kinds(), kind_key, json!(kind)),
            (system::entries(), entry.kind.key(&entry.name), json!(entry)),
            (system::policies(), ObjectKey::new("", "hosts"), policy),
        ] {
            writer.put(&view, &key.namespace, &key.name, record).await;
            writer.synced(&view).await;
        }
        let service = Service::new("webhook");
        let own = Arc::new(bus.join());
        let webhook = Webhook::start(&args(given), own, None, &service).unwrap();
        let client = Client::of(&webhook).await;
        let writer = Arc::new(Mutex::new(writer));
        let beats = AbortOnDropHandle::new(tokio::spawn(beating(Arc::clone(&writer))));
        Self {
            bus,
            writer,
            service,
            client,
            _webhook: webhook,
            _beats: beats,
        }
    }
}

async fn beating(writer: Arc<Mutex<ViewWriter>>) {
    loop {
        writer.lock().await.beat().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn host(n: usize) -> String {
    format!("host-{n}.example")
}

fn stored(n: usize) -> (ObjectKey, Value) {
    let name = format!("i{n}");
    let object = json!({
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "rules": [{ "host": host(n) }] },
    });
    (ObjectKey::new("shop", name), object)
}

fn fact_of(answer: &Value) -> Value {
    let record = answer["auditAnnotations"]["decision"].as_str().unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    record["rules"][0]["facts"][0].clone()
}

#[tokio::test]
async fn a_local_view_is_enough_for_a_decision_and_follows_the_log() {
    let alone = Alone::with(3, &["--local-views", "ingresses"]).await;
    let free = ingress("CREATE", "shop", "free.example");
    let admitted = alone.client.until(PATH, &free, true).await;
    let fact = fact_of(&admitted);
    assert_eq!(
        (&fact["from"], &fact["replica"]),
        (&json!("view"), &json!("local"))
    );
    let metrics = alone.service.metrics.encode();
    let counted = "anteroom_webhook_local_queries_total{outcome=\"ok\"}";
    assert!(metrics.contains(counted), "{metrics}");

    let denied = alone
        .client
        .review(PATH, &ingress("CREATE", "shop", &host(1)))
        .await;
    assert_eq!(denied["status"]["code"], 403, "{denied}");
    let (key, object) = stored(9);
    let mut writer = alone.writer.lock().await;
    writer
        .put(&ingresses(), &key.namespace, &key.name, object)
        .await;
    writer.synced(&ingresses()).await;
    drop(writer);
    let now_taken = ingress("CREATE", "other", &host(9));
    alone.client.until(PATH, &now_taken, false).await;
}

#[tokio::test]
async fn a_view_that_no_pattern_matches_is_asked_of_replicas() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster
        .webhook_at_once(&["--local-views", "services,pods"])
        .await;
    let free = ingress("CREATE", "shop", "free.example");
    let admitted = client.until(PATH, &free, true).await;
    assert_eq!(fact_of(&admitted)["replica"], "replica-0");
    assert!(replica.calls() >= 1);
    let metrics = cluster.service.metrics.encode();
    assert!(
        !metrics.contains("anteroom_webhook_local_queries_total{"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_view_over_the_limit_is_asked_of_replicas_and_counted() {
    let limit = ["--local-views", "*", "--local-views-memory-limit", "128Ki"];
    let alone = Alone::with(2_000, &limit).await;
    let replica = anteroom_cache_replica::run(
        anteroom_cache_replica::Args {
            replica_id: Some("replica-0".to_owned()),
            ..Default::default()
        },
        Arc::new(alone.bus.join()),
        Service::new("cache-replica"),
    );
    let _replica = AbortOnDropHandle::new(tokio::spawn(replica));
    let taken = ingress("CREATE", "shop", &host(1));
    let evicted = "anteroom_webhook_local_queries_total{outcome=\"AR108\"}";
    let asked_of_replica = async {
        loop {
            let denied = alone.client.review(PATH, &taken).await;
            let is_of_replica =
                denied["status"]["code"] == 403 && fact_of(&denied)["replica"] == "replica-0";
            if is_of_replica && alone.service.metrics.encode().contains(evicted) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked_of_replica)
        .await
        .unwrap_or_else(|_| panic!("{}", alone.service.metrics.encode()));
}
