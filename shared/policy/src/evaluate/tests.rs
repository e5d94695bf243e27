mod actions;
mod applies;
mod cel;
mod context;
mod exceptions;
mod facts;
mod foreach;
mod kinds;
mod mutate;
mod mutate_existing;
mod nondeterministic;
mod patterns;
mod subqueries;
mod surroundings;
mod unknown;

use anteroom_functions::testing::any_json;
use anteroom_model::{ErrorCode, FactError, Failure};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{AdmissionRequest, FactSubject, Policy, PolicyException, RequestParts, Rule, compile};

/// A ClusterPolicy of one rule about everything, with these fields.
fn policy(rule: &str) -> Policy {
    let rule: Value = serde_saphyr::from_str(rule).unwrap();
    let mut fields = json!({"name": "rule", "match": {"any": [{"resources": {"kinds": ["*"]}}]}});
    for (name, value) in rule.as_object().unwrap() {
        fields[name] = value.clone();
    }
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"validationFailureAction": "Enforce", "rules": [fields]},
    });
    compile(&manifest).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn ingress(name: &str, hosts: &[&str]) -> Value {
    let rules: Vec<_> = hosts.iter().map(|host| json!({"host": host})).collect();
    json!({"kind": "Ingress", "metadata": {"name": name, "namespace": "ns"}, "spec": {"rules": rules}})
}

fn request(operation: &str, object: &Value, old: &Value) -> AdmissionRequest {
    AdmissionRequest::new(json!({
        "uid": "u", "operation": operation, "namespace": "ns", "name": "n",
        "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"},
        "userInfo": {"username": "system:serviceaccount:ns:robot"},
        "object": object, "oldObject": old,
    }))
    .unwrap()
}

fn create(object: &Value) -> AdmissionRequest {
    request("CREATE", object, &Value::Null)
}

/// Drives a rule to its end, and says which facts it asked for, step by step. Parts are not to be had.
/// Over what the policy is said to read of the request, it goes the same way.
fn drive(
    policy: &Policy,
    request: &AdmissionRequest,
    mut answer: impl FnMut(&FactRequest) -> Result<Value, FactError>,
) -> (RuleReport, Vec<Vec<String>>) {
    let mut said = Vec::new();
    let whole = drive_over(policy, request, |fact| {
        let answer = answer(fact);
        said.push((fact.clone(), answer.clone()));
        answer
    });
    let parts = RequestParts::of(policy, policy.rules()[0].phase());
    let cut = crate::pushdown::request_parts::tests::cut(&parts, request);
    let repeat = |fact: &FactRequest| {
        let known = said.iter().find(|(asked, _)| asked == fact);
        known.map(|(_, answer)| answer.clone()).unwrap()
    };
    assert_eq!(drive_over(policy, &cut, repeat), whole);
    whole
}

fn drive_over(
    policy: &Policy,
    request: &AdmissionRequest,
    mut answer: impl FnMut(&FactRequest) -> Result<Value, FactError>,
) -> (RuleReport, Vec<Vec<String>>) {
    let mut evaluation = Evaluation::start(policy, &policy.rules()[0], request);
    let mut asked = Vec::new();
    loop {
        match evaluation.step() {
            RuleStep::Done(report) => return (report, asked),
            RuleStep::Need(facts) => {
                assert!(
                    !facts.is_empty() && asked.len() < 100,
                    "it goes on: {asked:?}"
                );
                let (parts, facts): (Vec<_>, Vec<_>) =
                    facts.into_iter().partition(|fact| fact.is_pushed_down);
                parts.iter().for_each(|part| evaluation.decline(part.id));
                if !facts.is_empty() {
                    asked.push(facts.iter().map(|fact| fact.subject.to_string()).collect());
                }
                for fact in facts {
                    evaluation.supply(fact.id, answer(&fact));
                }
            }
        }
    }
}

/// A condition that takes more steps than an evaluation may.
fn costly_condition() -> String {
    let list = format!("{:?}", (0..130).collect::<Vec<_>>());
    format!("{list}.all(a, {list}.all(b, {list}.all(c, a + b + c >= 0)))")
}

fn nothing(fact: &FactRequest) -> Result<Value, FactError> {
    panic!("nothing should be asked: {fact:?}")
}

fn outcome(rule: &str, request: &AdmissionRequest) -> RuleOutcome {
    drive(&policy(rule), request, nothing).0.outcome
}

fn unsynced() -> FactError {
    FactError::NotSynced {
        view: "v".to_owned(),
        state: "listing".to_owned(),
    }
}

fn fail(message: &str) -> RuleOutcome {
    RuleOutcome::Fail {
        message: message.to_owned(),
    }
}

const UNIQUE_HOST: &str = r#"
context:
- name: hosts
  cachedContextEntry: {name: ingresses, jmespath: "items[].spec.rules[].host"}
preconditions:
  all: [{key: "{{ request.operation }}", operator: AnyIn, value: [CREATE, UPDATE]}]
validate:
  message: "The host {{ request.object.spec.rules[0].host }} is taken."
  deny:
    conditions:
      any: [{key: "{{ request.object.spec.rules[].host }}", operator: AnyIn, value: "{{ hosts }}"}]
"#;

#[test]
fn a_host_that_is_taken_is_denied() {
    let policy = policy(UNIQUE_HOST);
    let taken = |_: &FactRequest| Ok(json!(["a.example", "b.example"]));
    let (report, asked) = drive(&policy, &create(&ingress("x", &["b.example"])), taken);
    assert_eq!(report.outcome, fail("The host b.example is taken."));
    assert_eq!(asked, [["ingresses"]]);
    assert_eq!(
        report.facts,
        [FactRead {
            id: 1,
            variable: "hosts".to_owned(),
            entry: "ingresses".to_owned(),
            error: None
        }]
    );
    let (report, _) = drive(&policy, &create(&ingress("x", &["c.example"])), taken);
    assert_eq!(report.outcome, RuleOutcome::Pass);
}

#[test]
fn a_rule_stopped_by_a_precondition_asks_for_no_facts() {
    let deletion = request("DELETE", &Value::Null, &ingress("x", &["a.example"]));
    let RuleOutcome::Skipped { reason } = outcome(UNIQUE_HOST, &deletion) else {
        panic!()
    };
    assert_eq!(reason, "preconditions not met");
}

#[test]
fn a_fact_that_cannot_be_read_is_an_error_and_never_empty() {
    let rule = UNIQUE_HOST.replace("{{ hosts }}", "{{ hosts || `[]` }}");
    for rule in [UNIQUE_HOST, &rule] {
        let (report, _) = drive(
            &policy(rule),
            &create(&ingress("x", &["a.example"])),
            |_| Err(unsynced()),
        );
        let RuleOutcome::Error(error) = report.outcome else {
            panic!("{:?}", report.outcome)
        };
        assert_eq!(error.code(), ErrorCode::VIEW_NOT_SYNCED);
        assert!(
            error
                .to_string()
                .starts_with("context entry `hosts`: view `v` is not synced"),
            "{error}"
        );
        assert_eq!(report.facts[0].error, Some(unsynced()));
    }
    let invalid = FactError::EntryInvalid {
        entry: "ingresses".to_owned(),
        failure: Failure::new("Forbidden", "no"),
    };
    let (report, _) = drive(&policy(UNIQUE_HOST), &create(&ingress("x", &["a"])), |_| {
        Err(invalid.clone())
    });
    assert!(
        matches!(report.outcome, RuleOutcome::Error(RuleError::Fact { source, .. }) if source == invalid)
    );
}

#[test]
fn conditions_load_no_more_facts_once_the_answer_is_known() {
    let rule = |kind: &str, first: &str| {
        format!(
            r#"
context:
- name: fact
  cachedContextEntry: {{name: e}}
validate:
  deny:
    conditions:
      {kind}:
      - {{key: a, operator: Equals, value: {first}}}
      - {{key: "{{{{ fact }}}}", operator: Equals, value: 1}}
"#
        )
    };
    let request = create(&ingress("x", &[]));
    assert_eq!(
        outcome(&rule("any", "a"), &request),
        fail("validation error: rule rule failed")
    );
    assert_eq!(outcome(&rule("all", "b"), &request), RuleOutcome::Pass);
    let needed = drive(&policy(&rule("any", "b")), &request, |_| Ok(json!(1)));
    assert_eq!(
        (needed.0.outcome, needed.1.len()),
        (fail("validation error: rule rule failed"), 1)
    );
}

#[test]
fn a_message_never_hides_a_denial() {
    let rule = |message: &str, condition: &str| {
        format!(
            r#"
context: [{{name: f, cachedContextEntry: {{name: e}}}}]
validate:
  message: "{message}"
  deny: {{conditions: {{any: [{{key: 1, operator: Equals, value: 1, message: "{condition}"}}]}}}}
"#
        )
    };
    for (message, condition, expected) in [
        ("own", "", "own"),
        (
            "own",
            "detail {{ request.operation }}",
            "own; detail CREATE",
        ),
        ("", "detail", "detail"),
        ("", "", "validation error: rule rule failed"),
        ("own {{ request.nope }}", "detail", "detail"),
        ("own {{ request.nope }}", "", "own {{ request.nope }}"),
        ("own {{ f }}", "", "own {{ f }}"),
        // In a message, `$(…)` is plain text and no reference.
        ("not $(HOST)", "nor $(PORT)", "not $(HOST); nor $(PORT)"),
    ] {
        let (report, _) = drive(
            &policy(&rule(message, condition)),
            &create(&ingress("x", &[])),
            |_| Err(unsynced()),
        );
        assert_eq!(report.outcome, fail(expected), "{message:?} {condition:?}");
    }
    let (report, _) = drive(
        &policy(&rule("own {{ f }}", "")),
        &create(&ingress("x", &[])),
        |_| Ok(json!([1])),
    );
    assert_eq!(report.outcome, fail("own [1]"));
}

#[test]
fn an_update_is_not_denied_for_a_violation_that_its_old_object_had() {
    let rule = r#"
validate:
  message: no hosts
  deny: {conditions: {all: [{key: "{{ request.object.spec.rules[] }}", operator: Equals, value: []}]}}
"#;
    let (bad, good) = (ingress("x", &[]), ingress("x", &["h"]));
    assert_eq!(
        outcome(rule, &request("UPDATE", &bad, &good)),
        fail("no hosts")
    );
    assert!(matches!(
        outcome(rule, &request("UPDATE", &bad, &bad)),
        RuleOutcome::Skipped { .. }
    ));
    assert_eq!(
        outcome(rule, &request("UPDATE", &good, &bad)),
        RuleOutcome::Pass
    );
    assert_eq!(
        outcome(rule, &request("CREATE", &bad, &Value::Null)),
        fail("no hosts")
    );
    let strict = rule.replace("message:", "allowExistingViolations: false\n  message:");
    assert_eq!(
        outcome(&strict, &request("UPDATE", &bad, &bad)),
        fail("no hosts")
    );
    let audit = rule.replace("message:", "failureAction: Audit\n  message:");
    assert_eq!(
        outcome(&audit, &request("UPDATE", &bad, &bad)),
        fail("no hosts")
    );
}

#[test]
fn an_update_that_keeps_its_own_host_is_admitted() {
    let policy = policy(UNIQUE_HOST);
    let taken = |_: &FactRequest| Ok(json!(["own.example", "other.example"]));
    let update =
        |to: &[&str]| request("UPDATE", &ingress("x", to), &ingress("x", &["own.example"]));
    assert!(matches!(
        drive(&policy, &update(&["own.example"]), taken).0.outcome,
        RuleOutcome::Skipped { .. }
    ));
    // The old state was no better. But it was another violation, and excuses none of a host that was changed.
    assert!(matches!(
        drive(&policy, &update(&["other.example"]), taken).0.outcome,
        RuleOutcome::Fail { .. }
    ));
    let mut labelled = ingress("x", &["own.example"]);
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    labelled["metadata"]["resourceVersion"] = json!("7");
    assert!(matches!(
        drive(
            &policy,
            &request("UPDATE", &labelled, &ingress("x", &["own.example"])),
            taken
        )
        .0
        .outcome,
        RuleOutcome::Skipped { .. }
    ));
}

/// What of an object counts as changed beside facts.
#[test]
fn an_old_violation_of_a_rule_with_facts_excuses_only_what_the_rule_reads_unchanged() {
    let rule = |expression: &str| {
        policy(&format!(
            r#"
context:
- name: taken
  configMap: {{ name: taken, namespace: default }}
validate:
  deny:
    conditions:
      any:
      - key: "{{{{ taken.data.hosts }}}}{{{{ {expression} }}}}"
        operator: NotEquals
        value: ""
"#
        ))
    };
    let taken = |_: &FactRequest| Ok(json!({ "data": { "hosts": "h" } }));
    let old = json!({
        "metadata": {
            "name": "x", "resourceVersion": "1", "labels": { "a": "1" }, "finalizers": ["f"],
            "annotations": { "b": "1", "deployment.kubernetes.io/revision": "1" },
        },
        "spec": { "rules": [{ "host": "a" }], "class": "c" },
        "status": { "a": 1 },
    });
    let (whole, metadata) = (
        "to_string(request.object)",
        "to_string(request.object.metadata)",
    );
    let revision = "/metadata/annotations/deployment.kubernetes.io~1revision";
    for (expression, path, to, excused) in [
        (
            "request.object.spec.class",
            "/spec/class",
            json!("d"),
            false,
        ),
        (
            "request.object.spec.class",
            "/spec/rules/0/host",
            json!("b"),
            true,
        ),
        (
            "request.object.spec.rules[0].host",
            "/spec/class",
            json!("d"),
            true,
        ),
        (
            "request.object.spec.rules[0].host",
            "/spec/rules/0/host",
            json!("b"),
            false,
        ),
        (whole, "/metadata/resourceVersion", json!("2"), true),
        (whole, "/metadata/finalizers", json!([]), true),
        (whole, "/metadata/labels/a", json!("2"), false),
        (whole, "/metadata/annotations/b", json!("2"), false),
        (whole, revision, json!("2"), true),
        (whole, "/status/a", json!(2), true),
        (metadata, "/metadata/resourceVersion", json!("2"), true),
        (metadata, "/metadata/labels/a", json!("2"), false),
        (metadata, "/spec/class", json!("d"), true),
        (
            "to_string(request.object.spec)",
            "/spec/class",
            json!("d"),
            false,
        ),
        ("to_string(request)", "/spec/class", json!("d"), false),
    ] {
        let mut new = old.clone();
        *new.pointer_mut(path).unwrap() = to;
        let outcome = drive(&rule(expression), &request("UPDATE", &new, &old), taken)
            .0
            .outcome;
        let is_excused = matches!(outcome, RuleOutcome::Skipped { .. });
        assert_eq!(is_excused, excused, "{expression} {path}: {outcome:?}");
    }
}

#[test]
fn every_rule_can_read_the_request_and_its_service_account() {
    let rule = r#"
validate:
  message: "{{ request.namespace }} {{ serviceAccountName }} {{ serviceAccountNamespace }} {{ request.userInfo.username }} {{ keys(@) }}"
  deny: {}
"#;
    let message = "ns robot ns system:serviceaccount:ns:robot [\"request\",\"serviceAccountName\",\"serviceAccountNamespace\"]";
    assert_eq!(outcome(rule, &create(&ingress("x", &[]))), fail(message));
}

#[test]
fn an_empty_any_never_denies_and_other_empty_conditions_deny() {
    let request = create(&ingress("x", &[]));
    for (deny, denies) in [
        ("{}", true),
        ("{conditions: {}}", true),
        ("{conditions: []}", true),
        ("{conditions: {any: []}}", false),
        ("{conditions: {all: []}}", true),
    ] {
        let rule = format!("validate: {{message: denied, deny: {deny}}}");
        assert_eq!(outcome(&rule, &request) == fail("denied"), denies, "{deny}");
    }
}

#[test]
fn a_namespaced_policy_applies_to_its_own_namespace_alone() {
    let manifest = |kind: &str, namespace: &str, admission: bool| {
        json!({
            "apiVersion": "kyverno.io/v1", "kind": kind, "metadata": {"name": "p", "namespace": namespace},
            "spec": {"admission": admission, "rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]}, "validate": {"deny": {}},
            }]},
        })
    };
    let of = |manifest: &Value| {
        let policy = compile(manifest).unwrap();
        drive(&policy, &create(&ingress("x", &[])), nothing)
            .0
            .outcome
    };
    assert!(matches!(
        of(&manifest("Policy", "ns", true)),
        RuleOutcome::Fail { .. }
    ));
    assert_eq!(
        of(&manifest("Policy", "other", true)),
        RuleOutcome::NotMatched
    );
    assert!(matches!(
        of(&manifest("ClusterPolicy", "", true)),
        RuleOutcome::Fail { .. }
    ));
    assert_eq!(
        of(&manifest("ClusterPolicy", "", false)),
        RuleOutcome::NotMatched
    );
}

#[test]
fn a_driver_that_does_not_answer_is_asked_again() {
    let policy = policy(UNIQUE_HOST);
    let request = create(&ingress("x", &["a"]));
    let evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
    let mut evaluation = evaluation.with_whole_facts();
    let first = evaluation.step();
    assert!(matches!(&first, RuleStep::Need(facts) if facts.len() == 1));
    evaluation.supply(17, Ok(Value::Null));
    assert_eq!(evaluation.step(), first);
    evaluation.supply(0, Ok(json!([])));
    evaluation.supply(0, Ok(json!(["a"])));
    assert!(matches!(
        evaluation.step(),
        RuleStep::Done(RuleReport {
            outcome: RuleOutcome::Pass,
            ..
        })
    ));
    assert!(matches!(evaluation.step(), RuleStep::Done(_)));
}

#[test]
fn a_fact_that_a_driver_goes_on_without_is_a_missing_key() {
    let outcome = |key: &str, default: &Value| {
        let mut call = json!({"urlPath": "/api/v1/namespaces/x"});
        if !default.is_null() {
            call["default"] = default.clone();
        }
        let condition =
            json!({"key": format!("{{{{ {key} }}}}"), "operator": "Equals", "value": "b"});
        let rule = json!({
            "context": [{"name": "c", "apiCall": call}],
            "validate": {"message": "m", "deny": {"conditions": {"any": [condition]}}},
        });
        let policy = policy(&rule.to_string());
        let request = create(&ingress("x", &["a"]));
        for is_whole in [false, true] {
            let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
            if is_whole {
                evaluation = evaluation.with_whole_facts();
            }
            for _ in 0..8 {
                match evaluation.step() {
                    RuleStep::Done(report) if is_whole => return report.outcome,
                    RuleStep::Done(_) => break,
                    RuleStep::Need(facts) => {
                        facts.iter().for_each(|fact| evaluation.leave_out(fact.id));
                    }
                }
            }
        }
        panic!("no end");
    };
    let is_denied = |outcome| matches!(outcome, RuleOutcome::Fail { .. });
    assert!(is_denied(outcome("c.a || 'b'", &Value::Null)));
    assert!(!is_denied(outcome("c.a || 'c'", &Value::Null)));
    assert!(!is_denied(outcome("c.a || 'c'", &json!({"a": "b"}))));
    assert!(matches!(
        outcome("c.a", &Value::Null),
        RuleOutcome::Error(RuleError::Variable { .. })
    ));
}

#[test]
fn an_evaluation_moves_between_threads() {
    fn moves<T: Send>() {}
    moves::<Evaluation<'static>>();
}

proptest! {
    /// Whatever is asked about, and whatever the facts are: an end, and no panic.
    #[test]
    fn every_evaluation_ends(object in any_json(), old in any_json(), fact in any_json(), update in any::<bool>()) {
        let policy = policy(UNIQUE_HOST);
        let with = |spec: &Value| json!({"kind": "Ingress", "metadata": spec, "spec": {"rules": spec}});
        let request = request(if update { "UPDATE" } else { "CREATE" }, &with(&object), &with(&old));
        let (report, _) = drive(&policy, &request, |_| Ok(fact.clone()));
        prop_assert!(report.facts.len() <= 1);
    }
}
