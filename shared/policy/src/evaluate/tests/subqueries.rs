//! Tests of subqueries: what is asked in place of a fact, and when.

use super::*;

/// The queries of each step, parts being answered with `answer`.
fn steps(
    rule: &str,
    request: &AdmissionRequest,
    mut answer: impl FnMut(&FactRequest) -> Result<Value, FactError>,
) -> (RuleReport, Vec<Vec<String>>) {
    let policy = policy(rule);
    let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], request);
    let mut asked = Vec::new();
    loop {
        match evaluation.step() {
            RuleStep::Done(report) => return (report, asked),
            RuleStep::Need(needs) => {
                asked.push(needs.iter().map(|need| need.expression.clone()).collect());
                for need in needs {
                    evaluation.supply(need.id, answer(&need));
                }
            }
        }
    }
}

fn condition(key: &str, operator: &str, value: &str) -> Value {
    json!({"key": key, "operator": operator, "value": value})
}

fn deny(facts: &Value, conditions: &[Value]) -> String {
    json!({
        "context": facts,
        "validate": {"message": "no: {{ hosts }}", "deny": {"conditions": {"all": conditions}}},
    })
    .to_string()
}

fn hosts() -> Value {
    json!([{"name": "hosts", "cachedContextEntry": {"name": "ingresses", "jmesPath": "items[].host"}}])
}

/// Conditions ask together, but only for what is little; the message asks for the list, when there is one
/// to tell.
#[test]
fn small_results_are_asked_for_together_and_a_list_only_when_needed() {
    let rule = deny(
        &hosts(),
        &[
            condition("{{ request.name }}", "AnyIn", "{{ hosts }}"),
            condition(
                "{{ length(hosts) }}",
                "GreaterThan",
                "{{ request.object.n }}",
            ),
        ],
    );
    let request = create(&json!({"kind": "Ingress", "n": 1}));
    let data = |is_in: bool| {
        move |need: &FactRequest| {
            Ok(match need.expression.as_str() {
                "any_in($key, items[].host)" => {
                    assert_eq!(need.parameters["key"], "n");
                    json!(is_in)
                }
                "items[].host | length(@)" => json!(2),
                "items[].host" => json!(["n", "m"]),
                other => panic!("{other}"),
            })
        }
    };
    let together = vec![
        "any_in($key, items[].host)".to_owned(),
        "items[].host | length(@)".to_owned(),
    ];
    let (report, asked) = steps(&rule, &request, data(false));
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!(asked, std::slice::from_ref(&together));
    let (report, asked) = steps(&rule, &request, data(true));
    assert_eq!(report.outcome, fail("no: [\"n\",\"m\"]"));
    assert_eq!(asked, [together, vec!["items[].host".to_owned()]]);
}

/// A use that is not known to be needed is not worth a list.
#[test]
fn a_list_is_not_asked_for_ahead_of_need() {
    let facts = json!([
        {"name": "hosts", "cachedContextEntry": {"name": "ingresses", "jmesPath": "items[].host"}},
        {"name": "names", "cachedContextEntry": {"name": "services", "jmesPath": "items[].name"}},
    ]);
    let conditions = [
        condition("{{ request.name }}", "AnyIn", "{{ hosts }}"),
        condition("{{ names }}", "GreaterThan", "{{ request.object.names }}"),
    ];
    let request = create(&json!({"kind": "Ingress", "names": []}));
    let (report, asked) = steps(&deny(&facts, &conditions), &request, |_| Ok(json!(false)));
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!(asked, [["any_in($key, items[].host)"]]);
}

/// Elements ask together; beyond the limit the list is asked for.
#[test]
fn elements_ask_for_facts_together_up_to_a_limit() {
    let rule = |elements: usize| {
        let elements: Vec<_> = (0..elements).collect();
        let request = create(&json!({"kind": "Ingress", "elements": elements}));
        let rule = json!({
            "context": hosts(),
            "validate": {"foreach": [{
                "list": "request.object.elements",
                "deny": {"conditions": [condition("{{ element }}", "AnyIn", "{{ hosts }}")]},
            }]},
        });
        steps(&rule.to_string(), &request, |need| {
            Ok(match need.is_pushed_down {
                true => json!(false),
                false => json!(["x"]),
            })
        })
    };
    let (report, asked) = rule(PUSHED_DOWN_PER_RULE_MAX);
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!((asked.len(), asked[0].len()), (1, PUSHED_DOWN_PER_RULE_MAX));
    assert_eq!(report.facts.len(), PUSHED_DOWN_PER_RULE_MAX);
    let (report, asked) = rule(PUSHED_DOWN_PER_RULE_MAX + 1);
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!(
        (asked.len(), asked[0].len()),
        (1, PUSHED_DOWN_PER_RULE_MAX + 1)
    );
    assert_eq!(asked[0][PUSHED_DOWN_PER_RULE_MAX], "items[].host");
}

/// A replica that does not know the functions, a budget, a driver that has no view: the fact is asked for.
/// What the view says of itself is said of the fact, without asking again.
#[test]
fn a_part_without_an_answer_falls_back_to_the_whole_fact() {
    let rule = deny(
        &hosts(),
        &[condition(
            "{{ request.name }}",
            "AnyIn",
            "{{ hosts || `[]` }}",
        )],
    );
    let request = create(&json!({"kind": "Ingress"}));
    let text = || "no".to_owned();
    for error in [
        FactError::ExpressionInvalid { message: text() },
        FactError::EvaluationFailed { message: text() },
        FactError::BudgetExceeded { message: text() },
        FactError::RequestInvalid { message: text() },
    ] {
        let (report, asked) = steps(&rule, &request, |need| match need.is_pushed_down {
            true => Err(error.clone()),
            false => Ok(json!(["n"])),
        });
        assert!(matches!(report.outcome, RuleOutcome::Fail { .. }));
        assert_eq!(asked.len(), 2, "{error}");
        assert_eq!(report.facts.len(), 1, "{:?}", report.facts);
        assert_eq!(report.facts[0].error, None);
    }
    let (report, asked) = steps(&rule, &request, |_| Err(unsynced()));
    assert!(matches!(
        report.outcome,
        RuleOutcome::Error(RuleError::Fact { variable, source, .. })
            if variable == "hosts" && source == unsynced()
    ));
    assert_eq!(asked.len(), 1);
    assert_eq!(report.facts[0].error, Some(unsynced()));
}

/// A list that is needed is asked for with the fields that the rule reads. What is said of the query is not said of the
/// list.
#[test]
fn a_list_that_cannot_be_cut_is_asked_for_whole() {
    let rule = json!({
        "context": [{"name": "all", "cachedContextEntry": {"name": "ingresses", "jmesPath": "items[]"}}],
        "validate": {"message": "no", "deny": {"conditions": {"all": [
            {"key": "{{ [all[0].a, all[1].a] }}", "operator": "Equals", "value": ["x", "y"]},
        ]}}},
    })
    .to_string();
    let request = create(&json!({"kind": "Ingress"}));
    let query = FactError::ExpressionInvalid {
        message: "no".to_owned(),
    };
    for (error, steps_expected, is_denied) in [(query, 2, true), (unsynced(), 1, false)] {
        let (report, asked) = steps(&rule, &request, |need| match need.is_pushed_down {
            true => Err(error.clone()),
            false => Ok(json!([{"a": "x"}, {"a": "y"}])),
        });
        assert!(asked[0][0].contains("keep_only"), "{asked:?}");
        assert_eq!(asked.len(), steps_expected, "{asked:?}");
        match is_denied {
            true => assert_eq!(report.outcome, fail("no")),
            false => assert!(
                matches!(&report.outcome, RuleOutcome::Error(RuleError::Fact { source, .. }) if *source == error),
                "{report:?}"
            ),
        }
    }
}

#[test]
fn a_value_that_a_use_needs_travels_as_its_parameter() {
    for (argument, value) in [
        ("request.name", json!("n")),
        // Within an argument, a key that is missing is null.
        ("request.object.none", Value::Null),
    ] {
        let key = format!("{{{{ contains(hosts, {argument}) }}}}");
        let condition = json!({"key": key, "operator": "Equals", "value": true});
        let request = create(&json!({"kind": "Ingress"}));
        let (report, asked) = steps(&deny(&hosts(), &[condition]), &request, |need| {
            assert!(need.is_pushed_down, "{argument}: {}", need.expression);
            let values: Vec<_> = need.parameters.values().collect();
            assert_eq!(values, [&value], "{argument}: {}", need.expression);
            Ok(json!(false))
        });
        assert_eq!(report.outcome, RuleOutcome::Pass, "{argument}");
        assert_eq!(asked.len(), 1, "{argument}");
    }
}

#[test]
fn a_key_that_a_part_lacks_is_null_as_the_parameter_of_another_part() {
    let entry = |name: &str| json!({"name": name, "cachedContextEntry": {"name": name, "jmesPath": "items[]"}});
    let condition = json!({
        "key": "{{ contains(v[].host, w[0].name) }}", "operator": "Equals", "value": true,
    });
    let rule = json!({
        "context": [entry("v"), entry("w")],
        "validate": {"deny": {"conditions": {"all": [condition]}}},
    });
    let request = create(&json!({"kind": "Ingress"}));
    let (report, asked) = steps(&rule.to_string(), &request, |need| {
        if need.variable == "w" {
            let message = "Unknown key \"name\" in path".to_owned();
            return Err(FactError::EvaluationFailed { message });
        }
        assert!(need.is_pushed_down, "{}", need.expression);
        let values: Vec<_> = need.parameters.values().collect();
        assert_eq!(values, [&Value::Null], "{}", need.expression);
        Ok(json!(false))
    });
    assert_eq!((report.outcome, asked.len()), (RuleOutcome::Pass, 2));
}

/// The default of a source that has nothing is looked into here.
#[test]
fn a_default_replaces_a_fact_that_is_asked_for_in_part() {
    let rule = deny(
        &json!([{"name": "hosts", "apiCall": {
            "urlPath": "/api/v1/things", "jmesPath": "items[].host", "default": ["n"],
        }}]),
        &[condition("{{ request.name }}", "AnyIn", "{{ hosts }}")],
    );
    let request = create(&json!({"kind": "Ingress"}));
    let (report, asked) = steps(&rule, &request, |_| {
        Err(FactError::LiveReadFailed {
            code: 404,
            message: "the server could not find the requested resource".to_owned(),
        })
    });
    assert_eq!(report.outcome, fail("no: [\"n\"]"));
    assert_eq!(asked, [["any_in($key, items[].host)"]]);
}

/// A key that an element lacks is told as it is where the list is at hand, without fetching the list.
#[test]
fn a_missing_key_is_reported_without_fetching_the_list() {
    let rule = |default: &str| {
        format!(
            r#"
context:
- name: rules
  cachedContextEntry: {{name: e, jmesPath: "items[]"}}
- name: first
  variable: {{jmesPath: "rules[0].host"{default}}}
validate: {{deny: {{conditions: {{all: [{{key: "{{{{ first }}}}", operator: Equals, value: x}}]}}}}}}
"#
        )
    };
    let request = create(&json!({"kind": "Ingress"}));
    let missing = |need: &FactRequest| {
        assert_eq!(need.expression, "(items[])[0].host");
        let message = "Unknown key \"host\" in path".to_owned();
        Err(FactError::EvaluationFailed { message })
    };
    let (report, _) = steps(&rule(", default: x"), &request, missing);
    assert!(matches!(report.outcome, RuleOutcome::Fail { .. }));
    let (report, _) = steps(&rule(""), &request, missing);
    let RuleOutcome::Error(error) = report.outcome else {
        panic!()
    };
    assert!(
        error
            .to_string()
            .contains("variable `rules[0].host`: Unknown key"),
        "{error}"
    );
}
