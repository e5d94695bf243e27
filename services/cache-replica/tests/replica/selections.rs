//! Queries about a part of a view, and about single objects.

use std::time::Duration;

use anteroom_bus::Bus as _;
use anteroom_bus::BusExt as _;
use anteroom_mirror::testing::collection;
use anteroom_model::{FactError, ObjectKey, Shape, Source, SourceInfo, ViewId};
use anteroom_wire::replica_beat::ReplicaBeat;
use anteroom_wire::{
    body,
    query::{QueryRequest, Selection},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Harness, args, request};

fn asking(expression: &str, selection: Selection) -> QueryRequest {
    let mut request = request(expression);
    request.queries[0].selection = Some(selection);
    request
}

fn object(namespace: &str, name: &str) -> QueryRequest {
    let selection = Selection {
        shape: Shape::Object,
        object: Some(ObjectKey::new(namespace, name)),
        ..Selection::default()
    };
    asking("@", selection)
}

async fn value(harness: &Harness, request: &QueryRequest) -> Value {
    let reply = harness.ask(request).await.unwrap().unwrap();
    body::to_json(reply.results[0].as_ref().unwrap()).unwrap()
}

/// Each shape, and no result of one selection for another.
#[tokio::test(start_paused = true)]
async fn each_selection_has_its_own_answer_remembered_or_not() {
    let harness = Harness::with_ingresses(20, args()).await;
    let of = |shape, namespace: &str| Selection {
        shape,
        namespace: namespace.into(),
        ..Selection::default()
    };
    for _ in 0..2 {
        for (expression, selection, expected) in [
            ("length(items)", of(Shape::Document, ""), json!(20)),
            ("length(items)", of(Shape::List, ""), json!(20)),
            ("length(items)", of(Shape::List, "ns-3"), json!(3)),
            ("length(items)", of(Shape::List, "ns-6"), json!(2)),
            ("length(@)", of(Shape::Array, "ns-6"), json!(2)),
            ("kind", of(Shape::List, ""), json!("IngressList")),
            ("metadata.resourceVersion", of(Shape::List, ""), json!("20")),
            ("metadata", of(Shape::Document, ""), json!(null)),
        ] {
            let got = value(&harness, &asking(expression, selection)).await;
            assert_eq!(got, expected, "{expression}");
        }
        let name = value(&harness, &object("ns-3", "ing-00003")).await;
        assert_eq!(name["metadata"]["name"], "ing-00003");
        let error = harness.error(&object("ns-3", "ing-00004")).await;
        let text = "ingresses.networking.k8s.io \"ing-00004\" not found";
        assert_eq!(error.to_string(), text);
    }
    let fields = Selection {
        field_selector: "spec.x=1".into(),
        ..Selection::default()
    };
    let error = harness.error(&asking("@", fields)).await;
    assert!(matches!(error, FactError::RequestInvalid { .. }), "{error}");
}

/// A replica with a view of single ConfigMaps.
async fn with_references(records: &[(&str, Value)]) -> Harness {
    let mut harness = Harness::started(args()).await;
    let Source::Collection(ingresses) = collection("configmaps", "ConfigMap").source else {
        panic!("no collection");
    };
    let info = SourceInfo {
        source: Source::Objects { gvr: ingresses.gvr },
        kind: "ConfigMap".into(),
        namespaced: true,
    };
    harness.view = harness.writer.open(info);
    let view = harness.view.clone();
    for (name, record) in records {
        harness.writer.put(&view, "a", name, record.clone()).await;
    }
    harness.writer.synced(&view).await;
    harness.until_ready().await;
    harness
}

fn found(data: &str) -> Value {
    json!({"state": "found", "object": {"data": data}})
}

/// A read before the first sync waits, and gets what comes.
#[tokio::test(start_paused = true)]
async fn a_read_waits_for_the_first_word_on_an_object() {
    let mut harness = with_references(&[("x", json!({"state": "pending"}))]).await;
    let view = harness.view.clone();
    let (bus, to) = (harness.bus.join(), harness.address());
    let body = anteroom_wire::query::encode_request(&object("a", "x")).unwrap();
    let asking = tokio::spawn(async move {
        let deadline = Duration::from_secs(5);
        let call = anteroom_bus::Call {
            body,
            deadline,
            trace: None,
        };
        let reply = bus.request(&to, call, deadline).await.unwrap();
        anteroom_wire::query::decode_outcome(&reply).unwrap()
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!asking.is_finished());
    harness.writer.put(&view, "a", "x", found("1")).await;
    let reply = asking.await.unwrap().unwrap();
    let got = body::to_json(reply.results[0].as_ref().unwrap()).unwrap();
    assert_eq!(got, json!({"data": "1"}));
}

/// Not registered, not synced and not found are three different errors.
#[tokio::test(start_paused = true)]
async fn not_registered_not_synced_and_not_found_are_three_errors() {
    let records = [
        ("pending", json!({"state": "pending"})),
        ("absent", json!({"state": "absent"})),
        (
            "failed",
            json!({"state": "failed", "reason": "Forbidden", "message": "no"}),
        ),
    ];
    let harness = with_references(&records).await;
    for (name, code, waits) in [
        ("nobody's", "AR109", false),
        ("absent", "AR110", false),
        ("failed", "AR105", false),
        ("pending", "AR103", true),
    ] {
        let begun = Instant::now();
        let error = harness.error(&object("a", name)).await;
        assert_eq!(error.code().as_str(), code, "{name}: {error}");
        let waited = begun.elapsed() >= Duration::from_secs(1);
        assert_eq!(waited, waits, "{name}: {:?}", begun.elapsed());
    }
    // No longer than the caller does.
    let begun = Instant::now();
    let short = Duration::from_millis(200);
    let outcome = harness.ask_within(&object("a", "pending"), short).await;
    outcome.unwrap().unwrap().results[0].clone().unwrap_err();
    assert!(begun.elapsed() < short);
}

/// An idle object is asked for at once, and read once it is there.
#[tokio::test(start_paused = true)]
async fn an_idle_object_is_asked_for_in_a_beat_at_once() {
    let idle = ("x", json!({"state": "idle"}));
    let mut harness = with_references(&[idle, ("y", found("2"))]).await;
    let key = |name| (harness.view.clone(), ObjectKey::new("a", name));
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    assert_eq!(
        value(&harness, &object("a", "y")).await,
        json!({"data": "2"})
    );
    let watcher = async {
        let mut read = Vec::new();
        loop {
            let beat = beats.next().await.unwrap();
            read.extend(beat.read);
            if !beat.asked.is_empty() {
                assert_eq!(beat.asked, [key("x")]);
                assert!(read.contains(&key("y")), "{read:?}");
                return Instant::now();
            }
        }
    };
    let begun = Instant::now();
    let request = object("a", "x");
    let (asked_at, error) = tokio::join!(watcher, harness.error(&request));
    assert!(asked_at - begun < Duration::from_millis(100));
    assert_eq!(error.code().as_str(), "AR103", "{error}");
    let view: ViewId = harness.view.clone();
    harness.writer.put(&view, "a", "x", found("1")).await;
    assert_eq!(
        value(&harness, &object("a", "x")).await,
        json!({"data": "1"})
    );
}

/// The watcher starts the watches of all idle objects of one request together.
#[tokio::test(start_paused = true)]
async fn idle_objects_of_one_request_are_asked_for_together() {
    let names = ["x", "y", "z"];
    let records = names.map(|name| (name, json!({"state": "idle"})));
    let harness = with_references(&records).await;
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    let watcher = async {
        loop {
            let beat = beats.next().await.unwrap();
            if !beat.asked.is_empty() {
                return beat.asked;
            }
        }
    };
    let request = QueryRequest {
        queries: names
            .iter()
            .flat_map(|name| object("a", name).queries)
            .collect(),
        ..object("a", "x")
    };
    let (asked, outcome) = tokio::join!(watcher, harness.ask(&request));
    let keys = names.map(|name| (harness.view.clone(), ObjectKey::new("a", name)));
    assert_eq!(asked, keys);
    assert_eq!(outcome.unwrap().unwrap().results.len(), names.len());
}
