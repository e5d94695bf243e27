//! A log with Ingresses and a policy, a replica and a webhook.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, BusExt as _, local::LocalBus};
use anteroom_load::{ingress, review};
use anteroom_mirror::testing::{ViewWriter, collection};
use anteroom_model::{
    Binding, EntryKind, EntryRecord, EntryState, GroupVersionResource, KindRecord, ObjectKey,
    ViewId, system,
};
use anteroom_policy::compile;
use anteroom_runtime::Service;
use anteroom_webhook::{Args, Webhook};
use anteroom_wire::tap::{DURATION_MS_MAX, Tap, Tapped};
use axum::{body::Body, extract::Request};
use clap::Parser;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{Look, Which, served::Served};

/// The interval of the writer's heartbeats, until all parts are ready.
const BEAT_INTERVAL: Duration = Duration::from_millis(200);

/// The interval at which an operator renews the look at decisions.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);

/// The number of reviews for each review of a taken host.
const TAKEN_EVERY: usize = 10;

/// The placeholders in the template of a review.
const UID: &str = "2d6c1a57-4f0e-4b2c-9d3e-aaaaaaaaaaaa";
const HOST: &str = "host-of-the-template.example.com";

pub(crate) struct World {
    webhook: Webhook,
    reviews: Reviews,
}

/// Reviews before their host, between host and uid, and after: making one is to cost little.
pub(crate) struct Reviews([String; 3]);

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    webhook: Args,
}

impl World {
    /// Ready to decide, while somebody may look.
    pub(crate) async fn new(which: Which, objects: usize, look: Look, are_local: bool) -> Self {
        let bus = LocalBus::new();
        let writer = write_log(Arc::new(bus.join()), which, objects).await;

        let service = Service::new("decisions");
        let replica = anteroom_cache_replica::run(
            anteroom_cache_replica::Args {
                replica_id: Some("replica-0".to_owned()),
                ..Default::default()
            },
            Arc::new(bus.join()),
            service.clone(),
        );
        tokio::spawn(replica);
        let mut args = Cli::parse_from(["webhook", "--listen-address", "127.0.0.1:0"]).webhook;
        if are_local {
            args.local_views = vec!["*".to_owned()];
        }
        let webhook = Webhook::start(&args, Arc::new(bus.join()), None, &service).unwrap();
        let beating = async {
            loop {
                writer.beat().await;
                tokio::time::sleep(BEAT_INTERVAL).await;
            }
        };
        let world = Self {
            webhook,
            reviews: Reviews::new(),
        };
        let ready = async {
            service.readiness.wait_ready().await;
            if look == Look::Summary {
                look_at_counts(bus.join()).await;
            }
            let answered = "anteroom_webhook_local_queries_total{outcome=\"ok\"}";
            while are_local && !service.metrics.encode().contains(answered) {
                world.decide(0, objects).await;
                tokio::time::sleep(BEAT_INTERVAL).await;
            }
        };
        tokio::select! {
            () = ready => {}
            () = beating => {}
        }
        world
    }

    /// Returns the webhook's address, and the CA of its certificate.
    pub(crate) async fn served(&self) -> Served {
        let mut trust = self.webhook.trust();
        let authority = trust.wait_for(Option::is_some).await.unwrap().clone();
        Served {
            address: self.webhook.address(),
            authority: authority.unwrap(),
        }
    }

    /// Decides the review of this number; whether it was admitted, which must be right.
    pub(crate) async fn decide(&self, n: usize, objects: usize) -> bool {
        let (uid, body) = self.reviews.number(n, objects);
        let request = Request::builder()
            .method(Method::POST)
            .uri("/validate?timeout=10s")
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap();
        let answer = self.webhook.answer(request).await;
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&answer).unwrap();
        assert!(text.contains(&uid) && !text.contains("AR1"), "{text}");
        text.contains(r#""allowed":true"#)
    }
}

/// Looks at counts of decisions from then on. Returns once the webhook counts.
async fn look_at_counts(bus: LocalBus) {
    let mut told = bus.signals::<Tapped>().await.unwrap();
    let tap = Tap {
        id: "bench".to_owned(),
        duration_ms: DURATION_MS_MAX,
        ..Tap::default()
    };
    // The webhook may not listen yet.
    tokio::spawn(async move {
        loop {
            bus.send(&tap).await.unwrap();
            tokio::time::sleep(RENEW_INTERVAL).await;
        }
    });
    let first = told.next().await.unwrap();
    assert!(first.summary.is_some(), "{first:?}");
    tokio::spawn(async move { while told.next().await.is_some() {} });
}

impl Reviews {
    /// Splits a review at its host and its uid, which the template has once each, in this order.
    pub(crate) fn new() -> Self {
        let review = review(UID, &ingress("shop", "web", HOST));
        let review = String::from_utf8(review.to_vec()).unwrap();
        let (before, rest) = review.split_once(HOST).unwrap();
        let (between, after) = rest.split_once(UID).unwrap();
        assert!(!after.contains(HOST) && !after.contains(UID), "{review}");
        Self([before, between, after].map(str::to_owned))
    }

    /// Returns the body of review `n`, and the review's uid.
    pub(crate) fn number(&self, n: usize, objects: usize) -> (String, String) {
        let is_taken = n % TAKEN_EVERY == TAKEN_EVERY - 1;
        let host = match is_taken {
            true => host(n % objects.max(1)),
            false => format!("new-{n}.example.com"),
        };
        let uid = format!("2d6c1a57-4f0e-4b2c-9d3e-{n:012}");
        let [before, between, after] = &self.0;
        let body = [before, &host, between, &uid, after].map(String::as_str);
        let body = body.concat();
        (uid, body)
    }
}

fn host(n: usize) -> String {
    format!("host-{n}.example.com")
}

fn stored(n: usize) -> (ObjectKey, Value) {
    let (namespace, name) = (format!("team-{}", n % 40), format!("web-{n}"));
    let object = ingress(&namespace, &name, &host(n));
    (ObjectKey::new(namespace, name), object)
}

/// Writes the records that a watcher would have written.
pub(crate) async fn write_log(bus: Arc<dyn Bus>, which: Which, objects: usize) -> ViewWriter {
    let mut writer = ViewWriter::with_system_views(bus).await;
    let view = writer.open(collection("ingresses", "Ingress"));
    let ingresses = (0..objects).map(stored).collect();
    writer.put_all(&view, ingresses).await;
    writer.synced(&view).await;
    writer.desire(&view, false).await;
    write_catalog(&mut writer, &view, which).await;
    writer
}

async fn write_catalog(writer: &mut ViewWriter, view: &ViewId, which: Which) {
    let kind = KindRecord {
        gvr: GroupVersionResource::new("networking.k8s.io", "v1", "ingresses"),
        kind: "Ingress".to_owned(),
        namespaced: true,
        subresources: vec!["status".to_owned()],
        preferred: true,
        watchable: true,
    };
    put(
        writer,
        &system::kinds(),
        "",
        "Ingress.v1.networking.k8s.io",
        &kind,
    )
    .await;
    let mut entries = vec![(EntryKind::Cached, "ingresses".to_owned())];
    if let Some(manifest) = manifest(which) {
        let policy = compile(&manifest).unwrap();
        let key = ObjectKey::new("", policy.name());
        let implicit = policy
            .references()
            .map(|reference| reference.name_for(&key));
        entries.extend(implicit.map(|name| (EntryKind::Implicit, name)));
        let policies = system::policies();
        put(writer, &policies, "", policy.name(), &manifest).await;
    }
    for (kind, name) in entries {
        let record = EntryRecord {
            kind,
            name,
            uid: "1".to_owned(),
            generation: 1,
            state: EntryState::Bound(Binding::whole(view.clone())),
            projections: Vec::new(),
        };
        let key = kind.key(&record.name);
        put(
            writer,
            &system::entries(),
            &key.namespace,
            &key.name,
            &record,
        )
        .await;
    }
}

async fn put(
    writer: &mut ViewWriter,
    view: &ViewId,
    namespace: &str,
    name: &str,
    record: &impl serde::Serialize,
) {
    let record = serde_json::to_value(record).unwrap();
    writer.put(view, namespace, name, record).await;
    writer.synced(view).await;
}

/// A policy on Ingresses.
fn manifest(which: Which) -> Option<Value> {
    let created = json!({ "all": [{
        "key": "{{ request.operation }}", "operator": "AnyIn", "value": ["CREATE", "UPDATE"],
    }] });
    let taken = |key: &str, value: &str| json!({ "conditions": { "any": [{ "key": key, "operator": "AnyIn", "value": value }] } });
    let (context, validate) = match which {
        Which::None => return None,
        Which::Local => (
            json!([]),
            json!({
                "message": "a host is wanted",
                "pattern": { "spec": { "rules": [{ "host": "?*.example.com" }] } },
            }),
        ),
        Which::Hosts => (
            json!([{ "name": "hosts", "cachedContextEntry": {
                "name": "ingresses",
                "jmespath": "items[?contains(spec.rules[].host, \
                             '{{ request.object.spec.rules[0].host }}')].spec.rules[].host",
            } }]),
            json!({
                "message": "The host {{ request.object.spec.rules[0].host }} is taken.",
                "deny": taken("{{ request.object.spec.rules[].host }}", "{{ hosts }}"),
            }),
        ),
        Which::Paths => (
            json!([{ "name": "rules", "apiCall": {
                "urlPath": "/apis/networking.k8s.io/v1/ingresses",
                "jmesPath": "items[].spec.rules[]",
            } }]),
            json!({
                "message": "This host and path are taken.",
                "foreach": [{
                    "list": "request.object.spec.rules[]",
                    "context": [{ "name": "paths", "variable": {
                        "jmesPath": "rules[?host == '{{ element.host }}'].http.paths[].path",
                    } }],
                    "deny": taken("{{ element.http.paths[].path }}", "{{ paths }}"),
                }],
            }),
        ),
    };
    Some(json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": { "name": "unique-host", "uid": "9" },
        "spec": {
            "validationFailureAction": "Enforce",
            "failurePolicy": "Fail",
            "background": false,
            "rules": [{
                "name": "host-is-free",
                "match": { "any": [{ "resources": { "kinds": ["Ingress"] } }] },
                "preconditions": created,
                "context": context,
                "validate": validate,
            }],
        },
    }))
}
