//! Policies of policies.kyverno.io.

mod exceptions;
mod existing;
mod facts;
mod mutating;
mod subqueries;

use super::*;
use crate::{
    Call, FailureAction, Permit, PolicyKind, Reference, ResolvedApiCall, ir::context::ContextEntry,
};

fn policy_of(kind: &str, spec: &str) -> Policy {
    let manifest = format!(
        "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{name: p, namespace: shop}}\nspec:\n{}",
        spec.lines()
            .map(|line| format!("  {line}\n"))
            .collect::<String>()
    );
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    compile(&manifest).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn problems_of(kind: &str, spec: &str) -> Vec<String> {
    let manifest = format!(
        "apiVersion: policies.kyverno.io/v1\nkind: {kind}\nmetadata: {{name: p, namespace: shop}}\nspec:\n{}",
        spec.lines()
            .map(|line| format!("  {line}\n"))
            .collect::<String>()
    );
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    let problems = compile(&manifest).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

fn of_resource(
    operation: &str,
    resource: (&str, &str, &str, &str),
    object: &Value,
) -> AdmissionRequest {
    let (group, version, kind, plural) = resource;
    let (object, old) = match operation {
        "DELETE" => (Value::Null, object.clone()),
        _ => (object.clone(), Value::Null),
    };
    AdmissionRequest::new(json!({
        "uid": "u", "operation": operation, "namespace": "shop", "name": "web",
        "kind": {"group": group, "version": version, "kind": kind},
        "resource": {"group": group, "version": version, "resource": plural},
        "userInfo": {"username": "ann", "groups": ["dev"]},
        "object": object, "oldObject": old,
    }))
    .unwrap()
}

const POD: (&str, &str, &str, &str) = ("", "v1", "Pod", "pods");
const DEPLOYMENT: (&str, &str, &str, &str) = ("apps", "v1", "Deployment", "deployments");

fn pod(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "labels": labels},
        "spec": {"containers": [{"name": "a", "image": "x:1"}]}})
}

fn exception(spec: &str) -> PolicyException {
    let manifest = format!(
        "apiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {{name: e, namespace: shop}}\nspec:\n{}",
        spec.lines()
            .map(|line| format!("  {line}\n"))
            .collect::<String>()
    );
    let manifest: Value = serde_saphyr::from_str(&manifest).unwrap();
    PolicyException::compile(&manifest, crate::Driver::ALL).unwrap()
}

/// The outcome of each rule of the policy.
fn outcomes(
    policy: &Policy,
    request: &AdmissionRequest,
    mut answer: impl FnMut(&FactSubject) -> Result<Value, FactError>,
) -> Vec<(String, RuleReport)> {
    let mut of = |rule| {
        let mut evaluation = Evaluation::start(policy, rule, request).with_whole_facts();
        for _ in 0..16 {
            match evaluation.step() {
                RuleStep::Done(report) => return report,
                RuleStep::Need(requests) => {
                    for request in requests {
                        evaluation.supply(request.id, answer(&request.subject));
                    }
                }
            }
        }
        panic!("no end");
    };
    let mut all = Vec::new();
    for rule in policy.rules() {
        all.push((rule.name().to_owned(), of(rule)));
    }
    all
}

fn no_facts(subject: &FactSubject) -> Result<Value, FactError> {
    panic!("{subject} was asked for")
}

const REQUIRE_APP: &str = r#"
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
validationActions: [Audit, Warn]
auditAnnotations:
- {key: who, valueExpression: "request.userInfo.username"}
validations:
- {expression: "true"}
- {expression: "has(object.metadata.labels) && 'app' in object.metadata.labels", message: "say which app"}
"#;

#[test]
fn a_validating_policy_judges_pods_and_what_makes_them() {
    let policy = policy_of("ValidatingPolicy", REQUIRE_APP);
    assert_eq!(policy.kind(), PolicyKind::Validating);
    assert_eq!((policy.namespace(), policy.emit_warning()), (None, true));
    let names: Vec<_> = policy.rules().iter().map(Rule::name).collect();
    assert_eq!(names, ["", "defaults", "cronjobs"]);
    let configs = policy.autogen_configs().unwrap();
    assert_eq!(
        configs["cronjobs"]["targets"],
        json!([{"group": "batch", "version": "v1", "resource": "cronjobs", "kind": "CronJob"}])
    );
    let targets = configs["defaults"]["targets"].as_array().unwrap();
    let kinds: Vec<_> = targets.iter().map(|target| &target["kind"]).collect();
    assert_eq!(
        kinds,
        [
            "DaemonSet",
            "Deployment",
            "ReplicaSet",
            "StatefulSet",
            "Job"
        ]
    );
    let request = of_resource("CREATE", POD, &pod(&json!({"team": "a"})));
    let found = outcomes(&policy, &request, no_facts);
    let fails = RuleOutcome::Fail {
        message: "say which app".to_owned(),
    };
    assert_eq!(found[0].1.outcome, fails);
    assert_eq!(found[0].1.action, FailureAction::Audit);
    let properties: Vec<_> = found[0].1.properties.iter().collect();
    let expected =
        [("cel.validationIndex", "1"), ("who", "ann")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(
        properties,
        expected.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>()
    );
    assert_eq!(found[1].1.outcome, RuleOutcome::NotMatched);
    let complies = of_resource("CREATE", POD, &pod(&json!({"app": "a"})));
    assert_eq!(
        outcomes(&policy, &complies, no_facts)[0].1.outcome,
        RuleOutcome::Pass
    );
    let deletion = of_resource("DELETE", POD, &pod(&json!({})));
    assert_eq!(
        outcomes(&policy, &deletion, no_facts)[0].1.outcome,
        RuleOutcome::NotMatched
    );
    let template = |labels: Value| {
        let object = json!({"metadata": {"name": "web", "namespace": "shop", "labels": {"app": "x"}},
            "spec": {"template": {"metadata": {"labels": labels}, "spec": {}}}});
        let request = of_resource("CREATE", DEPLOYMENT, &object);
        outcomes(&policy, &request, no_facts)[1].1.outcome.clone()
    };
    assert_eq!(template(json!({"team": "a"})), fails);
    assert_eq!(template(json!({"app": "a"})), RuleOutcome::Pass);
}

#[test]
fn a_missing_object_is_empty_as_in_kyverno() {
    let policy = policy_of(
        "ValidatingPolicy",
        "matchConstraints:\n  resourceRules:\n  - {apiGroups: [''], apiVersions: [v1], operations: ['*'], \
         resources: [pods]}\nvalidations:\n- expression: \"object != null && oldObject != null\"\n\
         - expression: \"size(request.operation == 'DELETE' ? object : oldObject) == 0\"\n",
    );
    for operation in ["CREATE", "DELETE"] {
        let request = of_resource(operation, POD, &pod(&json!({})));
        let outcome = outcomes(&policy, &request, no_facts)[0].1.outcome.clone();
        assert_eq!(outcome, RuleOutcome::Pass, "{operation}");
    }
}

#[test]
fn an_error_is_an_error_and_a_condition_may_skip_it() {
    let spec = |failure: &str, condition: &str| {
        format!(
            "failurePolicy: {failure}\nmatchConstraints:\n  resourceRules:\n  - {{apiGroups: ['*'], apiVersions: ['*'], \
             operations: ['*'], resources: [pods]}}\nmatchConditions:\n- {{name: c, expression: \"{condition}\"}}\n\
             validations:\n- expression: object.spec.nothing == 1\n"
        )
    };
    let of = |failure, condition: &str| {
        let policy = policy_of("ValidatingPolicy", &spec(failure, condition));
        let request = of_resource("CREATE", POD, &pod(&json!({})));
        outcomes(&policy, &request, no_facts)[0].1.outcome.clone()
    };
    let is_error = |outcome| matches!(outcome, RuleOutcome::Error(RuleError::Cel { .. }));
    let is_skip = |outcome| matches!(outcome, RuleOutcome::Skipped { .. });
    assert!(is_error(of("Fail", "true")));
    assert!(is_error(of("Ignore", "true")));
    assert!(is_skip(of("Fail", "false")));
    assert!(is_error(of("Fail", "object.a == 1")));
    assert!(is_skip(of("Ignore", "object.a == 1")));
    assert!(is_error(of("Ignore", &costly_condition())));
}

const BY_CONFIG_MAP: &str = r#"
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
autogen: {podControllers: {controllers: []}}
variables:
- {name: version, expression: "'v1'"}
- {name: limits, expression: "resource.get(variables.version, 'configmaps', object.metadata.namespace, 'limits')"}
- {name: pods, expression: "resource.list('v1', 'pods', '').items"}
validations:
- expression: "has(object.metadata.labels.exempt) || variables.limits == null || size(variables.pods) < int(variables.limits.data.pods)"
"#;

#[test]
fn facts_are_asked_for_together_and_only_where_they_matter() {
    let policy = policy_of("ValidatingPolicy", BY_CONFIG_MAP);
    let mut asked = Vec::new();
    let limits = |limits: Result<Value, FactError>, asked: &mut Vec<String>, labels: &Value| {
        let request = of_resource("CREATE", POD, &pod(labels));
        let mut answer = |subject: &FactSubject| {
            asked.push(subject.to_string());
            match subject {
                FactSubject::Api(ResolvedApiCall { path, .. }) if path.contains("configmaps") => {
                    limits.clone()
                }
                _ => Ok(json!({"apiVersion": "v1", "kind": "PodList", "items": [{}, {}]})),
            }
        };
        outcomes(&policy, &request, &mut answer)[0]
            .1
            .outcome
            .clone()
    };
    let absent = || FactError::ObjectNotFound {
        resource: "configmaps".to_owned(),
        namespace: "shop".to_owned(),
        name: "limits".to_owned(),
    };
    let of = |pods: &str| Ok(json!({"data": {"pods": pods}}));
    let none = json!({});
    assert_eq!(limits(of("3"), &mut asked, &none), RuleOutcome::Pass);
    assert_eq!(
        asked,
        ["/api/v1/namespaces/shop/configmaps/limits", "/api/v1/pods"]
    );
    assert!(matches!(
        limits(of("2"), &mut asked, &none),
        RuleOutcome::Fail { .. }
    ));
    assert_eq!(limits(Err(absent()), &mut asked, &none), RuleOutcome::Pass);
    let live = |message: &str| {
        Err(FactError::LiveReadFailed {
            code: 404,
            message: message.to_owned(),
        })
    };
    let of_none = live("configmaps \"limits\" not found");
    assert_eq!(limits(of_none, &mut asked, &none), RuleOutcome::Pass);
    let outcome = limits(live("404 page not found"), &mut asked, &none);
    assert!(matches!(outcome, RuleOutcome::Error(_)), "{outcome:?}");
    asked.clear();
    let unknown = Err(FactError::RequestInvalid {
        message: "gone".to_owned(),
    });
    let outcome = limits(unknown, &mut asked, &none);
    assert!(
        matches!(outcome, RuleOutcome::Error(RuleError::Fact { .. })),
        "{outcome:?}"
    );
    asked.clear();
    assert_eq!(
        limits(of("0"), &mut asked, &json!({"exempt": "yes"})),
        RuleOutcome::Pass
    );
    assert!(asked.is_empty(), "{asked:?}");
    let references: Vec<_> = policy
        .references()
        .map(|reference| reference.name())
        .collect();
    assert_eq!(
        references,
        ["/v1/configmaps/?&metadata.name=limits", "/v1/pods/?&"]
    );
}

#[test]
fn a_namespaced_policy_reads_its_own_namespace() {
    let spec = |expression: &str| {
        format!(
            "matchConstraints:\n  resourceRules:\n  - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
             resources: [pods]}}\nvalidations:\n- expression: >-\n    {expression}\n"
        )
    };
    let policy = policy_of(
        "NamespacedValidatingPolicy",
        &spec("resource.get('v1', 'configmaps', object.metadata.name) != null"),
    );
    assert_eq!(policy.namespace(), Some("shop"));
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    let mut asked = Vec::new();
    let found = outcomes(&policy, &request, |subject| {
        asked.push(subject.to_string());
        Ok(json!({}))
    });
    assert_eq!(found[0].1.outcome, RuleOutcome::Pass);
    assert_eq!(asked, ["/api/v1/namespaces/shop/configmaps/web"]);
    let reference = policy.references().next();
    assert!(matches!(reference, Some(Reference::Collection(found)) if found.namespace == "shop"));
    for (expression, says) in [
        (
            "resource.get('v1', 'configmaps', 'other', 'x') != null",
            "AR302",
        ),
        ("http.get('http://a.b/') != null", "AR304"),
    ] {
        let problems = problems_of("NamespacedValidatingPolicy", &spec(expression));
        assert!(
            problems.iter().any(|problem| problem.contains(says)),
            "{problems:?}"
        );
    }
}

#[test]
fn a_report_says_whether_the_moment_was_asked_for() {
    let arrival = crate::Arrival { now_ns: 1, seed: 2 };
    let request = of_resource("CREATE", POD, &pod(&json!({}))).arrived(arrival);
    for (expression, depends) in [
        ("true", false),
        ("true || time.now() == time.now()", false),
        ("time.now() < timestamp('2020-01-01T00:00:00Z')", true),
        ("random('[a-z]{3}').size() == 3", true),
    ] {
        let spec = format!(
            "matchConstraints:\n  resourceRules:\n  - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
             resources: [pods]}}\nvalidations:\n- expression: >-\n    {expression}\n"
        );
        let policy = policy_of("ValidatingPolicy", &spec);
        let report = &outcomes(&policy, &request, no_facts)[0].1;
        assert_eq!(report.outcome, RuleOutcome::Pass, "{expression}");
        assert_eq!(report.depends_on_arrival, depends, "{expression}");
    }
}

#[test]
fn fields_of_mutating_policies_alone_are_unknown_in_validating_ones() {
    for field in [
        "mutateExisting: {enabled: true}",
        "useServerSideApply: true",
        "skipBackgroundRequests: false",
    ] {
        let spec = format!(
            "evaluation: {{{field}}}\nmatchConstraints:\n  resourceRules:\n  - {{apiGroups: [''], apiVersions: [v1], \
             operations: [CREATE], resources: [pods]}}\nvalidations: [{{expression: 'true'}}]\n"
        );
        let name = field.split(':').next().unwrap();
        let problem = format!("AR302 spec.evaluation.{name}: unknown field");
        let problems = problems_of("ValidatingPolicy", &spec);
        assert!(
            problems.iter().any(|found| found.starts_with(&problem)),
            "{problems:?}"
        );
    }
}

#[test]
fn reads_that_no_view_can_answer_are_refused_with_their_field() {
    let of = |expression: &str| {
        let spec = format!(
            "matchConstraints:\n  resourceRules:\n  - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
             resources: [pods]}}\nvalidations:\n- expression: >-\n    {expression}\n"
        );
        problems_of("ValidatingPolicy", &spec).join("; ")
    };
    for (expression, says) in [
        (
            "resource.get('v1', object.kind, '', 'a') != null",
            "must be constant",
        ),
        (
            "resource.get('v1', 'pods', 'a/b', 'a') != null",
            "spec.validations",
        ),
        (
            "resource.post('v1', 'pods', 'a', {'spec': {}}) != null",
            "resource.post() makes no pods",
        ),
        (
            "resource.list('v1', 'pods') != null",
            "takes an API version",
        ),
        ("globalContext.get(object.kind) != null", "must be constant"),
        ("http.get(object.url) != null", "http"),
        (
            "http.client(object.ca).get('https://a.b/') != null",
            "the CA bundle of http.client() must be constant",
        ),
        (
            "http.client().get('https://a.b/') != null",
            "takes a CA bundle",
        ),
        ("http.client('x') != null", "right before the request"),
        (
            "http.client('x').put('https://a.b/') != null",
            "right before",
        ),
        ("nothing.get('a') != null", "nothing"),
        ("params.a == 1", "params"),
    ] {
        let problems = of(expression);
        assert!(problems.contains(says), "{expression}: {problems}");
    }
}

#[test]
fn the_body_of_a_post_may_be_a_variable() {
    let spec = r#"
matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
variables:
- name: body
  expression: >-
    {"kind": dyn("SubjectAccessReview"), "apiVersion": dyn("authorization.k8s.io/v1"),
     "spec": dyn({"user": object.metadata.name, "resourceAttributes": dyn({"verb": "delete"})})}
- {name: review, expression: "resource.Post('authorization.k8s.io/v1', 'subjectaccessreviews', variables.body)"}
validations:
- expression: variables.review.status.allowed
"#;
    let policy = policy_of("ValidatingPolicy", spec);
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    let mut posted = Vec::new();
    let found = outcomes(&policy, &request, |subject| {
        if let FactSubject::Api(ResolvedApiCall { path, data, .. }) = subject {
            posted.push((path.clone(), data.clone()));
        }
        Ok(json!({"status": {"allowed": true}}))
    });
    assert_eq!(found[0].1.outcome, RuleOutcome::Pass);
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let body = json!({
        "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"user": "web", "resourceAttributes": {"verb": "delete"}},
    });
    assert_eq!(posted, [(path.to_owned(), Some(body))]);
}

/// The answers of services are facts whatever their status, and a body may be any value.
#[test]
fn services_are_asked_with_their_bundles_and_bodies() {
    let spec = r#"
matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
variables:
- {name: ca, expression: "'PEM of ours'"}
- {name: found, expression: "http.client(variables.ca).get('https://a.b/x?n=' + object.metadata.name, {'A': 'b'})"}
- {name: told, expression: "http.Client('other').Post('https://a.b/told', [object.metadata.name, 1])"}
validations:
- expression: variables.found.statusCode == 404 && variables.told.body == null && http.Post('http://a.b/all', object).ok
"#;
    let policy = policy_of("ValidatingPolicy", spec);
    let object = pod(&json!({}));
    let request = of_resource("CREATE", POD, &object);
    let mut asked = Vec::new();
    let found = outcomes(&policy, &request, |subject| {
        let FactSubject::Service { url, data } = subject else {
            panic!("{subject}");
        };
        asked.push((url.clone(), data.clone()));
        Ok(match &**url {
            "https://a.b/x?n=web" => json!({"statusCode": 404}),
            "https://a.b/told" => json!({"statusCode": 200, "body": null}),
            _ => json!({"statusCode": 200, "ok": true}),
        })
    });
    assert_eq!(found[0].1.outcome, RuleOutcome::Pass);
    let expected = [
        ("https://a.b/x?n=web", None),
        ("https://a.b/told", Some(json!(["web", 1]))),
        ("http://a.b/all", Some(object)),
    ];
    assert_eq!(asked, expected.map(|(url, data)| (url.to_owned(), data)));
    let rule = &policy.rules()[0];
    let permitted = |(url, data): &(String, Option<Value>)| {
        let data = data.as_ref();
        let permit = |entry: &ContextEntry| {
            let permit = policy.permits(rule.name(), &entry.name, Call::Service { url, data });
            match permit.ok()? {
                Permit::Service {
                    headers,
                    ca_bundle,
                    takes_any_status: true,
                    ..
                } => Some((headers.to_vec(), ca_bundle)),
                _ => None,
            }
        };
        rule.entries().find_map(permit)
    };
    let header = ("A".to_owned(), "b".to_owned());
    let found: Vec<_> = asked.iter().filter_map(permitted).collect();
    let expected = [
        (vec![header], "PEM of ours"),
        (vec![], "other"),
        (vec![], ""),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_policy_about_other_payloads_says_no_more_than_that() {
    for kind in ["ValidatingPolicy", "MutatingPolicy"] {
        let problems = problems_of(kind, "evaluation: {mode: JSON}\n");
        assert!(
            matches!(&*problems, [one] if one.contains("AR301") && one.contains("`JSON`")),
            "{problems:?}"
        );
    }
}

#[test]
fn a_message_of_several_lines_is_told_whole() {
    let spec = r#"
matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
validations:
- {expression: "false", message: other, messageExpression: '"first\nsecond"'}
"#;
    let policy = policy_of("ValidatingPolicy", spec);
    let message = "first\nsecond".to_owned();
    let request = of_resource("CREATE", POD, &pod(&json!({})));
    assert_eq!(
        outcomes(&policy, &request, no_facts)[0].1.outcome,
        RuleOutcome::Fail { message }
    );
}
