//! Rules on objects that exist already: what is a trigger, what is written, and what is told of failures.

use anteroom_bus::{Bus as _, Heard};
use anteroom_model::FactError;
use anteroom_wire::live::{LiveCall, LiveRequest};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::{
    cluster::Cluster,
    mutations::{config, policy, review},
};

/// The watcher's user, as the option has it by default.
const WATCHER: &str = "system:serviceaccount:anteroom:anteroom-watcher";

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
) -> impl Fn(LiveRequest) -> Result<Value, FactError> + Send + Sync + 'static {
    let version = std::sync::atomic::AtomicUsize::new(0);
    move |request: LiveRequest| match &request.call {
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

async fn cluster() -> (Cluster, UnboundedReceiver<Value>, impl Sized) {
    let cluster = Cluster::with(&[policy("p", "Fail", &[tells()])]).await;
    let (told, written) = mpsc::unbounded_channel();
    let served = cluster.watcher(watcher(told)).await;
    (cluster, written, served)
}

#[tokio::test]
async fn what_was_admitted_changes_what_exists() {
    let (cluster, mut written, _served) = cluster().await;
    let (_webhook, client) = cluster.webhook().await;
    let of = |a: &str| review("UPDATE", &config(&json!({ "a": a })), &config(&json!({})));
    // Nothing comes of a dry run, nor of what the watcher has written itself.
    let mut dry = of("dry");
    dry["request"]["dryRun"] = true.into();
    let mut own = of("own");
    own["request"]["userInfo"]["username"] = WATCHER.into();
    for review in [dry, own, of("one")] {
        let answer = client.review("/validate", &review).await;
        assert_eq!(answer["allowed"], true, "{answer}");
    }
    // Of the first state it was refused, since somebody else had changed it.
    let object = written.recv().await.unwrap();
    assert_eq!(
        object["metadata"]["annotations"],
        json!({ "seen": "one", "was": "n1" })
    );
    assert_eq!(object["metadata"]["resourceVersion"], "1");
    let answer = client.review("/validate", &of("two")).await;
    assert_eq!(answer["allowed"], true);
    let object = written.recv().await.unwrap();
    assert_eq!(object["metadata"]["annotations"]["seen"], "two");
    // The mutating webhook leaves what comes as it is.
    let answer = client.review("/mutate", &of("three")).await;
    assert_eq!(answer.get("patch"), None, "{answer}");
}

#[tokio::test]
async fn what_cannot_be_written_is_told() {
    let (cluster, _written, _served) = cluster().await;
    let (_webhook, client) = cluster.webhook().await;
    let bus = cluster.bus.join();
    let mut violations = bus.violations().await.unwrap();
    let review = review(
        "UPDATE",
        &config(&json!({ "a": "forbidden" })),
        &config(&json!({})),
    );
    let answer = client.review("/validate", &review).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let heard = violations.next().await.unwrap();
    let Heard::Violation(violation) = heard else {
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
