//! Rules on objects that exist already: what is a trigger, what is written, and what is told of failures.

use anteroom_bus::{BusExt as _, ViolationEvent};
use anteroom_model::{EntryKind, EntryRecord, EntryState, FactError, Failure};
use anteroom_wire::live::{LiveCall, LiveRequest};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::{
    client::Client,
    cluster::{Cluster, ingresses},
    mutations::{config, policy, review},
};

/// The watcher's user, as the option has it by default.
const WATCHER: &str = "system:serviceaccount:anteroom:anteroom-watcher";

/// The object of the last request, as the API server has stored it.
#[derive(Clone, Default)]
pub(crate) struct Stored(Arc<Mutex<Value>>);

impl Stored {
    /// Sends a review to this path, and stores its object.
    pub(crate) async fn admit(&self, client: &Client, path: &str, review: &Value) -> Value {
        *self.0.lock() = review["request"]["object"].clone();
        client.review(path, review).await
    }

    /// Returns the answer to a look-up of a trigger; `None` for any other call.
    pub(crate) fn looked_up(&self, call: &LiveCall) -> Option<Value> {
        match call {
            LiveCall::Existing { objects } if objects.target.is_none() => {
                Some(json!({ "items": [*self.0.lock()] }))
            }
            _ => None,
        }
    }
}

/// Made as the watcher writes what rules change.
fn by(user: &str, mut review: Value) -> Value {
    review["request"]["userInfo"]["username"] = user.into();
    review["request"]["options"] = json!({ "fieldManager": anteroom_policy::FIELD_MANAGER });
    review
}

/// A rule that tells each Pod of the namespace which ConfigMap was changed.
fn tells() -> Value {
    json!({ "mutate": {
        "targets": [{ "apiVersion": "v1", "kind": "Pod", "namespace": "{{ request.namespace }}" }],
        "patchStrategicMerge": { "metadata": { "annotations": {
            "seen": "{{ request.object.data.a }}", "was": "{{ target.spec.node }}",
        } } },
    } })
}

fn pod(version: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "node": "n1" },
        "metadata": { "name": "x", "namespace": "shop", "resourceVersion": version } })
}

/// A watcher with one Pod, which somebody else changes when it was read first; each write is told.
fn watcher(
    told: UnboundedSender<Value>,
    stored: Stored,
) -> impl Fn(LiveRequest) -> Result<Value, FactError> + Send + Sync + 'static {
    let version = std::sync::atomic::AtomicUsize::new(0);
    move |request: LiveRequest| match &request.call {
        call if let Some(found) = stored.looked_up(call) => Ok(found),
        LiveCall::Existing { objects } => {
            assert_eq!((&*objects.kind, &*objects.namespace), ("Pod", "shop"));
            let now = version.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(json!({ "items": [pod(&now.to_string())] }))
        }
        LiveCall::Write { target: 0, object } => {
            if object["metadata"]["resourceVersion"] == "0" {
                return Err(FactError::WriteFailed {
                    code: 409,
                    message: "changed".into(),
                });
            }
            if object["metadata"]["annotations"]["seen"] == "forbidden" {
                return Err(FactError::WriteFailed {
                    code: 403,
                    message: "no".into(),
                });
            }
            told.send(object.clone()).unwrap();
            Ok(Value::Null)
        }
        other => panic!("{other:?}"),
    }
}

/// The watcher says as whom it writes.
fn writer(user: &str) -> EntryRecord {
    EntryRecord {
        kind: EntryKind::Implicit,
        name: anteroom_policy::WRITER.into(),
        uid: String::new(),
        generation: 0,
        state: EntryState::Invalid {
            failure: Failure::new("Writer", user),
        },
        projections: Vec::new(),
    }
}

async fn cluster() -> (Cluster, Stored, UnboundedReceiver<Value>, impl Sized) {
    let cluster = Cluster::with(&[policy("p", "Fail", &[tells()])]).await;
    let (told, written) = mpsc::unbounded_channel();
    let stored = Stored::default();
    let served = cluster.watcher(watcher(told, stored.clone())).await;
    (cluster, stored, written, served)
}

#[tokio::test]
async fn an_admitted_trigger_changes_the_existing_targets() {
    let (cluster, stored, mut written, _served) = cluster().await;
    let (_webhook, client) = cluster.webhook().await;
    let of = |a: &str| review("UPDATE", &config(&json!({ "a": a })), &config(&json!({})));
    // Nothing comes of a dry run, nor of what the watcher has written itself.
    let mut dry = of("dry");
    dry["request"]["dryRun"] = true.into();
    for review in [dry, by(WATCHER, of("own")), of("one")] {
        let answer = stored.admit(&client, "/validate", &review).await;
        assert_eq!(answer["allowed"], true, "{answer}");
    }
    // Of the first state it was refused, since somebody else had changed it.
    let object = written.recv().await.unwrap();
    assert_eq!(
        object["metadata"]["annotations"],
        json!({ "seen": "one", "was": "n1" })
    );
    assert_eq!(object["metadata"]["resourceVersion"], "1");
    let answer = stored.admit(&client, "/validate", &of("two")).await;
    assert_eq!(answer["allowed"], true);
    let object = written.recv().await.unwrap();
    assert_eq!(object["metadata"]["annotations"]["seen"], "two");
    // Somebody else who is the same user, such as an administrator whose kubeconfig the watcher has.
    let mut other = by(WATCHER, of("three"));
    other["request"]["options"]["fieldManager"] = "kubectl-edit".into();
    let answer = stored.admit(&client, "/validate", &other).await;
    assert_eq!(answer["allowed"], true);
    let object = written.recv().await.unwrap();
    assert_eq!(object["metadata"]["annotations"]["seen"], "three");
    // The mutating webhook changes nothing of the request.
    let answer = client.review("/mutate", &of("three")).await;
    assert_eq!(answer.get("patch"), None, "{answer}");
}

#[tokio::test]
async fn a_target_that_cannot_be_written_is_published_as_a_violation() {
    let (cluster, stored, _written, _served) = cluster().await;
    let (_webhook, client) = cluster.webhook().await;
    let bus = cluster.bus.join();
    let mut violations = bus.violations().await.unwrap();
    let review = review(
        "UPDATE",
        &config(&json!({ "a": "forbidden" })),
        &config(&json!({})),
    );
    let answer = stored.admit(&client, "/validate", &review).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let heard = violations.next().await.unwrap();
    let ViolationEvent::Violation(violation) = heard else {
        panic!("{heard:?}");
    };
    assert_eq!((&*violation.kind, violation.blocked), ("ConfigMap", false));
    let rule = &violation.rules[0];
    assert_eq!((&*rule.policy, &*rule.rule, rule.error), ("p", "r0", true));
    assert!(
        rule.message.starts_with("AR118 not written: no"),
        "{}",
        rule.message
    );
}

/// Writes by the user that the watcher reports trigger nothing, and writes by the user in the
/// manifests do, unless the option names that user.
#[tokio::test]
async fn writes_by_the_watchers_user_are_no_triggers() {
    const OTHER: &str = "system:serviceaccount:elsewhere:other";
    let of = |user: &str| {
        let new = config(&json!({ "a": user }));
        by(user, review("UPDATE", &new, &config(&json!({}))))
    };
    for (given, own, trigger) in [
        (&[][..], OTHER, WATCHER),
        (&["--watcher-user", WATCHER][..], WATCHER, OTHER),
    ] {
        let cluster = Cluster::with(&[policy("p", "Fail", &[tells()])]).await;
        cluster.entries(&[writer(OTHER)]).await;
        let (told, mut written) = mpsc::unbounded_channel();
        let stored = Stored::default();
        let _served = cluster.watcher(watcher(told, stored.clone())).await;
        let (_webhook, client) = cluster.webhook_at_once(given).await;
        let _beats = cluster.beats(&[ingresses().as_str()]);
        cluster.service.readiness.wait_ready().await;
        for user in [own, trigger] {
            let answer = stored.admit(&client, "/validate", &of(user)).await;
            assert_eq!(answer["allowed"], true, "{answer}");
        }
        let object = written.recv().await.unwrap();
        assert_eq!(object["metadata"]["annotations"]["seen"], trigger);
    }
}

/// Each part of a long list is written before the next one is read.
#[tokio::test]
async fn each_page_of_targets_is_written_before_the_next_is_read() {
    let cluster = Cluster::with(&[policy("p", "Fail", &[tells()])]).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let stored = Stored::default();
    let looked_up = stored.clone();
    let watcher = move |request: LiveRequest| {
        if let Some(found) = looked_up.looked_up(&request.call) {
            return Ok(found);
        }
        let (said, answer) = match &request.call {
            LiveCall::Existing { objects } => {
                let next = match &*objects.continues {
                    "" => "two",
                    "two" => "three",
                    _ => "",
                };
                let part = json!({ "items": [pod("1")], "continue": next });
                (json!({ "read": objects.continues }), part)
            }
            LiveCall::Write { .. } => (json!("written"), Value::Null),
            other => panic!("{other:?}"),
        };
        told.send(said).unwrap();
        Ok::<_, FactError>(answer)
    };
    let _served = cluster.watcher(watcher).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = review("UPDATE", &config(&json!({ "a": "x" })), &config(&json!({})));
    stored.admit(&client, "/validate", &review).await;
    let mut all = Vec::new();
    while all.len() < 6 {
        all.push(heard.recv().await.unwrap());
    }
    let read = |place: &str| json!({ "read": place });
    let written = || json!("written");
    assert_eq!(
        all,
        [
            read(""),
            written(),
            read("two"),
            written(),
            read("three"),
            written()
        ]
    );
}
