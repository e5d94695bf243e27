//! Admission gives the same result as the offline evaluation of the same policies.

use anteroom_offline::{LoadedPolicy, Resource, Scenario, Status, apply};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    mutations::{config, patched, policy, review},
};

/// Sets of policies, each with objects.
const SETS: u32 = 24;

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "x/y", "x~y"])
}

fn object() -> impl Strategy<Value = Value> {
    let data = prop::collection::btree_map(key(), "[a-c]{0,2}", 0..4);
    let items = prop::collection::vec("[a-c]", 0..4);
    (data, items).prop_map(|(data, items)| {
        let mut object = config(&json!(data));
        object["items"] = json!(items);
        object
    })
}

/// Rules that change the object; some fail on some objects.
fn rule() -> impl Strategy<Value = Value> {
    let pointer = |key: &str| format!("/data/{}", key.replace('~', "~0").replace('/', "~1"));
    let merge = |data: Value| json!({ "mutate": { "patchStrategicMerge": { "data": data } } });
    let list = |patch: Value| json!({ "mutate": { "patchesJson6902": [patch] } });
    let of = |key: &str| format!("{{{{ request.object.data.\"{key}\" || 'none' }}}}");
    prop_oneof![
        (key(), "[a-c]").prop_map(move |(key, value)| merge(json!({ key: value }))),
        key().prop_map(move |key| merge(json!({ key: null }))),
        key().prop_map(move |key| merge(json!({ format!("+({key})"): "new" }))),
        (key(), key()).prop_map(move |(key, other)| merge(json!({ key: of(other) }))),
        (key(), "[a-c]").prop_map(move |(key, value)| {
            let mut rule = merge(json!({ "met": "yes" }));
            rule["preconditions"] =
                json!({ "all": [{ "key": of(key), "operator": "Equals", "value": value }] });
            rule
        }),
        (
            key(),
            prop::sample::select(vec!["add", "replace", "remove"])
        )
            .prop_map(move |(key, op)| list(
                json!({ "op": op, "path": pointer(key), "value": op })
            )),
        Just(list(json!({ "op": "remove", "path": "/items/0" }))),
        Just(list(
            json!({ "op": "add", "path": "/items/0", "value": "first" })
        )),
        Just(list(
            json!({ "op": "add", "path": "/items/-", "value": "last" })
        )),
        Just(
            json!({ "mutate": { "foreach": [{ "list": "request.object.items", "patchesJson6902": [
            { "op": "add", "path": "/data/{{ element }}", "value": "{{ elementIndex }}" }] }] } })
        ),
    ]
}

fn policies() -> impl Strategy<Value = Vec<Value>> {
    let policy = |(at, rules): (usize, Vec<Value>)| policy(&format!("p{at}"), "Ignore", &rules);
    let all = prop::collection::vec(prop::collection::vec(rule(), 1..4), 1..5);
    all.prop_map(move |all| all.into_iter().enumerate().map(policy).collect())
}

/// Returns the object after the policies were applied offline. A policy with a failed rule changes
/// nothing.
fn offline(policies: &[Value], object: &Value) -> Value {
    let mut policies = policies.to_vec();
    loop {
        let loaded = policies
            .iter()
            .map(|policy| LoadedPolicy::new(policy).unwrap());
        let resource = Resource::new(object.clone()).unwrap();
        let responses = apply(&Scenario::new(loaded.collect(), vec![resource]));
        let fails = |status| status == Status::Error;
        let mut each = responses.iter();
        match each.position(|response| response.rules.iter().any(|rule| fails(rule.status))) {
            Some(at) => drop(policies.remove(responses[at].policy)),
            None => {
                let last = responses.last().and_then(|last| last.patched.clone());
                return last.unwrap_or_else(|| object.clone());
            }
        }
    }
}

#[test]
fn the_answered_patch_makes_what_the_offline_evaluation_makes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(SETS));
    let cases = (policies(), prop::collection::vec(object(), 8));
    let outcome = runner.run(&cases, |(policies, objects)| {
        let answered = runtime.block_on(async {
            let cluster = Cluster::with(&policies).await;
            let (_webhook, client) = cluster.webhook().await;
            let mut answered = Vec::new();
            for object in &objects {
                let sent = review("CREATE", object, &Value::Null);
                let answer = client.review("/mutate", &sent).await;
                answered.push(patched(&answer, object.clone()));
            }
            answered
        });
        for (object, made) in objects.iter().zip(answered) {
            prop_assert_eq!(made, offline(&policies, object), "of {}", object);
        }
        Ok(())
    });
    outcome.unwrap();
}
