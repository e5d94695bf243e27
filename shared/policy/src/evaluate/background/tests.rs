use anteroom_model::GroupVersionResource;
use serde_json::{Value, json};

use super::*;
use crate::{Driver, Reporting, RuleOutcome, RuleStep, compile_for};

fn policy(spec: &Value) -> Policy {
    let manifest = json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "p", "annotations": {
            "policies.kyverno.io/category": "C", "policies.kyverno.io/severity": "high",
            "policies.kyverno.io/scored": "false",
            "pod-policies.kyverno.io/autogen-controllers": "none"}},
        "spec": spec});
    compile_for(&manifest, Driver::IN_CLUSTER).unwrap()
}

fn rule(matching: &Value, message: &str) -> Value {
    json!({"name": "r", "match": matching, "validate": {"message": message,
        "deny": {"conditions": {"all": [
            {"key": "{{ request.object.x }}", "operator": "Equals", "value": 1}]}}}})
}

fn on(kinds: &Value) -> Value {
    json!({"any": [{"resources": {"kinds": kinds}}]})
}

#[test]
fn rules_about_users_are_not_scanned_in_the_background() {
    let pods = on(&json!(["Pod"]));
    let by_user = json!({"any": [{"resources": {"kinds": ["Pod"]}, "subjects": [
        {"kind": "User", "name": "a"}]}]});
    let mutates = json!({"name": "m", "match": pods, "mutate": {"patchStrategicMerge": {"a": 1}}});
    for (spec, expected) in [
        (json!({"rules": [rule(&pods, "m")]}), None),
        (
            json!({"background": false, "rules": [rule(&pods, "m")]}),
            Some(NotScanned::Off),
        ),
        (
            json!({"rules": [rule(&by_user, "m")]}),
            Some(NotScanned::Users),
        ),
        (
            json!({"rules": [rule(&pods, "by {{ request.userInfo.username }}")]}),
            Some(NotScanned::Users),
        ),
        (
            json!({"rules": [rule(&pods, "by {{ serviceAccountName }}")]}),
            Some(NotScanned::Users),
        ),
        (
            json!({"rules": [rule(&pods, "{{ request.operation }} {{ request.namespace }}")]}),
            None,
        ),
        (
            json!({"rules": [rule(&pods, "m")], "webhookConfiguration": {"matchConditions": [
                {"name": "a", "expression": "object.a == 1"}]}}),
            None,
        ),
        (
            json!({"rules": [rule(&pods, "m")], "webhookConfiguration": {"matchConditions": [
                {"name": "a", "expression": "request.userInfo.username != 'a'"}]}}),
            Some(NotScanned::Users),
        ),
        (
            json!({"rules": [mutates]}),
            Some(NotScanned::NothingToValidate),
        ),
    ] {
        let policy = policy(&spec);
        assert_eq!(policy.not_scanned(), expected, "{spec}");
        assert_eq!(policy.scanned_kinds().is_empty(), expected.is_some());
    }
}

#[test]
fn policy_annotations_set_category_and_severity_of_reports() {
    let policy = policy(&json!({"rules": [rule(&on(&json!(["Pod"])), "m")]}));
    let expected = Reporting {
        category: Some("C".to_owned()),
        severity: Some("high"),
        unscored: true,
    };
    assert_eq!(policy.reporting(), &expected);
    assert_eq!(Reporting::severity_of("odd"), None);
}

fn served(gvr: [&str; 3], kind: &str, namespaced: bool, preferred: bool) -> KindRecord {
    KindRecord {
        gvr: GroupVersionResource::new(gvr[0], gvr[1], gvr[2]),
        kind: kind.to_owned(),
        namespaced,
        subresources: Vec::new(),
        preferred,
        watchable: true,
    }
}

#[test]
fn kinds_are_found_once_in_their_preferred_version() {
    let served = [
        served(["", "v1", "pods"], "Pod", true, true),
        served(["", "v1", "namespaces"], "Namespace", false, true),
        served(["", "v1", "secrets"], "Secret", true, true),
        served(["", "v1", "events"], "Event", true, true),
        served(["", "v1", "bindings"], "Binding", true, true),
        served(
            ["authentication.k8s.io", "v1", "tokenreviews"],
            "TokenReview",
            false,
            true,
        ),
        served(["batch", "v1beta1", "cronjobs"], "CronJob", true, false),
        served(["batch", "v2alpha1", "cronjobs"], "CronJob", true, false),
        served(["batch", "v1", "cronjobs"], "CronJob", true, true),
    ];
    let found = |patterns: &[&str], namespace: &str| -> Vec<String> {
        let patterns: Vec<_> = patterns
            .iter()
            .map(|p| KindPattern::parse(p).unwrap())
            .collect();
        scanned(&patterns, namespace, &served)
            .found
            .iter()
            .map(|(reference, _)| crate::Reference::Collection(reference.clone()).name())
            .collect()
    };
    for (patterns, namespace, expected) in [
        (&["Pod"][..], "", &["/v1/pods/?&"][..]),
        (&["Pod", "v1/Pod", "P*"], "", &["/v1/pods/?&"]),
        (&["Pod/*"], "", &["/v1/pods/?&"]),
        (&["Pod/exec", "Secret", "Event"], "", &[]),
        (&["CronJob"], "", &["batch/v1/cronjobs/?&"]),
        (
            &["batch/v1beta1/CronJob"],
            "",
            &["batch/v1beta1/cronjobs/?&"],
        ),
        // Of other versions, the first that the API server names.
        (
            &["batch/v2alpha1/CronJob", "batch/v1beta1/CronJob"],
            "",
            &["batch/v1beta1/cronjobs/?&"],
        ),
        (
            &["*"],
            "",
            &["/v1/namespaces/?&", "/v1/pods/?&", "batch/v1/cronjobs/?&"],
        ),
        (&["*"], "a", &["/v1/pods/a?&", "batch/v1/cronjobs/a?&"]),
    ] {
        assert_eq!(found(patterns, namespace), expected, "{patterns:?}");
    }
}

#[test]
fn no_more_kinds_are_scanned_than_the_limit() {
    let many: Vec<_> = (0..=SCANNED_MAX)
        .map(|n| served(["", "v1", &format!("kind{n:04}")], "Kind", true, true))
        .collect();
    let all = [KindPattern::any()];
    for (served, left_out) in [(&many[..], 1), (&many[1..], 0)] {
        let scanned = scanned(&all, "", served);
        assert_eq!(
            (scanned.found.len(), scanned.left_out),
            (SCANNED_MAX, left_out)
        );
    }
}

#[test]
fn kinds_that_cannot_be_watched_do_not_count_towards_the_limit() {
    let mut many: Vec<_> = (0..=SCANNED_MAX + 1)
        .map(|n| served(["", "v1", &format!("kind{n:04}")], "Kind", true, true))
        .collect();
    many[0].watchable = false;
    many[2].watchable = false;
    let mut older = many[1].clone();
    older.gvr.version = "v0".to_owned();
    older.watchable = false;
    many.push(older);
    let all = [KindPattern::any()];
    let scanned = scanned(&all, "", &many);
    assert_eq!((scanned.found.len(), scanned.left_out), (SCANNED_MAX, 2));
    let last = scanned.found.last().map(|(_, kind)| &*kind.gvr.resource);
    assert_eq!(last, Some("kind0129"));
}

#[test]
fn a_policy_off_at_admission_still_judges_existing_objects() {
    let spec = json!({"admission": false, "rules": [rule(&on(&json!(["Pod"])), "m")]});
    let policy = policy(&spec);
    let request = AdmissionRequest::new(json!({"operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"metadata": {"name": "a"}, "x": 1}}))
    .unwrap();
    let outcome = |mut evaluation: Evaluation<'_>| match evaluation.step() {
        RuleStep::Done(report) => report.outcome,
        RuleStep::Need(_) => panic!("there are no facts"),
    };
    let rule = &policy.rules()[0];
    let message = "m".to_owned();
    assert_eq!(
        outcome(Evaluation::of_existing(&policy, rule, &request)),
        RuleOutcome::Fail { message }
    );
    assert_eq!(
        outcome(Evaluation::start(&policy, rule, &request)),
        RuleOutcome::NotMatched
    );
    assert_eq!(rule.pass_message(), "validation rule 'r' passed.");
}

#[test]
fn a_namespaced_policy_judges_existing_objects_of_its_own_namespace_alone() {
    let manifest = json!({"apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"rules": [rule(&on(&json!(["Pod"])), "m")]}});
    let policy = compile_for(&manifest, Driver::IN_CLUSTER).unwrap();
    let fails = RuleOutcome::Fail {
        message: "m".to_owned(),
    };
    for (namespace, expected) in [("ns", fails), ("other", RuleOutcome::NotMatched)] {
        let request = AdmissionRequest::new(json!({"operation": "CREATE", "namespace": namespace,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {"metadata": {"name": "a", "namespace": namespace}, "x": 1}}))
        .unwrap();
        let step = Evaluation::of_existing(&policy, &policy.rules()[0], &request).step();
        let RuleStep::Done(report) = step else {
            panic!("{namespace}: {step:?}");
        };
        assert_eq!(report.outcome, expected, "{namespace}");
    }
}
