//! The facts that expressions read: when they are asked for, and how many and how large they may be.

use super::*;

fn judging(validation: &str) -> Policy {
    let spec = format!(
        "matchConstraints:\n  resourceRules:\n  - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
         resources: [pods]}}\nvalidations:\n- {validation}\n"
    );
    policy_of("ValidatingPolicy", &spec)
}

fn with_spec(spec: Value) -> Value {
    let mut object = pod(&json!({}));
    object["spec"] = spec;
    object
}

/// Takes the policy's first rule to its end. Returns the outcome, and what each step asks for.
fn driven(
    policy: &Policy,
    object: &Value,
    answer: impl Fn(&str) -> Value,
) -> (RuleOutcome, Vec<Vec<String>>) {
    let request = of_resource("CREATE", POD, object);
    let evaluation = Evaluation::start(policy, &policy.rules()[0], &request);
    let mut evaluation = evaluation.with_whole_facts();
    let mut steps: Vec<Vec<String>> = Vec::new();
    for _ in 0..16 {
        let needs = match evaluation.step() {
            RuleStep::Done(report) => return (report.outcome, steps),
            RuleStep::Need(needs) => needs,
        };
        let mut asked = Vec::new();
        for need in needs {
            let place = match &need.subject {
                FactSubject::Api(call) => call.path.replace("%3D", "="),
                other => other.to_string(),
            };
            evaluation.supply(need.id, Ok(answer(&place)));
            asked.push(place);
        }
        steps.push(asked);
    }
    panic!("no end: {steps:?}");
}

/// The second ConfigMap is asked for beside the first, which is read often. A call that others see waits for them.
#[test]
fn a_step_asks_for_all_that_is_read_and_calls_others_only_where_it_is_certain() {
    let policy = judging(
        "expression: \"object.spec.names.all(n, resource.get('v1', 'configmaps', 'shop', 'a') != null) \
         && resource.get('v1', 'configmaps', 'shop', 'b') != null && http.Post('http://a.b/', {'a': 'b'}).ok\"",
    );
    let object = with_spec(json!({"names": vec!["n"; 2 * FACTS_PER_RULE_MAX]}));
    let (outcome, steps) = driven(&policy, &object, |_| json!({"ok": true}));
    assert_eq!(outcome, RuleOutcome::Pass);
    let maps = "/api/v1/namespaces/shop/configmaps";
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert_eq!(steps[0], ["a", "b"].map(|name| format!("{maps}/{name}")));
    assert_eq!(steps[1].len(), 1, "{steps:?}");
}

/// The facts within the limit can decide.
#[test]
fn more_facts_than_a_rule_may_read_are_an_error_where_the_first_do_not_decide() {
    let policy = judging(
        "expression: \"object.spec.names.all(n, resource.get('v1', 'configmaps', 'shop', n) == null)\"",
    );
    let names: Vec<_> = (0..FACTS_PER_RULE_MAX + 6)
        .map(|at| format!("c{at}"))
        .collect();
    let object = with_spec(json!({ "names": names }));
    for is_known in [true, false] {
        let (outcome, steps) = driven(&policy, &object, |path| {
            match is_known && path.ends_with("/c0") {
                true => json!({}),
                false => Value::Null,
            }
        });
        assert_eq!((steps.len(), steps[0].len()), (1, FACTS_PER_RULE_MAX));
        match outcome {
            RuleOutcome::Fail { .. } => assert!(is_known),
            other => assert_eq!(
                (other, is_known),
                (RuleOutcome::Error(RuleError::TooManyFacts), false)
            ),
        }
    }
}

/// They are held while the rule waits, and cannot be made again.
#[test]
fn the_bodies_that_expressions_send_have_a_limit_of_memory() {
    let (small, large) = ("x".to_owned(), "x".repeat(7 * 1024 * 1024));
    for call in [
        "http.Post('http://a.b/', object.spec.text)",
        "resource.Post('authorization.k8s.io/v1', 'subjectaccessreviews', {'spec': {'user': object.spec.text}})",
    ] {
        let policy = judging(&format!("expression: \"{call}.ok\""));
        for (text, expected) in [
            (&small, RuleOutcome::Pass),
            (&large, RuleOutcome::Error(RuleError::LargeQuestions)),
        ] {
            let object = with_spec(json!({ "text": text }));
            let (outcome, _) = driven(&policy, &object, |_| json!({"ok": true}));
            assert_eq!(outcome, expected, "{call}");
        }
    }
}

#[test]
fn arguments_name_the_object_or_the_list_that_is_read() {
    let spec =
        json!({"none": "", "team": "team", "number": 5, "labels": {"a": "b"}, "odd": {"a": 5}});
    let object = with_spec(spec);
    for (call, expected) in [
        ("list('v1', 'pods', object.spec.none)", Ok("/api/v1/pods")),
        (
            "list('v1', 'pods', object.spec.team)",
            Ok("/api/v1/namespaces/team/pods"),
        ),
        (
            "list('v1', 'pods', 'shop', object.spec.labels)",
            Ok("/api/v1/namespaces/shop/pods?labelSelector=a=b"),
        ),
        (
            "list('v1', 'pods', object.spec.number)",
            Err("resource.list() takes texts for names"),
        ),
        (
            "get('v1', 'configmaps', 'shop', object.spec.number)",
            Err("resource.get() takes texts for names"),
        ),
        (
            "list('v1', 'pods', 'shop', object.spec.number)",
            Err("the labels of a list are a map of texts"),
        ),
        (
            "list('v1', 'pods', 'shop', object.spec.odd)",
            Err("the labels of a list are a map of texts"),
        ),
    ] {
        let policy = judging(&format!("expression: \"size(resource.{call}.items) == 0\""));
        let (outcome, steps) = driven(&policy, &object, |_| json!({"items": []}));
        match (outcome, expected) {
            (RuleOutcome::Pass, Ok(path)) => assert_eq!(steps, [[path]], "{call}"),
            (RuleOutcome::Error(error), Err(words)) => {
                assert!(error.to_string().contains(words), "{call}: {error}");
                assert!(steps.is_empty(), "{call}: {steps:?}");
            }
            (outcome, _) => panic!("{call}: {outcome:?} {steps:?}"),
        }
    }
}

#[test]
fn a_message_waits_for_the_facts_that_it_tells() {
    let policy = judging(
        "{expression: 'false', message: other, \
         messageExpression: \"resource.get('v1', 'configmaps', 'shop', 'texts').data.m\"}",
    );
    let (outcome, _) = driven(
        &policy,
        &pod(&json!({})),
        |_| json!({"data": {"m": "told"}}),
    );
    assert_eq!(outcome, fail("told"));
}
