//! Several replicas, each with a part of the views.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Address, BusExt as _};
use anteroom_cache_replica::Args;
use anteroom_mirror::testing::collection;
use anteroom_model::ViewId;
use anteroom_runtime::Service;
use anteroom_wire::query::encode_request;
use anteroom_wire::replica_beat::ReplicaBeat;
use serde_json::json;

use crate::harness::{Harness, args, request};

const VIEWS: usize = 12;

fn args_of(replica: &str) -> Args {
    Args {
        replica_id: Some(replica.into()),
        replication_factor: 2,
        ..args()
    }
}

async fn beat_for(harness: &Harness, time: Duration) {
    let _ = tokio::time::timeout(time, harness.beating()).await;
}

/// The replicas that serve each view, by their last beats within a second.
async fn served(harness: &Harness) -> BTreeMap<ViewId, Vec<String>> {
    let mut beats = harness.bus.signals::<ReplicaBeat>().await.unwrap();
    let mut last = BTreeMap::new();
    let hearing = async {
        while let Some(beat) = beats.next().await {
            last.insert(beat.replica.clone(), beat);
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(1_500), async {
        tokio::join!(hearing, harness.beating())
    })
    .await;
    let mut served = BTreeMap::new();
    for (replica, beat) in last {
        let synced = beat.views.into_iter().filter(|held| held.state == "synced");
        for held in synced.filter(|held| !held.view.is_system()) {
            let replicas: &mut Vec<_> = served.entry(held.view).or_default();
            replicas.push(replica.clone());
        }
    }
    served
}

/// Each view on exactly two of three; one goes, and its views are served again.
#[tokio::test(start_paused = true)]
async fn each_view_is_at_two_of_three_replicas_and_again_when_one_is_gone() {
    let mut harness = Harness::started(args_of("r1")).await;
    for n in 0..VIEWS {
        let view = harness
            .writer
            .open(collection(&format!("things{n}"), "Thing"));
        harness.writer.put(&view, "ns", "a", json!({})).await;
        harness.writer.synced(&view).await;
    }
    let others = ["r2", "r3"].map(|replica| {
        let service = Service::new("cache-replica");
        let bus = Arc::new(harness.bus.join());
        let running = anteroom_cache_replica::run(args_of(replica), bus, service.clone());
        (tokio::spawn(running), service)
    });
    beat_for(&harness, Duration::from_secs(6)).await;
    let before = served(&harness).await;
    assert_eq!(before.len(), VIEWS);
    assert!(
        before.values().all(|replicas| replicas.len() == 2),
        "{before:?}"
    );
    let holds = |replica: &str| {
        before
            .values()
            .filter(|at| at.iter().any(|r| r == replica))
            .count()
    };
    assert!(["r1", "r2", "r3"].iter().all(|replica| holds(replica) > 0));

    // Killed: it says nothing any more.
    others[1].0.abort();
    beat_for(&harness, Duration::from_secs(10)).await;
    let after = served(&harness).await;
    assert_eq!(after.len(), VIEWS);
    assert!(after.values().all(|at| *at == ["r1", "r2"]), "{after:?}");
    for view in after.keys() {
        let body = encode_request(&request("length(items)")).unwrap();
        let at = Address::View(view.clone());
        let outcome = harness.send(&at, body, Duration::from_secs(1)).await;
        assert_eq!(outcome.unwrap().unwrap().objects, 1);
    }
}

/// A share by name.
#[tokio::test(start_paused = true)]
async fn a_replica_holds_the_views_that_it_is_told_to() {
    let told = Args {
        views: vec!["ingresses".into(), "x*".into()],
        ..args()
    };
    let mut harness = Harness::with_ingresses(3, told).await;
    for plural in ["services", "xs"] {
        let view = harness.writer.open(collection(plural, "Thing"));
        harness.writer.synced(&view).await;
    }
    beat_for(&harness, Duration::from_secs(1)).await;
    let served: Vec<_> = served(&harness).await.into_keys().collect();
    let names: Vec<_> = served.iter().map(ViewId::as_str).collect();
    assert_eq!(
        names,
        ["ingresses.v1.networking.k8s.io", "xs.v1.networking.k8s.io"]
    );
}
