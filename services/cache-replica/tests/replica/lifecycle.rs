//! When a replica is at a view's address, and when not.

use std::time::Duration;

use anteroom_bus::{Address, RequestError};
use anteroom_mirror::testing::collection;
use anteroom_model::ViewState;
use anteroom_wire::query;
use serde_json::json;

use crate::harness::{Harness, args, ingress, key, request};

fn waits_for(harness: &Harness) -> Vec<String> {
    let report = harness.service.readiness.report();
    report
        .checks
        .into_iter()
        .filter_map(|check| check.waiting_for)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_a_watcher_is_not_ready_and_says_why() {
    let bus = anteroom_bus::local::LocalBus::new();
    let service = anteroom_runtime::Service::new("cache-replica");
    let bus = std::sync::Arc::new(bus);
    let replica = anteroom_cache_replica::run(args(), bus.clone(), service.clone());
    let running = tokio::spawn(replica);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let report = service.readiness.report();
    assert!(!report.ready);
    let waiting_for = report.checks[0].waiting_for.clone();
    assert_eq!(waiting_for.as_deref(), Some("the first read of the log"));

    anteroom_bus::Bus::ensure_log(&*bus).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting_for = service.readiness.report().checks[0]
        .waiting_for
        .clone()
        .unwrap();
    assert!(waiting_for.contains("anteroom:entries"), "{waiting_for}");
    service.shutdown.trigger("test");
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_subscribed_only_while_its_view_is_complete() {
    let mut harness = Harness::started(args()).await;
    harness.until_ready().await;
    let view = harness.view.clone();
    harness.writer.control(&view, ViewState::Syncing).await;
    let key = key(0);
    harness
        .writer
        .put(&view, &key.namespace, &key.name, ingress(0))
        .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let early = harness.ask(&request("length(items)")).await;
    assert!(matches!(early, Err(RequestError::NoResponders)));
    let waiting = waits_for(&harness);
    assert!(
        waiting.iter().any(|reason| reason.contains("syncing")),
        "{waiting:?}"
    );

    harness.writer.synced(&view).await;
    harness.until_served().await;
    assert_eq!(harness.value("length(items)").await, json!(1));
    let own = Address::Replica {
        replica: "r1".to_owned(),
        view: view.clone(),
    };
    let body = query::encode_request(&request("length(items)")).unwrap();
    let reply = harness
        .send(&own, body, Duration::from_secs(1))
        .await
        .unwrap();
    assert_eq!(reply.unwrap().objects, 1);
}

#[tokio::test(start_paused = true)]
async fn old_news_makes_it_leave_and_a_beat_come_back() {
    let harness = Harness::with_ingresses(3, args()).await;
    harness.until_unserved().await;
    assert!(!harness.service.readiness.report().ready);
    harness.until_served().await;
    harness.until_ready().await;
    assert_eq!(harness.value("length(items)").await, json!(3));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_digest_makes_it_leave_until_the_log_was_read_again() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    let view = harness.view.clone();
    let mut record = harness
        .writer
        .model(&view)
        .control(harness.writer.epoch(), ViewState::Synced);
    record.objects += 1;
    harness.writer.control_record(record).await;
    harness.until_unserved().await;
    let text = harness.service.metrics.encode();
    assert!(
        text.contains("anteroom_view_digest_mismatches_total"),
        "{text}"
    );
    // The other views are served all the while.
    let other = Address::View(anteroom_model::system::entries());
    let body = query::encode_request(&request("length(items)")).unwrap();
    harness.writer.beat().await;
    assert!(
        harness
            .send(&other, body, Duration::from_secs(1))
            .await
            .unwrap()
            .is_ok()
    );

    harness.writer.synced(&view).await;
    harness.until_served().await;
    assert_eq!(harness.value("length(items)").await, json!(3));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_view_is_left_and_one_of_its_name_is_served_anew() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    let view = harness.view.clone();
    harness.writer.control(&view, ViewState::Dropped).await;
    harness.until_unserved().await;
    let text = harness.service.metrics.encode();
    assert!(
        !text.contains("anteroom_view_objects{view=\"ingresses"),
        "{text}"
    );

    let again = harness.writer.open(collection("ingresses", "Ingress"));
    harness.writer.put(&again, "ns", "one", json!({})).await;
    harness.writer.synced(&again).await;
    harness.until_served().await;
    assert_eq!(harness.value("length(items)").await, json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_made_anew_is_read_anew() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    harness.bus.faults().remake_log();
    let bus = std::sync::Arc::new(harness.bus.join());
    harness.writer = anteroom_mirror::testing::ViewWriter::with_system_views(bus).await;
    let view = harness.writer.open(collection("ingresses", "Ingress"));
    harness.writer.put(&view, "ns", "only", json!({})).await;
    harness.writer.synced(&view).await;
    let incarnation = anteroom_bus::Bus::head(&harness.bus)
        .await
        .unwrap()
        .incarnation;
    let beating = harness.beating();
    let new_log = async {
        loop {
            if let Ok(Ok(reply)) = harness.ask(&request("length(items)")).await
                && reply.incarnation == incarnation
            {
                return reply.objects;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        objects = new_log => assert_eq!(objects, 1),
        () = beating => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_bus_that_goes_and_comes_loses_nothing() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    let faults = harness.bus.faults();
    for round in 3..8 {
        faults.stop();
        tokio::time::sleep(Duration::from_secs(1)).await;
        faults.start();
        let (view, key) = (harness.view.clone(), key(round));
        harness
            .writer
            .put(&view, &key.namespace, &key.name, ingress(round))
            .await;
        let revision = harness.writer.synced(&view).await;
        harness.until_served().await;
        let request = query::QueryRequest {
            revision_min: Some(revision),
            ..request("length(items)")
        };
        let reply = harness.ask(&request).await.unwrap().unwrap();
        assert_eq!(reply.objects, round as u64 + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_drains_without_losing_a_call() {
    let harness = Harness::with_ingresses(500, args()).await;
    let calls = (0..200).map(|n| {
        let request = query::QueryRequest {
            // One namespace may not have so many requests at once.
            review_namespace: format!("n{}", n % 4),
            ..request(&format!("items[{n}].metadata.name"))
        };
        let harness = &harness;
        async move {
            if n == 50 {
                harness.service.shutdown.trigger("test");
            }
            harness.ask(&request).await
        }
    });
    let outcomes = futures::future::join_all(calls).await;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(reply) => assert!(reply.is_ok(), "{n}: {reply:?}"),
            Err(RequestError::NoResponders) => {}
            Err(error) => panic!("call {n} was lost: {error}"),
        }
    }
    harness.running.await.unwrap().unwrap();
}
