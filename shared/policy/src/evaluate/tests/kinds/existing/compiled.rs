//! Policies on existing objects that are not ready, or of which a part is not run.

use super::*;

#[test]
fn a_policy_whose_writes_cannot_be_bounded_is_not_ready() {
    let mutations = "mutations: [{jsonPatch: {expression: '[]'}}]\n";
    let matches =
        |rules: &str| format!("matchConstraints:\n  resourceRules:\n  - {rules}\n{mutations}");
    let pods = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}";
    let targets =
        |targets: &str| format!("{ON}{}targetMatchConstraints: {targets}\n", matches(pods));
    for (spec, says) in [
        (
            format!(
                "{ON}{}",
                matches(
                    "{apiGroups: ['*'], apiVersions: [v1], operations: [CREATE], resources: [pods]}"
                )
            ),
            "AR301 spec.matchConstraints.resourceRules",
        ),
        (
            format!(
                "{ON}{}",
                matches(
                    "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [secrets]}"
                )
            ),
            "Secrets that exist are not changed",
        ),
        (
            format!(
                "{ON}{}",
                matches(
                    "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods/status]}"
                )
            ),
            "subresources",
        ),
        (
            targets("{expression: 'object'}"),
            "AR301 spec.targetMatchConstraints",
        ),
        (
            targets(
                "{resourceRules: [{apiGroups: [apps], apiVersions: ['*'], resources: [deployments]}]}",
            ),
            "without wildcards",
        ),
        (
            targets("{objectSelector: {}}"),
            "at least one rule is required",
        ),
        (
            targets(
                "{expression: 'nothing.here', resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}",
            ),
            "spec.targetMatchConstraints.expression",
        ),
        (
            format!(
                "{}targetMatchConstraints: {{expression: 'object'}}\n",
                matches(pods)
            ),
            "only with `spec.evaluation.mutateExisting.enabled: true`",
        ),
        (
            format!(
                "{}targetMatchConditions: [{{name: a, expression: 'true'}}]\n",
                matches(pods)
            ),
            "only with `spec.evaluation.mutateExisting.enabled: true`",
        ),
    ] {
        let problems = problems_of("MutatingPolicy", &spec).join("; ");
        assert!(problems.contains(says), "{spec}: {problems}");
    }
    for spec in [
        targets("{}"),
        format!("{}targetMatchConstraints: {{}}\n", matches(pods)),
    ] {
        assert_eq!(problems_of("MutatingPolicy", &spec), [""; 0], "{spec}");
    }
}

#[test]
fn where_nothing_that_exists_is_changed_the_rest_of_a_policy_is_run() {
    let of = |spec: &str| {
        let mut manifest = json!({"apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy",
            "metadata": {"name": "p"}});
        manifest["spec"] = serde_saphyr::from_str(spec).unwrap();
        crate::compile_for(&manifest, Driver::ALL)
    };
    let policy = of(LABEL).unwrap();
    assert_eq!(policy.rules().len(), 1);
    assert_eq!(policy.not_run()[0].path, "spec.evaluation.mutateExisting");
    let problems = of(FOLLOW).unwrap_err();
    assert!(
        problems[0].to_string().contains("not changed here"),
        "{problems:?}"
    );
}
