//! Patterns in a rule, with variables in them.

use super::*;

fn pod(name: &str, image: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "c", "image": image}]}})
}

#[test]
fn a_pattern_violation_is_reported_in_kyvernos_words() {
    let rule = r#"
validate:
  message: "{{ request.object.metadata.name }} has a latest image"
  pattern: {spec: {containers: [{image: "!*:latest"}]}}
"#;
    assert_eq!(outcome(rule, &create(&pod("a", "x:1"))), RuleOutcome::Pass);
    assert_eq!(
        outcome(rule, &create(&pod("a", "x:latest"))),
        fail(
            "validation error: a has a latest image. rule rule failed at path /spec/containers/0/image/"
        )
    );
    let deleted = request("DELETE", &Value::Null, &pod("a", "x:latest"));
    assert!(matches!(
        outcome(rule, &deleted),
        RuleOutcome::Skipped { .. }
    ));
}

#[test]
fn one_of_several_patterns_is_enough() {
    let rule = r#"
validate:
  anyPattern:
  - {metadata: {name: "a*"}}
  - {metadata: {"(name)": "b*"}, spec: {containers: [{image: "x:*"}]}}
"#;
    let judge = |name: &str, image: &str| outcome(rule, &create(&pod(name, image)));
    assert_eq!(judge("a", "y:1"), RuleOutcome::Pass);
    assert_eq!(judge("b", "x:1"), RuleOutcome::Pass);
    assert_eq!(
        judge("c", "x:1"),
        fail("validation error: rule rule[0] failed at path /metadata/name/")
    );
    assert_eq!(
        judge("b", "y:1"),
        fail(
            "validation error: rule rule[0] failed at path /metadata/name/ rule rule[1] failed at path /spec/containers/0/image/"
        )
    );
    // One that none of them is about violates none.
    let of_others = rule.replace("{name: \"a*\"}", "{\"(name)\": \"a*\"}");
    let found = outcome(&of_others, &create(&pod("c", "x:1")));
    assert!(matches!(found, RuleOutcome::Skipped { .. }), "{found:?}");
}

#[test]
fn a_fact_can_stand_in_a_pattern() {
    let rule = r#"
context: [{name: allowed, configMap: {name: settings}}]
validate: {pattern: {metadata: {name: "{{ allowed.data.names }}"}}}
"#;
    let policy = policy(rule);
    let judge = |names: &str| {
        let answer = |_: &FactRequest| Ok(json!({"data": {"names": names}, "metadata": {}}));
        drive(&policy, &create(&pod("web", "x")), answer).0.outcome
    };
    assert_eq!(judge("web | db"), RuleOutcome::Pass);
    assert!(matches!(judge("db"), RuleOutcome::Fail { .. }));
    let (report, _) = drive(&policy, &create(&pod("web", "x")), |_| Err(unsynced()));
    assert!(matches!(report.outcome, RuleOutcome::Error(_)));
}

#[test]
fn a_pattern_in_a_foreach_judges_the_element() {
    let rule = |more: &str| {
        format!("validate: {{foreach: [{{list: \"request.object.spec.containers\", {more}}}]}}")
    };
    let judge = |more: &str| outcome(&rule(more), &create(&pod("a", "x:1")));
    assert_eq!(judge("pattern: {image: \"x:*\"}"), RuleOutcome::Pass);
    assert_eq!(
        judge("pattern: {image: \"y:*\"}"),
        fail("validation failure: validation error: rule rule failed at path /image/")
    );
    assert_eq!(
        judge("elementScope: false, pattern: {metadata: {name: a}}"),
        RuleOutcome::Pass
    );
    assert_eq!(
        judge("anyPattern: [{image: \"y:*\"}, {name: c}]"),
        RuleOutcome::Pass
    );
}

#[test]
fn a_pod_security_rule_judges_pods_and_their_controllers() {
    let policy = policy(
        "validate: {podSecurity: {level: baseline, version: v1.29, exclude: \
         [{controlName: Capabilities, images: ['*'], values: [SYS_ADMIN]}]}}",
    );
    let no_facts = |_: &FactRequest| panic!("no fact is asked for");
    let outcome = |object: &Value| drive(&policy, &create(object), no_facts).0.outcome;
    let pod = |capability: &str| {
        json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"image": "x",
            "securityContext": {"capabilities": {"add": [capability]}}}]}})
    };
    assert_eq!(outcome(&pod("SYS_ADMIN")), RuleOutcome::Pass);
    let RuleOutcome::Fail { message } = outcome(&pod("NET_RAW")) else {
        panic!("it passes");
    };
    assert!(message.starts_with("Validation rule 'rule' failed. It violates PodSecurity"));
    let skipped = outcome(&ingress("i", &[]));
    assert!(
        matches!(skipped, RuleOutcome::Skipped { .. }),
        "{skipped:?}"
    );
}
