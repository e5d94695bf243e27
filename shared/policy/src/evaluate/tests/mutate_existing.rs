//! Rules that change objects which exist already.

use anteroom_model::ExistingObjects;
use serde_json::{Value, json};

use crate::{
    AdmissionRequest, ChangedObject, Driver, EXISTING_BATCHES_MAX, Evaluation, FactSubject, Policy,
    RuleOutcome, RuleReport, RuleStep, compile_for,
};

const DRIVER: Driver = Driver {
    targets: true,
    ..Driver::ALL
};

fn policy(kind: &str, rule: &Value) -> Policy {
    let mut rule = rule.clone();
    rule["name"] = "r".into();
    rule["match"] = json!({"any": [{"resources": {"kinds": ["ConfigMap"]}}]});
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": kind,
        "metadata": {"name": "p", "namespace": "own"}, "spec": {"rules": [rule]},
    });
    compile_for(&manifest, DRIVER).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn request(operation: &str) -> AdmissionRequest {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "own", "labels": {"tier": "web"}},
        "data": {"image": "b"}});
    let (new, old) = match operation {
        "DELETE" => (Value::Null, object),
        _ => (object, Value::Null),
    };
    AdmissionRequest::new(json!({
        "operation": operation, "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "name": "c", "namespace": "own", "object": new, "oldObject": old,
    }))
    .unwrap()
}

fn pod(name: &str, image: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "own", "resourceVersion": "7", "uid": name},
        "spec": {"containers": [{"name": "main", "image": image}]}})
}

/// Takes the rule to its end; each part of a list is what `exists` says of it.
fn run(
    policy: &Policy,
    request: &AdmissionRequest,
    exists: impl Fn(&ExistingObjects) -> Value,
) -> (RuleReport, Vec<ExistingObjects>) {
    let mut evaluation = Evaluation::start(policy, &policy.rules()[0], request);
    let mut asked = Vec::new();
    loop {
        match evaluation.step() {
            RuleStep::Done(report) => return (report, asked),
            RuleStep::Need(needs) => {
                for need in needs {
                    let FactSubject::Existing(objects) = need.subject else {
                        panic!("{:?}", need.subject);
                    };
                    evaluation.supply(need.id, Ok(exists(&objects)));
                    asked.push(objects);
                }
            }
        }
    }
}

fn image(changed: &ChangedObject) -> &Value {
    &changed.object["spec"]["containers"][0]["image"]
}

const MERGE: &str = "{{ request.object.data.image }}";

#[test]
fn each_target_is_patched_with_values_of_the_trigger() {
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod", "namespace": "{{ request.namespace }}",
            "name": "web-*", "selector": {"matchLabels": {"tier": "{{ request.object.metadata.labels.tier }}"},
                "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}}],
        "patchStrategicMerge": {"spec": {"containers": [{"(name)": "main", "image": MERGE}]},
            "metadata": {"annotations": {"was": "{{ target.spec.containers[0].image }}"}}},
    }});
    let policy = policy("ClusterPolicy", &rule);
    let (report, asked) = run(&policy, &request("UPDATE"), |objects| {
        match &*objects.continues {
            "" => json!({"items": [pod("web-1", "a"), pod("web-2", "b")], "continue": "more"}),
            _ => json!({"items": [pod("web-3", "c")]}),
        }
    });
    assert_eq!(asked[0].label_selector, "!old,tier=web");
    assert_eq!((&*asked[0].namespace, &*asked[0].name), ("own", "web-*"));
    assert_eq!(asked.len(), 2);
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!(report.changed.len(), 3);
    assert!(report.changed.iter().all(|changed| image(changed) == "b"));
    let last = &report.changed[2].object;
    assert_eq!(last["metadata"]["annotations"]["was"], "c");
    assert_eq!(last["metadata"]["resourceVersion"], "7");
}

#[test]
fn a_target_that_needs_no_change_is_not_written() {
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod"}],
        "patchStrategicMerge": {"spec": {"containers": [{"(name)": "main", "image": MERGE}]}},
    }});
    let items = json!({"items": [pod("a", "b")]});
    let (report, _) = run(&policy("ClusterPolicy", &rule), &request("CREATE"), |_| {
        items.clone()
    });
    assert!(
        matches!(report.outcome, RuleOutcome::Skipped { .. }),
        "{report:?}"
    );
    assert_eq!(report.changed, []);
}

#[test]
fn a_target_has_its_own_context_and_preconditions() {
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod",
            "context": [{"name": "which", "variable": {"jmesPath": "target.metadata.name"}}],
            "preconditions": {"all": [{"key": "{{ which }}", "operator": "NotEquals", "value": "a"}]}}],
        "patchesJson6902": "[{op: add, path: /spec/node, value: '{{ which }}'}]",
    }});
    let items = json!({"items": [pod("a", "x"), pod("b", "x")]});
    let (report, _) = run(&policy("ClusterPolicy", &rule), &request("CREATE"), |_| {
        items.clone()
    });
    assert_eq!(report.changed.len(), 1);
    assert_eq!(report.changed[0].object["spec"]["node"], "b");
}

#[test]
fn a_target_with_a_uid_is_the_object_with_this_uid_alone() {
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod", "uid": "b"}],
        "patchStrategicMerge": {"spec": {"x": "y"}},
    }});
    let items = json!({"items": [pod("a", "x"), pod("b", "x"), pod("c", "x")]});
    let (report, _) = run(&policy("ClusterPolicy", &rule), &request("CREATE"), |_| {
        items.clone()
    });
    assert_eq!(report.changed.len(), 1, "{report:?}");
    assert_eq!(report.changed[0].object["metadata"]["uid"], "b");
}

/// The lists of a rule that changes the request's own object see what the lists before made.
#[test]
fn the_request_stays_the_triggers_in_every_list_of_patches() {
    let each =
        |operation: &str| json!({"list": "target.spec.containers", "patchesJson6902": operation});
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod"}],
        "foreach": [
            each("[{op: add, path: /spec/first, value: '{{ request.object.data.image }}'}]"),
            each("[{op: add, path: /spec/second, value: '{{ request.object.data.image }}'}]"),
        ],
    }});
    let items = json!({"items": [pod("a", "x")]});
    let (report, _) = run(&policy("ClusterPolicy", &rule), &request("CREATE"), |_| {
        items.clone()
    });
    assert_eq!(report.outcome, RuleOutcome::Pass);
    let spec = &report.changed[0].object["spec"];
    assert_eq!(
        (&spec["first"], &spec["second"]),
        (&json!("b"), &json!("b"))
    );
}

#[test]
fn a_deletion_triggers_a_mutation_of_existing_objects() {
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod", "name": "{{ request.object.metadata.name }}"}],
        "foreach": [{"list": "target.spec.containers", "patchesJson6902":
            "[{op: replace, path: '/spec/containers/{{ elementIndex }}/image', value: none}]"}],
    }});
    let items = json!({"items": [pod("c", "x")]});
    let (report, asked) = run(&policy("ClusterPolicy", &rule), &request("DELETE"), |_| {
        items.clone()
    });
    assert_eq!(asked[0].name, "c");
    assert_eq!(image(&report.changed[0]), "none");
}

/// A name that comes to nothing must not mean all objects.
#[test]
fn one_target_that_fails_keeps_no_other_from_being_changed() {
    let rule = json!({
        "context": [{"name": "nothing", "variable": {"jmesPath": "request.object.none", "default": ""}}],
        "mutate": {
            "targets": [
                {"apiVersion": "v1", "kind": "Pod", "name": "{{ nothing }}"},
                {"apiVersion": "v1", "kind": "Pod", "name": "a",
                    "selector": {"matchLabels": {"x": "a,b in (c)"}}},
                {"apiVersion": "v1", "kind": "Pod", "name": "a"},
            ],
            "patchStrategicMerge": {"spec": {"x": "y"}},
        },
    });
    let items = json!({"items": [pod("a", "x")]});
    let (report, asked) = run(&policy("ClusterPolicy", &rule), &request("CREATE"), |_| {
        items.clone()
    });
    assert_eq!(asked.len(), 1);
    assert_eq!(report.changed.len(), 1);
    let RuleOutcome::Error(error) = &report.outcome else {
        panic!("{:?}", report.outcome);
    };
    assert!(
        error.to_string().starts_with("mutate.targets[0].name"),
        "{error}"
    );
}

#[test]
fn a_namespaced_policy_reads_its_namespace_alone() {
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod", "namespace": "{{ request.object.data.image }}"}],
        "patchStrategicMerge": {"metadata": {"name": "other", "resourceVersion": "1"}, "spec": {"x": "y"}},
    }});
    let items = json!({"items": [pod("a", "x")]});
    let (report, asked) = run(&policy("Policy", &rule), &request("CREATE"), |_| {
        items.clone()
    });
    assert_eq!(asked[0].namespace, "own");
    let metadata = &report.changed[0].object["metadata"];
    assert_eq!(
        (&metadata["name"], &metadata["resourceVersion"]),
        (&json!("a"), &json!("7"))
    );
}

fn named(name: &str) -> Policy {
    let rule = json!({"mutate": {
        "targets": [{"apiVersion": "v1", "kind": "Pod", "name": name}],
        "patchStrategicMerge": {"spec": {"containers": [{"(name)": "main", "image": MERGE}]}},
    }});
    policy("ClusterPolicy", &rule)
}

/// So many parts, with an object in each.
fn parts(count: usize) -> impl Fn(&ExistingObjects) -> Value {
    move |objects| {
        let at: usize = objects.continues.parse().unwrap_or(1);
        let next = if at < count {
            (at + 1).to_string()
        } else {
            String::new()
        };
        json!({"items": [pod(&format!("web-{at}"), "a")], "continue": next})
    }
}

#[test]
fn changes_of_one_part_can_be_taken_before_the_next_part_is_read() {
    let (policy, request) = (named("web-*"), request("UPDATE"));
    let mut evaluation = Evaluation::start(&policy, &policy.rules()[0], &request);
    let (mut taken, parts) = (Vec::new(), parts(3));
    let report = loop {
        match evaluation.step() {
            RuleStep::Done(report) => break report,
            RuleStep::Need(needs) => {
                let [need] = &*needs else {
                    panic!("{needs:?}");
                };
                let FactSubject::Existing(objects) = &need.subject else {
                    panic!("{need:?}");
                };
                taken.push(evaluation.take_changed().len());
                evaluation.supply(need.id, Ok(parts(objects)));
            }
        }
    };
    assert_eq!(taken, [0, 1, 1]);
    assert_eq!(
        (report.outcome, report.changed.len()),
        (RuleOutcome::Pass, 1)
    );
}

#[test]
fn a_target_list_beyond_the_limit_is_an_error_that_says_so() {
    let (policy, request) = (named("web-*"), request("UPDATE"));
    let (report, _) = run(&policy, &request, parts(EXISTING_BATCHES_MAX));
    assert_eq!(report.outcome, RuleOutcome::Pass);
    assert_eq!(report.changed.len(), EXISTING_BATCHES_MAX);
    let (report, asked) = run(&policy, &request, parts(EXISTING_BATCHES_MAX + 1));
    assert_eq!(
        (report.changed.len(), asked.len()),
        (EXISTING_BATCHES_MAX, EXISTING_BATCHES_MAX)
    );
    let RuleOutcome::Error(error) = &report.outcome else {
        panic!("{:?}", report.outcome);
    };
    assert!(
        error
            .to_string()
            .contains("the first 1000 objects were handled"),
        "{error}"
    );
}

#[test]
fn an_unreadable_target_is_an_error_and_the_others_are_changed() {
    let (report, _) = run(&named("web-*"), &request("UPDATE"), |_| {
        json!({
            "items": [pod("web-1", "a")],
            "unread": [{"namespace": "own", "name": "web-2", "message": "too large"}],
        })
    });
    assert_eq!(report.changed.len(), 1);
    let RuleOutcome::Error(error) = &report.outcome else {
        panic!("{:?}", report.outcome);
    };
    let error = error.to_string();
    assert!(
        ["own/web-2", "too large", "`mutate.targets[0]`"]
            .iter()
            .all(|part| error.contains(part)),
        "{error}"
    );
}
