//! Rules in CEL: what they come to, and what they ask for.

mod standards;

use super::*;
use crate::Reference;

fn pod_request(operation: &str, pod: &Value, old: &Value) -> AdmissionRequest {
    AdmissionRequest::new(json!({
        "uid": "u", "operation": operation, "namespace": "shop", "name": "web",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "userInfo": {"username": "ann", "groups": ["dev", "system:authenticated"]},
        "dryRun": false, "object": pod, "oldObject": old,
    }))
    .unwrap()
}

fn pod(spec: &Value) -> AdmissionRequest {
    let metadata = json!({"name": "web", "namespace": "shop", "labels": {"app": "shop"}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    pod_request("CREATE", &pod, &Value::Null)
}

fn plain() -> AdmissionRequest {
    pod(&json!({"containers": [{"name": "a", "image": "x:1"}]}))
}

fn fails(message: &str) -> RuleOutcome {
    RuleOutcome::Fail {
        message: message.to_owned(),
    }
}

fn error(rule: &str, request: &AdmissionRequest) -> RuleError {
    match outcome(rule, request) {
        RuleOutcome::Error(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_expression_that_is_not_true_is_the_violation() {
    let rule = r#"
validate:
  message: " of the rule "
  cel:
    expressions:
    - expression: "true"
    - {expression: object.spec.containers.size() > 5, message: "  too few "}
    - {expression: "false", message: never}
"#;
    assert_eq!(outcome(rule, &plain()), fails("too few"));
    for (expression, expected) in [
        ("{expression: 'true'}", RuleOutcome::Pass),
        ("{expression: 'false'}", fails("of the rule")),
        (
            "{expression: 'false', message: own, reason: Forbidden}",
            fails("own"),
        ),
        (
            "{expression: 'false', message: own, messageExpression: \"'is ' + object.metadata.name\"}",
            fails("is web"),
        ),
        // What makes no message is passed over.
        (
            "{expression: 'false', message: own, messageExpression: object.nothing}",
            fails("own"),
        ),
        (
            "{expression: 'false', message: own, messageExpression: \"' '\"}",
            fails("own"),
        ),
        (
            "{expression: 'false', message: own, messageExpression: \"'a\\\\nb'\"}",
            fails("own"),
        ),
        (
            "{expression: 'false', message: own, messageExpression: dyn(1)}",
            fails("own"),
        ),
    ] {
        let rule =
            format!("validate: {{message: of the rule, cel: {{expressions: [{expression}]}}}}");
        assert_eq!(outcome(&rule, &plain()), expected, "{expression}");
    }
    let bare = "validate: {cel: {expressions: [{expression: '  object.spec == 1 '}]}}";
    assert_eq!(
        outcome(bare, &plain()),
        fails("failed expression: object.spec == 1")
    );
    // Which validation decided is told of policies in CEL alone.
    let (report, _) = drive(&policy(bare), &plain(), nothing);
    assert!(report.properties.is_empty(), "{report:?}");
}

#[test]
fn a_rule_in_cel_ends_with_the_steps_of_its_review() {
    let rule = "validate: {cel: {expressions: [{expression: \
        'object.spec.list.all(a, object.spec.list.all(b, a == b))'}]}}";
    let policy = policy(rule);
    let request = pod(&json!({"list": vec![1; 100]}));
    for (steps, is_over) in [(1_000, true), (1_000_000, false)] {
        let (outcome, _) = anteroom_functions::meter::within(steps, || {
            drive_over(&policy, &request, nothing).0.outcome
        });
        match outcome {
            RuleOutcome::Error(error) => {
                assert!(is_over && error.code() == ErrorCode::BUDGET_EXCEEDED);
            }
            outcome => assert_eq!((outcome, is_over), (RuleOutcome::Pass, false)),
        }
    }
}

#[test]
fn a_message_ends_at_the_edge() {
    let with = |count: usize| {
        let rule = format!(
            "validate: {{message: own, cel: {{variables: [{{name: ten, expression: \"'0123456789'\"}}, \
             {{name: many, expression: \"[1,2,3,4,5,6,7,8].map(a, [1,2,3,4,5,6,7,8].map(b, \
             variables.ten + variables.ten + variables.ten + variables.ten + variables.ten + \
             variables.ten + variables.ten + variables.ten).join('')).join('')\"}}], \
             expressions: [{{expression: 'false', messageExpression: \"variables.many.substring({})\"}}]}}}}",
            5120_i64 - count as i64
        );
        outcome(&rule, &plain())
    };
    assert!(matches!(with(5120), RuleOutcome::Fail { message } if message.len() == 5120));
    let longer = "validate: {message: own, cel: {variables: [{name: v, expression: \"['0123456789'].map(x, x).join('')\"}], \
         expressions: [{expression: 'false', messageExpression: \"[1,2,3,4,5,6,7,8].map(a, [1,2,3,4,5,6,7,8].map(b, [1,2,3,4,5,6,7,8].map(c, variables.v).join('')).join('')).join('') + '!'\"}]}}";
    assert_eq!(outcome(longer, &plain()), fails("own"));
}

#[test]
fn an_expression_with_an_error_is_a_violation_and_a_limit_is_an_error() {
    let rule =
        "validate: {cel: {expressions: [{expression: object.spec.nothing == 1, message: m}]}}";
    let expected = "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing";
    assert_eq!(outcome(rule, &plain()), fails(expected));
    let rule = "validate: {cel: {expressions: [{expression: object.spec.containers}]}}";
    let expected = "expression 'object.spec.containers' resulted in error: \
                    it came to a list, and not to true or false";
    assert_eq!(outcome(rule, &plain()), fails(expected));
    // What decides, decides, whatever else fails.
    let rule = "validate: {cel: {expressions: [{expression: object.x == 1 || true}]}}";
    assert_eq!(outcome(rule, &plain()), RuleOutcome::Pass);
    let large = pod(&json!({"list": vec![1; 3_000]}));
    let rule = "validate: {cel: {expressions: [{expression: 'object.spec.list.all(a, object.spec.list.all(b, a == b)) || true'}]}}";
    assert_eq!(error(rule, &large).code(), ErrorCode::BUDGET_EXCEEDED);
}

#[test]
fn a_cel_rule_judges_a_deletion_by_the_old_object() {
    let old = plain().matched_object().clone();
    let request = pod_request("DELETE", &Value::Null, &old);
    let of = |expression: &str| {
        let rule = "validate: {cel: {expressions: [{expression: 'EXPRESSION', message: nay}]}}";
        outcome(&rule.replace("EXPRESSION", expression), &request)
    };
    assert_eq!(
        of("object == null && has(oldObject.spec)"),
        RuleOutcome::Pass
    );
    assert_eq!(of("request.operation != \"DELETE\""), fails("nay"));
    // There is no object to read.
    assert!(matches!(of("has(object.spec)"), RuleOutcome::Fail { .. }));
}

#[test]
fn a_cel_rule_does_not_excuse_a_violation_of_the_old_object() {
    let rule = "validate: {cel: {expressions: [{expression: 'has(object.spec.x) && oldObject != null', message: nay}]}}";
    let object = plain().matched_object().clone();
    assert_eq!(
        outcome(rule, &pod_request("UPDATE", &object, &object)),
        fails("nay")
    );
}

#[test]
fn cel_preconditions_decide_whether_a_rule_is_evaluated() {
    let of = |conditions: &str| {
        let rule = format!(
            "{{celPreconditions: [{conditions}], validate: {{cel: {{variables: [{{name: v, expression: object.spec.nothing}}], \
             expressions: [{{expression: 'false', message: nay}}]}}}}}}"
        );
        outcome(&rule, &plain())
    };
    let skipped = RuleOutcome::Skipped {
        reason: "preconditions not met".to_owned(),
    };
    assert_eq!(of("{name: a, expression: 'true'}"), fails("nay"));
    assert_eq!(
        of("{name: a, expression: 'true'}, {name: b, expression: 'false'}"),
        skipped
    );
    // An unmet precondition wins over an error of a different precondition.
    assert_eq!(
        of("{name: a, expression: object.x == 1}, {name: b, expression: 'false'}"),
        skipped
    );
    let failed = of("{name: a, expression: object.x == 1}, {name: b, expression: 'true'}");
    let RuleOutcome::Error(failed) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(
        failed.to_string(),
        "celPreconditions[0].expression resulted in error: no such key: x"
    );
    assert!(matches!(
        of("{name: a, expression: variables.v == 1}"),
        RuleOutcome::Error(_)
    ));
}

#[test]
fn cel_expressions_and_variables_read_the_request() {
    let rule = r#"
preconditions: {all: [{key: "{{ request.operation }}", operator: Equals, value: CREATE}]}
validate:
  cel:
    variables:
    - {name: groups, expression: request.userInfo.groups}
    - {name: isDev, expression: "'dev' in variables.groups"}
    expressions:
    - expression: variables.isDev && request.userInfo.username == 'ann'
    - expression: request.operation == 'CREATE' && request.kind.kind == 'Pod' && request.kind.group == ''
    - expression: request.resource.resource == 'pods' && request.namespace == 'shop' && request.name == 'web'
    - expression: "!has(request.subResource) && !request.dryRun && oldObject == null"
"#;
    assert_eq!(outcome(rule, &plain()), RuleOutcome::Pass);
}

const NAMESPACE: &str = r#"
celPreconditions: [{name: has-containers, expression: has(object.spec.containers)}]
validate:
  cel:
    variables:
    - {name: env, expression: "namespaceObject.metadata.?labels.env.orValue('none')"}
    - {name: unused, expression: namespaceObject.nothing}
    expressions: [{expression: variables.env == 'prod', messageExpression: "'env is ' + variables.env"}]
"#;

#[test]
fn the_namespace_object_is_asked_for_only_where_it_is_read() {
    let with = |labels: Value| {
        drive(&policy(NAMESPACE), &plain(), |fact| {
            assert_eq!(
                (&*fact.variable, &*fact.expression),
                ("namespaceObject", "")
            );
            assert_eq!(
                fact.subject,
                FactSubject::NamespaceLabels {
                    namespace: "shop".to_owned()
                }
            );
            Ok(json!({"metadata": {"name": "shop", "labels": labels}}))
        })
    };
    assert_eq!(with(json!({"env": "prod"})).0.outcome, RuleOutcome::Pass);
    assert_eq!(with(json!({})).0.outcome, fails("env is none"));
    // Unknown is an error, and a rule that does not apply asks nobody.
    let (report, _) = drive(&policy(NAMESPACE), &plain(), |_| Err(unsynced()));
    assert!(
        matches!(report.outcome, RuleOutcome::Error(RuleError::Fact { .. })),
        "{report:?}"
    );
    assert!(matches!(
        outcome(NAMESPACE, &pod(&json!({}))),
        RuleOutcome::Skipped { .. }
    ));
    // What is in no namespace has none.
    let cluster = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Node"}, "name": "n",
        "object": {"metadata": {"name": "n"}}, "namespace": "",
    }));
    let rule = "validate: {cel: {expressions: [{expression: namespaceObject == null}]}}";
    assert_eq!(outcome(rule, &cluster.unwrap()), RuleOutcome::Pass);
    let namespaces: Vec<_> = policy(NAMESPACE)
        .references()
        .map(|one| one.name())
        .collect();
    assert_eq!(namespaces, ["/v1/namespaces/?&"]);
}

/// A limit of replicas out of an object that `reference` names.
fn with_params(reference: &str, expression: &str) -> String {
    format!(
        "{{celPreconditions: [{{name: a, expression: has(object.spec)}}], validate: {{cel: {{\
         paramKind: {{apiVersion: rules.example.com/v1, kind: ReplicaLimit}}, paramRef: {{{reference}}}, \
         expressions: [{{expression: '{expression}', messageExpression: '\"at most \" + string(params.most)'}}]}}}}}}"
    )
}

const SIZE: &str = "object.spec.containers.size() <= params.most";

fn limit(namespace: Option<&str>, most: i64) -> Value {
    json!({"metadata": {"name": "limit", "namespace": namespace}, "most": most})
}

/// Answers with what of these is asked for, as a view does.
fn kept(objects: &[Value]) -> impl FnMut(&FactRequest) -> Result<Value, FactError> + '_ {
    move |fact| {
        assert_eq!(fact.variable, "params");
        let expression = anteroom_jmespath::Expression::parse(&fact.expression).unwrap();
        let parameters: serde_json::Map<_, _> = (*fact.parameters).clone().into_iter().collect();
        let environment = anteroom_jmespath::Environment::standard().with_parameters(&parameters);
        Ok(expression
            .evaluate_json(&json!({"items": objects}), &environment)
            .unwrap())
    }
}

#[test]
fn cel_parameters_are_read_as_facts() {
    let come = |reference: &str, objects: &[Value]| {
        let policy = policy(&with_params(reference, SIZE));
        drive(&policy, &plain(), kept(objects)).0.outcome
    };
    let here = Some("shop");
    // Of the object's own namespace, of another, or of none.
    assert_eq!(
        come("name: limit", &[limit(here, 1), limit(Some("other"), 0)]),
        RuleOutcome::Pass
    );
    assert_eq!(come("name: limit", &[limit(here, 0)]), fails("at most 0"));
    assert_eq!(come("name: limit", &[limit(None, 0)]), fails("at most 0"));
    assert_eq!(
        come("name: limit, namespace: rules", &[limit(Some("rules"), 0)]),
        fails("at most 0")
    );
    // All that are selected have their say.
    let selector = "selector: {matchLabels: {a: b}}";
    assert_eq!(
        come(selector, &[limit(here, 5), limit(here, 1)]),
        RuleOutcome::Pass
    );
    assert_eq!(
        come(selector, &[limit(here, 5), limit(here, 0)]),
        fails("at most 0")
    );
    // None of a name is an error, unless it is allowed; none of a selector is not, unless it is denied.
    for (reference, is_error) in [
        ("name: limit", true),
        ("name: limit, parameterNotFoundAction: Deny", true),
        ("name: limit, parameterNotFoundAction: Allow", false),
        (selector, false),
        ("selector: {}, parameterNotFoundAction: Deny", true),
        ("selector: {}, parameterNotFoundAction: Allow", false),
    ] {
        match come(reference, &[limit(Some("other"), 0)]) {
            RuleOutcome::Error(error) => {
                assert_eq!(error.code(), ErrorCode::OBJECT_NOT_FOUND, "{reference}");
                assert!(is_error, "{reference}: {error}");
            }
            outcome => assert_eq!(
                (outcome, is_error),
                (RuleOutcome::Pass, false),
                "{reference}"
            ),
        }
    }
    let unread = drive(&policy(&with_params("name: limit", SIZE)), &plain(), |_| {
        Err(unsynced())
    });
    let RuleOutcome::Error(error) = unread.0.outcome else {
        panic!("{unread:?}");
    };
    assert_eq!(error.code(), ErrorCode::VIEW_NOT_SYNCED);
    // A query over what has no items comes to null.
    let none = drive(&policy(&with_params("name: limit", SIZE)), &plain(), |_| {
        Ok(Value::Null)
    });
    let RuleOutcome::Error(error) = none.0.outcome else {
        panic!("{none:?}");
    };
    assert_eq!(error.code(), ErrorCode::OBJECT_NOT_FOUND);
}

#[test]
fn a_rule_that_does_not_apply_asks_for_no_parameters() {
    let policy = policy(&with_params("name: limit", SIZE));
    let object = json!({"metadata": {"name": "web", "namespace": "shop"}});
    let request = pod_request("CREATE", &object, &Value::Null);
    let (report, _) = drive(&policy, &request, nothing);
    assert!(
        matches!(report.outcome, RuleOutcome::Skipped { .. }),
        "{report:?}"
    );
}

#[test]
fn preconditions_may_be_about_parameters() {
    let rule = "{celPreconditions: [{name: a, expression: params.most > 0}], validate: {cel: {\
         paramKind: {apiVersion: v1, kind: ConfigMap}, paramRef: {selector: {}}, \
         expressions: [{expression: 'object.spec.containers.size() > params.most', message: nay}]}}}";
    let policy = policy(rule);
    let come = |all: &[i64]| {
        let objects: Vec<_> = all.iter().map(|most| limit(Some("shop"), *most)).collect();
        drive(&policy, &plain(), kept(&objects)).0.outcome
    };
    assert!(matches!(come(&[0, -1]), RuleOutcome::Skipped { .. }));
    assert_eq!(come(&[0, 5]), fails("nay"));
    assert_eq!(come(&[]), RuleOutcome::Pass);
}

#[test]
fn a_parameters_view_is_narrow_and_keeps_whole_objects() {
    for (reference, name) in [
        (
            "name: limit",
            "rules.example.com/v1/ReplicaLimit/?&metadata.name=limit",
        ),
        (
            "name: limit, namespace: rules",
            "rules.example.com/v1/ReplicaLimit/rules?&metadata.name=limit",
        ),
        (
            "selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: In, values: [d, e]}, {key: f, operator: DoesNotExist}]}",
            "rules.example.com/v1/ReplicaLimit/?a=b,c in (d, e),!f&",
        ),
    ] {
        let policy = policy(&with_params(reference, SIZE));
        let references: Vec<_> = policy.references().collect();
        let [Reference::Collection(kept)] = &*references else {
            panic!("{references:?}");
        };
        assert!(kept.declared && kept.inline);
        assert_eq!(references[0].name(), name);
        let reads = policy.rules()[0].reads();
        assert_eq!(reads.len(), 1, "{reads:?}");
        assert_eq!(reads[0].usage, crate::Usage::Whole);
        assert_eq!(reads[0].variable, "params");
    }
}

#[test]
fn a_policy_permits_a_live_read_of_its_namespace_object_alone() {
    let policy = policy(NAMESPACE);
    let call = |path| crate::Call::Api { path, data: None };
    let path = "/api/v1/namespaces/shop";
    assert!(
        policy
            .permits("rule", "namespaceObject", call(path))
            .is_ok()
    );
    assert!(
        policy
            .permits(
                "rule",
                "namespaceObject",
                call("/api/v1/namespaces/a/secrets/b")
            )
            .is_err()
    );
    let other = super::policy("validate: {cel: {expressions: [{expression: 'true'}]}}");
    assert!(
        other
            .permits("rule", "namespaceObject", call(path))
            .is_err()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    /// A rule ends for every object, and reads only the fields of the request that the rule declares.
    #[test]
    fn a_cel_rule_ends_for_any_object_and_declares_what_it_reads(object in any_json(), at in 0..5_usize) {
        let expressions = [
            "object.spec.all(c, has(c.image) && c.image.contains(':'))",
            "object.?spec.?containers[?0].?image.orValue('').matches('^[a-z]+')",
            "has(object.spec) && object.spec == oldObject",
            "object.map(k, object[k]).size() > 1 || '%s'.format([object]).size() > 3",
            "object.spec[0] + object.spec[1] > quantity(object.a).asInteger()",
        ];
        let rule = format!("validate: {{cel: {{expressions: [{{expression: \"{}\"}}]}}}}", expressions[at]);
        let object = match object {
            Value::Object(_) => object,
            other => json!({"spec": other, "metadata": {"name": "a"}}),
        };
        let _ = outcome(&rule, &pod_request("CREATE", &object, &Value::Null));
    }
}
