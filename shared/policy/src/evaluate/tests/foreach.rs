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
fn a_foreach_list_may_be_one_value_or_missing() {
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

/// Two lists; each element is denied that is `bad`, where the conditions before it say so.
fn two_lists(first: &str, second: &str, key: &str) -> String {
    let each = |list: &str| {
        format!(
            "{{list: \"{list}\", preconditions: {{all: [{{key: \"{{{{ {key} }}}}\", operator: Equals, value: true}}]}}, \
             deny: {{conditions: {{all: [{{key: \"{{{{ element.name }}}}\", operator: Equals, value: bad}}]}}}}}}"
        )
    };
    format!(
        "validate: {{message: m, foreach: [{}, {}]}}",
        each(first),
        each(second)
    )
}

#[test]
fn an_element_without_the_key_of_its_precondition_is_skipped() {
    let named = |name: &str, judge: &Value| json!({"name": name, "judge": judge});
    let (bad, good) = (named("bad", &json!(true)), named("good", &json!(true)));
    for (key, elements, expected) in [
        ("element.judge", json!([{"name": "bad"}]), "skip"),
        ("element.judge", json!([{"name": "bad"}, good]), "pass"),
        ("element.judge", json!([{"name": "bad"}, bad]), "fail"),
        ("element.nope.judge", json!([bad]), "skip"),
        // What cannot be computed is no lack.
        ("length(element.judge)", json!([bad]), "error"),
        (
            "length(element.judge)",
            json!([named("bad", &Value::Null)]),
            "error",
        ),
    ] {
        let rule = two_lists("request.object.a", "request.object.nope", key);
        let found = outcome(&rule, &create(&json!({"a": elements})));
        assert_eq!(verdict(&found), expected, "{key} {elements}: {found:?}");
    }
}

#[test]
fn an_unknown_fact_in_an_elements_precondition_is_an_error() {
    let rule = policy(
        r#"
validate:
  message: m
  foreach:
  - list: request.object.a
    context: [{name: f, apiCall: {urlPath: "/api/v1/namespaces/images/configmaps/unread", jmesPath: data.state}}]
    preconditions: {all: [{key: "{{ f }}", operator: Equals, value: x}]}
    deny: {}
"#,
    );
    let (report, _) = drive(&rule, &create(&json!({"a": [1]})), look_up);
    assert_eq!(verdict(&report.outcome), "error");
}

#[test]
fn a_list_that_cannot_be_computed_keeps_no_element_of_others_from_being_judged_and_passes_none() {
    let element = |name: &str| json!([{"name": name, "judge": true}]);
    let failing = "keys(request.object.name)";
    for (first, second, name, expected) in [
        (failing, "request.object.a", "good", "error"),
        (failing, "request.object.a", "bad", "fail"),
        ("request.object.a", failing, "good", "error"),
        ("request.object.a", failing, "bad", "fail"),
        (failing, "request.object.nope", "good", "error"),
        ("`[]`", failing, "good", "error"),
        (failing, failing, "good", "error"),
    ] {
        let rule = two_lists(first, second, "element.judge");
        let object = json!({"name": "n", "a": element(name)});
        let found = outcome(&rule, &create(&object));
        assert_eq!(verdict(&found), expected, "{first} {second}: {found:?}");
    }
}

fn verdict(outcome: &RuleOutcome) -> &'static str {
    match outcome {
        RuleOutcome::NotMatched => "not matched",
        RuleOutcome::Skipped { .. } => "skip",
        RuleOutcome::Pass => "pass",
        RuleOutcome::Fail { .. } => "fail",
        RuleOutcome::Mutated { .. } => "mutated",
        RuleOutcome::Error(_) => "error",
    }
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
    match fact.subject.to_string().rsplit_once('/') {
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

/// The facts of all elements come together, each asked for once.
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
fn the_elements_of_one_foreach_are_limited() {
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
            found: FOREACH_ELEMENTS_MAX + 1,
            of_request: true,
        }
    );
    assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED);
    // Unlike a list that cannot be computed, it ends the rule.
    let object =
        json!({"list": vec![1; FOREACH_ELEMENTS_MAX + 1], "a": [{"name": "bad", "judge": true}]});
    let rule = two_lists("request.object.list", "request.object.a", "element.judge");
    let found = outcome(&rule, &create(&object));
    assert_eq!(found, RuleOutcome::Error(error));
}

/// Elements wait for facts together: their list is held, and counts as memory.
#[test]
fn the_list_of_a_rule_that_waits_counts_as_memory_that_it_holds() {
    let (rule, request) = (policy(LOOKED_UP), create(&pod(&["good", "good"])));
    let mut evaluation = Evaluation::start(&rule, &rule.rules()[0], &request);
    assert!(matches!(evaluation.step(), RuleStep::Need(_)));
    let held = evaluation.waiting_bytes().values;
    // Two objects of two fields each.
    assert!(held > 1_000, "{held}");
}

/// Together, the inner lists take some 100 MiB.
#[test]
fn the_memory_of_an_inner_list_is_free_again_after_it() {
    let object = json!({
        "metadata": {"name": "it"}, "outer": vec![1; 60], "texts": vec!["x".repeat(700_000); 2],
    });
    let rule = "validate: {foreach: [{list: request.object.outer, foreach: [{list: request.object.texts, \
                deny: {conditions: {any: [{key: a, operator: Equals, value: b}]}}}]}]}";
    assert_eq!(outcome(rule, &create(&object)), RuleOutcome::Pass);
}

fn ports(ports: &[&[u16]]) -> Value {
    let containers: Vec<_> = ports
        .iter()
        .enumerate()
        .map(|(at, ports)| {
            let ports: Vec<_> = ports.iter().map(|port| json!({"port": port})).collect();
            json!({"name": format!("c{at}"), "ports": ports, "tags": ["x", "y"]})
        })
        .collect();
    json!({"metadata": {"name": "it", "namespace": "ns"}, "spec": {"containers": containers}})
}

const NESTED: &str = r#"
context: [{name: lowest, variable: {value: 1000}}]
validate:
  message: "{{ element0.name }}[{{ elementIndex0 }}] {{ element1.port }}[{{ elementIndex1 }}] = {{ element.port }}[{{ elementIndex }}] {{ name }}"
  foreach:
  - list: "request.object.spec.containers"
    context: [{name: name, variable: {jmesPath: "element.name"}}]
    preconditions: {all: [{key: "{{ element.name }}", operator: NotEquals, value: c0}]}
    foreach:
    - list: "element.ports"
      context: [{name: own, variable: {jmesPath: "element.port"}}]
      preconditions: {all: [{key: "{{ own }}", operator: NotEquals, value: 7}]}
      deny: {conditions: {any: [{key: "{{ own }}", operator: LessThan, value: "{{ lowest }}"}]}}
"#;

#[test]
fn a_foreach_in_a_foreach_knows_both_elements() {
    let judge = |all: &[&[u16]]| outcome(NESTED, &create(&ports(all)));
    assert_eq!(
        judge(&[&[1], &[2000, 80]]),
        fail("validation failure: validation failure: c1[1] 80[1] = 80[1] c1")
    );
    assert_eq!(judge(&[&[1], &[7, 2000]]), RuleOutcome::Pass);
    for skipped in [&[&[1_u16][..]][..], &[&[1], &[]], &[&[1], &[7]]] {
        assert!(
            matches!(judge(skipped), RuleOutcome::Skipped { .. }),
            "{skipped:?}"
        );
    }
}

#[test]
fn a_pattern_in_a_nested_foreach_judges_the_inner_element() {
    let rule = |scope: &str, list: &str, pattern: &str| {
        format!(
            "validate: {{foreach: [{{list: request.object.spec.containers, foreach: [{{list: '{list}'{scope}, pattern: {pattern}}}]}}]}}"
        )
    };
    let judge = |rule: &str| outcome(rule, &create(&ports(&[&[80]]))) == RuleOutcome::Pass;
    // The scope is the inner element; if the scope is no object or says so, the enclosing element.
    assert!(judge(&rule("", "element.ports", "{port: 80}")));
    assert!(judge(&rule("", "element.tags", "{name: c0}")));
    assert!(judge(&rule(
        ", elementScope: false",
        "element.ports",
        "{name: c0}"
    )));
    assert!(!judge(&rule(
        ", elementScope: false",
        "element.ports",
        "{port: 80}"
    )));
    let outcome = outcome(
        &rule(", elementScope: true", "element.tags", "{name: c0}"),
        &create(&ports(&[&[80]])),
    );
    let RuleOutcome::Error(error) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(
        error
            .to_string()
            .contains("validate.foreach[0].foreach[0].elementScope"),
        "{error}"
    );
}

#[test]
fn an_error_in_a_nested_foreach_names_its_path() {
    let rule = NESTED.replace("element.ports", "to_upper(element.ports)");
    let RuleOutcome::Error(error) = outcome(&rule, &create(&ports(&[&[1], &[2]]))) else {
        panic!("no error");
    };
    let text = error.to_string();
    assert!(
        text.contains("validate.foreach[0].foreach[0].list"),
        "{text}"
    );
}

#[test]
fn the_elements_of_all_foreach_lists_are_limited_together() {
    let judge = |inner: usize| {
        let tags = vec!["x"; inner];
        let containers = vec![json!({"tags": tags}); 100];
        let object = json!({"metadata": {"name": "it"}, "spec": {"containers": containers}});
        let rule = "validate: {foreach: [{list: request.object.spec.containers, foreach: [{list: element.tags, deny: {conditions: {any: [{key: a, operator: Equals, value: b}]}}}]}]}";
        outcome(rule, &create(&object))
    };
    let most = FOREACH_ELEMENTS_IN_ALL_MAX / 100 - 1;
    assert_eq!(judge(most), RuleOutcome::Pass);
    let outcome = judge(most + 1);
    assert_eq!(outcome, RuleOutcome::Error(RuleError::TooManyElementsInAll));
}

#[test]
fn patterns_read_their_own_value_and_referenced_values() {
    let object = json!({
        "metadata": {"name": "it", "namespace": "ns"},
        "spec": {"a": "x", "b": "X", "list": [{"image": "reg/app", "n": 3}], "low": 1, "high": 9},
    });
    let judge = |validate: &str| outcome(&format!("validate: {validate}"), &create(&object));
    for (validate, passes) in [
        // Held against itself.
        (
            "{pattern: {spec: {a: '{{ @ }}', list: [{n: '{{ @ }}'}]}}}",
            true,
        ),
        (
            "{pattern: {spec: {=(b): \"{{ to_upper('{{@}}') }}\"}}}",
            true,
        ),
        ("{pattern: {spec: {a: \"{{ to_upper('{{@}}') }}\"}}}", false),
        (
            "{anyPattern: [{spec: {a: y}}, {spec: {a: '{{ @ }}'}}]}",
            true,
        ),
        ("{pattern: {spec: {a: x, b: '$(./../a)'}}}", false),
        ("{pattern: {spec: {b: X, =(a): '$(/spec/b)'}}}", false),
        ("{pattern: {spec: {low: '$(<./../high)', high: '9'}}}", true),
        (
            "{pattern: {spec: {low: '$(>./../high)', high: '9'}}}",
            false,
        ),
        (
            "{foreach: [{list: request.object.spec.list, pattern: {image: '{{ @ }}', n: '{{ @ }}'}}]}",
            true,
        ),
        (
            "{foreach: [{list: request.object.spec.list, elementScope: false, pattern: {spec: {a: '{{ @ }}'}}}]}",
            true,
        ),
    ] {
        let found = judge(validate);
        assert_eq!(found == RuleOutcome::Pass, passes, "{validate}: {found:?}");
        assert!(
            passes || matches!(found, RuleOutcome::Fail { .. }),
            "{validate}: {found:?}"
        );
    }
    let found = judge("{pattern: {spec: {none: '{{ @ }}'}}}");
    assert!(matches!(found, RuleOutcome::Error(_)), "{found:?}");
}

/// A missing list has no elements; a variable that comes to null is no list.
#[test]
fn a_foreach_list_that_is_a_variable_without_a_value() {
    let judge = |path: &str| {
        let rule = format!(
            "{{context: [{{name: found, variable: {{jmesPath: {path}}}}}], validate: {{message: m, \
             foreach: [{{list: found, deny: {{}}}}]}}}}"
        );
        outcome(&rule, &create(&pod(&["a"])))
    };
    assert!(matches!(
        judge("request.object.nope"),
        RuleOutcome::Skipped { .. }
    ));
    assert!(matches!(
        judge("'request.object.nope | [0]'"),
        RuleOutcome::Error(_)
    ));
    assert!(matches!(
        judge("request.object.spec.containers"),
        RuleOutcome::Fail { .. }
    ));
}
