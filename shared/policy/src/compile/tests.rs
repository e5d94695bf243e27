//! Tests of what manifests compile to, and of the problems found in them.

mod context;
mod kinds;
mod known_fields;
mod rules;

use anteroom_functions::testing::any_json;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{CONTEXT_ENTRIES_MAX, KINDS_BYTES_MAX, KINDS_MAX, RULES_MAX};
use crate::{FailureAction, FailurePolicy, MANIFEST_DEPTH_MAX, NotRun, Phase, Rule, compile};

fn problems(manifest: &str) -> String {
    let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
    match compile(&manifest) {
        Ok(policy) => format!("{policy:#?}"),
        Err(problems) => problems
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect(),
    }
}

/// The problems of a ClusterPolicy whose only rule is this.
fn rule_problems(rule: &str) -> String {
    let rule = rule.trim_matches('\n').replace('\n', "\n    ");
    problems(&format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  rules:\n  - name: r\n    {rule}\n"
    ))
}

#[test]
fn every_field_of_a_policy_is_compiled() {
    let manifest: Value = serde_saphyr::from_str(
        r#"
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: p, namespace: ns, uid: u-1, annotations: {a: b}, labels: {c: d}, generation: 3}
status: {ready: true}
spec:
  validationFailureAction: enforce
  failurePolicy: Ignore
  background: false
  emitWarning: true
  webhookTimeoutSeconds: 5
  webhookConfiguration: {timeoutSeconds: 7}
  rules:
  - name: one
    skipBackgroundRequests: true
    match: {resources: {kinds: [Pod, networking.k8s.io/v1/Ingress], operations: [CREATE], selector: {matchLabels: {a: "*"}, matchExpressions: [{key: b, operator: Exists}]}}}
    exclude: {any: [{resources: {names: [x, "y*"]}}], all: null}
    preconditions: [{key: "{{ request.operation }}", operator: equals, value: CREATE}]
    context: [{name: v, variable: {value: {a: 1}, jmesPath: a, default: 2}}]
    validate: {failureAction: Audit, message: "{{ v }}", deny: {conditions: {any: [{key: "{{ v }}", operator: AnyNotIn, value: "1-2", message: not so}]}}}
  - name: two
    match: {all: [{resources: {kinds: ["*/scale"]}}]}
    exclude: {}
    validate: {deny: {}}
"#,
    )
    .unwrap();
    let policy = compile(&manifest).unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert_eq!(
        (policy.name(), policy.namespace(), policy.uid()),
        ("p", Some("ns"), Some("u-1"))
    );
    assert_eq!(
        (policy.failure_policy(), policy.timeout_seconds()),
        (FailurePolicy::Ignore, Some(7))
    );
    assert!(policy.emit_warning() && policy.admission());
    let actions: Vec<_> = policy
        .rules()
        .iter()
        .map(|rule| (rule.name(), rule.action()))
        .collect();
    assert_eq!(
        actions,
        [
            ("one", FailureAction::Audit),
            ("two", FailureAction::Enforce)
        ]
    );
    let registered: Vec<_> = policy.registered_kinds(Phase::Validation).collect();
    assert_eq!(
        (
            registered.len(),
            registered[0].kinds.len(),
            registered[1].operations.len()
        ),
        (2, 2, 4)
    );
}

#[test]
fn all_problems_of_a_manifest_are_named() {
    insta::assert_snapshot!(problems(
        r#"
apiVersion: kyverno.io/v2
kind: ClusterPolicie
metadata: {}
spec:
  validationFailureAction: Deny
  validationFailureActionOverrides: [{}]
  failurePolicy: [Fail]
  webhookTimeoutSeconds: 31
  webhookConfiguration: {matchConditions: []}
  applyRules: One
  backgroud: true
  Rules: []
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {deny: {}}
  - name: r
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {}
  - 5
"#
    ));
}

#[test]
fn unsupported_kyverno_features_are_reported() {
    insta::assert_snapshot!(rule_problems(
        r#"
match:
  any:
  - resources: {kinds: [Pod], annotations: {a: b}, namespaceSelector: {}}
    roles: ["ns:edit"]
exclude: {clusterRoles: [admin]}
context:
- {name: a, imageRegistry: {reference: x}}
- {name: b, apiCall: {service: {url: "http://s/", headers: [{key: a, valueFrom: {}}]}}}
validate:
  assert: {}
  manifests: {}
  failureActionOverrides: []
  foreach: [{list: request.object.spec, foreach: []}]
"#
    ));
}

#[test]
fn rules_that_are_not_run_are_listed_beside_those_that_are() {
    let policy = |rules: Value| {
        compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": rules},
        }))
    };
    let pods = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
    let generate = json!({"name": "g", "match": pods, "generate": {"kind": "Secret"}});
    let verify = json!({"name": "v", "match": pods, "verifyImages": []});
    let validate = json!({"name": "r", "match": pods, "validate": {"pattern": {"spec": {"a": 1}}}});
    let found = policy(json!([verify, validate])).unwrap();
    let names: Vec<_> = found.rules().iter().map(Rule::name).collect();
    assert_eq!(names, ["r", "autogen-r", "autogen-cronjob-r"]);
    let not_run = [NotRun {
        rule: "v".to_owned(),
        kind: "verifyImages",
        path: "spec.rules[0].verifyImages".to_owned(),
    }];
    assert_eq!(found.not_run(), not_run);
    // A policy that generates derives nothing.
    let found = policy(json!([generate, validate])).unwrap();
    assert_eq!(found.rules().len(), 1);
    assert_eq!(found.not_run()[0].kind, "generate");
    for (work, kind) in [
        (
            json!({"mutate": {"targets": [{"kind": "Secret"}]}}),
            "mutate.targets",
        ),
        (
            json!({"mutate": {"targets": [{"kind": "Pod"}, {"kind": "Secret"}]}}),
            "mutate.targets",
        ),
        (
            json!({"validate": {"assert": {"a": 1}, "message": "m"}}),
            "validate.assert",
        ),
        (
            json!({"validate": {"manifests": {"attestors": []}}}),
            "validate.manifests",
        ),
    ] {
        let mut other = work.clone();
        (other["name"], other["match"]) = ("o".into(), pods.clone());
        let found = policy(json!([validate, other])).unwrap();
        let names: Vec<_> = found.rules().iter().map(Rule::name).collect();
        assert_eq!(names, ["r", "autogen-r", "autogen-cronjob-r"], "{work}");
        let [not_run] = found.not_run() else {
            panic!("{work}");
        };
        assert_eq!((&*not_run.rule, not_run.kind), ("o", kind));
        assert_eq!(not_run.path, format!("spec.rules[1].{kind}"));
        let problems = policy(json!([other])).unwrap_err();
        assert_eq!(problems[0].code.as_str(), "AR301", "{problems:?}");
        assert_eq!(problems[0].path, format!("spec.rules[0].{kind}"));
    }
    // As in Kyverno, images are taken out of other kinds for rules alone that are not run.
    let extractors = json!({"Task": [{"path": "/spec/steps/*/image"}]});
    let with = |rule: &Value, extractors: &Value| {
        let mut rule = rule.clone();
        rule["imageExtractors"] = extractors.clone();
        rule
    };
    assert!(policy(json!([with(&verify, &extractors), validate])).is_ok());
    assert!(policy(json!([with(&validate, &json!({}))])).is_ok());
    let problems = policy(json!([with(&validate, &extractors)])).unwrap_err();
    let told: Vec<_> = problems
        .iter()
        .map(|one| (one.code.as_str(), &*one.path))
        .collect();
    assert_eq!(told, [("AR302", "spec.rules[0].imageExtractors")]);
    // What else such a rule does would be passed over in silence.
    for work in [
        json!({"mutate": {"targets": []}, "validate": {"deny": {}}}),
        json!({"mutate": {"targets": []}, "generate": {}}),
        json!({"validate": {"assert": {}, "pattern": {"a": 1}}}),
        json!({"validate": {"manifests": {}, "foreach": []}}),
        json!({"validate": {"deny": {}}, "verifyImages": []}),
    ] {
        let mut both = work.clone();
        (both["name"], both["match"]) = ("o".into(), pods.clone());
        assert!(policy(json!([validate, both])).is_err(), "{work}");
    }
    // Nothing would be in force.
    let problems = policy(json!([generate, verify])).unwrap_err();
    assert_eq!(problems[0].path, "spec.rules[0].generate");
    assert_eq!(problems[1].path, "spec.rules[1].verifyImages");
}

#[test]
fn a_filter_of_users_may_have_empty_resources() {
    let found = |filter: Value| {
        compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "exclude": {"any": [filter]}, "validate": {"deny": {}},
            }]},
        }))
    };
    assert!(found(json!({"clusterRoles": ["admin"], "resources": {}})).is_ok());
    let problems = found(json!({"resources": {}})).unwrap_err();
    assert_eq!(problems[0].path, "spec.rules[0].exclude.any[0].resources");
}

#[test]
fn malformed_fields_of_a_rule_are_reported() {
    insta::assert_snapshot!(rule_problems(
        r#"
match:
  any:
  - resources: {kinds: [Pod, a/b/c/d/e, ""], operations: [PATCH], names: web, selector: {matchExpressions: [{key: a, operator: In}, {key: b, operator: Like, values: [x]}], matchLabels: {a: 1}}}
  - resources: {}
  - resource: {kinds: [Pod]}
  all: []
preconditions:
  all:
  - {key: "{{ request.object.metadata.name", operator: Equals, value: x}
  - {key: "{{ request.object..name }}", operator: Equls, value: "$(./a)"}
  - {operator: Equals, valu: "{{ shout(request.operation) }}", value: "{{ length() }}"}
context:
- {name: request, variable: {value: 1}}
- {name: both, variable: {value: 1}, cachedContextEntry: {name: x}}
- {name: neither}
- {name: c, cachedContextEntry: {jmesPath: "items[?name == '{{ later }}'", projection: x}}
- {name: whole, cachedContextEntry: {name: "{{ x }}", jmespath: "{{ request.name }}"}}
- {name: empty, variable: {default: 1}}
- {name: later, variable: {value: "{{ latest }} {{ later }}"}}
- {name: latest, variable: {jmesPath: "nope.a"}}
validate:
  message: "{{ images.a }} {{ element.x }} $(./a) {{ elementIndex0 }}"
  deny: {conditions: 5, condition: {}}
"#
    ));
}

/// A policy that does not compile is registered no further than some of its kinds.
#[test]
fn the_kinds_that_a_policy_names_are_limited_in_number_and_size() {
    let classic = |kinds: Vec<String>| {
        json!({
            "apiVersion": "kyverno.io/v1", "kind": "Policy",
            "metadata": { "name": "p", "namespace": "n" },
            "spec": { "rules": [{
                "name": "r", "validate": { "deny": {} },
                "match": { "any": [{ "resources": { "kinds": kinds } }] },
            }] },
        })
    };
    let numbered = |count: usize| {
        (0..count)
            .map(|at| format!("g{at}.x/v1/K"))
            .collect::<Vec<_>>()
    };
    let sized = |bytes: usize| vec!["K".repeat(bytes / 16); 16];
    let in_cel = |rules: usize, groups: usize, resources: usize| {
        let texts = |count: usize| (0..count).map(|at| format!("t{at}")).collect::<Vec<_>>();
        let rule = json!({
            "apiGroups": texts(groups), "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": texts(resources),
        });
        json!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy",
            "metadata": { "name": "p" },
            "spec": {
                "matchConstraints": { "resourceRules": vec![rule; rules] },
                "validations": [{ "expression": "true" }],
            },
        })
    };
    for (within, beyond) in [
        (
            classic(numbered(KINDS_MAX)),
            classic(numbered(KINDS_MAX + 1)),
        ),
        (
            classic(sized(KINDS_BYTES_MAX)),
            classic(sized(KINDS_BYTES_MAX + 16)),
        ),
        (in_cel(2, 32, 32), in_cel(64, 32, 32)),
        (in_cel(2, 32, 32), in_cel(3, 32, 32)),
    ] {
        assert_eq!(compile(&within).err(), None);
        let problems = compile(&beyond).unwrap_err();
        assert!(!problems.is_empty());
        for problem in problems {
            assert_eq!(problem.code.as_str(), "AR302");
            assert!(problem.message.contains("are the limit"), "{problem}");
        }
    }
}

#[test]
fn numbers_and_sizes_in_a_policy_are_limited() {
    let rule = |context: Value| {
        json!({
            "name": "r", "context": context, "validate": {"deny": {}},
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        })
    };
    let policy = |rules: Vec<Value>| {
        json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"rules": rules},
        })
    };
    let numbered = |count: usize| {
        (0..count)
            .map(|at| {
                let mut rule = rule(json!([]));
                rule["name"] = format!("r{at}").into();
                rule
            })
            .collect::<Vec<_>>()
    };
    assert!(compile(&policy(numbered(RULES_MAX))).is_ok());
    assert!(compile(&policy(numbered(RULES_MAX + 1))).is_err());
    let entries = |count: usize| {
        (0..count)
            .map(|at| json!({"name": format!("v{at}"), "variable": {"value": at}}))
            .collect::<Value>()
    };
    assert!(compile(&policy(vec![rule(entries(CONTEXT_ENTRIES_MAX))])).is_ok());
    assert!(compile(&policy(vec![rule(entries(CONTEXT_ENTRIES_MAX + 1))])).is_err());
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    // The value stands seven levels down.
    let deep = |levels: usize| {
        policy(vec![rule(
            json!([{"name": "v", "variable": {"value": nested(levels)}}]),
        )])
    };
    assert!(compile(&deep(MANIFEST_DEPTH_MAX - 8)).is_ok());
    assert!(compile(&deep(MANIFEST_DEPTH_MAX)).is_err());
    let long = json!({"name": "r", "match": "x".repeat(100_000), "x".repeat(100_000): 1});
    for problem in compile(&policy(vec![long])).unwrap_err() {
        assert!(problem.message.chars().count() <= 1025);
    }
    assert_eq!(
        compile(&policy(vec![json!(5); 1_000])).unwrap_err().len(),
        crate::ir::problem::PROBLEMS_MAX
    );
}

proptest! {
    #[test]
    fn compiling_anything_gives_a_policy_or_problems(manifest in any_json()) {
        prop_assert!(compile(&manifest).is_err_and(|problems| !problems.is_empty()));
    }

    #[test]
    fn compiling_any_field_of_a_rule_gives_a_policy_or_problems(
        field in prop::sample::select(vec!["match", "exclude", "context", "preconditions", "validate", "name", "x"]),
        value in any_json(),
    ) {
        let mut rule = json!({"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, "validate": {"deny": {}}});
        rule[field] = value;
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"rules": [rule]},
        });
        if let Err(problems) = compile(&manifest) {
            prop_assert!(!problems.is_empty());
        }
    }

    #[test]
    fn compiling_any_expression_gives_a_policy_or_problems(text in "[a-c.\\[\\]{}'`\"$@|&?=(), 0-9\\\\-]{0,24}") {
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "context": [{"name": "a", "cachedContextEntry": {"name": "e", "jmespath": text}}],
                "validate": {"message": format!("{{{{ {text} }}}}"), "deny": {}},
            }]},
        });
        if let Err(problems) = compile(&manifest) {
            prop_assert!(!problems.is_empty());
        }
    }
}

#[test]
fn malformed_fields_of_a_foreach_are_reported() {
    insta::assert_snapshot!(rule_problems(
        r#"
match: {any: [{resources: {kinds: [Pod]}}]}
context: [{name: outer, variable: {value: 1}}]
validate:
  message: "{{ element }} {{ outer }}"
  foreach:
  - {list: "nope[]", deny: {}}
  - {list: "request.object.spec[", deny: {}}
  - {deny: {conditions: []}}
  - {list: "outer"}
  - {list: "element.x", deny: {}}
  - list: "outer"
    preconditions: {all: [{key: "{{ inner }} {{ element }} {{ elementIndex }} {{ element0 }} {{ outer }}", operator: Equals, value: 1}]}
    context: [{name: inner, variable: {value: "{{ element }} {{ late }}"}}, {name: late, variable: {value: 1}}, {name: element, variable: {value: 1}}]
    deny: {conditions: {all: [{key: "{{ elementIndex1 }}", operator: Equals, value: 1}]}}
"#
    ));
    let both = "match: {any: [{resources: {kinds: [Pod]}}]}\nvalidate: {deny: {}, foreach: [{list: request.name, deny: {}}]}";
    assert!(rule_problems(both).contains("only one of deny and foreach"));
    let both = "match: {any: [{resources: {kinds: [Pod]}}]}\n\
                validate: {foreach: [{list: request.name, deny: {}, pattern: {a: b}}]}";
    assert!(rule_problems(both).contains("foreach[0].pattern: only one of deny and pattern"));
    let none = "match: {any: [{resources: {kinds: [Pod]}}]}\nvalidate: {foreach: []}";
    assert!(rule_problems(none).contains("validate.foreach: it is empty"));
}

#[test]
fn a_malformed_pod_security_rule_is_refused_with_its_field() {
    for (security, expected) in [
        ("{}", "podSecurity.level: it is required"),
        (
            "{level: strict}",
            "podSecurity.level: `strict` is none of privileged, baseline, restricted",
        ),
        (
            "{level: baseline, version: '1.2'}",
            "podSecurity.version: `1.2` is neither `latest`",
        ),
        (
            "{level: baseline, version: '1.18'}",
            "AR302 spec.rules[0].validate.podSecurity.version",
        ),
        (
            "{level: baseline, exclude: [{}]}",
            "exclude[0].controlName: it is required",
        ),
        (
            "{level: baseline, exclude: [{controlName: Seccom}]}",
            "exclude[0].controlName: `Seccom` is none of",
        ),
        (
            "{level: baseline, exclude: [{controlName: Sysctls, images: ['*']}]}",
            "exclude[0].images: the control `Sysctls` is not about containers",
        ),
    ] {
        let found = rule_problems(&format!(
            "match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}\nvalidate: {{podSecurity: {security}}}"
        ));
        assert!(found.contains(expected), "{security}: {found}");
    }
}

#[test]
fn a_label_may_have_no_value_and_no_wildcard_and_an_object_no_namespace() {
    let rule = |resources: &str| {
        let resources: Value = serde_saphyr::from_str(resources).unwrap();
        compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [{"name": "r", "match": {"any": [{"resources": resources}]},
                "validate": {"pattern": {"spec": {"a": 1}}}}]},
        }))
        .map(|_| ())
    };
    for resources in [
        "{kinds: [Pod], selector: {matchExpressions: [{key: env, operator: In, values: ['', prod]}]}}",
        "{kinds: ['*'], namespaces: ['']}",
    ] {
        assert_eq!(rule(resources), Ok(()), "{resources}");
    }
    assert!(rule("{kinds: ['*'], names: ['']}").is_err());
    for (resources, path) in [
        (
            "{kinds: [Pod], selector: {matchExpressions: [{key: 'app*', operator: Exists}]}}",
            "selector.matchExpressions[0].key",
        ),
        (
            "{kinds: [Pod], namespaceSelector: {matchExpressions: [{key: a/b, operator: NotIn, values: [c, 'd*']}]}}",
            "namespaceSelector.matchExpressions[0].values[1]",
        ),
    ] {
        let problems = rule(resources).unwrap_err();
        let expected = format!("spec.rules[0].match.any[0].resources.{path}");
        assert_eq!(problems[0].path, expected, "{resources}");
    }
}
