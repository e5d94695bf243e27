use anteroom_model::ErrorCode;
use serde_json::{Value, json};

use crate::{Driver, compile_for};

const DRIVER: Driver = Driver {
    targets: true,
    ..Driver::ALL
};

fn manifest(kind: &str, mutate: &Value) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": kind,
        "metadata": {"name": "p", "namespace": "own"},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "mutate": mutate,
        }]},
    })
}

/// The code and the field of the first problem, below `mutate`.
fn problem(kind: &str, target: &Value) -> Option<(ErrorCode, String)> {
    let mutate = json!({"targets": [target], "patchStrategicMerge": {"a": "b"}});
    let problems = compile_for(&manifest(kind, &mutate), DRIVER).err()?;
    let first = problems.into_iter().next()?;
    let path = first.path.strip_prefix("spec.rules[0].mutate.")?;
    Some((first.code, path.to_owned()))
}

#[test]
fn a_target_without_one_writable_kind_is_an_error() {
    let (invalid, later) = (ErrorCode::POLICY_INVALID, ErrorCode::POLICY_UNSUPPORTED);
    let at = |code, field: &str| Some((code, format!("targets[0].{field}")));
    for (target, expected) in [
        (json!({"apiVersion": "apps/v1", "kind": "Deployment"}), None),
        (json!({"kind": "Pod"}), at(invalid, "apiVersion")),
        (json!({"apiVersion": "v1"}), at(invalid, "kind")),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "x": 1}),
            at(invalid, "x"),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret"}),
            Some((later, "targets".to_owned())),
        ),
        (json!({"apiVersion": "v1", "kind": "*"}), at(later, "kind")),
        (
            json!({"apiVersion": "v1", "kind": "Pod/status"}),
            at(later, "kind"),
        ),
        (
            json!({"apiVersion": "v1", "kind": "{{ request.kind.kind }}"}),
            at(later, "kind"),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "name": "{{ nobody }}"}),
            at(invalid, "name"),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "name": "{{ target.metadata.name }}"}),
            at(later, "name"),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "selector": {"matchLabels": {"a": "{{ x }}"}}}),
            at(invalid, "selector"),
        ),
    ] {
        assert_eq!(problem("ClusterPolicy", &target), expected, "{target}");
    }
}

#[test]
fn a_namespaced_policy_names_no_other_namespace() {
    let target =
        |namespace: &str| json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace});
    let at = (
        ErrorCode::POLICY_FORBIDDEN,
        "targets[0].namespace".to_owned(),
    );
    assert_eq!(problem("Policy", &target("other")), Some(at));
    assert_eq!(problem("Policy", &target("own")), None);
    assert_eq!(problem("Policy", &target("{{ request.namespace }}")), None);
    assert_eq!(problem("ClusterPolicy", &target("other")), None);
}

#[test]
fn policy_or_rule_decides_whether_existing_triggers_run() {
    for (of_policy, of_rule, expected) in [
        (None, None, false),
        (Some(true), None, true),
        (Some(true), Some(false), false),
        (Some(false), Some(true), true),
    ] {
        let target = json!([{"apiVersion": "v1", "kind": "Pod"}]);
        let mutate = json!({"targets": target, "patchStrategicMerge": {"a": "b"},
            "mutateExistingOnPolicyUpdate": of_rule});
        let mut manifest = manifest("ClusterPolicy", &mutate);
        manifest["spec"]["mutateExistingOnPolicyUpdate"] = of_policy.into();
        let policy = compile_for(&manifest, DRIVER).unwrap();
        assert_eq!(policy.rules()[0].runs_on_policy_update(), expected);
    }
}

/// Otherwise two rules could trigger each other for ever.
#[test]
fn only_a_rule_that_says_so_is_triggered_by_what_rules_change() {
    for (skips, expected) in [(None, false), (Some(true), false), (Some(false), true)] {
        let target = json!([{"apiVersion": "v1", "kind": "Pod"}]);
        let mutate = json!({"targets": target, "patchStrategicMerge": {"a": "b"}});
        let mut manifest = manifest("ClusterPolicy", &mutate);
        manifest["spec"]["rules"][0]["skipBackgroundRequests"] = skips.into();
        let policy = compile_for(&manifest, DRIVER).unwrap();
        assert_eq!(
            policy.rules()[0].is_triggered_by_own(),
            expected,
            "{skips:?}"
        );
    }
}
