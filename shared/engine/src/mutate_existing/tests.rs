use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use anteroom_policy::AdmissionRequest;
use anteroom_wire::live::LiveCall;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::{
    worker::tests::{WatcherAnswer, World, copying, triggered},
    *,
};
use crate::recorder::Recorder;

/// Counts attempts and dropped triggers, by what came of them.
#[derive(Debug, Default)]
struct Counts(Mutex<BTreeMap<&'static str, usize>>);

impl Recorder for Counts {
    fn mutate_existing(&self, outcome: &'static str) {
        *self.0.lock().entry(outcome).or_default() += 1;
    }
}

impl Counts {
    fn of(&self, outcome: &str) -> usize {
        self.0.lock().get(outcome).copied().unwrap_or_default()
    }
}

/// A queue with its worker, a watcher, and the counts.
struct Queue {
    existing: MutateExisting,
    counts: Arc<Counts>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Queue {
    async fn new(say: impl Fn(LiveCall) -> WatcherAnswer + Send + Sync + 'static) -> Self {
        let counts = Arc::new(Counts::default());
        let world = World::recorded(copying(), false, Arc::clone(&counts) as _, say).await;
        let World { worker, watcher } = world;
        let (existing, run) = MutateExisting::of(worker, None, Shutdown::new());
        let run = tokio::spawn(async { drop(run.await) });
        Self {
            existing,
            counts,
            _tasks: [watcher, AbortOnDropHandle::new(run)],
        }
    }

    async fn hand_over(&self, request: AdmissionRequest) {
        let deadline = Instant::now() + Duration::from_secs(10);
        self.existing.hand_over(triggered(request), deadline).await;
    }
}

fn creation(kind: &str, namespace: &str, data: &Value) -> AdmissionRequest {
    let request = json!({
        "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": kind},
        "namespace": namespace, "name": "c", "object": config(namespace, data),
    });
    AdmissionRequest::new(request).unwrap()
}

fn config(namespace: &str, data: &Value) -> Value {
    json!({"metadata": {"name": "c", "namespace": namespace, "uid": "u", "resourceVersion": "1"}, "data": data})
}

/// A watcher that finds the object of every creation but those in `flooded`, and counts the writes.
fn watcher(written: Arc<AtomicUsize>) -> impl Fn(LiveCall) -> WatcherAnswer {
    move |call| {
        let items = match call {
            LiveCall::Existing { objects } if objects.target.is_none() => {
                match &*objects.namespace {
                    "flooded" => vec![],
                    namespace => vec![config(namespace, &json!({"a": "real"}))],
                }
            }
            LiveCall::Existing { .. } => vec![json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "x", "namespace": "shop", "resourceVersion": "1"}})],
            _ => {
                written.fetch_add(1, Ordering::SeqCst);
                vec![]
            }
        };
        Some((0, Ok(json!({ "items": items }))))
    }
}

/// Creations that a quota refuses after the webhook has admitted them: small ones, and ones of 1 MiB.
#[tokio::test(start_paused = true)]
async fn a_flood_of_triggers_in_one_namespace_drops_and_delays_none_of_another() {
    for (bytes, flood) in [(10, 2 * TRIGGERS_MAX), (1024 * 1024, 40)] {
        let written = Arc::new(AtomicUsize::new(0));
        let queue = Queue::new(watcher(Arc::clone(&written))).await;
        let large = json!({"a": "x".repeat(bytes)});
        for _ in 0..flood {
            queue
                .hand_over(creation("ConfigMap", "flooded", &large))
                .await;
        }
        let dropped = queue.counts.of("dropped");
        assert!((flood / 4..flood).contains(&dropped), "{dropped}");
        for _ in 0..30 {
            let small = json!({"a": "said"});
            queue.hand_over(creation("ConfigMap", "shop", &small)).await;
        }
        assert_eq!(queue.counts.of("dropped"), dropped);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(written.load(Ordering::SeqCst), 30);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let all = queue.existing.worker.memory().is_free();
        assert!(all, "memory of triggers that are done with comes back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_rule_does_not_match_takes_no_memory_of_triggers() {
    let queue = Queue::new(watcher(Arc::default())).await;
    let data = json!({"a": "said"});
    queue.hand_over(creation("Secret", "shop", &data)).await;
    assert_eq!(queue.counts.of("not-matched"), 1);
    assert!(queue.existing.worker.memory().is_free());
    queue.hand_over(creation("ConfigMap", "shop", &data)).await;
    assert!(!queue.existing.worker.memory().is_free());
}

/// Data whose values take a hundred times the bytes of their text.
fn of_many_values(values: usize) -> Value {
    json!({"a": "real", "b": vec![json!({"c": 1}); values]})
}

/// A request of that size, and one whose object has that size by the time when it is looked up.
#[tokio::test(start_paused = true)]
async fn a_trigger_that_takes_more_memory_than_there_is_is_dropped() {
    let queue = Queue::new(|_| {
        let huge = config("shop", &of_many_values(50_000));
        Some((0, Ok(json!({"items": [huge]}))))
    });
    let queue = queue.await;
    let huge = creation("ConfigMap", "shop", &of_many_values(50_000));
    queue.hand_over(huge).await;
    assert_eq!(queue.counts.of("dropped"), 1);
    let small = creation("ConfigMap", "shop", &json!({"a": "said"}));
    queue.hand_over(small).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(queue.counts.of("failed"), 1);
    assert!(queue.existing.worker.memory().is_free());
}

/// A small request of an object that is large by the time when it is looked up.
#[tokio::test(start_paused = true)]
async fn a_trigger_whose_object_grew_waits_for_the_memory_of_a_large_one() {
    let written = Arc::new(AtomicUsize::new(0));
    let say = watcher(Arc::clone(&written));
    let queue = Queue::new(move |call| match call {
        LiveCall::Existing { objects } if objects.target.is_none() => {
            let large = config("shop", &of_many_values(5_000));
            Some((0, Ok(json!({"items": [large]}))))
        }
        call => say(call),
    });
    let queue = queue.await;
    let memory = queue.existing.worker.memory();
    let all = memory.hold_large(ReviewOwner::of("other", ""));
    let small = creation("ConfigMap", "shop", &json!({"a": "said"}));
    queue.hand_over(small).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(written.load(Ordering::SeqCst), 0);
    drop(all);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(written.load(Ordering::SeqCst), 1);
}
