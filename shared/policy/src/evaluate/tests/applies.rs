//! Which requests a rule is applied to, by more than what its filters say.

use super::*;

#[test]
fn who_made_the_old_state_is_nobody() {
    let robot = "{kind: User, name: 'system:serviceaccount:ns:robot'}";
    let bad = ingress("x", &[]);
    for (users, is_denied) in [
        ("{}".to_owned(), false),
        (
            format!("{{match: {{any: [{{resources: {{kinds: ['*']}}, subjects: [{robot}]}}]}}}}"),
            true,
        ),
        (
            "{match: {any: [{resources: {kinds: ['*']}, subjects: [{kind: User, name: '*'}]}]}}"
                .to_owned(),
            false,
        ),
        (
            "{exclude: {any: [{subjects: [{kind: User, name: other}]}]}}".to_owned(),
            false,
        ),
    ] {
        let mut rule: Value = serde_saphyr::from_str(
            "validate: {message: bad, deny: {conditions: {all: [{key: '{{ request.object.spec.rules[] }}', operator: Equals, value: []}]}}}",
        )
        .unwrap();
        let users: Value = serde_saphyr::from_str(&users).unwrap();
        for (name, value) in users.as_object().unwrap() {
            rule[name] = value.clone();
        }
        let found = outcome(&rule.to_string(), &request("UPDATE", &bad, &bad));
        let expected = if is_denied { "Fail" } else { "Skipped" };
        assert!(
            format!("{found:?}").starts_with(expected),
            "{users}: {found:?}"
        );
    }
}

/// The rules that speak of a created object of this kind.
fn applied(policy: &Policy, (group, version, kind): (&str, &str, &str)) -> Vec<String> {
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "namespace": "ns",
        "kind": {"group": group, "version": version, "kind": kind},
        "object": {"kind": kind, "metadata": {"name": "n", "namespace": "ns"}, "spec": {}},
    }))
    .unwrap();
    let speaks = |rule: &&Rule| {
        let mut evaluation = Evaluation::start(policy, rule, &request);
        match evaluation.step() {
            Step::Done(report) => report.outcome != RuleOutcome::NotMatched,
            need => panic!("{need:?}"),
        }
    };
    let rules = policy.rules().iter().filter(speaks);
    rules.map(|rule| rule.name().to_owned()).collect()
}

#[test]
fn a_derived_rule_speaks_of_its_own_controllers_alone() {
    let works = [
        json!({"validate": {"pattern": {"metadata": {"labels": {"app": "?*"}}}}}),
        json!({"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"app": "x"}}}}}),
    ];
    for work in works {
        let mut rule = json!({"name": "r", "match": {"any": [
            {"resources": {"kinds": ["Pod"]}},
            {"resources": {"kinds": ["Service"]}},
            {"resources": {"namespaces": ["ns"]}},
        ]}});
        for (name, value) in work.as_object().unwrap() {
            rule[name] = value.clone();
        }
        let policy = compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [rule]},
        }))
        .unwrap();
        for (kind, expected) in [
            (("", "v1", "Pod"), &["r"][..]),
            (("", "v1", "Service"), &["r"]),
            (("", "v1", "ConfigMap"), &["r"]),
            (("apps", "v1", "Deployment"), &["r", "autogen-r"]),
            (("batch", "v1", "CronJob"), &["r", "autogen-cronjob-r"]),
        ] {
            assert_eq!(applied(&policy, kind), expected, "{work} {kind:?}");
        }
    }
}
