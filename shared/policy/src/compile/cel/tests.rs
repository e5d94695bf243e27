use serde_json::{Value, json};

use crate::{AdmissionRequest, Driver, Evaluation, RuleOutcome, RuleStep, compile, compile_for};

/// The problems of a policy of this one rule.
fn problems(kind: &str, rule: &str) -> Vec<String> {
    let mut rule: Value = serde_saphyr::from_str(rule).unwrap();
    rule["name"] = "r".into();
    rule["match"] = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": kind,
        "metadata": {"name": "p", "namespace": "home"}, "spec": {"rules": [rule]},
    });
    let problems = compile_for(&manifest, Driver::ALL)
        .err()
        .unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_malformed_cel_rule_is_refused_with_its_field() {
    for (rule, expected) in [
        (
            "validate: {cel: {}}",
            "AR302 spec.rules[0].validate.cel.expressions: it is required",
        ),
        (
            "validate: {cel: {expressions: []}}",
            "AR302 spec.rules[0].validate.cel.expressions: at least one expression is required",
        ),
        (
            "validate: {cel: {expressions: [{expression: foo == 1}]}}",
            "AR302 spec.rules[0].validate.cel.expressions[0].expression: there is no `foo`; there are object, oldObject, request, namespaceObject",
        ),
        (
            "validate: {cel: {expressions: [{expression: \"'a'\"}]}}",
            "AR302 spec.rules[0].validate.cel.expressions[0].expression: it must come to true or false",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true', messageExpression: '1'}]}}",
            "AR302 spec.rules[0].validate.cel.expressions[0].messageExpression: it must come to a string",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true', reason: Because}]}}",
            "AR302 spec.rules[0].validate.cel.expressions[0].reason: `Because` is none of Forbidden, Invalid, RequestEntityTooLarge, Unauthorized",
        ),
        (
            "validate: {cel: {expressions: [{expression: authorizer.path('/a').check('get').allowed()}]}}",
            "AR301 spec.rules[0].validate.cel.expressions[0].expression: `authorizer` is not known here",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'cel.bind(x, object.a, x == 1)'}]}}",
            "AR302 spec.rules[0].validate.cel.expressions[0].expression: there is no `cel`",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'params.a == 1'}]}}",
            "AR302 spec.rules[0].validate.cel.expressions[0].expression: there is no `params` without a paramKind",
        ),
        (
            "validate: {cel: {variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}], expressions: [{expression: 'true'}]}}",
            "AR302 spec.rules[0].validate.cel.variables[0].expression: there is no variable `b` before this expression",
        ),
        (
            "validate: {cel: {variables: [{name: a, expression: '1'}, {name: a, expression: '1'}], expressions: [{expression: 'true'}]}}",
            "AR302 spec.rules[0].validate.cel.variables[1].name: another variable is named `a`",
        ),
        (
            "validate: {cel: {variables: [{name: a-b, expression: '1'}], expressions: [{expression: 'true'}]}}",
            "AR302 spec.rules[0].validate.cel.variables[0].name: `a-b` is no name of a variable",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], auditAnnotations: [{key: a, valueExpression: '1'}]}}",
            "AR302 spec.rules[0].validate.cel.auditAnnotations[0].valueExpression: it must come to a string",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}}}",
            "AR302 spec.rules[0].validate.cel.paramRef: paramKind and paramRef come together",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}, paramRef: {}}}",
            "AR302 spec.rules[0].validate.cel.paramRef: name or selector is required",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}, paramRef: {name: a, selector: {}}}}",
            "AR302 spec.rules[0].validate.cel.paramRef: only one of name and selector can be given",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}, paramRef: {selector: {matchLabels: x}}}}",
            "AR302 spec.rules[0].validate.cel.paramRef.selector.matchLabels: an object is expected here",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}, paramRef: {selector: {matchLabels: {app: 1}}}}}",
            "AR302 spec.rules[0].validate.cel.paramRef.selector.matchLabels[\"app\"]: a label is a string",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: ConfigMap}, paramRef: {selector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}}",
            "AR302 spec.rules[0].validate.cel.paramRef.selector.matchExpressions[0]",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}], paramKind: {apiVersion: v1, kind: a/b}, paramRef: {name: a}}}",
            "AR302 spec.rules[0].validate.cel.paramKind.kind: ",
        ),
        (
            "{celPreconditions: [{name: a, expression: 'true'}], validate: {deny: {}}}",
            "AR302 spec.rules[0].celPreconditions: celPreconditions come with validate.cel only",
        ),
        (
            "{celPreconditions: [{expression: 'true'}], validate: {cel: {expressions: [{expression: 'true'}]}}}",
            "AR302 spec.rules[0].celPreconditions[0].name: it is required",
        ),
        (
            "validate: {cel: {expressions: [{expression: 'true'}]}, deny: {}}",
            "AR302 spec.rules[0].validate.cel: only one of deny and cel can be given",
        ),
        (
            "validate: {assert: {}}",
            "AR301 spec.rules[0].validate.assert: `assert` is a Kyverno field that this version does not evaluate",
        ),
        (
            "validate: {cel: {expression: 'true'}}",
            "AR302 spec.rules[0].validate.cel.expression: unknown field `expression` (a string); did you mean `expressions`?",
        ),
    ] {
        let found = problems("ClusterPolicy", rule);
        assert!(
            found.iter().any(|one| one.starts_with(expected)),
            "{rule}: {found:#?}"
        );
    }
}

#[test]
fn cel_fields_without_effect_on_the_verdict_are_accepted() {
    let rule = "validate: {cel: {generate: true, expressions: [{expression: 'true', reason: Forbidden, message: ''}], \
                auditAnnotations: [{key: a, valueExpression: \"object.metadata.name\"}, {key: b, valueExpression: 'null'}]}}";
    assert_eq!(problems("ClusterPolicy", rule), [""; 0]);
}

#[test]
fn a_policy_takes_parameters_of_its_namespace() {
    let of = |reference: &str| {
        let rule = format!(
            "validate: {{cel: {{expressions: [{{expression: 'true'}}], paramKind: {{apiVersion: v1, kind: ConfigMap}}, paramRef: {{{reference}}}}}}}"
        );
        problems("Policy", &rule)
    };
    assert_eq!(of("name: a"), [""; 0]);
    assert_eq!(of("name: a, namespace: home"), [""; 0]);
    let found = of("name: a, namespace: other");
    assert!(
        found[0].starts_with("AR304 spec.rules[0].validate.cel.paramRef.namespace: "),
        "{found:?}"
    );
}

#[test]
fn the_numbers_of_cel_expressions_and_variables_are_limited() {
    let of = |expressions: usize, variables: usize| {
        let expressions = vec![json!({"expression": "true"}); expressions];
        let variables: Vec<_> = (0..variables)
            .map(|at| json!({"name": format!("v{at}"), "expression": "1"}))
            .collect();
        let rule =
            json!({"validate": {"cel": {"expressions": expressions, "variables": variables}}});
        problems("ClusterPolicy", &rule.to_string())
    };
    assert_eq!(
        of(super::CEL_EXPRESSIONS_MAX, super::CEL_VARIABLES_MAX),
        [""; 0]
    );
    assert_eq!(
        of(super::CEL_EXPRESSIONS_MAX + 1, super::CEL_VARIABLES_MAX + 1),
        [
            "AR302 spec.rules[0].validate.cel.variables: more than 128 of them",
            "AR302 spec.rules[0].validate.cel.expressions: more than 64 of them",
        ]
    );
}

/// The rules of a policy on Pods, as derived for the kinds that make Pods.
#[test]
fn cel_rules_on_pods_are_derived_for_pod_controllers() {
    let manifest: Value = serde_saphyr::from_str(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: tags
    match: {any: [{resources: {kinds: [Pod]}}]}
    celPreconditions: [{name: a, expression: has(object.spec.containers)}]
    validate:
      message: "object.spec stays as it is written"
      cel:
        variables: [{name: all, expression: "object.spec.containers + object.spec.?initContainers.orValue([])"}]
        expressions:
        - expression: "variables.all.all(c, c.image.contains(':')) || 'object.spec' == 'x'"
          messageExpression: "'no tag: ' + object.metadata.labels.app"
"#,
    )
    .unwrap();
    let policy = compile(&manifest).unwrap();
    let names: Vec<_> = policy
        .rules()
        .iter()
        .map(|rule| rule.name().to_owned())
        .collect();
    assert_eq!(names, ["tags", "autogen-tags", "autogen-cronjob-tags"]);
    let pod = |image: &str| json!({"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"image": "a:1"}], "initContainers": [{"image": image}]}});
    let wrap = |kind: &str, spec: Value| json!({"kind": kind, "metadata": {"name": "outer"}, "spec": spec});
    for (rule, group, kind, make) in [
        (0, "", "Pod", &(|pod| pod) as &dyn Fn(Value) -> Value),
        (1, "apps", "Deployment", &|pod| {
            wrap("Deployment", json!({"replicas": 1, "template": pod}))
        }),
        (2, "batch", "CronJob", &|pod| {
            wrap(
                "CronJob",
                json!({"jobTemplate": {"spec": {"template": pod}}}),
            )
        }),
    ] {
        for (image, expected) in [
            ("b:1", RuleOutcome::Pass),
            (
                "b",
                RuleOutcome::Fail {
                    message: "no tag: shop".to_owned(),
                },
            ),
        ] {
            let request = AdmissionRequest::new(json!({
                "operation": "CREATE", "namespace": "n", "object": make(pod(image)),
                "kind": {"group": group, "version": "v1", "kind": kind},
            }));
            let request = request.unwrap();
            let step = Evaluation::start(&policy, &policy.rules()[rule], &request).step();
            let RuleStep::Done(report) = step else {
                panic!("{kind}: {step:?}");
            };
            assert_eq!(report.outcome, expected, "{kind} {image}");
        }
    }
}
