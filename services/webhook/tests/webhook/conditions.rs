//! `matchConditions`: which requests a policy decides on, in both phases and for rules on existing objects.

use anteroom_model::FactError;
use anteroom_wire::live::LiveCall;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    client::Client,
    cluster::{Cluster, taken},
    mutate_existing::Stored,
    mutations::{config, patched, policy, review},
};

/// The policy, with these conditions.
fn conditional(mut policy: Value, conditions: &[&str]) -> Value {
    let conditions = conditions.iter().enumerate();
    let conditions = conditions
        .map(|(at, expression)| json!({ "name": format!("c{at}"), "expression": expression }));
    policy["spec"]["webhookConfiguration"] =
        json!({ "matchConditions": conditions.collect::<Vec<_>>() });
    policy
}

/// A policy that refuses every ConfigMap.
fn refusing(name: &str, failure: &str, conditions: &[&str]) -> Value {
    let rule = json!({
        "validate": {
            "failureAction": "Enforce", "allowExistingViolations": false,
            "message": format!("refused by {name}"), "deny": {},
        },
        "match": { "any": [{ "resources": {
            "kinds": ["ConfigMap"], "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"],
        } }] },
    });
    conditional(policy(name, failure, &[rule]), conditions)
}

/// The review of a creation, an update or a deletion of a ConfigMap with this data.
fn review_of(operation: &str, data: &Value) -> Value {
    let (object, none) = (config(data), Value::Null);
    match operation {
        "CREATE" => review(operation, &object, &none),
        "UPDATE" => review(operation, &object, &object),
        "DELETE" => review(operation, &none, &object),
        other => panic!("{other}"),
    }
}

/// The message of a refusal; `None` where the request is admitted.
async fn refusal(client: &Client, review: &Value) -> Option<String> {
    let answer = client.review("/validate", review).await;
    let message = answer["status"]["message"].as_str().map(str::to_owned);
    assert_eq!(answer["allowed"], message.is_none(), "{answer}");
    message
}

#[tokio::test]
async fn a_validating_policy_decides_only_on_requests_that_meet_its_conditions() {
    let a = "has(object.data.a) && object.data.a == 'x'";
    for (conditions, operation, data, is_refused) in [
        (&[a][..], "CREATE", json!({ "a": "x" }), true),
        (&[a], "CREATE", json!({ "a": "y" }), false),
        (&[a], "CREATE", json!({}), false),
        (&[a, "true"], "UPDATE", json!({ "a": "x" }), true),
        (&[a, "false"], "UPDATE", json!({ "a": "x" }), false),
        (
            &["object == null && oldObject.data.a == 'x'"],
            "DELETE",
            json!({ "a": "x" }),
            true,
        ),
        (
            &["oldObject.data.a == 'x'"],
            "DELETE",
            json!({ "a": "y" }),
            false,
        ),
        (
            &["request.operation == 'DELETE' && request.userInfo.username == 'alice'"],
            "DELETE",
            json!({}),
            true,
        ),
        (&["request.namespace != 'shop'"], "CREATE", json!({}), false),
    ] {
        let cluster = Cluster::with(&[refusing("p", "Fail", conditions)]).await;
        let (_webhook, client) = cluster.webhook().await;
        let refusal = refusal(&client, &review_of(operation, &data)).await;
        let case = format!("{conditions:?} {operation} {data}: {refusal:?}");
        assert_eq!(refusal.is_some(), is_refused, "{case}");
        assert!(
            refusal.is_none_or(|message| message.contains("refused by p")),
            "{case}"
        );
    }
}

#[tokio::test]
async fn a_failed_condition_refuses_unless_another_is_false_or_the_failure_policy_ignores() {
    let wrong = "object.data.nope == 'x'";
    for (failure, conditions, is_refused) in [
        ("Fail", &[wrong][..], true),
        ("Fail", &[wrong, "true"], true),
        ("Fail", &[wrong, "false"], false),
        ("Fail", &["false", wrong], false),
        ("Ignore", &[wrong], false),
        ("Ignore", &[wrong, "true"], false),
    ] {
        let case = format!("{failure} {conditions:?}");
        let cluster = Cluster::with(&[refusing("p", failure, conditions)]).await;
        let (_webhook, client) = cluster.webhook().await;
        let review = review_of("CREATE", &json!({}));
        let refusal = refusal(&client, &review).await;
        assert_eq!(refusal.is_some(), is_refused, "{case} {refusal:?}");
        let place = "AR306 spec.webhookConfiguration.matchConditions[0].expression";
        assert!(
            refusal.is_none_or(|message| message.contains(place)),
            "{case}"
        );
        // A mutating rule with the conditions refuses the same requests, and changes nothing.
        let sets = json!({ "mutate": { "patchStrategicMerge": { "data": { "b": "set" } } } });
        let mutating = conditional(policy("p", failure, &[sets]), conditions);
        cluster.policies(&[mutating]).await;
        let allowed = !is_refused;
        let answer = client.until("/mutate", &review, allowed).await;
        assert_eq!(answer["patch"], Value::Null, "{case} {answer}");
    }
}

/// Also of a policy that is namespaced: it says nothing of what happens elsewhere.
#[tokio::test]
async fn a_failed_condition_stops_no_request_of_another_policy_or_namespace() {
    let mut elsewhere = refusing("elsewhere", "Fail", &["object.data.nope == 'x'"]);
    elsewhere["kind"] = "Policy".into();
    elsewhere["metadata"]["namespace"] = "depot".into();
    let cluster = Cluster::with(&[elsewhere, refusing("p", "Fail", &[])]).await;
    let (_webhook, client) = cluster.webhook().await;
    let message = refusal(&client, &review_of("CREATE", &json!({}))).await;
    assert_eq!(
        message.as_deref().map(|text| text.contains("AR306")),
        Some(false),
        "{message:?}"
    );
    let mut there = review_of("CREATE", &json!({}));
    there["request"]["namespace"] = "depot".into();
    there["request"]["object"]["metadata"]["namespace"] = "depot".into();
    let message = refusal(&client, &there).await.unwrap();
    assert!(
        message.contains("AR306") && message.contains("depot/elsewhere"),
        "{message}"
    );
}

/// The conditions of a policy are about the object as the policies before left it, and are asked once: what
/// the policy's own rules change makes no difference.
#[tokio::test]
async fn a_mutating_policys_conditions_see_what_earlier_policies_changed() {
    let sets = |data: Value| json!({ "mutate": { "patchStrategicMerge": { "data": data } } });
    let is = |value: &str| format!("object.data.state == '{value}'");
    let cluster = Cluster::with(&[
        policy("a", "Fail", &[sets(json!({ "state": "one" }))]),
        conditional(
            policy(
                "b",
                "Fail",
                &[
                    sets(json!({ "state": "two" })),
                    sets(json!({ "again": "yes" })),
                ],
            ),
            &[&is("one")],
        ),
        conditional(
            policy("c", "Fail", &[sets(json!({ "never": "yes" }))]),
            &[&is("sent")],
        ),
    ])
    .await;
    let (_webhook, client) = cluster.webhook().await;
    let sent = json!({ "state": "sent" });
    let answer = client.review("/mutate", &review_of("CREATE", &sent)).await;
    assert_eq!(
        patched(&answer, config(&sent))["data"],
        json!({ "state": "two", "again": "yes" })
    );
}

#[tokio::test]
async fn a_policy_whose_conditions_are_not_met_reads_no_facts() {
    let mut rule = json!({ "validate": { "failureAction": "Enforce", "deny": { "conditions": { "all": [
        { "key": "{{ hosts }}", "operator": "AnyIn", "value": ["a.example"] },
    ] } } } });
    rule["context"] = json!([{ "name": "hosts", "cachedContextEntry": {
        "name": "ingresses", "jmesPath": "items[].spec.rules[].host" } }]);
    let conditions = ["object.data.a == 'x'"];
    let cluster = Cluster::with(&[conditional(policy("p", "Fail", &[rule]), &conditions)]).await;
    let replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let of = |a: &str| review_of("CREATE", &json!({ "a": a }));
    assert_eq!(refusal(&client, &of("y")).await, None);
    assert_eq!(replica.calls(), 0);
    assert!(refusal(&client, &of("x")).await.is_some());
    assert_ne!(replica.calls(), 0);
}

#[tokio::test]
async fn a_rule_on_existing_objects_is_triggered_only_where_the_conditions_are_met() {
    let rule = json!({ "mutate": {
        "targets": [{ "apiVersion": "v1", "kind": "Pod", "namespace": "shop" }],
        "patchStrategicMerge": { "metadata": { "annotations": {
            "seen": "{{ request.object.data.a }}",
        } } },
    } });
    let conditions = ["object.data.a != 'spared'"];
    let cluster = Cluster::with(&[conditional(policy("p", "Fail", &[rule]), &conditions)]).await;
    let (told, mut written) = mpsc::unbounded_channel();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "x", "namespace": "shop", "resourceVersion": "1" } });
    let stored = Stored::default();
    let looked_up = stored.clone();
    let _served = cluster
        .watcher(move |request| match &request.call {
            call if let Some(found) = looked_up.looked_up(call) => Ok(found),
            LiveCall::Existing { .. } => Ok(json!({ "items": [pod.clone()] })),
            LiveCall::Write { object, .. } => {
                told.send(object["metadata"]["annotations"]["seen"].clone())
                    .unwrap();
                Ok::<_, FactError>(Value::Null)
            }
            other => panic!("{other:?}"),
        })
        .await;
    let (_webhook, client) = cluster.webhook().await;
    for a in ["spared", "one"] {
        let review = review_of("UPDATE", &json!({ "a": a }));
        let answer = stored.admit(&client, "/validate", &review).await;
        assert_eq!(answer["allowed"], true);
    }
    assert_eq!(written.recv().await.unwrap(), "one");
}

#[tokio::test]
async fn a_condition_about_the_authorizer_keeps_its_policy_out_of_force_and_no_other() {
    let authorizer = "authorizer.path('/x').check('get').allowed()";
    let cluster = Cluster::with(&[refusing("asks", "Fail", &[authorizer])]).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = review_of("CREATE", &json!({}));
    let answer = client.review("/validate", &review).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let warning = answer["warnings"][0].as_str().unwrap();
    let says = "policy asks is not ready, and not in force: AR301 \
                spec.webhookConfiguration.matchConditions[0].expression: `authorizer`";
    assert!(warning.starts_with(says), "{warning}");
    cluster.policies(&[refusing("plain", "Fail", &[])]).await;
    let answer = client.until("/validate", &review, false).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("refused by plain"), "{message}");
}
