//! Policies of policies.kyverno.io.

use anteroom_model::EntryKind;
use serde_json::{Value, json};

use crate::{FailureAction, Policy, Problem, ReadSource, Rule, compile, ir::matching::Matches};

/// A policy on Pods, with these fields of `spec` too.
fn compiled(kind: &str, more: &Value) -> Result<Policy, Vec<Problem>> {
    let mut spec = json!({"matchConstraints": {"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
    }]}});
    for (name, value) in more.as_object().unwrap() {
        spec[name.as_str()] = value.clone();
    }
    compile(&json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": kind,
        "metadata": {"name": "p", "namespace": "shop"}, "spec": spec,
    }))
}

fn judging(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

/// The problems of a policy that judges by this.
fn problems(expression: &str) -> String {
    let problems = compiled("ValidatingPolicy", &judging(expression)).err();
    let problems = problems.unwrap_or_default();
    problems.iter().map(|one| format!("{one}\n")).collect()
}

#[test]
fn a_violation_is_denied_unless_only_other_actions_are_named() {
    for (actions, expected) in [
        (json!(null), FailureAction::Enforce),
        (json!(["Deny"]), FailureAction::Enforce),
        (json!(["Warn", "Deny"]), FailureAction::Enforce),
        (json!(["Audit"]), FailureAction::Audit),
        (json!(["Warn"]), FailureAction::Audit),
    ] {
        let mut spec = judging("true");
        spec["validationActions"] = actions.clone();
        let policy = compiled("ValidatingPolicy", &spec).unwrap();
        assert_eq!(policy.rules()[0].action(), expected, "{actions}");
    }
}

#[test]
fn rules_are_derived_for_the_controllers_that_a_policy_names() {
    for (controllers, rules, last) in [
        (
            json!(null),
            vec!["", "defaults", "cronjobs"],
            vec!["cronjobs"],
        ),
        (json!(["cronjobs"]), vec!["", "cronjobs"], vec!["cronjobs"]),
        (
            json!(["jobs", "deployments"]),
            vec!["", "defaults"],
            vec!["deployments", "jobs"],
        ),
    ] {
        let mut spec = judging("true");
        spec["autogen"] = json!({"podControllers": {"controllers": controllers}});
        let policy = compiled("ValidatingPolicy", &spec).unwrap();
        let names: Vec<_> = policy.rules().iter().map(Rule::name).collect();
        assert_eq!(names, rules, "{controllers}");
        let kinds = policy.rules().last().unwrap().kinds();
        let plurals = kinds.filter_map(|kind| kind.resource.as_ref());
        let plurals: Vec<_> = plurals.map(|one| one.plural.as_str()).collect();
        assert_eq!(plurals, last, "{controllers}");
    }
}

#[test]
fn a_resource_rule_says_which_versions_and_which_scope_are_meant() {
    for (match_policy, scope, expected) in [
        (json!(null), json!(null), (true, None)),
        (json!("Exact"), json!("Cluster"), (false, Some(false))),
        (json!("Equivalent"), json!("Namespaced"), (true, Some(true))),
        (json!("Equivalent"), json!("*"), (true, None)),
    ] {
        let mut spec = judging("true");
        spec["matchConstraints"] = json!({"matchPolicy": match_policy, "resourceRules": [{
            "apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"],
            "scope": scope,
        }]});
        let policy = compiled("ValidatingPolicy", &spec).unwrap();
        let Matches::Constraints(constraints) = &policy.rules()[0].matches else {
            panic!("{policy:?}");
        };
        let rule = &constraints.include[0];
        let resource = rule.kinds[0].resource.as_ref().unwrap();
        let found = (resource.is_equivalent, rule.in_namespace);
        assert_eq!(found, expected, "{match_policy} {scope}");
    }
}

/// A view of all namespaces would be kept for nothing, and be no business of a policy of one.
#[test]
fn a_call_is_a_fact_in_one_namespace_or_in_none_unless_only_the_request_tells() {
    for (kind, call, expected) in [
        ("ValidatingPolicy", "'v1', 'pods', ''", [false, true]),
        ("ValidatingPolicy", "'v1', 'pods', 'a'", [true, false]),
        (
            "ValidatingPolicy",
            "'v1', 'pods', object.metadata.namespace",
            [true, true],
        ),
        ("NamespacedValidatingPolicy", "'v1', 'pods'", [true, false]),
    ] {
        let spec = judging(&format!("size(resource.list({call}).items) < 9"));
        let policy = compiled(kind, &spec).unwrap();
        let [fact] = &policy.rules()[0].cel().unwrap().facts[..] else {
            panic!("{call}");
        };
        let entries = fact.entries.each_ref().map(Option::is_some);
        assert_eq!(entries, expected, "{call}");
    }
}

#[test]
fn the_labels_of_a_list_become_its_selector() {
    let list = |labels: &str| format!("size(resource.list('v1', 'pods', '', {labels}).items) < 9");
    for (labels, start, end) in [
        ("null", "/api/v1/pods", "/pods"),
        ("{'app': 'x'}", "/api/v1/pods?labelSelector=app=x", "=x"),
        (
            "{'app': object.metadata.name, 'tier': 'web'}",
            "/api/v1/pods?labelSelector=app={{ ",
            " }},tier=web",
        ),
        (
            "object.metadata.labels",
            "/api/v1/pods?labelSelector={{ ",
            " }}",
        ),
    ] {
        let policy = compiled("ValidatingPolicy", &judging(&list(labels))).unwrap();
        let reads = policy.rules()[0].reads();
        let (ReadSource::Kept { path, .. } | ReadSource::Call { path, .. }) = &reads[0].source
        else {
            panic!("{reads:?}");
        };
        assert!(
            path.starts_with(start) && path.ends_with(end),
            "{labels}: {path}"
        );
    }
    for (labels, says) in [
        ("{'app': 1}", "the labels of a list are texts"),
        ("'app=x'", "the labels of a list are a map of texts"),
        (
            "{'app': object.metadata.name, 'tier': 'x,y'}",
            "`x,y` is no value of a label",
        ),
    ] {
        let problems = problems(&list(labels));
        assert!(problems.contains(says), "{labels}: {problems}");
    }
}

/// Whatever else is posted would change something.
#[test]
fn a_review_is_posted_in_its_own_group_alone() {
    let post = |group: &str, plural: &str| {
        problems(&format!(
            "resource.post('{group}/v1', '{plural}', '', {{'spec': {{'token': 'x'}}}}) != null"
        ))
    };
    assert_eq!(post("authentication.k8s.io", "tokenreviews"), "");
    for (group, plural) in [
        ("authorization.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "subjectaccessreviews"),
        ("x.io", "tokenreviews"),
    ] {
        let problems = post(group, plural);
        let says = format!("resource.post() makes no {plural} of {group}");
        assert!(problems.contains(&says), "{problems}");
    }
}

#[test]
fn an_entry_is_read_by_its_name_and_its_projection() {
    for (call, expected) in [("'e', 'p'", "e.p"), ("'e'", "e")] {
        let spec = judging(&format!("globalContext.get({call}) != null"));
        let policy = compiled("ValidatingPolicy", &spec).unwrap();
        let entries: Vec<_> = policy.entries().collect();
        assert_eq!(entries, [(EntryKind::Global, "e")], "{call}");
        let source = ReadSource::Entry {
            kind: EntryKind::Global,
            name: expected.to_owned(),
        };
        let reads = policy.rules()[0].reads();
        let sources: Vec<_> = reads.iter().map(|read| &read.source).collect();
        assert_eq!(sources, [&source], "{call}");
    }
    assert_ne!(problems("globalContext.get('a/b') != null"), "");
}

#[test]
fn the_definition_of_each_custom_kind_without_wildcards_is_read() {
    let rule = |groups: &[&str], resources: &[&str]| {
        json!({"apiGroups": groups, "apiVersions": ["v1", "v2"], "operations": ["CREATE"],
            "resources": resources})
    };
    let spec = json!({
        "matchConstraints": {"resourceRules": [
            rule(&["example.com"], &["widgets", "gadgets", "*"]),
            rule(&["*", "apps", ""], &["things"]),
        ]},
        "mutations": [{"applyConfiguration": {"expression": "Object{}"}}],
    });
    let policy = compiled("MutatingPolicy", &spec).unwrap();
    let entries = policy.rules()[0].entries();
    let mut found: Vec<_> = entries.map(|entry| entry.name.as_str()).collect();
    found.sort_unstable();
    let of = |name: &str| {
        format!(
            "resource.get(\"apiextensions.k8s.io/v1\", \"customresourcedefinitions\", \"\", \"{name}.example.com\")"
        )
    };
    assert_eq!(found, [of("gadgets"), of("widgets")]);
}
