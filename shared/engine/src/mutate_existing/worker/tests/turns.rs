//! Rules whose conditions take long to find out whether they match a trigger.

use std::pin::pin;

use futures::FutureExt as _;

use super::*;

/// A rule that compares the trigger's names with each of 300, and applies if any of them is known.
fn comparing() -> watch::Receiver<Option<Arc<Catalog>>> {
    let known: Vec<_> = (0..300).map(|at| format!("known-{at}.example")).collect();
    let names = "{{ request.object.names || request.oldObject.names }}";
    let catalog = catalog_of(&json!({
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"], "operations": ["CREATE", "DELETE"]}}]},
        "preconditions": {"all": [{"key": names, "operator": "AnyIn", "value": known}]},
        "mutate": {"targets": [pods("shop")], "patchStrategicMerge": {"spec": {"a": "b"}}},
    }));
    watch::channel(Some(catalog)).1
}

/// A ConfigMap with so many names, all of which are patterns.
fn named(names: usize) -> Value {
    let mut object = trigger("1");
    let names: Vec<_> = (0..names).map(|at| format!("*.n{at}.example")).collect();
    object["names"] = json!(names);
    object
}

/// A world in which nothing is looked up.
async fn world() -> World {
    let say = |call: LiveCall| -> WatcherAnswer { panic!("{call:?}") };
    World::with_look_ups(comparing(), false, say).await
}

/// The author of the policy chooses the work, and a flood of requests would begin it hundreds of times at once.
#[tokio::test(start_paused = true)]
async fn what_takes_long_before_a_look_up_waits_for_a_turn_of_its_owner() {
    let world = world().await;
    for (names, is_long) in [(1, false), (100, true)] {
        let create = request("CREATE", &named(names), &Value::Null);
        let turn = world.worker.turns.take(ReviewOwner::default()).await;
        let rule = rule();
        let mut working = pin!(world.work_for(&rule, &create));
        let early = tokio::time::timeout(Duration::from_secs(60), working.as_mut()).await;
        assert_eq!(early.is_err(), is_long, "{names} names");
        drop(turn);
        if is_long {
            assert!(working.await, "{names} names");
        }
    }
    assert!(world.worker.memory().is_free());
}

/// The object of a deletion is read before the answer, unless no rule matches it.
#[tokio::test(start_paused = true)]
async fn a_deletion_takes_more_steps_than_other_requests_to_rule_rules_out() {
    let world = world().await;
    for (operation, names, is_ruled_out) in [
        ("CREATE", 1, true),
        ("CREATE", 100, false),
        ("DELETE", 100, true),
    ] {
        let (object, old) = match operation {
            "DELETE" => (Value::Null, named(names)),
            _ => (named(names), Value::Null),
        };
        let mut triggered = triggered(request(operation, &object, &old));
        let ruling_out = world.worker.rule_out(&mut triggered, Instant::now());
        ruling_out.now_or_never().unwrap();
        assert_eq!(
            triggered.rules.is_empty(),
            is_ruled_out,
            "{operation} {names}"
        );
    }
}
