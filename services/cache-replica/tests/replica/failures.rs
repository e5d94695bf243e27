//! Requests that are refused: each with its own error, and nothing else touched.

use std::time::Duration;

use anteroom_bus::{Address, BusExt as _, RequestError, Signals};
use anteroom_cache_replica::Args;
use anteroom_model::{FactError, Failure, ViewId, ViewState};
use anteroom_wire::{query::QueryRequest, replica_beat::ReplicaBeat};
use bytes::Bytes;
use serde_json::json;

use crate::harness::{Harness, args, request, request_with};

#[tokio::test(start_paused = true)]
async fn each_fault_has_its_own_error_and_code() {
    let harness = Harness::with_ingresses(200, args()).await;
    for (expression, code) in [
        ("items[", "AR201"),
        ("no_such_function(@)", "AR201"),
        ("length(`1`)", "AR202"),
        ("$unbound", "AR202"),
    ] {
        let error = harness.error(&request(expression)).await;
        assert_eq!(error.code().as_str(), code, "{expression}: {error}");
    }
    let text = harness.service.metrics.encode();
    for code in ["AR201", "AR202", "ok"] {
        let counted = format!("anteroom_query_results_total{{outcome=\"{code}\"}}");
        assert!(text.contains(&counted) || code == "ok", "{text}");
    }
    assert_eq!(
        harness.value("length(items)").await,
        json!(200),
        "nothing else is touched"
    );
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_request_are_an_invalid_request() {
    let harness = Harness::with_ingresses(1, args()).await;
    for body in [
        Bytes::new(),
        Bytes::from_static(b"\xc1"),
        Bytes::from(vec![0x91; 100_000]),
    ] {
        let outcome = harness
            .send(&harness.address(), body, Duration::from_secs(1))
            .await;
        let error = outcome.unwrap().unwrap_err();
        assert!(matches!(error, FactError::RequestInvalid { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_an_error_and_not_a_longer_wait() {
    let narrow = Args {
        query_steps_max: 1_000,
        ..args()
    };
    let harness = Harness::with_ingresses(500, narrow).await;
    let error = harness.error(&request("items[].spec.rules[].host")).await;
    assert!(matches!(error, FactError::BudgetExceeded { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_time_left_is_not_evaluated() {
    let harness = Harness::with_ingresses(100, args()).await;
    let none = harness
        .ask_within(&request("length(items)"), Duration::ZERO)
        .await;
    let error = none.unwrap().unwrap_err();
    assert!(
        matches!(error, FactError::DeadlineExceeded { .. }),
        "{error}"
    );
    let text = harness.service.metrics.encode();
    assert!(
        text.contains("anteroom_query_evaluations_total 0"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_query_too_many_is_refused_at_once() {
    let one = Args {
        concurrency: 1,
        scan_lanes: Some(0),
        ..args()
    };
    let harness = Harness::with_ingresses(3_000, one).await;
    // No lane takes it.
    let scan = request("items[].spec");
    let (scanned, busy) = tokio::join!(harness.ask_within(&scan, Duration::from_secs(5)), async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        harness.ask(&request("length(items)")).await
    });
    let busy = busy.unwrap().unwrap_err();
    assert!(matches!(busy, FactError::Busy { limit: 1, .. }), "{busy}");
    let late = scanned.unwrap().unwrap_err();
    assert!(matches!(late, FactError::DeadlineExceeded { .. }), "{late}");
    assert_eq!(
        harness.value("length(items)").await,
        json!(3_000),
        "its place is free again"
    );
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_position_take_no_place_of_others_and_end_soon() {
    let one = Args {
        concurrency: 1,
        ..args()
    };
    let harness = Harness::with_ingresses(10, one).await;
    let waits = QueryRequest {
        revision_min: Some(anteroom_model::Revision(u64::MAX)),
        ..request("length(items)")
    };
    let day = Duration::from_secs(24 * 60 * 60);
    let others = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let busy = harness.ask(&waits).await.unwrap().unwrap_err();
        assert!(matches!(busy, FactError::Busy { limit: 1, .. }), "{busy}");
        assert_eq!(harness.value("length(items)").await, json!(10));
    };
    let begun = tokio::time::Instant::now();
    let (waited, ()) = tokio::join!(harness.ask_within(&waits, day), others);
    let waited = waited.unwrap().unwrap_err();
    assert!(
        matches!(waited, FactError::RevisionNotReached { .. }),
        "{waited}"
    );
    assert!(begun.elapsed() < Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn a_query_of_an_unknown_view_has_no_responders() {
    let harness = Harness::with_ingresses(1, args()).await;
    let view = ViewId::new("pods.v1");
    let own = Address::Replica {
        replica: "r1".to_owned(),
        view: view.clone(),
    };
    for to in [Address::View(view), own] {
        let outcome = harness
            .send(&to, Bytes::new(), Duration::from_secs(1))
            .await;
        assert!(matches!(outcome, Err(RequestError::NoResponders)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_source_is_answered_with_its_own_error_and_does_not_make_the_replica_unready() {
    let mut harness = Harness::with_ingresses(5, args()).await;
    let view = harness.view.clone();
    let failure = Failure::new("Forbidden", "ingresses is forbidden");
    harness.writer.failed(&view, failure.clone()).await;
    let error = loop {
        let error = harness.ask(&request("length(items)")).await.unwrap();
        if let Err(error) = error {
            break error;
        }
        tokio::task::yield_now().await;
    };
    assert!(
        matches!(&error, FactError::Failed { failure: f, .. } if *f == failure),
        "{error}"
    );
    harness.until_ready().await;
    harness.writer.synced(&view).await;
    harness.until_served().await;
    assert_eq!(
        harness.value("length(items)").await,
        json!(5),
        "it recovers by itself"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_ask_for_fresher_news_than_the_replica_does() {
    let harness = Harness::with_ingresses(5, args()).await;
    harness.writer.beat_of_age(40_000).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let strict = QueryRequest {
        age_max_ms: Some(100),
        ..request_with("length(items)", json!({}))
    };
    let error = harness.error(&strict).await;
    assert!(
        matches!(
            error,
            FactError::Stale {
                age_max_ms: 100,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(harness.value("length(items)").await, json!(5));
}

/// The view's writer compares the log with the source then.
#[tokio::test(start_paused = true)]
async fn a_view_that_the_log_contradicts_is_named_in_beats_until_both_agree() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    let view = harness.view.clone();
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    until_named(&mut beats, &[]).await;
    let writer = &mut harness.writer;
    let mut record = writer
        .model(&view)
        .control(writer.epoch(), ViewState::Synced);
    record.objects += 1;
    writer.control_record(record).await;
    until_named(&mut beats, std::slice::from_ref(&view)).await;
    harness.writer.control(&view, ViewState::Synced).await;
    until_named(&mut beats, &[]).await;
}

/// Waits for a beat that names these views as contradicted.
async fn until_named(beats: &mut Signals<ReplicaBeat>, contradicted: &[ViewId]) {
    let named = async { while beats.next().await.unwrap().contradicted != contradicted {} };
    let waited = tokio::time::timeout(Duration::from_secs(60), named).await;
    assert!(waited.is_ok(), "waited in vain for {contradicted:?}");
}
