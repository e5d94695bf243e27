//! `MutatingPolicy` that changes objects which exist already.

mod compiled;
mod expressions;

use anteroom_model::ExistingObjects;

use super::*;
use crate::{ChangedObject, Driver, EXISTING_BATCHES_MAX, Phase};

const CONFIG_MAP: (&str, &str, &str, &str) = ("", "v1", "ConfigMap", "configmaps");

const ON: &str = "evaluation: {mutateExisting: {enabled: true}}\n";

/// The ConfigMap `leader` triggers the policy, which changes ConfigMaps with the label `role: follows`.
const FOLLOW: &str = r#"
evaluation: {mutateExisting: {enabled: true}}
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}
matchConditions:
- {name: leads, expression: "object.metadata.name == 'leader'"}
targetMatchConstraints:
  objectSelector: {matchLabels: {role: follows}}
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
targetMatchConditions:
- {name: free, expression: "!has(object.data.held) && variables.own != request.name"}
variables:
- {name: own, expression: object.metadata.name}
mutations:
- jsonPatch:
    expression: >-
      [JSONPatch{op: "add", path: "/data/said",
        value: request.object.data.says + " to " + variables.own + string(oldObject == null)}]
- applyConfiguration:
    expression: >-
      Object{metadata: Object.metadata{annotations: Object.metadata.annotations{said: object.data.said}}}
"#;

fn config_map(name: &str, role: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": name, "namespace": "shop", "labels": {"role": role},
            "resourceVersion": "7", "uid": name}})
}

fn trigger(operation: &str, name: &str) -> AdmissionRequest {
    let object = config_map(name, "leads", &json!({"says": "hello"}));
    let request = of_resource(operation, CONFIG_MAP, &object);
    request.with_variable(&["request".to_owned(), "name".to_owned()], name.into())
}

/// Takes the policy's rule on existing objects to its end.
fn run_with(
    mut evaluation: Evaluation<'_>,
    exists: impl Fn(&FactSubject) -> Result<Value, FactError>,
) -> (RuleReport, Vec<FactSubject>) {
    let mut asked = Vec::new();
    loop {
        match evaluation.step() {
            RuleStep::Done(report) => return (report, asked),
            RuleStep::Need(needs) => {
                assert!(!needs.is_empty(), "it waits for nothing");
                for need in needs {
                    evaluation.supply(need.id, exists(&need.subject));
                    asked.push(need.subject);
                }
            }
        }
    }
}

fn on_existing(policy: &Policy) -> &Rule {
    policy.rules_on_existing().next().unwrap()
}

fn run(
    policy: &Policy,
    request: &AdmissionRequest,
    exists: impl Fn(&ExistingObjects) -> Value,
) -> (RuleReport, Vec<ExistingObjects>) {
    let evaluation = Evaluation::start(policy, on_existing(policy), request);
    let (report, asked) = run_with(evaluation, |subject| match subject {
        FactSubject::Existing(objects) => Ok(exists(objects)),
        other => panic!("{other}"),
    });
    let asked = asked.into_iter().map(|subject| match subject {
        FactSubject::Existing(objects) => objects,
        other => panic!("{other}"),
    });
    (report, asked.collect())
}

fn names(changed: &[ChangedObject]) -> Vec<&str> {
    let names = changed.iter();
    names
        .map(|one| one.object["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn the_targets_of_a_trigger_are_patched_each_with_its_own_values() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    assert_eq!(policy.rules().len(), 1, "what comes is not changed");
    let rule = on_existing(&policy);
    assert_eq!(
        (rule.phase(), rule.changes_existing()),
        (Phase::Validation, true)
    );
    let (report, asked) = run(
        &policy,
        &trigger("UPDATE", "leader"),
        |objects| match &*objects.continues {
            "" => json!({"continue": "more", "items": [
                config_map("a", "follows", &json!({})),
                config_map("held", "follows", &json!({"held": "yes"})),
                config_map("other", "leads", &json!({})),
                config_map("leader", "follows", &json!({})),
            ]}),
            _ => json!({"items": [config_map("b", "follows", &json!({}))]}),
        },
    );
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!(names(&report.changed), ["a", "b"]);
    let changed = &report.changed[1];
    assert_eq!(changed.object["data"]["said"], "hello to btrue");
    assert_eq!(
        changed.object["metadata"]["annotations"]["said"],
        "hello to btrue"
    );
    assert_eq!(changed.object["metadata"]["resourceVersion"], "7");
    assert_eq!(changed.target, 0);
    let first = &asked[0];
    assert_eq!(
        (&*first.group, &*first.version, &*first.resource),
        ("", "v1", "configmaps")
    );
    assert_eq!(
        (&*first.namespace, &*first.label_selector),
        ("", "role=follows")
    );
    assert_eq!(asked.len(), 2);
}

#[test]
fn a_request_that_triggers_no_rule_reads_no_facts() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    for (operation, name, expected) in [
        ("UPDATE", "other", "preconditions not met"),
        ("CREATE", "leader", ""),
    ] {
        let (report, asked) = run(&policy, &trigger(operation, name), |_| panic!("{name}"));
        assert_eq!(asked, []);
        match report.outcome {
            RuleOutcome::Skipped { reason } => assert_eq!(reason, expected),
            outcome => assert_eq!((outcome, expected), (RuleOutcome::NotMatched, "")),
        }
    }
}

#[test]
fn a_target_whose_constraints_name_another_operation_stays_as_it_is() {
    let policy = policy_of(
        "MutatingPolicy",
        &FOLLOW.replace("operations: [CREATE, UPDATE]", "operations: [CREATE]"),
    );
    let (report, _) = run(
        &policy,
        &trigger("UPDATE", "leader"),
        |_| json!({"items": [config_map("a", "follows", &json!({}))]}),
    );
    assert_eq!(report.changed, []);
}

#[test]
fn unreadable_targets_are_an_error_of_the_rule() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    let request = trigger("UPDATE", "leader");
    let evaluation = Evaluation::start(&policy, on_existing(&policy), &request);
    let (report, _) = run_with(evaluation, |_| {
        Err(FactError::LiveReadFailed {
            code: 403,
            message: "no".to_owned(),
        })
    });
    let RuleOutcome::Error(error) = report.outcome else {
        panic!("{report:?}");
    };
    assert!(
        error.to_string().contains("targetMatchConstraints"),
        "{error}"
    );
    // One that is too large to be read keeps no other from being changed.
    let (report, _) = run(&policy, &request, |_| {
        json!({"items": [config_map("a", "follows", &json!({}))],
            "unread": [{"namespace": "shop", "name": "big", "message": "too large"}]})
    });
    assert_eq!(names(&report.changed), ["a"]);
    assert!(
        matches!(report.outcome, RuleOutcome::Error(_)),
        "{report:?}"
    );
}

#[test]
fn a_target_that_cannot_be_patched_keeps_no_other_from_being_changed() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    let mut broken = config_map("broken", "follows", &json!({}));
    broken.as_object_mut().unwrap().remove("data");
    let (report, _) = run(
        &policy,
        &trigger("UPDATE", "leader"),
        |_| json!({"items": [broken, config_map("a", "follows", &json!({}))]}),
    );
    assert_eq!(names(&report.changed), ["a"]);
    assert!(
        matches!(report.outcome, RuleOutcome::Error(_)),
        "{report:?}"
    );
}

/// Labels Namespaces other than kube-system.
const LABEL: &str = r#"
evaluation: {mutateExisting: {enabled: true}}
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}
matchConditions:
- {name: others, expression: "object.metadata.name != 'kube-system'"}
mutations:
- applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'level': 'privileged'}}}"}
"#;

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "resourceVersion": "1"}})
}

#[test]
fn a_policy_without_targets_changes_new_and_existing_objects_that_it_matches() {
    let policy = policy_of("MutatingPolicy", LABEL);
    assert_eq!(policy.rules().len(), 2);
    assert!(policy.autogen_configs().is_none());
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "name": "new", "kind": {"group": "", "version": "v1", "kind": "Namespace"},
        "resource": {"group": "", "version": "v1", "resource": "namespaces"}, "object": namespace("new"),
    }))
    .unwrap();
    let change = Evaluation::start(&policy, &policy.rules()[0], &request).step();
    let RuleStep::Done(report) = change else {
        panic!("{change:?}");
    };
    assert!(
        matches!(report.outcome, RuleOutcome::Mutated { .. }),
        "{report:?}"
    );
    let mut labelled = namespace("labelled");
    labelled["metadata"]["labels"] = json!({"level": "privileged"});
    let (report, asked) = run(
        &policy,
        &request,
        |_| json!({"items": [namespace("kube-system"), namespace("a"), labelled]}),
    );
    assert_eq!(names(&report.changed), ["a"]);
    assert_eq!(asked[0].resource, "namespaces");
}

#[test]
fn conditions_on_targets_filter_targets_of_match_constraints_too() {
    let spec = format!(
        "{LABEL}targetMatchConditions:\n- {{name: c, expression: \"object.metadata.name != 'a'\"}}\n"
    );
    let policy = policy_of("MutatingPolicy", &spec);
    let object = namespace("a");
    let request = of_resource("UPDATE", ("", "v1", "Namespace", "namespaces"), &object);
    let (report, _) = run(
        &policy,
        &request,
        |_| json!({"items": [namespace("a"), namespace("kube-system"), namespace("b")]}),
    );
    assert_eq!(
        names(&report.changed),
        ["b"],
        "`a` is a trigger all the same"
    );
}

#[test]
fn a_new_policy_runs_on_each_target_by_itself() {
    let policy = policy_of("MutatingPolicy", LABEL);
    let rule = on_existing(&policy);
    assert!(rule.runs_on_policy_update());
    let kinds: Vec<_> = rule.kinds_on_policy_update();
    assert_eq!(kinds[0].to_string(), "/v1/namespaces");
    let of = |name: &str, labels: Value| {
        let mut object = namespace(name);
        object["metadata"]["labels"] = labels;
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "name": name, "namespace": "", "object": object,
            "kind": {"group": "", "version": "v1", "kind": "Namespace"},
            "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        }))
        .unwrap();
        let evaluation = Evaluation::of_existing(&policy, rule, &request);
        let (report, asked) = run_with(evaluation, |_| Ok(json!({"items": [object]})));
        let changed = names(&report.changed).join(" ");
        (changed, asked)
    };
    let (changed, asked) = of("a", json!({}));
    assert_eq!(changed, "a");
    let [FactSubject::Existing(read)] = &*asked else {
        panic!("{asked:?}");
    };
    assert_eq!(
        (read.target, &*read.kind, &*read.name),
        (Some(0), "Namespace", "a")
    );
    // What is as it should be, or is not meant, is not even read again.
    assert_eq!(
        of("b", json!({"level": "privileged"})),
        (String::new(), Vec::new())
    );
    assert_eq!(of("kube-system", json!({})), (String::new(), Vec::new()));
}

#[test]
fn a_new_policy_runs_on_objects_of_the_types_and_names_that_it_changes() {
    let rule = "  - {apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}";
    let named = rule.replace("[namespaces]", "[namespaces], resourceNames: [a]");
    let others = rule.replace("[namespaces]", "[configmaps]");
    let spec = LABEL.replace(rule, &format!("{others}\n{named}"));
    assert_ne!(spec, LABEL);
    let policy = policy_of("MutatingPolicy", &spec);
    for (name, target) in [("a", Some(1_usize)), ("b", None)] {
        let object = namespace(name);
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "name": name, "namespace": "", "object": object,
            "kind": {"group": "", "version": "v1", "kind": "Namespace"},
            "resource": {"group": "", "version": "v1", "resource": "namespaces"},
        }))
        .unwrap();
        let evaluation = Evaluation::of_existing(&policy, on_existing(&policy), &request);
        let (_, asked) = run_with(evaluation, |_| Ok(json!({"items": [object]})));
        let asked = asked.iter().map(|subject| match subject {
            FactSubject::Existing(objects) => (objects.target, objects.resource.as_str()),
            other => panic!("{other}"),
        });
        let expected = target.map(|target| (Some(target), "namespaces"));
        assert_eq!(
            asked.collect::<Vec<_>>(),
            Vec::from_iter(expected),
            "{name}"
        );
    }
}

#[test]
fn a_new_policy_with_targets_of_its_own_runs_as_an_update_of_each() {
    let says = FOLLOW.replace("request.object.data.says", "request.operation");
    // Its triggers are of another type: what a new policy runs on is no trigger.
    let of_others = says.replace(
        "operations: [UPDATE], resources: [configmaps]",
        "operations: [UPDATE], resources: [namespaces]",
    );
    assert_ne!(of_others, says);
    let policy = policy_of(
        "MutatingPolicy",
        &of_others.replace("variables.own != request.name", "true"),
    );
    let object = config_map("a", "follows", &json!({}));
    let request = of_resource("CREATE", CONFIG_MAP, &object);
    let rule = on_existing(&policy);
    let evaluation = Evaluation::of_existing(&policy, rule, &request);
    let (report, _) = run_with(evaluation, |_| Ok(json!({"items": [object]})));
    assert_eq!(report.changed[0].object["data"]["said"], "UPDATE to atrue");
}

#[test]
fn a_policy_of_a_namespace_reads_and_changes_objects_there_alone() {
    let policy = policy_of("NamespacedMutatingPolicy", FOLLOW);
    let mut outside = config_map("outside", "follows", &json!({}));
    outside["metadata"]["namespace"] = "other".into();
    let (report, asked) = run(
        &policy,
        &trigger("UPDATE", "leader"),
        |_| json!({"items": [config_map("a", "follows", &json!({})), outside]}),
    );
    assert_eq!(asked[0].namespace, "shop");
    assert_eq!(names(&report.changed), ["a"]);
}

#[test]
fn namespaces_of_targets_are_asked_for_once_each_however_many_there_are() {
    let spec = FOLLOW.replace(
        "  objectSelector: {matchLabels: {role: follows}}\n",
        "  namespaceSelector: {matchLabels: {env: prod}}\n",
    );
    let policy = policy_of("MutatingPolicy", &spec);
    let request = trigger("UPDATE", "leader");
    let items: Vec<_> = (0..300)
        .map(|at| {
            let mut object = config_map(&format!("c{at}"), "follows", &json!({}));
            object["metadata"]["namespace"] = format!("n{}", at / 2).into();
            object
        })
        .collect();
    let evaluation = Evaluation::start(&policy, on_existing(&policy), &request);
    let (report, asked) = run_with(evaluation, |subject| {
        Ok(match subject {
            FactSubject::NamespaceLabels { namespace } => match namespace.ends_with('0') {
                true => json!({"env": "prod"}),
                false => json!({}),
            },
            _ => json!({"items": items}),
        })
    });
    assert_eq!(report.outcome, RuleOutcome::Pass, "{:?}", report.outcome);
    assert_eq!(report.changed.len(), 30);
    assert_eq!(asked.len(), 151);
}

#[test]
fn an_exception_is_about_each_target() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    let exception = exception(
        "policyRefs: [{kind: MutatingPolicy, name: p}]\n\
         matchConditions: [{name: c, expression: \"object.metadata.name == 'a'\"}]\n",
    );
    let request = trigger("UPDATE", "leader");
    let evaluation = Evaluation::start(&policy, on_existing(&policy), &request);
    let (report, _) = run_with(evaluation.with_exceptions([&exception]), |_| {
        Ok(
            json!({"items": [config_map("a", "follows", &json!({})), config_map("b", "follows", &json!({}))]}),
        )
    });
    assert_eq!(names(&report.changed), ["b"]);
}

/// Such an exception may hold. Where a second exception holds, the first does not matter.
#[test]
fn a_target_stays_as_it_is_where_an_exception_cannot_be_evaluated() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    let of = |expression: &str| {
        exception(&format!(
            "policyRefs: [{{kind: MutatingPolicy, name: p}}]\n\
             matchConditions: [{{name: c, expression: \"{expression}\"}}]\n"
        ))
    };
    let (broken, holds) = (of("object.nothing == 1"), of("true"));
    let request = trigger("UPDATE", "leader");
    for (exceptions, is_error) in [(vec![&broken], true), (vec![&broken, &holds], false)] {
        let evaluation = Evaluation::start(&policy, on_existing(&policy), &request);
        let (report, _) = run_with(evaluation.with_exceptions(exceptions), |_| {
            Ok(json!({"items": [config_map("a", "follows", &json!({}))]}))
        });
        assert_eq!(report.changed, []);
        let found = matches!(report.outcome, RuleOutcome::Error(RuleError::Cel { .. }));
        assert_eq!(found, is_error, "{report:?}");
    }
}

/// Namespaces do not count against the facts of a rule, as those of expressions do not.
#[test]
fn an_exception_by_namespace_is_about_targets_of_any_number_of_namespaces() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    let exception = exception(
        "policyRefs: [{kind: MutatingPolicy, name: p}]\n\
         matchConditions: [{name: c, expression: \"namespaceObject.metadata.name != 'ns-7'\"}]\n",
    );
    let items: Vec<_> = (0..100)
        .map(|at| {
            let mut item = config_map(&format!("c-{at}"), "follows", &json!({}));
            item["metadata"]["namespace"] = format!("ns-{at}").into();
            item
        })
        .collect();
    let request = trigger("UPDATE", "leader");
    let evaluation = Evaluation::start(&policy, on_existing(&policy), &request);
    let (report, _) = run_with(evaluation.with_exceptions([&exception]), |subject| {
        Ok(match subject {
            FactSubject::NamespaceLabels { namespace } => json!({"metadata": {"name": namespace}}),
            _ => json!({"items": items}),
        })
    });
    assert_eq!(report.outcome, RuleOutcome::Pass, "{:?}", report.outcome);
    assert_eq!(names(&report.changed), ["c-7"]);
}

#[test]
fn own_writes_trigger_a_policy_only_if_it_skips_no_background_requests() {
    let of = |evaluation: &str| {
        let spec = FOLLOW.replace("{mutateExisting: {enabled: true}}", evaluation);
        let policy = policy_of("MutatingPolicy", &spec);
        let rule = on_existing(&policy);
        (rule.is_triggered_by_own(), rule.runs_on_policy_update())
    };
    assert_eq!(of("{mutateExisting: {enabled: true}}"), (false, true));
    assert_eq!(
        of("{mutateExisting: {enabled: true}, skipBackgroundRequests: false}"),
        (true, true)
    );
    assert_eq!(
        of("{mutateExisting: {enabled: true}, background: {enabled: false}}"),
        (false, false)
    );
}

#[test]
fn a_list_without_end_is_left_at_the_limit() {
    let policy = policy_of("MutatingPolicy", FOLLOW);
    let (report, asked) = run(
        &policy,
        &trigger("UPDATE", "leader"),
        |objects| json!({"items": [], "continue": format!("{}x", objects.continues)}),
    );
    assert_eq!(asked.len(), EXISTING_BATCHES_MAX);
    assert!(
        matches!(
            report.outcome,
            RuleOutcome::Error(RuleError::TooManyObjects { .. })
        ),
        "{report:?}"
    );
}
