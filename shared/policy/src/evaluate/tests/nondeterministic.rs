//! The time and chance that are handed to a rule.

use anteroom_functions::query_functions;

use super::*;
use crate::Arrival;

/// The present time in these tests: `2023-12-16T01:46:11Z`.
const NOW_NS: i128 = 1_702_691_171_000_000_000;

fn at(seed: u64) -> AdmissionRequest {
    create(&ingress("a", &["x"])).arrived(Arrival {
        now_ns: NOW_NS,
        seed,
    })
}

/// Drives the rule, parts answered too, and gives what it asked for.
fn asked(rule: &str, request: &AdmissionRequest, data: &Value) -> (RuleOutcome, Vec<FactRequest>) {
    let policy = policy(rule);
    let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], request);
    let mut asked = Vec::new();
    loop {
        match evaluation.step() {
            RuleStep::Done(report) => return (report.outcome, asked),
            RuleStep::Need(facts) => {
                for fact in facts {
                    evaluation.supply(fact.id, answer(&fact, data));
                    asked.push(fact);
                }
                assert!(asked.len() < 20, "it goes on: {asked:?}");
            }
        }
    }
}

/// Answers as a replica does, which nobody tells the time.
fn answer(fact: &FactRequest, data: &Value) -> Result<Value, FactError> {
    let text = match &*fact.expression {
        "" => "@",
        text => text,
    };
    let expression = anteroom_jmespath::Expression::parse(text).unwrap();
    let environment = anteroom_jmespath::Environment::standard()
        .with_functions(query_functions())
        .with_parameters(&fact.parameters);
    let found = expression.evaluate_json(data, &environment);
    found.map_err(|error| FactError::EvaluationFailed {
        message: error.to_string(),
    })
}

#[test]
fn a_report_says_whether_the_moment_was_asked_for() {
    for (value, depends) in [
        ("a", false),
        ("{{ random('[a-z]') }}", true),
        ("{{ time_now() }}", true),
    ] {
        let rule = format!(
            "validate: {{deny: {{conditions: {{all: [{{key: \"{value}\", \
             operator: Equals, value: \"no\"}}]}}}}}}"
        );
        let policy = policy(&rule);
        let request = at(1);
        let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
        let RuleStep::Done(report) = evaluation.step() else {
            panic!("it asks for a fact");
        };
        assert_eq!(report.outcome, RuleOutcome::Pass);
        assert_eq!(report.depends_on_arrival, depends, "{value}");
    }
}

const ENTRY: &str = "{name: jobs, cachedContextEntry: {name: jobs, jmespath: \"items[]\"}}";

fn jobs() -> Value {
    json!({"items": [
        {"name": "old", "at": "2023-12-15T00:00:00Z"},
        {"name": "new", "at": "2023-12-17T00:00:00Z"},
    ]})
}

#[test]
fn a_rule_reads_the_time_of_its_request() {
    let rule = "validate: {message: \"{{ time_now_utc() }}, {{ time_since('', '2023-12-16T01:46:10Z', '') }}\", deny: {}}";
    let (outcome, _) = asked(rule, &at(0), &Value::Null);
    assert_eq!(outcome, fail("2023-12-16T01:46:11Z, 1s"));
    let rule = "validate: {deny: {conditions: {any: [{key: \"{{ time_now() }}\", operator: Equals, value: x}]}}}";
    let (outcome, _) = asked(rule, &create(&json!({"a": 1})), &Value::Null);
    let RuleOutcome::Error(error) = outcome else {
        panic!("{outcome:?}");
    };
    let message = error.to_string();
    assert!(message.contains("the time is not available"), "{message}");
}

/// An entry's own expression that speaks of the time is evaluated in the rule, over the data whole.
#[test]
fn an_entry_whose_query_reads_the_time_is_asked_for_whole() {
    let rule = "
context: [{name: jobs, cachedContextEntry: {name: jobs, jmespath: \"items[?time_before(at, time_now_utc())].name\"}}]
validate: {message: \"{{ jobs }}\", deny: {}}";
    let (outcome, asked) = asked(rule, &at(0), &jobs());
    assert_eq!(outcome, fail("[\"old\"]"));
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (&*asked[0].expression, asked[0].is_pushed_down),
        ("", false)
    );
    let missing = json!({"items": [{"name": "old"}]});
    let rule = rule.replace(
        "deny: {}",
        "deny: {conditions: {any: [{key: \"{{ jobs }}\", operator: Equals, value: x}]}}",
    );
    let (outcome, _) = self::asked(&rule, &at(0), &missing);
    let RuleOutcome::Error(error @ RuleError::Fact { .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(error.to_string().contains("time_before"), "{error}");
}

/// An expression that reads the time is never pushed down; its value may be a parameter.
#[test]
fn a_use_that_reads_the_time_is_evaluated_in_the_rule() {
    for (use_, is_pushed_down, found) in [
        ("jobs[?time_after(at, time_now())].name | [0]", false, "new"),
        ("length(jobs[?at == '{{ time_now() }}'])", true, "0"),
        ("jobs[?name == random('old')].name | [0]", false, "old"),
    ] {
        let rule = format!(
            "context: [{ENTRY}]\nvalidate: {{deny: {{conditions: {{any: [{{key: \"{{{{ {use_} }}}}\", operator: Equals, value: {found}}}]}}}}}}"
        );
        let (outcome, asked) = asked(&rule, &at(0), &jobs());
        assert!(
            matches!(outcome, RuleOutcome::Fail { .. }),
            "{use_}: {outcome:?}"
        );
        for fact in &asked {
            assert!(!fact.expression.contains("time_") && !fact.expression.contains("random"));
        }
        let has_now = |fact: &FactRequest| {
            let mut values = fact.parameters.values();
            values.any(|value| value == "2023-12-16T01:46:11Z")
        };
        assert_eq!(
            asked.iter().any(has_now),
            is_pushed_down,
            "{use_}: {asked:?}"
        );
    }
}

/// A random value is the same in every step, is asked for once, and differs from use to use.
#[test]
fn each_use_of_random_has_one_value_in_all_steps() {
    let rule = "
context:
- {name: one, variable: {jmesPath: \"random('[a-z]{12}')\"}}
- {name: two, variable: {jmesPath: \"random('[a-z]{12}')\"}}
- {name: first, apiCall: {urlPath: \"/api/v1/namespaces/{{ one }}\"}}
- {name: second, apiCall: {urlPath: \"/api/v1/namespaces/{{ two }}-{{ random('[a-z]{12}') }}\"}}
validate: {message: \"{{ first }} {{ second }} {{ one }} {{ two }} {{ random('[a-z]{12}') }}\", deny: {}}";
    let (outcome, asked) = asked(rule, &at(1), &json!("x"));
    let RuleOutcome::Fail { message } = &outcome else {
        panic!("{outcome:?}");
    };
    let words: Vec<_> = message.split(' ').skip(2).collect();
    let distinct: std::collections::BTreeSet<_> = words.iter().collect();
    assert_eq!((words.len(), distinct.len()), (3, 3), "{message}");
    let paths: Vec<_> = asked.iter().map(|fact| fact.subject.to_string()).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(paths[0].ends_with(words[0]), "{paths:?} {message}");
    assert!(paths[1].contains(words[1]), "{paths:?} {message}");
    assert_eq!(self::asked(rule, &at(1), &json!("x")).0, outcome);
    assert_ne!(self::asked(rule, &at(2), &json!("x")).0, outcome);
}

/// The rule's budget counts, as for its other expressions: the view is not at fault.
#[test]
fn an_entry_whose_query_is_evaluated_in_the_rule_may_be_over_the_budget() {
    let times = |count: usize| format!("[{}]", vec!["@"; count].join(","));
    let query = format!("@ | {} | {} | [time_now(), @]", times(1_000), times(900));
    let rule = json!({
        "context": [{"name": "jobs", "cachedContextEntry": {"name": "jobs", "jmesPath": query}}],
        "validate": {"deny": {"conditions": {"all": [
            {"key": "{{ jobs }}", "operator": "Equals", "value": 1},
        ]}}},
    });
    let (outcome, asked) = asked(&rule.to_string(), &at(0), &json!({"a": 1}));
    assert_eq!(asked.len(), 1);
    let RuleOutcome::Error(error) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(error.code(), ErrorCode::BUDGET_EXCEEDED, "{error}");
    assert!(matches!(error, RuleError::Variable { .. }), "{error}");
}

/// A rule that waits may drop its values, which are made again.
#[test]
fn dropped_values_are_drawn_again_as_they_were() {
    let rule = "
context:
- {name: one, variable: {jmesPath: \"random('[a-z]{12}')\"}}
- {name: first, apiCall: {urlPath: \"/api/v1/namespaces/{{ one }}\"}}
validate: {message: \"{{ first }} {{ one }}\", deny: {}}";
    let (policy, request) = (policy(rule), at(1));
    let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
    let RuleStep::Need(facts) = evaluation.step() else {
        panic!("it asks for a fact");
    };
    evaluation.drop_values();
    for fact in &facts {
        evaluation.supply(fact.id, answer(fact, &json!("x")));
    }
    let RuleStep::Done(report) = evaluation.step() else {
        panic!("it asks for another fact");
    };
    let path = facts[0].subject.to_string();
    let one = path.rsplit('/').next().unwrap();
    assert_eq!(report.outcome, fail(&format!("x {one}")));
}

/// A variable of the rule has one value for all elements.
#[test]
fn each_foreach_element_draws_its_own_random_value() {
    let rule = "
context: [{name: one, variable: {jmesPath: \"random('[0-9a-f]{16}')\"}}]
mutate:
  foreach:
  - list: request.object.spec.rules
    patchesJson6902: |-
      - {op: add, path: \"/spec/rules/{{ elementIndex }}/id\", value: \"{{ random('[0-9a-f]{16}') }}\"}
      - {op: add, path: \"/spec/rules/{{ elementIndex }}/one\", value: \"{{ one }}\"}";
    let manifest: Value = serde_saphyr::from_str(&format!(
        "{{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {{name: p}}, spec: {{rules: [{{name: r, match: {{any: [{{resources: {{kinds: ['*']}}}}]}}{}}}]}}}}",
        ""
    ))
    .unwrap();
    let mut manifest = manifest;
    let rule: Value = serde_saphyr::from_str(rule).unwrap();
    for field in ["context", "mutate"] {
        manifest["spec"]["rules"][0][field] = rule[field].clone();
    }
    let policy = crate::compile_for(&manifest, crate::Driver::ALL).unwrap();
    let request = create(&ingress("a", &["x", "y"])).arrived(Arrival {
        now_ns: NOW_NS,
        seed: 5,
    });
    let report = drive_over(&policy, &request, nothing).0;
    let RuleOutcome::Mutated { object } = report.outcome else {
        panic!("{report:?}");
    };
    let ids: Vec<_> = (0..2)
        .map(|at| object["spec"]["rules"][at]["id"].clone())
        .collect();
    assert!(ids[0] != ids[1] && ids[0].as_str().is_some_and(|id| id.len() == 16));
    let of_rule = |at: usize| object["spec"]["rules"][at]["one"].as_str();
    assert_eq!(of_rule(0), of_rule(1));
    assert!(of_rule(0).is_some_and(|one| one.len() == 16));
}
