//! Tests of the requests that a rule is applied to, beyond its filters.

use super::*;

#[test]
fn the_old_object_is_judged_without_a_user() {
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
            RuleStep::Done(report) => report.outcome != RuleOutcome::NotMatched,
            need => panic!("{need:?}"),
        }
    };
    let rules = policy.rules().iter().filter(speaks);
    rules.map(|rule| rule.name().to_owned()).collect()
}

#[test]
fn a_derived_rule_applies_to_its_own_controllers_alone() {
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

#[test]
fn images_that_cannot_be_parsed_are_an_error_wherever_a_rule_reads_them() {
    let judge = |rule: &str, image: &str| {
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [
                {"name": "good", "image": "ghcr.io/a"}, {"name": "other", "image": image}]}},
        }));
        format!("{:?}", outcome(rule, &request.unwrap()))
    };
    let deny = "{validate: {message: m, deny: {conditions: {any: [\
        {key: \"{{ images.containers.*.registry || `[]` }}\", operator: AnyNotIn, value: [ghcr.io]}]}}}}";
    assert!(judge(deny, "ghcr.io/b").starts_with("Pass"));
    assert!(judge(deny, "docker.io/b").starts_with("Fail"));
    let found = judge(deny, "docker.io/B");
    assert!(
        found.starts_with("Error")
            && found.contains("`docker.io/B` of container `other` is no image"),
        "{found}"
    );
    // A rule that does not look at them does not mind.
    let other = "{validate: {message: m, deny: {conditions: {any: [\
        {key: '{{ request.object.metadata.name }}', operator: Equals, value: b}]}}}}";
    assert!(judge(other, "docker.io/B").starts_with("Pass"));
    // A default stands in for what cannot be told, as for anything else.
    let default = "{context: [{name: found, variable: {jmesPath: 'images.containers.*.registry', default: []}}], \
        validate: {message: m, deny: {conditions: {any: [{key: '{{ found }}', operator: AnyNotIn, value: [ghcr.io]}]}}}}";
    assert!(judge(default, "docker.io/B").starts_with("Pass"));
}

#[test]
fn a_rule_that_comes_to_no_verdict_is_not_applied() {
    for (outcome, is_applied) in [
        (RuleOutcome::NotMatched, false),
        (
            RuleOutcome::Skipped {
                reason: String::new(),
            },
            false,
        ),
        (RuleOutcome::Error(RuleError::TooManyFacts), false),
        (RuleOutcome::Pass, true),
        (fail("no"), true),
        (RuleOutcome::Mutated { object: json!({}) }, true),
    ] {
        assert_eq!(outcome.is_applied(), is_applied, "{outcome:?}");
    }
}
