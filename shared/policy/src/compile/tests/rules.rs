//! Rules of kyverno.io, compiled.

use serde_json::{Value, json};

use super::rule_problems;
use crate::{
    Driver, NotRun, Policy, Problem, compile, derived_rules,
    ir::{
        matching::{Filters, Match, Matches},
        rule::{Check, Validation, Work},
    },
    none_run,
};

fn manifest(rules: &Value) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": {"name": "p", "namespace": "own"}, "spec": {"rules": rules},
    })
}

fn policy(rules: &Value) -> Result<Policy, Vec<Problem>> {
    compile(&manifest(rules))
}

fn matching(kind: &str) -> Value {
    json!({"any": [{"resources": {"kinds": [kind]}}]})
}

/// A rule that was dropped in silence would leave its policy in force in name alone.
#[test]
fn a_rule_that_does_something_is_run_and_one_that_does_nothing_is_refused() {
    let validate = json!({"name": "r", "match": matching("ConfigMap"), "validate": {"deny": {}}});
    let targets = json!({"name": "t", "match": matching("ConfigMap"), "mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod", "namespace": "own"}],
        "patchStrategicMerge": {"spec": {"a": "b"}},
    }});
    let found = policy(&json!([validate, targets])).unwrap();
    assert!(found.rules().iter().any(|rule| rule.name() == "t"));
    assert!(found.not_run().is_empty());
    let nothing = json!({"name": "n", "match": matching("ConfigMap")});
    let problems = policy(&json!([validate, nothing])).unwrap_err();
    assert_eq!(problems[0].path, "spec.rules[1].validate");
}

#[test]
fn rules_that_are_not_run_or_derived_are_known_without_compiling() {
    let validate =
        json!({"name": "r", "match": matching("Pod"), "validate": {"pattern": {"spec": {"a": 1}}}});
    let verify = json!({"name": "v", "match": matching("Pod"), "verifyImages": []});
    let none = none_run(&manifest(&json!([verify])), Driver::ALL);
    let expected = [NotRun {
        rule: "v".to_owned(),
        kind: "verifyImages",
        path: "spec.rules[0].verifyImages".to_owned(),
    }];
    assert_eq!(none, expected);
    let some = none_run(&manifest(&json!([verify, validate])), Driver::ALL);
    assert!(some.is_empty(), "{some:?}");
    let derived = derived_rules(&manifest(&json!([validate])));
    let names: Vec<_> = derived.iter().map(|rule| &rule["name"]).collect();
    assert_eq!(names, ["autogen-r", "autogen-cronjob-r"]);
}

/// Compiles the `exclude` of a rule, and hands it over.
fn with_exclude(exclude: &Value, check: impl FnOnce(&Match)) {
    let rule = json!({"name": "r", "match": matching("ConfigMap"), "exclude": exclude, "validate": {"deny": {}}});
    let policy =
        policy(&json!([rule])).unwrap_or_else(|problems| panic!("{exclude}: {problems:?}"));
    let Matches::Filters(found) = &policy.rules()[0].matches else {
        panic!("{policy:?}");
    };
    check(found);
}

#[test]
fn an_empty_exclude_excludes_nothing() {
    for exclude in [
        json!({}),
        json!({"any": null}),
        json!({"any": []}),
        json!({"resources": {}}),
    ] {
        with_exclude(&exclude, |found| {
            assert!(found.exclude.is_none(), "{exclude}");
        });
    }
}

#[test]
fn a_filter_keeps_its_resources_beside_its_users() {
    let exclude = json!({"any": [{
        "resources": {"kinds": ["Secret"]},
        "subjects": [
            {"kind": "User", "name": "ann"},
            {"kind": "Group", "name": "dev"},
            {"kind": "ServiceAccount", "name": "bot", "namespace": "ci"},
        ],
    }]});
    with_exclude(&exclude, |found| {
        let Some(Filters::Any(filters)) = &found.exclude else {
            panic!("{found:?}");
        };
        let [filter] = &filters[..] else {
            panic!("{filters:?}");
        };
        let kinds: Vec<_> = filter.kinds.iter().map(|kind| &*kind.kind).collect();
        assert_eq!((kinds, filter.is_about_users), (vec!["Secret"], false));
        assert_eq!(
            format!("{:?}", filter.users.subjects),
            r#"[User("ann"), Group("dev"), ServiceAccount("system:serviceaccount:ci:bot")]"#
        );
    });
}

#[test]
fn a_namespaced_policy_may_write_its_own_namespace_out_in_a_cache() {
    let with = |namespace: &str| {
        policy(&json!([{
            "name": "r", "match": matching("ConfigMap"), "validate": {"deny": {}},
            "context": [{"name": "v", "resourceCache": {
                "group": "", "version": "v1", "kind": "configmaps", "namespace": namespace,
            }}],
        }]))
    };
    assert!(with("own").is_ok());
    let problems = with("other").unwrap_err();
    assert_eq!(problems[0].code.as_str(), "AR304");
}

/// Without its field, an exclusion would let more pass.
#[test]
fn an_exclusion_of_a_control_is_about_the_field_that_it_names() {
    let field = "spec.securityContext.sysctls[*].name";
    let policy = policy(&json!([{
        "name": "r", "match": matching("Pod"),
        "validate": {"podSecurity": {"level": "baseline", "exclude": [
            {"controlName": "Sysctls", "restrictedField": field, "values": ["a"]},
            {"controlName": "Sysctls", "restrictedField": ""},
        ]}},
    }]))
    .unwrap();
    let Work::Validate(Validation::Whole(Check::PodSecurity(security))) = &policy.rules()[0].work
    else {
        panic!("{policy:?}");
    };
    let fields: Vec<_> = security
        .exclusions
        .iter()
        .map(|one| one.field.as_deref())
        .collect();
    assert_eq!(fields, [Some(field), None]);
}

#[test]
fn an_unknown_field_is_told_with_one_like_it_unless_it_is_short() {
    let problems = rule_problems(
        "match: {any: [{resources: {kinds: [Pod], nam: x}}], al: []}\nvalidate: {deny: {}}",
    );
    assert!(problems.contains("did you mean `name`?"), "{problems}");
    assert!(problems.contains("unknown field `al`"), "{problems}");
    assert!(!problems.contains("did you mean `all`?"), "{problems}");
}
