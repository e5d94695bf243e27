//! The order in which the API server asks the webhooks that change objects.

use super::*;

/// Returns the names of the webhooks that change objects, in the order in which they are asked.
fn order(policies: &[Value]) -> Vec<String> {
    let made = configuration_of(Phase::Mutation, None, policies);
    let webhooks = made["webhooks"].as_array().unwrap().iter();
    let name = |webhook: &Value| {
        let name = webhook["name"].as_str().unwrap();
        name.strip_suffix(".mutate.anteroom.svc")
            .unwrap()
            .to_owned()
    };
    webhooks.map(name).collect()
}

#[test]
fn mutating_webhooks_that_ignore_failure_come_first() {
    let policies = [
        changing(policy(&["Pod"], &["CREATE"], "Fail", Some(30))),
        changing(policy(&["Pod"], &["CREATE"], "Ignore", None)),
        changing(policy(&["Service"], &["CREATE"], "Fail", None)),
        policy(&["Service"], &["CREATE"], "Ignore", Some(20)),
    ];
    assert_eq!(order(&policies), ["ignore-10", "fail-30", "fail-10"]);
}

/// A policy of a namespace shares a webhook of the cluster only where no policy of the cluster was asked before.
#[test]
fn policies_of_namespaces_change_objects_before_those_of_the_cluster() {
    let of = |failure: &str, seconds| changing(policy(&["Service"], &["CREATE"], failure, seconds));
    let tenant = |failure: &str| of_namespace("a", of(failure, None));
    for (policies, expected) in [
        (vec![of("Fail", None), tenant("Fail")], vec!["fail-10"]),
        (
            vec![of("Fail", None), tenant("Ignore")],
            vec!["ignore.a", "fail-10"],
        ),
        (
            vec![of("Fail", None), of("Ignore", None), tenant("Ignore")],
            vec!["ignore-10", "fail-10"],
        ),
        (
            vec![of("Fail", None), of("Ignore", None), tenant("Fail")],
            vec!["fail.a", "ignore-10", "fail-10"],
        ),
        (
            vec![of("Fail", None), of("Fail", Some(30)), tenant("Fail")],
            vec!["fail.a", "fail-30", "fail-10"],
        ),
    ] {
        assert_eq!(order(&policies), expected);
    }
}
