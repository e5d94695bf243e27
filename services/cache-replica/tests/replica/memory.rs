//! Views that are evicted where memory is short, that stay, and that come back.

use std::time::Duration;

use anteroom_bus::{Address, BusExt as _};
use anteroom_cache_replica::Args;
use anteroom_mirror::testing::collection;
use anteroom_model::{
    DesiredView, FactError, ObjectKey, Source, SourceInfo, ViewId, ViewOptions, system,
};
use anteroom_wire::query::{QueryOutcome, encode_request};
use anteroom_wire::replica_beat::ReplicaBeat;
use serde_json::json;

use crate::harness::{Harness, args, request};

const KIB: u64 = 1024;

/// A limit that leaves about this much to views, beside what the process takes (20 MiB) and what is
/// kept for evaluations (a tenth).
fn limited(views_bytes: u64) -> Args {
    Args {
        memory_limit: Some((20 * KIB * KIB + views_bytes) * 10 / 9),
        ..args()
    }
}

/// Writes a view of about this many KiB.
async fn write(harness: &mut Harness, plural: &str, kib: usize) -> ViewId {
    write_as(harness, collection(plural, "Thing"), kib).await
}

async fn write_as(harness: &mut Harness, info: SourceInfo, kib: usize) -> ViewId {
    let view = harness.writer.open(info);
    let objects = (0..kib).map(|n| {
        let key = ObjectKey::new("ns", format!("{n:05}"));
        (key, json!({"padding": "x".repeat(900)}))
    });
    harness.writer.put_all(&view, objects.collect()).await;
    harness.writer.synced(&view).await;
    view
}

async fn want(harness: &mut Harness, info: SourceInfo, options: ViewOptions) {
    let wanted = system::desired_views();
    let name = info.source.view_id();
    let record = serde_json::to_value(DesiredView { info, options }).unwrap();
    harness.writer.put(&wanted, "", name.as_str(), record).await;
    harness.writer.synced(&wanted).await;
}

async fn open_wanted(harness: &mut Harness) {
    harness.writer.open(SourceInfo {
        source: system::desired_views_source(),
        kind: String::new(),
        namespaced: false,
    });
}

async fn ask(harness: &Harness, view: &ViewId) -> QueryOutcome {
    let body = encode_request(&request("length(items)")).unwrap();
    let at = Address::Fallback(view.clone());
    harness
        .send(&at, body, Duration::from_secs(1))
        .await
        .unwrap()
}

async fn beat_for(harness: &Harness, time: Duration) {
    let _ = tokio::time::timeout(time, harness.beating()).await;
}

fn is_evicted(outcome: &QueryOutcome) -> bool {
    matches!(outcome, Err(FactError::Evicted { .. }))
}

/// The least recently used view is evicted whole, answers *evicted*, and comes back when it is asked
/// for.
#[tokio::test(start_paused = true)]
async fn the_least_recently_used_view_is_evicted_and_comes_back_when_asked() {
    let mut harness = Harness::started(limited(400 * KIB)).await;
    let first = write(&mut harness, "firsts", 150).await;
    let second = write(&mut harness, "seconds", 150).await;
    beat_for(&harness, Duration::from_secs(2)).await;
    assert_eq!(ask(&harness, &first).await.unwrap().objects, 150);
    assert_eq!(ask(&harness, &second).await.unwrap().objects, 150);
    beat_for(&harness, Duration::from_secs(1)).await;
    assert!(ask(&harness, &second).await.is_ok());
    beat_for(&harness, Duration::from_secs(40)).await;
    // `first` was used least recently: it goes for the third, which is used at once.
    let third = write(&mut harness, "thirds", 150).await;
    beat_for(&harness, Duration::from_millis(20)).await;
    let _ = ask(&harness, &third).await;
    beat_for(&harness, Duration::from_secs(2)).await;
    assert!(ask(&harness, &third).await.is_ok());
    let text = harness.service.metrics.encode();
    let evicted = "anteroom_view_evictions_total{view=\"firsts.v1.networking.k8s.io\"";
    assert!(text.contains(evicted), "{text}");
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    let beat = beats.next().await.unwrap();
    let told = beat.views.iter().find(|held| held.view == first).unwrap();
    assert_eq!(told.state, "evicted");
    assert!(harness.service.readiness.report().ready);

    // `first` has rested long enough after its eviction: a question for `first` now evicts `second`.
    let outcome = ask(&harness, &first).await;
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("memory limit"), "{error}");
    let back = async {
        while ask(&harness, &first).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = back => {}
        () = harness.beating() => {}
    }
    assert_eq!(ask(&harness, &first).await.unwrap().objects, 150);
    assert!(is_evicted(&ask(&harness, &second).await));
    assert!(ask(&harness, &third).await.is_ok(), "it was used lately");
}

/// A view that only policies of a namespace need goes for views of the cluster, and not the other way round.
#[tokio::test(start_paused = true)]
async fn a_tenants_view_is_evicted_before_views_of_the_cluster_that_are_used_less() {
    let mut harness = Harness::started(limited(400 * KIB)).await;
    open_wanted(&mut harness).await;
    let mut tenants = collection("tenants", "Thing");
    if let Source::Collection(collection) = &mut tenants.source {
        collection.namespaces.push("ns".to_owned());
    }
    let in_quota = ViewOptions {
        in_quota: true,
        ..ViewOptions::default()
    };
    want(&mut harness, tenants.clone(), in_quota).await;
    let cluster = write(&mut harness, "clusters", 150).await;
    let tenant = write_as(&mut harness, tenants, 150).await;
    beat_for(&harness, Duration::from_secs(2)).await;
    assert!(ask(&harness, &cluster).await.is_ok());
    beat_for(&harness, Duration::from_secs(1)).await;
    assert!(ask(&harness, &tenant).await.is_ok(), "it was used last");
    let other = write(&mut harness, "others", 150).await;
    beat_for(&harness, Duration::from_secs(40)).await;
    let error = ask(&harness, &tenant).await.unwrap_err();
    assert!(
        error.to_string().contains("policies of namespaces"),
        "{error}"
    );
    // The others have not been used for long, and still none of them goes for the tenant's view.
    beat_for(&harness, Duration::from_secs(2)).await;
    assert!(is_evicted(&ask(&harness, &tenant).await));
    assert!(ask(&harness, &cluster).await.is_ok());
    assert!(ask(&harness, &other).await.is_ok());
}

/// One huge entry does not evict everything else, nor does one over its own limit.
#[tokio::test(start_paused = true)]
async fn a_huge_view_or_one_over_its_own_limit_is_evicted_alone() {
    let mut harness = Harness::started(limited(500 * KIB)).await;
    open_wanted(&mut harness).await;
    let narrow = ViewOptions {
        bytes_max: Some(10 * KIB),
        ..ViewOptions::default()
    };
    want(&mut harness, collection("narrows", "Thing"), narrow).await;
    let small = write(&mut harness, "smalls", 50).await;
    let narrow = write(&mut harness, "narrows", 20).await;
    let huge = write(&mut harness, "huges", 700).await;
    beat_for(&harness, Duration::from_secs(3)).await;
    assert!(is_evicted(&ask(&harness, &huge).await));
    let error = ask(&harness, &narrow).await.unwrap_err();
    assert!(
        error.to_string().contains("its own limit is 10240"),
        "{error}"
    );
    assert!(ask(&harness, &small).await.is_ok());
    beat_for(&harness, Duration::from_secs(60)).await;
    assert!(
        ask(&harness, &small).await.is_ok(),
        "whoever asks for the huge one"
    );
    assert!(is_evicted(&ask(&harness, &huge).await));
}

/// Pinned views stay, and nothing is silent.
#[tokio::test(start_paused = true)]
async fn pinned_views_stay_and_take_readiness_where_they_are_too_large() {
    let mut harness = Harness::started(limited(300 * KIB)).await;
    open_wanted(&mut harness).await;
    let pinned = ViewOptions {
        pinned: true,
        ..ViewOptions::default()
    };
    want(&mut harness, collection("pins", "Thing"), pinned).await;
    let pin = write(&mut harness, "pins", 200).await;
    let other = write(&mut harness, "others", 150).await;
    beat_for(&harness, Duration::from_secs(2)).await;
    assert!(ask(&harness, &pin).await.is_ok());
    assert!(is_evicted(&ask(&harness, &other).await));
    assert!(harness.service.readiness.report().ready);
    write(&mut harness, "pins", 400).await;
    beat_for(&harness, Duration::from_secs(2)).await;
    assert_eq!(ask(&harness, &pin).await.unwrap().objects, 400);
    let report = harness.service.readiness.report();
    let memory = report.checks.iter().find(|check| check.name == "memory");
    assert!(memory.unwrap().waiting_for.is_some(), "{report:?}");
}

/// The limit holds while the log is read at start, too.
#[tokio::test(start_paused = true)]
async fn a_replica_that_starts_into_more_than_it_may_hold_is_ready_with_what_fits() {
    let mut harness = Harness::started(args()).await;
    for plural in ["as", "bs", "cs", "ds"] {
        write(&mut harness, plural, 100).await;
    }
    let service = anteroom_runtime::Service::new("cache-replica");
    let second = Args {
        replica_id: Some("r2".into()),
        ..limited(250 * KIB)
    };
    let bus = std::sync::Arc::new(harness.bus.join());
    tokio::spawn(anteroom_cache_replica::run(second, bus, service.clone()));
    tokio::select! {
        () = service.readiness.wait_ready() => {}
        () = harness.beating() => {}
    }
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    beat_for(&harness, Duration::from_secs(2)).await;
    let beat = loop {
        let beat = beats.next().await.unwrap();
        if beat.replica == "r2" {
            break beat;
        }
    };
    assert!(beat.bytes <= 250 * KIB, "{}", beat.bytes);
    let of = |state: &str| beat.views.iter().filter(|held| held.state == state).count();
    assert_eq!(of("evicted"), 2, "{beat:?}");
}
