//! Policies of policies.kyverno.io are published under keys of their own, and get Kyverno's status.

use std::{sync::Arc, time::Duration};

use crate::support::World;
use serde_json::{Value, json};
use tokio::time::timeout;

const VIEW: &str = "anteroom:policies";

const VALIDATING: &str = "validatingpolicies.policies.kyverno.io";

const EXCEPTIONS: &str = "policyexceptions.policies.kyverno.io";

const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

const PATIENCE: Duration = Duration::from_secs(20);

fn policy(version: &str, resource: &str) -> Value {
    json!({
        "apiVersion": format!("policies.kyverno.io/{version}"), "kind": "ValidatingPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": [resource],
            }]},
            "validations": [{"expression": "object.metadata.name != 'x'"}],
        },
    })
}

/// Waits until the policy's conditions have the statuses, and returns its `conditionStatus`.
async fn conditions(world: &World, expected: [&str; 2]) -> Value {
    let mut found = Value::Null;
    // Every write of a status is a request that the figures count.
    let waited = world.sim.wait_until(|_| {
        let object = world.sim.get(VALIDATING, "", "p").unwrap_or_default();
        found = object["status"]["conditionStatus"].clone();
        let statuses = found["conditions"].as_array().into_iter().flatten();
        statuses.map(|condition| &condition["status"]).eq(expected)
    });
    let waited = timeout(PATIENCE, waited).await;
    assert!(waited.is_ok(), "waited in vain for {expected:?}: {found:#}");
    let types = found["conditions"].as_array().into_iter().flatten();
    let types: Vec<_> = types.map(|condition| &condition["type"]).collect();
    assert_eq!(types, ["WebhookConfigured", "RBACPermissionsGranted"]);
    found
}

#[tokio::test]
async fn a_policy_in_cel_is_published_and_has_kyvernos_status() {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let world = World::start().await;
        world.sim.put(VALIDATING, policy(version, "pods")).unwrap();
        let watcher = world.watch_as("w");
        let log = world.until("the policy", |log| log.is_synced(VIEW)).await;
        assert_eq!(log.names(VIEW), ["ValidatingPolicy/p"]);
        let waiting = conditions(&world, ["False", "True"]).await;
        assert_eq!(waiting["ready"], false, "no webhook is there: {waiting}");
        let enforcing = world.enforcing(&[]);
        let said = conditions(&world, ["True", "True"]).await;
        assert_eq!(said["ready"], true);
        assert_eq!(said["conditions"][0]["message"], "Webhook configured.");

        world
            .sim
            .put(VALIDATING, policy(version, "pods/exec"))
            .unwrap();
        let said = conditions(&world, ["True", "False"]).await;
        let message = said["conditions"][1]["message"].as_str().unwrap();
        assert!(message.contains("pods/exec"), "{message}");

        world.sim.delete(VALIDATING, "", "p").unwrap();
        world
            .until("no policy", |log| log.names(VIEW).is_empty())
            .await;
        drop(enforcing);
        watcher.stop().await;
    }
}

#[tokio::test]
async fn a_policy_that_does_not_compile_says_why_in_its_condition() {
    let world = World::start().await;
    let _enforcing = world.enforcing(&[]);
    let mut broken = policy("v1", "pods");
    broken["spec"]["validations"][0]["expression"] = "(".into();
    world.sim.put(VALIDATING, broken).unwrap();
    let watcher = world.watch_as("w");
    let said = conditions(&world, ["False", "True"]).await;
    let message = said["conditions"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("AR30") && message.contains("spec.validations[0]"),
        "{message}"
    );
    assert_eq!(said["conditions"][0]["reason"], "Failed");
    watcher.stop().await;
}

/// Definitions of a cluster may be from before these kinds.
#[tokio::test]
async fn kinds_that_are_not_defined_keep_nobody_waiting_and_are_read_once_they_are() {
    let world = World::bare().await;
    let crds = anteroom_watcher::crds().into_iter();
    let crds = crds.map(|crd| serde_json::to_value(crd).unwrap());
    let (in_cel, others): (Vec<_>, Vec<_>) =
        crds.partition(|crd| crd["spec"]["group"] == "policies.kyverno.io");
    world.sim.put_all(CRDS, others).unwrap();
    let watcher = world.watch_as("w");
    watcher.until_ready().await;
    world.until("no policies", |log| log.is_synced(VIEW)).await;
    world.sim.put_all(CRDS, in_cel).unwrap();
    world.sim.put(VALIDATING, policy("v1", "pods")).unwrap();
    world
        .until("the policy", |log| {
            log.names(VIEW) == ["ValidatingPolicy/p"]
        })
        .await;
    watcher.stop().await;
}

#[tokio::test]
async fn exceptions_of_both_groups_stand_in_one_view() {
    let world = World::start().await;
    let in_cel = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "PolicyException",
        "metadata": {"namespace": "ns", "name": "a"},
        "spec": {"policyRefs": [{"kind": "ValidatingPolicy", "name": "p"}]},
    });
    let classic = json!({
        "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
        "metadata": {"namespace": "ns", "name": "a"},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "exceptions": [{"policyName": "p", "ruleNames": ["*"]}],
        },
    });
    world.sim.put(EXCEPTIONS, in_cel).unwrap();
    world
        .sim
        .put("policyexceptions.kyverno.io", classic)
        .unwrap();
    let args = anteroom_watcher::Args {
        exception_namespace: Some("*".to_owned()),
        ..anteroom_watcher::Args::default()
    };
    let watcher = world.watch_with("w", Arc::new(world.bus.join()), args);
    let view = "anteroom:exceptions";
    let log = world
        .until("both exceptions", |log| log.is_synced(view))
        .await;
    assert_eq!(log.names(view), ["ns/a", "ns/policies.kyverno.io/a"]);
    world.sim.delete(EXCEPTIONS, "ns", "a").unwrap();
    world
        .until("one exception", |log| log.names(view) == ["ns/a"])
        .await;
    watcher.stop().await;
}
