//! Each element of a list by itself.

use super::*;

fn pod(images: &[&str]) -> Value {
    let containers: Vec<_> = images
        .iter()
        .enumerate()
        .map(|(at, image)| json!({"name": format!("c{at}"), "image": image}))
        .collect();
    json!({"metadata": {"name": "it", "namespace": "ns"}, "spec": {"containers": containers}})
}

const IMAGES: &str = r#"
validate:
  message: "no {{ element.image }} at {{ elementIndex }}"
  foreach:
  - list: "request.object.spec.[initContainers, containers][]"
    preconditions: {all: [{key: "{{ element.image }}", operator: NotEquals, value: skipped}]}
    deny: {conditions: {any: [{key: "{{ element.image }}", operator: Equals, value: "bad*"}]}}
"#;

#[test]
fn the_first_element_that_violates_the_rule_is_named() {
    let judge = |images: &[&str]| outcome(IMAGES, &create(&pod(images)));
    assert_eq!(
        judge(&["a", "bad1", "bad2"]),
        fail("validation failure: no bad1 at 1")
    );
    assert_eq!(judge(&["a", "b"]), RuleOutcome::Pass);
    assert_eq!(judge(&["skipped", "a"]), RuleOutcome::Pass);
    for images in [&[][..], &["skipped"]] {
        assert!(matches!(judge(images), RuleOutcome::Skipped { .. }));
    }
}

#[test]
fn a_list_may_be_one_value_or_missing() {
    let rule = |list: &str| {
        format!(
            "validate: {{message: \"{{{{ element }}}}\", foreach: [{{list: \"{list}\", deny: {{conditions: {{all: [{{key: \"{{{{ element }}}}\", operator: Equals, value: \"it\"}}]}}}}}}]}}"
        )
    };
    let request = create(&pod(&["a"]));
    let judge = |list: &str| outcome(&rule(list), &request);
    assert_eq!(
        judge("request.object.metadata.name"),
        fail("validation failure: it")
    );
    assert_eq!(
        judge("request.object.metadata | [nope, name]"),
        fail("validation failure: it")
    );
    for list in [
        "request.object.nope",
        "request.object.spec.nope[]",
        "`null`",
        "`[null]`",
    ] {
        assert!(matches!(judge(list), RuleOutcome::Skipped { .. }), "{list}");
    }
    let failed = judge("length(request.object.metadata.name.nope || `5`)");
    assert!(matches!(failed, RuleOutcome::Error(_)), "{failed:?}");
}

const LOOKED_UP: &str = r#"
context:
- {name: allowed, apiCall: {urlPath: "/api/v1/namespaces/{{ request.namespace }}", jmesPath: "metadata.labels.allowed"}}
validate:
  message: "{{ element.image }} is {{ state }}, not {{ allowed }}"
  foreach:
  - list: request.object.spec.containers
    context:
    - {name: state, apiCall: {urlPath: "/api/v1/namespaces/images/configmaps/{{ element.image }}", jmesPath: data.state, default: unknown}}
    deny: {conditions: {all: [{key: "{{ state }}", operator: NotEquals, value: "{{ allowed }}"}]}}
"#;

fn look_up(fact: &FactRequest) -> Result<Value, FactError> {
    match fact.target.to_string().rsplit_once('/') {
        Some((_, "ns" | "good")) => Ok(json!("fine")),
        Some((_, "unread")) => Err(unsynced()),
        Some((_, "gone")) => Err(FactError::ObjectNotFound {
            resource: "configmaps".to_owned(),
            namespace: "images".to_owned(),
            name: "gone".to_owned(),
        }),
        other => panic!("{other:?}"),
    }
}

/// Point C: the facts of all elements come together, each asked for once.
#[test]
fn an_element_has_facts_of_its_own() {
    let path = |name: &str| format!("/api/v1/namespaces/images/configmaps/{name}");
    let rule = policy(LOOKED_UP);
    let (report, asked) = drive(&rule, &create(&pod(&["good", "gone", "good"])), look_up);
    assert_eq!(
        report.outcome,
        fail("validation failure: gone is unknown, not fine")
    );
    let own = "/api/v1/namespaces/ns".to_owned();
    assert_eq!(asked, [vec![path("good"), own, path("gone")]]);
    let (report, _) = drive(&rule, &create(&pod(&["good", "good"])), look_up);
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!(
        rule.references().count(),
        2,
        "those of elements are kept too"
    );
    let read = "/api/v1/namespaces/images/configmaps/good";
    let call = crate::Call::Api {
        path: read,
        data: None,
    };
    assert!(rule.permits("rule", "state", call).is_ok());
}

/// Whatever comes after it: an element that cannot be judged is an error, never a pass.
#[test]
fn an_element_that_cannot_be_judged_is_an_error() {
    let rule = policy(LOOKED_UP);
    for images in [
        &["unread", "good"][..],
        &["good", "unread"],
        &["unread", "gone"],
    ] {
        let (report, _) = drive(&rule, &create(&pod(images)), look_up);
        assert!(
            matches!(report.outcome, RuleOutcome::Error(_)),
            "{images:?}"
        );
    }
    let (report, _) = drive(&rule, &create(&pod(&["gone", "unread"])), look_up);
    assert!(matches!(report.outcome, RuleOutcome::Fail { .. }));
}

#[test]
fn elements_are_limited() {
    let rule = "validate: {foreach: [{list: request.object.list, deny: {conditions: {all: [{key: '{{ elementIndex }}', operator: Equals, value: -1}]}}}]}";
    let judge = |count: usize| {
        let object = json!({"metadata": {"name": "it"}, "list": vec![1; count]});
        outcome(rule, &create(&object))
    };
    assert_eq!(judge(FOREACH_ELEMENTS_MAX), RuleOutcome::Pass);
    let RuleOutcome::Error(error) = judge(FOREACH_ELEMENTS_MAX + 1) else {
        panic!()
    };
    assert_eq!(
        error,
        RuleError::TooManyElements {
            found: FOREACH_ELEMENTS_MAX + 1
        }
    );
    assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED);
}
