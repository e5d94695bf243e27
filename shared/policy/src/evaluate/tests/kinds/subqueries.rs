//! Parts of expressions that are evaluated where their lists are kept: they come to what the whole lists come to.

use anteroom_cel::{Budget, Dialect, EvalError, Input, JsonError, Machine, Names, Program, Roots};

use super::*;
use crate::{CelRequest, FactRequest};

/// Evaluates a part as a replica does.
fn replica(
    request: &CelRequest,
    fact: &FactRequest,
    list: impl Fn(&FactSubject) -> Value,
) -> Value {
    let documents: Vec<_> = std::iter::once(("view", &fact.subject))
        .chain(
            request
                .documents
                .iter()
                .map(|(name, subject)| (name.as_str(), subject)),
        )
        .map(|(name, subject)| (name, list(subject)))
        .collect();
    let mut names = Names::default()
        .in_dialect(Dialect::Kyverno)
        .without_request();
    let mut given = Vec::new();
    for (name, document) in &documents {
        names.add_input(name);
        given.push(Input::json(document));
    }
    for (name, value) in fact.parameters.iter() {
        names.add_input(name);
        given.push(Input::json(value));
    }
    for (name, message) in &request.failed {
        names.add_input(name);
        given.push(Input::failed(EvalError::Input {
            name: name.clone(),
            message: message.clone(),
        }));
    }
    let mut variables = Vec::new();
    for (name, text) in &request.variables {
        let program = Program::compile(text, &names).unwrap();
        names.define(name, &program);
        variables.push(program);
    }
    let program = Program::compile(&request.expression, &names).unwrap();
    let mut machine =
        Machine::new(Roots::default(), &variables, Budget::default()).with_inputs(&given);
    match machine.exact_json(&program) {
        Ok(value) => json!({ "value": value }),
        Err(JsonError::NoJson(kind)) => json!({"noJson": {"kind": kind}}),
        Err(JsonError::Failed(EvalError::Input { name, .. })) => {
            json!({"parameter": {"name": name}})
        }
        Err(JsonError::Failed(error)) => json!({"failed": {"message": error.to_string()}}),
    }
}

fn policy_on_ingresses(variables: &str, expression: &str) -> Policy {
    let spec = format!(
        "matchConstraints:\n  resourceRules:\n  - {{apiGroups: [networking.k8s.io], apiVersions: [v1], \
         operations: [CREATE], resources: [ingresses]}}\nvariables:\n- {{name: all, expression: \
         \"resource.list('networking.k8s.io/v1', 'ingresses', '').items\"}}\n{variables}\nvalidations:\n- expression: >-\n    \
         {expression}\n"
    );
    policy_of("ValidatingPolicy", &spec)
}

fn ingress_request(spec: &Value) -> AdmissionRequest {
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "new", "namespace": "shop"}, "spec": spec});
    of_resource(
        "CREATE",
        ("networking.k8s.io", "v1", "Ingress", "ingresses"),
        &object,
    )
}

/// The outcome, and how many parts and lists were asked for.
fn drive_subqueries(
    policy: &Policy,
    request: &AdmissionRequest,
    items: &[Value],
    is_whole: bool,
) -> (String, (usize, usize)) {
    let list = |subject: &FactSubject| {
        let FactSubject::Api(ResolvedApiCall { path, .. }) = subject else {
            panic!("{subject}");
        };
        let is_in = |item: &&Value| match path.split_once("/namespaces/") {
            Some((_, rest)) => {
                item["metadata"]["namespace"] == rest.split('/').next().unwrap_or_default()
            }
            None => true,
        };
        let items: Vec<_> = items.iter().filter(is_in).cloned().collect();
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressList", "items": items})
    };
    let mut evaluation = Evaluation::start(policy, &policy.rules()[0], request);
    if is_whole {
        evaluation = evaluation.with_whole_facts();
    }
    let (mut parts, mut lists) = (0, 0);
    for _ in 0..16 {
        match evaluation.step() {
            RuleStep::Done(report) => {
                let outcome = match report.outcome {
                    RuleOutcome::Error(error) => error.to_string(),
                    outcome => format!("{outcome:?}"),
                };
                return (outcome, (parts, lists));
            }
            RuleStep::Need(requests) => {
                for asked in requests {
                    let answer = match &asked.cel {
                        Some(cel) => {
                            parts += 1;
                            replica(cel, &asked, list)
                        }
                        None => {
                            lists += 1;
                            list(&asked.subject)
                        }
                    };
                    evaluation.supply(asked.id, Ok(answer));
                }
            }
        }
    }
    panic!("no end");
}

const UNIQUE_HOST: &str =
    "object.spec.rules.all(r, !variables.all.exists(i, i.spec.rules.exists(o, o.host == r.host)))";

/// Expressions, and how many parts and lists they ask for where nothing decides before.
const EXPRESSIONS: &[(&str, &str, (usize, usize))] = &[
    ("", UNIQUE_HOST, (1, 0)),
    (
        "",
        "!variables.all.exists(i, i.spec.rules.exists(o, o.host in object.spec.rules.map(r, r.host)))",
        (1, 0),
    ),
    (
        "",
        "variables.all.filter(i, i.metadata.name == object.metadata.name).size() == 0",
        (1, 0),
    ),
    (
        "",
        "size(variables.all) < 3 || variables.all[0].metadata.name == object.spec.rules[0].host",
        (1, 0),
    ),
    (
        "- {name: own, expression: \"resource.list('networking.k8s.io/v1', 'ingresses', object.metadata.namespace).items\"}",
        "size(variables.own) == size(variables.all)",
        (1, 0),
    ),
    (
        "- {name: hosts, expression: \"variables.all.map(i, i.spec.rules.map(r, r.host)).flatten()\"}",
        "!object.spec.rules.exists(r, r.host in variables.hosts)",
        (1, 0),
    ),
    (
        "",
        "object.nothing.a == variables.all.size() || true",
        (0, 0),
    ),
    (
        "",
        "variables.all.exists(i, i.metadata.name == object.nothing)",
        (1, 0),
    ),
    // A list of the list is no JSON that would come back as it is: the list itself is.
    (
        "",
        "variables.all.map(i, i.metadata.name) == ['a', 'b']",
        (1, 0),
    ),
    // What depends on an element and on the request's time or user cannot travel as a parameter.
    (
        "",
        "variables.all.all(i, i.metadata.name != request.name)",
        (1, 0),
    ),
];

fn items(all: &[(&str, &str, Value)]) -> Vec<Value> {
    let item = |(name, namespace, rules): &(&str, &str, Value)| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"rules": rules}})
    };
    all.iter().map(item).collect()
}

#[test]
fn a_part_asks_one_question_in_place_of_the_list() {
    let all = items(&[
        ("a", "shop", json!([{"host": "a.example"}])),
        ("b", "other", json!([{"host": "b.example"}, {"nothing": 1}])),
    ]);
    let request = ingress_request(&json!({"rules": [{"host": "c.example"}]}));
    for (variables, expression, expected) in EXPRESSIONS {
        let policy = policy_on_ingresses(variables, expression);
        let (outcome, asked) = drive_subqueries(&policy, &request, &all, false);
        let (whole, _) = drive_subqueries(&policy, &request, &all, true);
        assert_eq!(outcome, whole, "{expression}");
        assert_eq!(asked, *expected, "{expression}: {outcome}");
    }
}

/// An error that the list would have too is told at once.
#[test]
fn a_part_that_fails_by_itself_is_answered_by_the_list() {
    let policy = policy_on_ingresses("", UNIQUE_HOST);
    let request = ingress_request(&json!({"rules": [{"host": "c.example"}]}));
    let of_part = FactError::BudgetExceeded {
        message: "no".to_owned(),
    };
    for (error, expected) in [(of_part, 1), (unsynced(), 0)] {
        let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
        let mut lists = 0;
        let outcome = loop {
            let needs = match evaluation.step() {
                RuleStep::Done(report) => break report.outcome,
                RuleStep::Need(needs) => needs,
            };
            assert!(!needs.is_empty(), "it waits for nothing");
            for need in needs {
                let answer = match need.cel {
                    Some(_) => Err(error.clone()),
                    None => {
                        lists += 1;
                        Ok(json!({"kind": "IngressList", "items": []}))
                    }
                };
                evaluation.supply(need.id, answer);
            }
        };
        assert_eq!(lists, expected, "{error}: {outcome:?}");
        match outcome {
            RuleOutcome::Error(RuleError::Fact { source, .. }) => assert_eq!(source, unsynced()),
            outcome => assert_eq!((outcome, lists), (RuleOutcome::Pass, 1)),
        }
    }
}

#[test]
fn a_part_with_large_values_of_the_request_is_not_asked_for() {
    let expression = "variables.all.exists(i, i.metadata.name == object.spec.text)";
    let policy = policy_on_ingresses("", expression);
    let all = items(&[("a", "shop", json!([]))]);
    for (bytes, expected) in [(1, (1, 0)), (7 * 1024 * 1024, (0, 1))] {
        let request = ingress_request(&json!({"text": "x".repeat(bytes)}));
        let (outcome, asked) = drive_subqueries(&policy, &request, &all, false);
        assert_eq!(asked, expected, "{outcome}");
        assert!(outcome.starts_with("Fail"), "{outcome}");
    }
}

fn any_host() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => Just(json!({"host": "a"})),
        3 => Just(json!({"host": "b"})),
        1 => Just(json!({"host": null})),
        1 => Just(json!({"host": 1})),
        1 => Just(json!({})),
        1 => Just(json!("x")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    /// For every list and object, irregular ones included, outcome and error are the same.
    #[test]
    fn subqueries_come_to_what_whole_lists_come_to(
        lists in proptest::collection::vec(proptest::collection::vec(any_host(), 0..3), 0..4),
        own in proptest::collection::vec(any_host(), 0..3),
    ) {
        let all: Vec<_> = lists.iter().enumerate().map(|(at, rules)| {
            let namespace = if at % 2 == 0 { "shop" } else { "other" };
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {"name": format!("i{at}"), "namespace": namespace}, "spec": {"rules": rules}})
        }).collect();
        let request = ingress_request(&json!({"rules": own}));
        for (variables, expression, _) in EXPRESSIONS {
            let policy = policy_on_ingresses(variables, expression);
            let (outcome, _) = drive_subqueries(&policy, &request, &all, false);
            let (whole, _) = drive_subqueries(&policy, &request, &all, true);
            prop_assert_eq!(outcome, whole, "{}", expression);
        }
    }
}
