//! The answers where no replica serves a view, and its beats then.

use std::time::Duration;

use anteroom_bus::{Address, BusExt as _};
use anteroom_model::{FactError, Failure, ObjectKey, Source, SourceInfo, ViewState};
use anteroom_wire::query::{QueryOutcome, QueryRequest, encode_request};
use anteroom_wire::replica_beat::ReplicaBeat;
use serde_json::json;

use crate::harness::{Harness, args, request};

async fn fall_back(harness: &Harness, request: &QueryRequest) -> QueryOutcome {
    let at = Address::Fallback(harness.view.clone());
    let body = encode_request(request).unwrap();
    let sent = harness.send(&at, body, Duration::from_secs(1)).await;
    sent.unwrap()
}

async fn until_code(harness: &Harness, code: &str) -> FactError {
    loop {
        match fall_back(harness, &request("length(items)")).await {
            Err(error) if error.code().as_str() == code => return error,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_fallback_address_gives_the_reason() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    let view = harness.view.clone();
    assert_eq!(
        fall_back(&harness, &request("length(items)"))
            .await
            .unwrap()
            .objects,
        3,
        "also while the view is served"
    );
    until_code(&harness, "AR104").await;
    let failure = Failure::new("Forbidden", "no");
    harness.writer.failed(&view, failure).await;
    until_code(&harness, "AR105").await;

    let services = anteroom_mirror::testing::collection("services", "Service");
    harness.view = harness.writer.open(services);
    let view = harness.view.clone();
    harness.writer.control(&view, ViewState::Syncing).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let error = until_code(&harness, "AR103").await;
    assert!(error.to_string().contains("services"), "{error}");
}

/// A reader that names an age decides by itself how old its data may be.
#[tokio::test(start_paused = true)]
async fn a_reader_that_accepts_old_data_is_answered_from_it() {
    let harness = Harness::with_ingresses(3, args()).await;
    harness.until_unserved().await;
    until_code(&harness, "AR104").await;
    let patient = QueryRequest {
        age_max_ms: Some(3_600_000),
        ..request("length(items)")
    };
    let reply = fall_back(&harness, &patient).await.unwrap();
    assert_eq!(reply.objects, 3);
    assert!(reply.age_ms > 1_000, "{}", reply.age_ms);
}

/// Readiness can be lost by staleness, and says what is missing.
#[tokio::test(start_paused = true)]
async fn a_view_without_news_for_too_long_takes_readiness_away() {
    let strict = anteroom_cache_replica::Args {
        age_max_ms: 10_000,
        ..args()
    };
    let harness = Harness::with_ingresses(3, strict).await;
    assert!(harness.service.readiness.report().ready);
    harness.writer.beat_of_age(11_000).await;
    // Older news does not take away what is known; time does, though the writer goes on beating.
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        harness.writer.beat_of_age(11_000).await;
    }
    let report = harness.service.readiness.report();
    assert!(!report.ready);
    let missing: Vec<_> = report
        .checks
        .iter()
        .filter(|check| check.waiting_for.is_some())
        .map(|check| check.name.as_str())
        .collect();
    assert!(
        missing.contains(&"view ingresses.v1.networking.k8s.io"),
        "{missing:?}"
    );
    until_code(&harness, "AR104").await;
    harness.until_ready().await;
}

/// Silence is told long before a view is too old.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_is_silent_is_noted_by_a_replica_that_stays_ready() {
    let harness = Harness::with_ingresses(3, args()).await;
    let notes = || {
        let checks = harness.service.readiness.report().checks;
        let notes = checks.into_iter().filter_map(|check| check.note);
        notes.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(notes(), "");
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(harness.service.readiness.report().ready);
    assert!(
        notes().contains("from the watcher of group 0, "),
        "{}",
        notes()
    );
    assert_eq!(harness.value("length(items)").await, json!(3));
    let text = harness.service.metrics.encode();
    let series = "anteroom_view_writer_silent_seconds{group=\"0\"} ";
    let mut lines = text.lines();
    let seconds = lines.find_map(|line| line.strip_prefix(series)).unwrap();
    let seconds: f64 = seconds.parse().unwrap();
    assert!((5.0..9.0).contains(&seconds), "{seconds}");
    harness.writer.beat().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(notes(), "");
}

#[tokio::test(start_paused = true)]
async fn beats_say_what_is_held_and_that_it_leaves() {
    let harness = Harness::with_ingresses(3, args()).await;
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    let beat = beats.next().await.unwrap();
    assert_eq!((beat.replica.as_str(), beat.leaving), ("r1", false));
    let held = beat.views.iter().find(|held| held.view == harness.view);
    let held = held.unwrap();
    assert_eq!(held.state, "synced");
    assert!(held.bytes > 0 && beat.bytes >= held.bytes);

    // Nobody beats for the writer: the change is told at once, not with the next beat.
    let stale = loop {
        let beat = beats.next().await.unwrap();
        let state = beat.views.iter().find(|held| held.view == harness.view);
        if state.unwrap().state == "stale" {
            break beat;
        }
    };
    assert!(!stale.leaving);
    harness.service.shutdown.trigger("test");
    while !beats.next().await.unwrap().leaving {}
    harness.running.await.unwrap().unwrap();
}

/// A writer that reaches no endpoint learns from replicas how old the last answer is, also
/// where it is too old for them to answer from.
#[tokio::test(start_paused = true)]
async fn beats_say_how_old_the_answers_of_calls_are() {
    let mut harness = Harness::with_ingresses(1, args()).await;
    let call = harness.writer.open(SourceInfo {
        source: Source::ApiCall {
            url: "https://example.com/teams".to_owned(),
            id: "1".to_owned(),
        },
        kind: String::new(),
        namespaced: false,
    });
    let answer = (ObjectKey::new("", Source::RESPONSE), json!(["a"]));
    harness.writer.put_all(&call, vec![answer]).await;
    harness.writer.synced(&call).await;
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    let mut ages_ms = Vec::new();
    while ages_ms.last().is_none_or(|age_ms| *age_ms <= 65_000) {
        if ages_ms.is_empty() {
            harness.writer.beat().await; // Heard before the view is synced, it says nothing of it.
        }
        let told = beats.next().await.unwrap().ages_ms;
        assert!(told.iter().all(|(view, _)| *view == call), "{told:?}");
        ages_ms.extend(told.into_iter().map(|(_, age_ms)| age_ms));
    }
    assert!(ages_ms.is_sorted(), "{ages_ms:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_view_has_no_responder_at_the_fallback_address() {
    let mut harness = Harness::with_ingresses(1, args()).await;
    harness.view = anteroom_model::ViewId::new("pods.v1");
    let at = Address::Fallback(harness.view.clone());
    let body = encode_request(&request("@")).unwrap();
    let sent = harness.send(&at, body, Duration::from_secs(1)).await;
    assert!(sent.is_err());
}
