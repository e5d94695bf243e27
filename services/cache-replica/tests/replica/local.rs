//! Views in the process that asks.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, local::LocalBus};
use anteroom_cache_replica::{LocalArgs, LocalReplica};
use anteroom_mirror::testing::{ViewWriter, collection};
use anteroom_model::{FactError, Revision, ViewId};
use anteroom_wire::{
    body,
    query::{QueryOutcome, QueryRequest},
};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::harness::{PATIENCE, ingress, key, request};

/// A limit that leaves room for small views.
const LIMIT: u64 = 64 << 20;

/// A local replica, and a writer.
struct Local {
    writer: ViewWriter,
    view: ViewId,
    replica: Arc<LocalReplica>,
    _stop: DropGuard,
}

impl Local {
    /// Holds `objects` ingresses, and no other view.
    async fn with_ingresses(objects: usize, memory_limit: u64) -> Self {
        let bus = LocalBus::new();
        let mut writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
        let view = writer.open(collection("ingresses", "Ingress"));
        let ingresses = (0..objects).map(|n| (key(n), ingress(n)));
        writer.put_all(&view, ingresses.collect()).await;
        writer.synced(&view).await;
        writer.desire(&view, false).await;
        let stop = CancellationToken::new();
        let args = LocalArgs {
            views: vec!["ingresses".to_owned()],
            memory_limit,
            age_max_ms: 60_000,
        };
        let reader: Arc<dyn Bus> = Arc::new(bus.join());
        let replica = LocalReplica::start(&args, reader, &stop);
        tokio::spawn(Arc::clone(&replica).run(stop.clone()));
        let local = Self {
            writer,
            view,
            replica,
            _stop: stop.drop_guard(),
        };
        local.until_it_holds(true).await;
        local
    }

    /// Has it hold the view as often as it takes until it does, or does not any more, while the writer beats.
    async fn until_it_holds(&self, expected: bool) {
        let services = ViewId::new("services.v1");
        let until = async {
            loop {
                self.replica.hold([&self.view, &services].into_iter());
                if self.replica.holds(&self.view) == expected {
                    return;
                }
                self.writer.beat().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, until).await.unwrap();
    }

    /// The first outcome for which `is_it` holds, while the writer beats.
    async fn until(
        &self,
        asked: &QueryRequest,
        is_it: impl Fn(Option<&QueryOutcome>) -> bool,
    ) -> Option<QueryOutcome> {
        let until = async {
            loop {
                let outcome = self.at_once(asked);
                if is_it(outcome.as_ref()) {
                    return outcome;
                }
                self.writer.beat().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, until).await.unwrap()
    }

    fn at_once(&self, asked: &QueryRequest) -> Option<QueryOutcome> {
        self.replica.answer_at_once(&self.view, asked, PATIENCE)
    }
}

fn is_answered(outcome: Option<&QueryOutcome>) -> bool {
    matches!(outcome, Some(Ok(_)))
}

#[tokio::test(start_paused = true)]
async fn a_view_that_matches_is_answered_in_the_process_and_others_are_not() {
    let local = Local::with_ingresses(3, LIMIT).await;
    let reply = local.until(&request("length(items)"), is_answered).await;
    let reply = reply.unwrap().unwrap();
    let result = body::to_json(reply.results[0].as_ref().unwrap()).unwrap();
    assert_eq!((result, reply.replica.as_str()), (json!(3), "local"));
    assert!(local.replica.holds(&local.view));
    let other = ViewId::new("services.v1");
    assert!(!local.replica.holds(&other));
    let refused = local
        .replica
        .answer_at_once(&other, &request("@"), PATIENCE);
    assert!(matches!(refused, Some(Err(FactError::NotSynced { .. }))));
}

/// A tenant chooses the names of its views, and how many there are: they would take the places of the cluster's.
#[tokio::test(start_paused = true)]
async fn a_view_is_local_while_others_than_policies_of_namespaces_need_it() {
    let mut local = Local::with_ingresses(3, LIMIT).await;
    for in_quota in [true, false] {
        local.writer.desire(&local.view, in_quota).await;
        local.until_it_holds(!in_quota).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_takes_long_is_left_to_replicas_and_answered_for_who_insists() {
    let local = Local::with_ingresses(2_000, LIMIT).await;
    // No index answers it.
    let asked = request("sort_by(items, &metadata.name)[0].metadata.name");
    local.until(&asked, |outcome| outcome.is_none()).await;
    let outcome = local.replica.answer(&local.view, &asked, PATIENCE).await;
    let reply = outcome.unwrap();
    assert!(reply.results[0].is_ok());
    assert_eq!(reply.objects, 2_000);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_is_not_reached_is_left_to_replicas() {
    let mut local = Local::with_ingresses(3, LIMIT).await;
    // The records of the desired views are read beside those of the view.
    let reply = local.until(&request("length(items)"), is_answered).await;
    let at = reply.unwrap().unwrap().revision;
    let demanding = QueryRequest {
        revision_min: Some(Revision(at.0 + 4)),
        ..request("length(items)")
    };
    assert!(local.at_once(&demanding).is_none());
    let view = local.view.clone();
    local.writer.put(&view, "ns", "one", json!({})).await;
    local.writer.synced(&view).await;
    local.until(&demanding, is_answered).await;
}

#[tokio::test(start_paused = true)]
async fn a_view_over_the_limit_says_that_it_is_evicted() {
    let local = Local::with_ingresses(2_000, 256 << 10).await;
    let is_evicted =
        |outcome: Option<&QueryOutcome>| matches!(outcome, Some(Err(FactError::Evicted { .. })));
    let outcome = local.until(&request("length(items)"), is_evicted).await;
    let error = outcome.unwrap().unwrap_err().to_string();
    assert!(error.contains("memory limit of 262144"), "{error}");
}
