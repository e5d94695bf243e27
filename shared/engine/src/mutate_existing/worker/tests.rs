mod in_cel;
mod turns;

use std::sync::atomic::{AtomicUsize, Ordering};

use anteroom_bus::{Address, Bus, local::LocalBus};
use anteroom_model::ObjectKey;
use anteroom_runtime::Shutdown;
use anteroom_seal::Keys;
use anteroom_wire::{
    body,
    live::{LiveCall, LiveReply, decode_request, encode_outcome},
};
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::{facts::BusFacts, policies::PolicySet, recorder::NoRecorder};

/// The watcher's answer and its time; `None`: never.
pub(in crate::mutate_existing) type WatcherAnswer = Option<(u64, Result<Value, FactError>)>;

/// A worker, the policy `p` that it works on, and a watcher.
pub(in crate::mutate_existing) struct World {
    pub(in crate::mutate_existing) worker: Worker,
    pub(in crate::mutate_existing) watcher: AbortOnDropHandle<()>,
}

/// A catalog with the policy `p`, whose one rule writes `value` to the Pods of these targets.
fn catalog(value: &str, targets: &[Value]) -> Arc<Catalog> {
    catalog_of(&json!({
        "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "mutate": {"targets": targets, "patchStrategicMerge": {"spec": {"a": value}}},
    }))
}

/// A catalog with the policy `p`, which has this rule.
fn catalog_of(rule: &Value) -> Arc<Catalog> {
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    });
    let body = body::encode_json(&manifest).unwrap();
    let policies = PolicySet::build(&PolicySet::default(), [(ObjectKey::new("", "p"), body)]);
    Arc::new(Catalog {
        policies: Arc::new(policies),
        ..Catalog::default()
    })
}

fn pods(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace})
}

fn pod(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "x", "namespace": namespace, "resourceVersion": "1"}})
}

fn forbidden() -> FactError {
    FactError::WriteFailed {
        code: 403,
        message: "no".into(),
    }
}

impl World {
    async fn new(
        catalog: Arc<Catalog>,
        say: impl Fn(LiveCall) -> WatcherAnswer + Send + Sync + 'static,
    ) -> Self {
        let (_, catalogs) = watch::channel(Some(catalog));
        Self::following(catalogs, say).await
    }

    async fn following(
        catalogs: watch::Receiver<Option<Arc<Catalog>>>,
        say: impl Fn(LiveCall) -> WatcherAnswer + Send + Sync + 'static,
    ) -> Self {
        let is_look_up = |call: &LiveCall| matches!(call, LiveCall::Existing { objects } if objects.target.is_none());
        let say = move |call| match is_look_up(&call) {
            true => Some((0, Ok(json!({"items": [trigger("2")]})))),
            false => say(call),
        };
        Self::with_look_ups(catalogs, false, say).await
    }

    /// `say` is asked for the trigger too.
    async fn with_look_ups(
        catalogs: watch::Receiver<Option<Arc<Catalog>>>,
        trusts_reviews: bool,
        say: impl Fn(LiveCall) -> WatcherAnswer + Send + Sync + 'static,
    ) -> Self {
        Self::recorded(catalogs, trusts_reviews, Arc::new(NoRecorder), say).await
    }

    pub(in crate::mutate_existing) async fn recorded(
        catalogs: watch::Receiver<Option<Arc<Catalog>>>,
        trusts_reviews: bool,
        recorder: SharedRecorder,
        say: impl Fn(LiveCall) -> WatcherAnswer + Send + Sync + 'static,
    ) -> Self {
        let bus = LocalBus::new();
        let reader: Arc<dyn Bus> = Arc::new(bus.join());
        // Longer than any read: none is asked for twice.
        let hedge = Duration::from_secs(600);
        let facts = BusFacts::new(
            Arc::clone(&reader),
            Keys::none(),
            Arc::clone(&recorder),
            hedge,
            0.0,
        );
        let engine = Engine::new(catalogs, facts, Arc::clone(&recorder));
        let (violations, _) = Violations::new(reader, Arc::clone(&recorder), Shutdown::new());
        let mut reads = bus.serve(&Address::Live).await.unwrap();
        let mut writes = bus.serve(&Address::Write).await.unwrap();
        let watcher = tokio::spawn(async move {
            let (_bus, mut unanswered) = (bus, Vec::new());
            loop {
                let incoming = tokio::select! {
                    Some(incoming) = reads.next() => incoming,
                    Some(incoming) = writes.next() => incoming,
                    else => break,
                };
                let incoming = incoming.unwrap();
                let request = decode_request(&incoming.call.body).unwrap();
                let Some((after, said)) = say(request.call) else {
                    unanswered.push(incoming);
                    continue;
                };
                let outcome = said.map(|value| LiveReply {
                    watcher: "w".into(),
                    age_ms: 0,
                    shared: false,
                    result: body::encode_value(&value).unwrap(),
                    secret: false,
                });
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(after)).await;
                    let _ = incoming.answer(encode_outcome(&outcome).unwrap()).await;
                });
            }
        });
        Self {
            worker: Worker::new(engine, violations, recorder, trusts_reviews),
            watcher: AbortOnDropHandle::new(watcher),
        }
    }

    /// Takes the rule through a trigger to its end.
    async fn work(&self) -> bool {
        let request = request("UPDATE", &trigger("1"), &trigger("1"));
        self.work_for(&rule(), &request).await
    }

    /// Takes this rule through this request to its end.
    async fn work_for(&self, rule: &RuleName, request: &AdmissionRequest) -> bool {
        let held = HeldRequest::of(request.clone(), ReviewOwner::default());
        self.worker.work(rule, &held).await
    }
}

fn rule() -> RuleName {
    RuleName::new(ObjectKey::new("", "p"), "r")
}

/// The ConfigMap that triggers the rule.
fn trigger(version: &str) -> Value {
    json!({"metadata": {"name": "c", "namespace": "shop", "uid": "u", "resourceVersion": version}})
}

fn request(operation: &str, object: &Value, old: &Value) -> AdmissionRequest {
    let request = json!({
        "operation": operation, "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "namespace": "shop", "name": "c", "object": object, "oldObject": old,
    });
    AdmissionRequest::new(request).unwrap()
}

/// A request that may have triggered the rule.
pub(in crate::mutate_existing) fn triggered(request: AdmissionRequest) -> Triggered {
    Triggered {
        owner: ReviewOwner::of(request.namespace(), ""),
        request,
        rules: vec![(Arc::new(rule()), false)],
        by_manager: false,
    }
}

/// A catalog whose rule writes the trigger's `data.a` to a Pod.
pub(in crate::mutate_existing) fn copying() -> watch::Receiver<Option<Arc<Catalog>>> {
    let value = "{{ request.object.data.a || request.oldObject.data.a }}";
    watch::channel(Some(catalog(value, &[pods("shop")]))).1
}

fn with_data(version: &str, a: &str) -> Value {
    let mut object = trigger(version);
    object["data"] = json!({"a": a});
    object
}

/// Returns a watcher that answers lookups of the trigger with `looks` in order, repeating the last, and records the
/// writes.
fn watcher(
    looks: Vec<Result<Value, FactError>>,
) -> (Arc<Mutex<Vec<Value>>>, impl Fn(LiveCall) -> WatcherAnswer) {
    let (written, at) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(0));
    let told = Arc::clone(&written);
    let say = move |call| {
        let said = match call {
            LiveCall::Existing { objects } if objects.target.is_none() => {
                let look = at.fetch_add(1, Ordering::SeqCst).min(looks.len() - 1);
                looks[look].clone()
            }
            LiveCall::Existing { .. } => Ok(json!({"items": [pod("shop")]})),
            LiveCall::Write { object, .. } => {
                told.lock().push(object["spec"]["a"].clone());
                Ok(Value::Null)
            }
            other => panic!("{other:?}"),
        };
        Some((0, said))
    };
    (written, say)
}

fn found(object: &Value) -> Result<Value, FactError> {
    Ok(json!({ "items": [object] }))
}

fn not_found() -> Result<Value, FactError> {
    Ok(json!({ "items": [] }))
}

/// Whoever makes a review up, or whose request another webhook refuses, changes nothing.
#[tokio::test(start_paused = true)]
async fn a_trigger_counts_only_as_it_is_stored() {
    let (create, update, delete) = (
        request("CREATE", &with_data("", "said"), &Value::Null),
        request("UPDATE", &with_data("1", "said"), &with_data("1", "old")),
        request("DELETE", &Value::Null, &with_data("1", "old")),
    );
    for (request, looks, expected) in [
        (&create, vec![found(&with_data("1", "real"))], vec!["real"]),
        (
            &create,
            vec![not_found(), not_found(), found(&with_data("1", "real"))],
            vec!["real"],
        ),
        (&create, vec![not_found()], vec![]),
        (
            &update,
            vec![
                found(&with_data("1", "old")),
                found(&with_data("2", "real")),
            ],
            vec!["real"],
        ),
        // A different webhook refused the request, or the request changed nothing.
        (&update, vec![found(&with_data("1", "old"))], vec!["old"]),
        (&update, vec![not_found()], vec![]),
        (&delete, vec![not_found()], vec!["old"]),
        (&delete, vec![found(&with_data("1", "old"))], vec![]),
    ] {
        let of = format!("{} {looks:?}", request.operation().as_str());
        let (written, say) = watcher(looks);
        let world = World::with_look_ups(copying(), false, say).await;
        let begun = Instant::now();
        assert!(world.work_for(&rule(), request).await, "{of}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{of}");
        assert_eq!(*written.lock(), expected, "{of}");
    }
}

/// Each request of a kind meets all rules of a policy; most speak of other ones.
#[tokio::test(start_paused = true)]
async fn nothing_is_looked_up_for_a_rule_that_does_not_speak_of_the_request() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let say = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some((0, not_found()))
    };
    let world = World::with_look_ups(copying(), false, say).await;
    for operation in ["CREATE", "DELETE"] {
        let mut other = json!({
            "operation": operation, "kind": {"group": "", "version": "v1", "kind": "Secret"},
            "namespace": "shop", "name": "c", "object": trigger("1"), "oldObject": trigger("1"),
        });
        if operation == "DELETE" {
            other["object"] = Value::Null;
        }
        let request = AdmissionRequest::new(other).unwrap();
        assert!(world.work_for(&rule(), &request).await);
        let mut triggered = triggered(request);
        world.worker.rule_out(&mut triggered, Instant::now()).await;
        assert!(triggered.rules.is_empty(), "{operation}");
    }
    assert_eq!(looks.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_may_not_be_read_is_believed_of_the_api_server_alone() {
    let refused = || {
        Err(FactError::LiveReadFailed {
            code: 403,
            message: "no".into(),
        })
    };
    let create = request("CREATE", &with_data("", "said"), &Value::Null);
    for (trusts_reviews, expected) in [(false, vec![]), (true, vec!["said"])] {
        let (written, say) = watcher(vec![refused()]);
        let world = World::with_look_ups(copying(), trusts_reviews, say).await;
        let is_well = world.work_for(&rule(), &create).await;
        assert_eq!(
            (is_well, written.lock().clone()),
            (
                trusts_reviews,
                expected.into_iter().map(Value::from).collect()
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_of_what_was_there_before_it_was_answered() {
    let delete = request("DELETE", &Value::Null, &with_data("1", "said"));
    for (look, expected) in [
        (found(&with_data("1", "real")), Some("real")),
        (not_found(), None),
        (Err(FactError::NoWatcher), None),
    ] {
        let of = format!("{look:?}");
        let (_, say) = watcher(vec![look]);
        let world = World::with_look_ups(copying(), false, say).await;
        let mut triggered = triggered(delete.clone());
        world.worker.rule_out(&mut triggered, Instant::now()).await;
        world
            .worker
            .read_before_delete(&mut triggered, Instant::now() + TIMEOUT)
            .await;
        assert_eq!(triggered.rules.is_empty(), expected.is_none(), "{of}");
        if let Some(expected) = expected {
            assert_eq!(
                triggered.request.matched_object()["data"]["a"],
                expected,
                "{of}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_waiting_for_its_first_turn_does_not_time_out() {
    let world = World::new(catalog("b", &[pods("shop")]), |call| {
        Some(match call {
            LiveCall::Existing { .. } => (19, Ok(json!({"items": [pod("shop")]}))),
            _ => (0, Ok(Value::Null)),
        })
    });
    let world = world.await;
    let begun = Instant::now();
    // Two at once: the last one begins after longer than a rule may take.
    let works = join_all((0..40).map(|_| world.work())).await;
    assert!(begun.elapsed() > TIMEOUT);
    assert_eq!(works, vec![true; 40]);
}

/// Three parts each, of which one takes 19 s, two works at once: each waits twice for nine others, which is longer than
/// a rule may take.
#[tokio::test(start_paused = true)]
async fn work_waiting_between_parts_does_not_time_out() {
    let parts = Arc::new(AtomicUsize::new(0));
    let read = Arc::clone(&parts);
    let world = World::new(catalog("b", &[pods("shop")]), move |call| {
        Some(match call {
            LiveCall::Existing { objects } => {
                read.fetch_add(1, Ordering::Relaxed);
                let next = match &*objects.continues {
                    "" => "two",
                    "two" => "three",
                    _ => "",
                };
                (19, Ok(json!({"items": [pod("shop")], "continue": next})))
            }
            _ => (0, Ok(Value::Null)),
        })
    });
    let world = world.await;
    let begun = Instant::now();
    let works = join_all((0..20).map(|_| world.work())).await;
    assert!(begun.elapsed() > TIMEOUT);
    assert_eq!(works, vec![true; 20]);
    let parts = parts.load(Ordering::Relaxed);
    assert_eq!(parts, 60, "nothing is tried again");
}

/// One of two objects was replaced meanwhile: the rule is evaluated again, and the other object is
/// not written twice.
#[tokio::test(start_paused = true)]
async fn a_retry_does_not_write_objects_that_were_already_written() {
    let done = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&done);
    let named = |name: &str| {
        let mut pod = pod("shop");
        pod["metadata"]["name"] = name.into();
        pod
    };
    let world = World::new(catalog("b", &[pods("shop")]), move |call| {
        Some(match call {
            LiveCall::Existing { .. } => (0, Ok(json!({"items": [named("one"), named("two")]}))),
            LiveCall::Write { object, .. } => {
                let name = object["metadata"]["name"].clone();
                let is_first = name == "two" && !told.lock().contains(&name);
                told.lock().push(name);
                let conflict = FactError::WriteFailed {
                    code: 409,
                    message: "changed".into(),
                };
                (
                    0,
                    if is_first {
                        Err(conflict)
                    } else {
                        Ok(Value::Null)
                    },
                )
            }
            other => panic!("{other:?}"),
        })
    });
    assert!(world.await.work().await);
    let mut done = done.lock().clone();
    done.sort_by_key(Value::to_string);
    assert_eq!(done, ["one", "two", "two"]);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_write_is_retried_soon() {
    let writes = AtomicUsize::new(0);
    let world = World::new(catalog("b", &[pods("shop")]), move |call| match call {
        LiveCall::Existing { .. } => Some((0, Ok(json!({"items": [pod("shop")]})))),
        _ if writes.fetch_add(1, Ordering::SeqCst) == 0 => None,
        _ => Some((0, Ok(Value::Null))),
    });
    let world = world.await;
    let begun = Instant::now();
    assert!(world.work().await);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// The list is long, and its objects are written slowly, in the first attempt alone; there one is not answered.
#[tokio::test(start_paused = true)]
async fn work_that_timed_out_on_an_unanswered_write_is_retried() {
    let (firsts, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let world = World::new(catalog("b", &[pods("shop")]), move |call| {
        let attempt = firsts.load(Ordering::SeqCst);
        match call {
            LiveCall::Existing { objects } => {
                if objects.continues.is_empty() {
                    firsts.fetch_add(1, Ordering::SeqCst);
                }
                let next = match firsts.load(Ordering::SeqCst) {
                    1 => format!("{}x", objects.continues),
                    _ => String::new(),
                };
                Some((0, Ok(json!({"items": [pod("shop")], "continue": next}))))
            }
            _ if writes.fetch_add(1, Ordering::SeqCst) == 0 => None,
            _ if attempt == 1 => Some((19, Ok(Value::Null))),
            _ => Some((0, Ok(Value::Null))),
        }
    });
    let world = world.await;
    let begun = Instant::now();
    assert!(world.work().await);
    assert!(begun.elapsed() > TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_target_is_read_no_further_and_the_others_are_changed() {
    let done = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&done);
    let targets = [pods("shop"), pods("other")];
    let world = World::new(catalog("b", &targets), move |call| {
        Some(match call {
            LiveCall::Existing { objects } => {
                told.lock().push(format!("read {}", objects.namespace));
                let next = match &*objects.namespace {
                    "shop" => "more",
                    _ => "",
                };
                let pod = pod(&objects.namespace);
                (0, Ok(json!({"items": [pod, pod], "continue": next})))
            }
            LiveCall::Write { target, .. } => {
                told.lock().push(format!("write {target}"));
                let written = match target {
                    0 => Err(forbidden()),
                    _ => Ok(Value::Null),
                };
                (0, written)
            }
            other => panic!("{other:?}"),
        })
    });
    assert!(!world.await.work().await);
    assert_eq!(
        *done.lock(),
        [
            "read shop",
            "write 0",
            "write 0",
            "read other",
            "write 1",
            "write 1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_policy_is_not_applied_in_its_old_version() {
    let (into, catalogs) = watch::channel(Some(catalog("old", &[pods("shop")])));
    let done = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&done);
    let world = World::following(catalogs, move |call| {
        Some(match call {
            LiveCall::Existing { objects } => {
                let next = match &*objects.continues {
                    "" => "two",
                    _ => "",
                };
                (0, Ok(json!({"items": [pod("shop")], "continue": next})))
            }
            LiveCall::Write { object, .. } => {
                told.lock().push(object["spec"]["a"].clone());
                into.send_replace(Some(catalog("new", &[pods("shop")])));
                (0, Ok(Value::Null))
            }
            other => panic!("{other:?}"),
        })
    });
    assert!(world.await.work().await);
    assert_eq!(*done.lock(), ["old", "new", "new"]);
}

#[tokio::test]
async fn a_rule_for_which_no_steps_are_left_is_not_ruled_out() {
    let (_, say) = watcher(vec![]);
    let world = World::with_look_ups(copying(), false, say).await;
    let catalog = world.worker.catalog().unwrap();
    let mut other = json!({
        "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Secret"},
        "namespace": "shop", "name": "c", "object": trigger("1"),
    });
    other["oldObject"] = Value::Null;
    let other = AdmissionRequest::new(other).unwrap();
    let is_ruled_out = |mut steps| is_ruled_out(&catalog, &rule(), &other, &mut steps);
    assert!(is_ruled_out(DELETION_STEPS_MAX));
    assert!(!is_ruled_out(0));
}
