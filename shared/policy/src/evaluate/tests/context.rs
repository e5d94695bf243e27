//! Tests of what a rule loads, and when.

use anteroom_model::EntryKind;

use super::*;

#[test]
fn a_query_is_one_text_with_the_request_in_its_parameters() {
    let policy = policy(
        r#"
context:
- name: count
  cachedContextEntry:
    name: ingresses
    jmespath: "items[?metadata.name != '{{ request.object.metadata.name }}' && contains(spec.rules[].host, '{{ request.object.spec.rules[0].host }}')] | length(@)"
validate:
  message: taken
  deny:
    conditions:
      all: [{key: "{{ count }}", operator: GreaterThan, value: 0}]
"#,
    );
    let object = ingress("it's", &["a'] | [0"]);
    let (report, _) = drive(&policy, &create(&object), |fact| {
        assert_eq!(
            fact.expression,
            "items[?metadata.name != $p0 && contains(spec.rules[].host, $p1)] | length(@)"
        );
        assert_eq!(
            json!(fact.parameters),
            json!({"p0": "it's", "p1": "a'] | [0"})
        );
        assert!(fact.missing_key_is_error);
        Ok(json!(1))
    });
    assert_eq!(report.outcome, fail("taken"));
}

#[test]
fn expressions_see_the_request_as_one_document() {
    let (object, old) = (ingress("new", &["a"]), ingress("old", &[]));
    let request = request("UPDATE", &object, &old);
    let whole = request.value();
    assert_eq!((&whole["object"], &whole["oldObject"]), (&object, &old));
    let names: Vec<_> = whole.as_object().unwrap().keys().collect();
    for (expression, expected) in [
        ("request", whole.clone()),
        ("[request][0]", whole.clone()),
        ("keys(request)", json!(names)),
        ("length(request)", json!(names.len())),
        ("request.object", object),
        ("request.oldObject", old),
        ("request.kind.version", json!("v1")),
        ("type(request)", json!("object")),
        ("to_string(request)", json!(whole.to_string())),
    ] {
        let condition = json!({"key": format!("{{{{ {expression} }}}}"), "operator": "Equals", "value": expected});
        let deny = json!({"validate": {
            "message": "seen",
            // Much of the request is the same for the old object.
            "allowExistingViolations": false,
            "deny": {"conditions": {"all": [condition]}},
        }});
        let found = outcome(&deny.to_string(), &request);
        assert_eq!(found, fail("seen"), "{expression}");
    }
}

#[test]
fn facts_of_both_sides_of_a_condition_are_asked_for_together() {
    let policy = policy(
        r#"
context:
- {name: one, cachedContextEntry: {name: e1}}
- {name: two, cachedContextEntry: {name: e2}}
- {name: unused, cachedContextEntry: {name: e3}}
- {name: again, cachedContextEntry: {name: e1}}
validate:
  deny:
    conditions:
      all:
      - {key: "{{ one }}", operator: Equals, value: "{{ two }}"}
      - {key: "{{ again }}", operator: Equals, value: 7}
"#,
    );
    let (report, asked) = drive(&policy, &create(&ingress("x", &[])), |_| Ok(json!(7)));
    assert_eq!(report.outcome, fail("validation error: rule rule failed"));
    assert_eq!(asked, [["e1", "e2"]], "the same question is asked once");
    let cached = |name| (EntryKind::Cached, name);
    assert_eq!(
        policy.entries().collect::<Vec<_>>(),
        ["e1", "e2", "e3"].map(cached)
    );
}

#[test]
fn an_expression_loads_only_the_facts_that_it_reads() {
    let rule = |key: &str| {
        format!(
            r#"
context:
- {{name: fact, cachedContextEntry: {{name: e}}}}
validate:
  deny:
    conditions: [{{key: "{key}", operator: Equals, value: ns}}]
"#
        )
    };
    let request = create(&ingress("fact", &[]));
    let yes = fail("validation error: rule rule failed");
    for key in [
        "{{ request.namespace || fact }}",
        "{{ request.object.metadata | {fact: name, namespace: namespace}.namespace }}",
        "{{ join('', ['n', 's']) }}",
    ] {
        assert_eq!(outcome(&rule(key), &request), yes, "{key}");
    }
    for key in [
        "{{ fact.a }}",
        "{{ [fact][0].a }}",
        "{{ request.nope || fact.a }}",
        "{{ length(fact) == `1` && fact.a }}",
    ] {
        let (report, asked) = drive(&policy(&rule(key)), &request, |_| Ok(json!({"a": "ns"})));
        assert_eq!((report.outcome, asked.len()), (yes.clone(), 1), "{key}");
    }
}

/// A rule whose message shows the variables `one` and `two`.
fn shown(context: &str) -> RuleOutcome {
    let rule = format!(
        "context:\n{context}\nvalidate:\n  message: \"{{{{ one }}}} {{{{ two || 'none' }}}}\"\n  deny: {{}}\n"
    );
    outcome(&rule, &create(&ingress("x", &["h"])))
}

#[test]
fn a_context_entry_reads_the_entries_before_it() {
    for (context, message) in [
        (
            "- {name: one, variable: {value: 1}}\n- {name: two, variable: {value: \"<{{ one }}>\"}}",
            "1 <1>",
        ),
        (
            "- {name: one, variable: {value: one}}\n- {name: one, variable: {jmesPath: one}}\n- {name: two, variable: {value: 2}}",
            "one 2",
        ),
        (
            "- {name: one, variable: {value: a}}\n- {name: two, variable: {value: \"{{ one }}\"}}\n- {name: one, variable: {value: b}}",
            "b a",
        ),
        (
            "- {name: one, variable: {jmesPath: \"request.object.spec.rules[0].host\"}}\n- {name: two, variable: {value: [{a: 5}], jmesPath: \"[0].a\"}}",
            "h 5",
        ),
        (
            "- {name: one, variable: {value: {k: v}, jmesPath: \"'{{ request.operation }}'\"}}\n- {name: two, variable: {value: 2}}",
            "CREATE 2",
        ),
    ] {
        assert_eq!(shown(context), fail(message), "{context}");
    }
}

#[test]
fn a_variables_default_replaces_a_missing_value() {
    for (two, message) in [
        ("{jmesPath: request.object.nope, default: d}", "1 d"),
        (
            "{jmesPath: request.object.nope, default: \"{{ one }}\"}",
            "1 1",
        ),
        ("{jmesPath: \"length(one)\", default: d}", "1 d"),
        (
            "{jmesPath: \"request.object.nope | [0]\", default: d}",
            "1 d",
        ),
        ("{value: {m: [1]}, jmesPath: nope, default: d}", "1 d"),
    ] {
        let context =
            format!("- {{name: one, variable: {{value: 1}}}}\n- {{name: two, variable: {two}}}");
        assert_eq!(shown(&context), fail(message), "{two}");
    }
}

/// A `||` is about what is not there; a variable is, and comes to nothing.
#[test]
fn an_or_operator_does_not_replace_a_variable_without_a_value() {
    for two in [
        "{jmesPath: request.object.nope}",
        "{jmesPath: 'request.object.nope | [0]'}",
        "{value: \"{{ request.object.nope }}\", default: d}",
        "{value: {m: [1]}, jmesPath: 'm[5]', default: d}",
    ] {
        let rule = format!(
            "{{context: [{{name: two, variable: {two}}}], validate: {{deny: {{conditions: {{all: \
             [{{key: \"{{{{ two || 'none' }}}}\", operator: Equals, value: none}}]}}}}}}}}"
        );
        let found = format!("{:?}", outcome(&rule, &create(&ingress("x", &[]))));
        let says = "context entry `two` has no value";
        assert!(
            found.starts_with("Error") && found.contains(says),
            "{two}: {found}"
        );
    }
}

#[test]
fn a_variable_without_a_value_says_why() {
    let rule = r#"
context: [{name: v, variable: {jmesPath: request.object.nope}}]
validate: {deny: {conditions: {all: [{key: "{{ v }}", operator: Equals, value: 1}]}}}
"#;
    let RuleOutcome::Error(error) = outcome(rule, &create(&ingress("x", &[]))) else {
        panic!()
    };
    assert_eq!(error.code(), ErrorCode::VARIABLE_UNRESOLVED);
    insta::assert_snapshot!(error, @r#"validate.deny.conditions.all[0].key: variable `v`: context entry `v` has no value: variable `request.object.nope`: Unknown key "nope" in path"#);
}

/// Each variable has the one before ten times.
#[test]
fn variables_that_grow_by_each_other_come_to_an_end() {
    let with = |variables: usize| {
        let mut context = vec![json!({"name": "v0", "variable": {"value": vec![0; 10]}})];
        for at in 1..variables {
            let before = format!("{{{{ v{} }}}}", at - 1);
            let value = vec![before; 10];
            context.push(json!({"name": format!("v{at}"), "variable": {"value": value}}));
        }
        let last = format!("{{{{ v{} }}}}", variables - 1);
        let rule = json!({
            "context": context,
            "preconditions": {"all": [{"key": last, "operator": "NotEquals", "value": 1}]},
            "validate": {"message": "no", "deny": {}},
        });
        let policy = policy(&rule.to_string());
        let request = create(&ingress("a", &["x"]));
        anteroom_functions::meter::within(10_000_000, || {
            drive_over(&policy, &request, nothing).0.outcome
        })
    };
    let (outcome, left) = with(9);
    let RuleOutcome::Error(error) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED);
    assert!(left < 9_000_000, "copies are charged: {left}");
    // No copy is too large: ten of some 960 kB are copied for the last one, at eight bytes a step.
    let (outcome, left) = with(5);
    assert!(!matches!(outcome, RuleOutcome::Error(_)), "{outcome:?}");
    assert!(left < 9_000_000, "small copies are charged: {left}");
}

/// Values that share their parts are small while an expression holds them, and take hundreds of megabytes as JSON. So does
/// the JSON of many small objects in a text.
#[test]
fn a_value_that_takes_much_memory_is_over_the_budget_and_has_no_default() {
    let times = |count: usize| format!("[{}]", vec!["@"; count].join(","));
    let shared = format!("{} | {}", times(1_000), times(900));
    let object = json!({
        "kind": "Ingress", "metadata": {"name": "a", "namespace": "ns"},
        "dense": format!("[{}1]", "{\"a\":1},".repeat(150_000)),
    });
    let request = create(&object);
    for expression in [
        format!("`{{\"a\":1}}` | {shared}"),
        format!("{{a: request.object.kind == 'q'}} | {shared}"),
        "parse_json(request.object.dense)".to_owned(),
    ] {
        let variable = json!({"jmesPath": expression, "default": "none"});
        let rule = json!({
            "context": [{"name": "v", "variable": variable}],
            "preconditions": {"all": [{"key": "{{ v }}", "operator": "NotEquals", "value": 1}]},
            "validate": {"message": "no", "deny": {}},
        });
        let policy = policy(&rule.to_string());
        let within = |steps| {
            let evaluate = || drive_over(&policy, &request, nothing).0.outcome;
            anteroom_functions::meter::within(steps, evaluate)
        };
        // In place, nothing is left, and it is done anew.
        assert_eq!(within(20_000).1, 0, "{expression:.40}");
        let (outcome, left) = within(10_000_000);
        let RuleOutcome::Error(error) = outcome else {
            panic!("{expression:.40}: {outcome:?}");
        };
        assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED, "{expression:.40}");
        assert!(left > 0, "{expression:.40}");
    }
}

/// Lists of 100,000 names, of which each takes some 10 MiB.
fn names() -> AdmissionRequest {
    let names: Vec<_> = (0..100_000)
        .map(|at| format!("web-{at:06}.example.com"))
        .collect();
    create(&json!({
        "kind": "Ingress", "metadata": {"name": "a", "namespace": "ns"}, "spec": {"names": names},
    }))
}

#[test]
fn the_values_of_a_rule_have_a_limit_of_memory_together() {
    let request = names();
    let with = |variables: usize| {
        let names: Vec<_> = (0..variables).map(|at| format!("v{at}")).collect();
        let variable = |name: &String| json!({"name": name, "variable": {"jmesPath": "request.object.spec.names[]"}});
        let all: Vec<_> = names.iter().map(|name| format!("length({name})")).collect();
        let rule = json!({
            "context": names.iter().map(variable).collect::<Vec<_>>(),
            "validate": {"message": "no", "deny": {"conditions": {"all": [
                {"key": format!("{{{{ sum([{}]) }}}}", all.join(", ")), "operator": "Equals",
                    "value": 100_000 * variables},
            ]}}},
        });
        drive_over(&policy(&rule.to_string()), &request, nothing)
            .0
            .outcome
    };
    assert_eq!(with(5), fail("no"));
    let RuleOutcome::Error(error) = with(8) else {
        panic!()
    };
    assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED);
}

#[test]
fn the_values_that_an_expression_is_bound_to_have_a_limit_of_memory_together() {
    let request = names();
    let with = |copies: usize| {
        let bound = vec!["{{ names }}"; copies].join(", ");
        let rule = json!({
            "context": [{"name": "names", "variable": {"jmesPath": "request.object.spec.names[]"}}],
            "validate": {"message": "no", "deny": {"conditions": {"all": [
                {"key": format!("{{{{ length([{bound}]) }}}}"), "operator": "Equals", "value": copies},
            ]}}},
        });
        drive_over(&policy(&rule.to_string()), &request, nothing)
            .0
            .outcome
    };
    assert_eq!(with(2), fail("no"));
    let RuleOutcome::Error(error) = with(4) else {
        panic!()
    };
    assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED);
}

/// Those of 30,000 names are dropped while the rule waits for the ConfigMap, and made again.
#[test]
fn a_rule_that_waits_holds_no_large_values_and_comes_to_the_same() {
    for count in [10, 30_000] {
        let names: Vec<_> = (0..count).map(|at| format!("name-{at}")).collect();
        let object = json!({
            "kind": "Ingress", "metadata": {"name": "a", "namespace": "ns"}, "spec": {"names": names},
        });
        let rule = json!({
            "context": [
                {"name": "names", "variable": {"jmesPath": "request.object.spec.names[]"}},
                {"name": "cm", "configMap": {"name": "c", "namespace": "ns"}},
            ],
            "preconditions": {"all": [
                {"key": "{{ length(names) }}", "operator": "Equals", "value": count},
            ]},
            "validate": {"message": "no", "deny": {"conditions": {"all": [
                {"key": "{{ cm.data.a }}", "operator": "AnyIn", "value": "{{ names }}"},
            ]}}},
        });
        let (policy, request) = (policy(&rule.to_string()), create(&object));
        let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
        let mut answered = 0;
        let outcome = loop {
            let step = evaluation.step();
            let held = evaluation.value_bytes();
            assert!(held <= WAITING_BYTES_MAX);
            // Ten names are held.
            assert!(count > 10 || held > 500, "{held}");
            match step {
                RuleStep::Done(report) => break report.outcome,
                RuleStep::Need(facts) => {
                    for fact in facts {
                        if fact.is_pushed_down {
                            evaluation.decline(fact.id);
                        } else {
                            answered += 1;
                            let answer = json!({"data": {"a": "name-7"}, "metadata": {}});
                            evaluation.supply(fact.id, Ok(answer));
                        }
                    }
                }
            }
        };
        assert_eq!((outcome, answered), (fail("no"), 1), "{count}");
    }
}

/// They are held while the rule waits, and cannot be made again.
#[test]
fn the_values_in_the_questions_of_a_rule_have_a_limit_of_memory() {
    for (count, is_over) in [(10_000, false), (200_000, true)] {
        let names: Vec<_> = (0..count)
            .map(|at| format!("web-{at:06}.example.com"))
            .collect();
        let object = json!({
            "kind": "Ingress", "metadata": {"name": "a", "namespace": "ns"}, "spec": {"names": names},
        });
        let rule = json!({
            "context": [{"name": "n", "apiCall": {
                "urlPath": "/api/v1/namespaces/ns/pods",
                "jmesPath": "length(items[?contains({{ request.object.spec.names }}, metadata.name)])",
            }}],
            "validate": {"message": "no", "deny": {"conditions": {"all": [
                {"key": "{{ n }}", "operator": "GreaterThan", "value": 0},
            ]}}},
        });
        let (policy, request) = (policy(&rule.to_string()), create(&object));
        let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
        match evaluation.step() {
            RuleStep::Need(_) => {
                let held = evaluation.waiting_bytes();
                assert!(!is_over && held.questions > 400_000, "{held:?}");
                evaluation.drop_values();
                let kept = evaluation.waiting_bytes();
                assert_eq!((kept.values, kept.questions), (0, held.questions));
            }
            RuleStep::Done(report) => {
                let error = crate::RuleError::LargeQuestions;
                assert!(is_over && error.is_caused_by_request(true, false));
                assert_eq!(report.outcome, RuleOutcome::Error(error));
            }
        }
    }
}
