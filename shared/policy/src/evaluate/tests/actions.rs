//! Tests of the consequence of a violation, by object.

use super::*;
use crate::{Driver, FailureAction::*, compile_for};

fn of(spec: &str, validate: &str) -> Policy {
    let mut spec: Value = serde_saphyr::from_str(spec).unwrap();
    let mut fields: Value = serde_saphyr::from_str(validate).unwrap();
    fields["deny"] = json!({"conditions": {"any": [
        {"key": "{{ request.object.spec.rules[0].host }}", "operator": "Equals", "value": "x"},
    ]}});
    spec["rules"] = json!([{
        "name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]}, "validate": fields,
    }]);
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": spec,
    });
    compile_for(&manifest, Driver::ALL).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn report(policy: &Policy, labels: &Result<Value, FactError>) -> (RuleReport, usize) {
    let request = create(&ingress("a", &["x"]));
    let (report, asked) = drive_over(policy, &request, |_| labels.clone());
    (report, asked.len())
}

const BY_LABEL: &str = "namespaceSelector: {matchLabels: {env: prod}}";

#[test]
fn the_first_override_about_the_object_counts() {
    let labels = || Ok(json!({"env": "prod"}));
    for (spec, validate, action, asks) in [
        ("{}", "{}", Audit, 0),
        ("{validationFailureAction: enforce}", "{}", Enforce, 0),
        (
            "{validationFailureAction: Enforce}",
            "{failureAction: Audit}",
            Audit,
            0,
        ),
        // The request's namespace is `ns`.
        (
            "{validationFailureActionOverrides: [{action: enforce, namespaces: [other, 'n?']}]}",
            "{}",
            Enforce,
            0,
        ),
        (
            "{validationFailureActionOverrides: [{action: Enforce, namespaces: [other]}]}",
            "{}",
            Audit,
            0,
        ),
        (
            "{validationFailureActionOverrides: [{action: Audit, namespaces: [ns]}, {action: Enforce, namespaces: [ns]}]}",
            "{}",
            Audit,
            0,
        ),
        // The rule's own action takes precedence over the policy's.
        (
            "{validationFailureActionOverrides: [{action: Enforce, namespaces: [ns]}]}",
            "{failureAction: Audit}",
            Audit,
            0,
        ),
        (
            "{validationFailureAction: Audit}",
            "{failureActionOverrides: [{action: Enforce, namespaces: [ns]}]}",
            Enforce,
            0,
        ),
        // One that names nothing is about everything.
        (
            "{validationFailureActionOverrides: [{action: Enforce}]}",
            "{}",
            Enforce,
            0,
        ),
        (
            "{validationFailureAction: Audit}",
            "{failureActionOverrides: [{action: Audit, namespaces: [x]}, {action: Enforce, namespaces: []}]}",
            Enforce,
            0,
        ),
        // Both have to deny: the rule's own, and what else is said.
        (
            "{validationFailureActionOverrides: [{action: Audit, namespaces: [ns]}]}",
            "{failureAction: Enforce}",
            Audit,
            0,
        ),
        (
            "{validationFailureActionOverrides: [{action: Audit, namespaces: [other]}]}",
            "{failureAction: Enforce}",
            Enforce,
            0,
        ),
        (
            "{validationFailureAction: Enforce, validationFailureActionOverrides: [{action: Audit, namespaces: [ns]}]}",
            "{failureActionOverrides: [{action: Enforce, namespaces: [other]}]}",
            Audit,
            0,
        ),
        // An override that audits applies by name or by labels; an override that enforces needs both.
        (
            &format!(
                "{{validationFailureAction: Enforce, validationFailureActionOverrides: [{{action: Audit, namespaces: [other], {BY_LABEL}}}]}}"
            ),
            "{}",
            Audit,
            1,
        ),
        (
            &format!(
                "{{validationFailureAction: Enforce, validationFailureActionOverrides: [{{action: Audit, namespaces: [ns], {}}}]}}",
                BY_LABEL.replace("prod", "dev")
            ),
            "{}",
            Audit,
            0,
        ),
        (
            &format!("{{validationFailureActionOverrides: [{{action: Enforce, {BY_LABEL}}}]}}"),
            "{}",
            Enforce,
            1,
        ),
        (
            &format!(
                "{{validationFailureActionOverrides: [{{action: Enforce, namespaces: [other], {BY_LABEL}}}]}}"
            ),
            "{}",
            Audit,
            0,
        ),
        (
            &format!(
                "{{validationFailureActionOverrides: [{{action: Enforce, namespaces: [ns], {}}}]}}",
                BY_LABEL.replace("prod", "dev")
            ),
            "{}",
            Audit,
            1,
        ),
    ] {
        let (report, asked) = report(&of(spec, validate), &labels());
        assert!(
            matches!(report.outcome, RuleOutcome::Fail { .. }),
            "{spec} {validate}"
        );
        assert_eq!((report.action, asked), (action, asks), "{spec} {validate}");
    }
}

#[test]
fn only_an_override_for_all_namespaces_covers_cluster_scoped_objects() {
    let everywhere = |action: &str| format!("{{action: {action}, namespaces: ['*']}}");
    let foo = "{action: Audit, namespaces: [foo]}";
    let labelled = &format!("{{action: Audit, {BY_LABEL}}}");
    let object = |kind: &str, env: &str, host: &str| {
        json!({"kind": kind, "metadata": {"name": "foo", "labels": {"env": env}},
            "spec": {"rules": [{"host": host}]}})
    };
    let request = |operation: &str, kind: &str, env: &str| {
        let old = match operation {
            "CREATE" => Value::Null,
            _ => object(kind, env, "y"),
        };
        let namespace = if kind == "Namespace" { "foo" } else { "" };
        AdmissionRequest::new(json!({
            "operation": operation, "namespace": namespace, "name": "foo", "userInfo": {},
            "kind": {"group": "", "version": "v1", "kind": kind},
            "object": object(kind, "prod", "x"), "oldObject": old,
        }))
        .unwrap()
    };
    let create = request("CREATE", "Node", "");
    let (made, changed) = (
        request("CREATE", "Namespace", ""),
        request("UPDATE", "Namespace", "prod"),
    );
    for (default, overriding, request, action) in [
        ("Audit", "{action: Enforce}", &create, Enforce),
        ("Audit", &*everywhere("Enforce"), &create, Audit),
        ("Enforce", &everywhere("Audit"), &create, Audit),
        ("Enforce", labelled, &create, Enforce),
        // A request about a Namespace is in this Namespace, once the Namespace exists.
        ("Enforce", foo, &made, Enforce),
        ("Enforce", foo, &changed, Audit),
        ("Enforce", labelled, &made, Enforce),
        ("Enforce", labelled, &changed, Audit),
        (
            "Enforce",
            labelled,
            &request("UPDATE", "Namespace", "dev"),
            Enforce,
        ),
    ] {
        let spec = format!(
            "{{validationFailureAction: {default}, validationFailureActionOverrides: [{overriding}]}}"
        );
        let (report, _) = drive(&of(&spec, "{}"), request, nothing);
        assert!(matches!(report.outcome, RuleOutcome::Fail { .. }));
        assert_eq!(report.action, action, "{spec} {:?}", request.operation());
    }
}

#[test]
fn with_apply_rules_one_a_passing_rule_has_its_overridden_action() {
    let overrides = "validationFailureActionOverrides: [{action: Enforce, namespaces: [ns]}]";
    for (applies, action) in [("All", Audit), ("One", Enforce)] {
        let policy = of(&format!("{{applyRules: {applies}, {overrides}}}"), "{}");
        let (report, _) = drive(&policy, &create(&ingress("a", &["y"])), nothing);
        assert_eq!((report.outcome, report.action), (RuleOutcome::Pass, action));
    }
}

#[test]
fn labels_that_are_not_known_leave_it_to_the_failure_policy() {
    let policy = of(
        &format!("{{validationFailureActionOverrides: [{{action: Enforce, {BY_LABEL}}}]}}"),
        "{}",
    );
    let (report, _) = report(&policy, &Err(unsynced()));
    assert!(
        matches!(report.outcome, RuleOutcome::Error(_)),
        "{report:?}"
    );
    assert_eq!(report.action, Enforce);
    // Who complies is not asked about.
    let request = create(&ingress("a", &["y"]));
    let (report, _) = drive_over(&policy, &request, nothing);
    assert_eq!(report.outcome, RuleOutcome::Pass);
    // An error of the rule itself is told.
    let request = create(&json!({"kind": "Ingress", "metadata": {"name": "a", "namespace": "ns"}}));
    let (report, asked) = drive_over(&policy, &request, |_| Err(unsynced()));
    assert!(
        matches!(
            report.outcome,
            RuleOutcome::Error(RuleError::Variable { .. })
        ),
        "{report:?}"
    );
    assert_eq!((report.action, asked.len()), (Enforce, 1));
}

#[test]
fn a_malformed_override_or_match_condition_is_refused_with_its_path() {
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {
            "validationFailureActionOverrides": [{"action": "Deny"}, {"namespaces": [""]}, {"action": "Audit", "x": 1}],
            "webhookConfiguration": {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "b"}]},
            "rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, "validate": {"deny": {}}}],
        },
    });
    let problems = compile_for(&manifest, Driver::ALL).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|problem| &*problem.path).collect();
    assert_eq!(
        paths,
        [
            "spec.webhookConfiguration.matchConditions[1].expression",
            "spec.validationFailureActionOverrides[0].action",
            "spec.validationFailureActionOverrides[1].action",
            "spec.validationFailureActionOverrides[1].namespaces[0]",
            "spec.validationFailureActionOverrides[2].x",
        ],
        "{problems:#?}"
    );
}

#[test]
fn apply_rules_one_is_read() {
    assert!(of("{applyRules: One}", "{}").applies_one());
    assert!(!of("{applyRules: All}", "{}").applies_one());
}

#[test]
fn only_a_rule_that_enforces_by_itself_excuses_an_old_violation() {
    let bad = ingress("a", &["x"]);
    let update = request("UPDATE", &bad, &bad);
    for (spec, is_excused) in [
        ("{validationFailureAction: Enforce}", true),
        ("{}", false),
        (
            "{validationFailureActionOverrides: [{action: Enforce, namespaces: [ns]}]}",
            false,
        ),
        (
            "{validationFailureAction: Enforce, validationFailureActionOverrides: [{action: Audit, namespaces: [ns]}]}",
            true,
        ),
    ] {
        let found = drive(&of(spec, "{}"), &update, nothing).0.outcome;
        let excused = matches!(found, RuleOutcome::Skipped { .. });
        assert_eq!(excused, is_excused, "{spec}: {found:?}");
    }
}

#[test]
fn a_rule_that_compares_both_states_is_not_excused_by_the_old_one() {
    let new = "{{ request.object.spec.rules[0].host }}";
    let compares = |old: &str| {
        let condition = json!({"key": new, "operator": "NotEquals", "value": old});
        json!({"deny": {"conditions": {"any": [condition]}}})
    };
    let pattern = |old: &str| json!({"spec": {"rules": [{"host": old}]}});
    let old = "{{ request.oldObject.spec.rules[0].host }}";
    let update = request("UPDATE", &ingress("a", &["y"]), &ingress("a", &["x"]));
    for (validate, is_excused) in [
        (compares(old), false),
        (json!({"pattern": pattern(old)}), false),
        (json!({"anyPattern": [pattern(old)]}), false),
        // With a default, the old object differs from it too, in Kyverno as here.
        (
            compares("{{ request.oldObject.spec.rules[0].host || 'none' }}"),
            true,
        ),
    ] {
        let rule = json!({ "validate": validate }).to_string();
        let found = outcome(&rule, &update);
        let expected = match is_excused {
            true => matches!(found, RuleOutcome::Skipped { .. }),
            false => matches!(found, RuleOutcome::Fail { .. }),
        };
        assert!(expected, "{rule}: {found:?}");
    }
}

#[test]
fn match_conditions_are_evaluated_for_requests_and_existing_objects() {
    let (met, unmet, wrong) = (
        "object.metadata.name == 'a'",
        "object.metadata.name == 'b'",
        "object.nope == 1",
    );
    let costly = costly_condition();
    let manifest = |conditions: &[&str], failure: &str| {
        let conditions = conditions.iter().enumerate();
        let conditions: Vec<_> = conditions
            .map(|(at, expression)| json!({"name": at.to_string(), "expression": expression}))
            .collect();
        json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {
                "webhookConfiguration": {"matchConditions": conditions, "failurePolicy": failure},
                "rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]},
                    "validate": {"deny": {}, "message": "no"}}],
            },
        })
    };
    let request = create(&ingress("a", &["x"]));
    let outcome = |policy: &Policy| match drive_over(policy, &request, nothing).0.outcome {
        RuleOutcome::Fail { .. } => "fail",
        RuleOutcome::NotMatched => "not matched",
        RuleOutcome::Error(error) => error.code().as_str(),
        other => panic!("{other:?}"),
    };
    for (conditions, failure, expected) in [
        (&[][..], "Fail", "fail"),
        (&[met], "Fail", "fail"),
        (&[met, unmet], "Fail", "not matched"),
        (&[wrong, met], "Fail", "AR306"),
        (&[wrong, met], "Ignore", "not matched"),
        // Otherwise a large object would get past the policy.
        (&[&costly, met], "Ignore", "AR203"),
        // An unmet condition decides, in any position.
        (&[wrong, unmet], "Fail", "not matched"),
        (&[unmet, wrong], "Fail", "not matched"),
        // As at an API server.
        (&["namespaceObject.metadata.name == 'ns'"], "Fail", "AR306"),
        (&["namespaceObject == null"], "Fail", "fail"),
        (
            &["request.operation == 'CREATE' && oldObject == null"],
            "Fail",
            "fail",
        ),
    ] {
        let manifest = manifest(conditions, failure);
        for driver in [Driver::ALL, Driver::IN_CLUSTER] {
            let policy = compile_for(&manifest, driver).unwrap();
            assert_eq!(outcome(&policy), expected, "{conditions:?} {failure}");
            let mut existing = Evaluation::of_existing(&policy, &policy.rules()[0], &request);
            let RuleStep::Done(report) = existing.step() else {
                panic!("{conditions:?}");
            };
            assert_eq!(
                report.outcome == RuleOutcome::NotMatched,
                expected == "not matched"
            );
        }
    }
}

/// The policy is on Services in one namespace.
#[test]
fn a_failed_condition_is_an_error_only_of_rules_that_may_match() {
    let policy = |kind: &str, namespace: &str, expression: &str| {
        let rule = |name: &str, kind: &str| {
            json!({"name": name, "match": {"any": [{"resources": {"kinds": [kind]}}]},
                "validate": {"deny": {}, "message": "no"}})
        };
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": kind,
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {
                "webhookConfiguration": {"matchConditions": [{"name": "a", "expression": expression}]},
                "rules": [rule("services", "Service"), rule("ingresses", "Ingress")],
            },
        });
        compile_for(&manifest, Driver::IN_CLUSTER).unwrap()
    };
    let request = create(&ingress("a", &["x"]));
    let outcomes = |policy: &Policy| {
        let rules = policy.rules().iter();
        let outcomes = rules.map(
            |rule| match Evaluation::start(policy, rule, &request).step() {
                RuleStep::Done(report) => match report.outcome {
                    RuleOutcome::Error(error) => error.to_string(),
                    RuleOutcome::NotMatched => ".".to_owned(),
                    other => panic!("{other:?}"),
                },
                step @ RuleStep::Need(_) => panic!("{step:?}"),
            },
        );
        outcomes.collect::<Vec<_>>()
    };
    let wrong = "object.nope == 1";
    let of_cluster = policy("ClusterPolicy", "", wrong);
    assert!(matches!(
        of_cluster.conditions(&request),
        Conditions::Failed(_)
    ));
    let [services, ingresses] = &outcomes(&of_cluster)[..] else {
        panic!("there are two rules");
    };
    assert_eq!(services, ".");
    let place = "spec.webhookConfiguration.matchConditions[0].expression";
    assert!(ingresses.starts_with(place), "{ingresses}");
    // A namespaced policy's condition says nothing of any other namespace.
    let of_another = policy("Policy", "other", wrong);
    assert_eq!(of_another.conditions(&request), Conditions::NotMet);
    assert_eq!(outcomes(&of_another), [".", "."]);
    let of_its_own = policy("Policy", "ns", wrong);
    assert_eq!(outcomes(&of_its_own)[0], ".");
    assert_ne!(outcomes(&of_its_own)[1], ".");
}

#[test]
fn conditions_known_to_be_met_are_not_evaluated_again() {
    let spec = "{webhookConfiguration: {matchConditions: [{name: a, expression: 'false'}]}}";
    let policy = of(spec, "{}");
    assert!(policy.has_conditions() && !of("{}", "{}").has_conditions());
    let request = create(&ingress("a", &["x"]));
    let evaluation = || Evaluation::start(&policy, &policy.rules()[0], &request);
    let outcome = |mut evaluation: Evaluation<'_>| match evaluation.step() {
        RuleStep::Done(report) => report.outcome,
        step @ RuleStep::Need(_) => panic!("{step:?}"),
    };
    assert_eq!(policy.conditions(&request), Conditions::NotMet);
    assert_eq!(outcome(evaluation()), RuleOutcome::NotMatched);
    let known = outcome(evaluation().with_conditions_met());
    assert!(matches!(known, RuleOutcome::Fail { .. }), "{known:?}");
}
