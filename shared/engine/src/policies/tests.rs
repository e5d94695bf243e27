use anteroom_policy::PolicyKind;
use serde_json::json;

use super::*;
use crate::testing::{manifest, policies};

fn subject(kind: &str) -> RequestSubject<'_> {
    RequestSubject {
        served: ServedKind {
            group: "networking.k8s.io",
            version: "v1",
            kind,
            resource: "",
            subresource: "",
        },
        operation: Operation::Create,
        namespace: Some("n"),
    }
}

fn names(set: &PolicySet, scope: &CallScope, subject: &RequestSubject<'_>) -> Vec<String> {
    let concerned = set.concerned(scope, subject).policies;
    let keys = concerned.iter().map(|entry| entry.key.to_string());
    keys.collect()
}

#[test]
fn policies_are_found_by_kind_and_operation_in_order_of_name() {
    let only_updates = |manifest: &mut Value| {
        manifest["spec"]["rules"][0]["match"]["any"][0]["resources"]["operations"] =
            json!(["UPDATE"]);
    };
    let set = policies(vec![
        ("d", manifest(&["Ingress"], |_| ())),
        ("c", manifest(&["Service"], |_| ())),
        ("b", manifest(&["Ing*", "Ingress"], |_| ())),
        (
            "a",
            manifest(&["networking.k8s.io/v1beta1/Ingress"], |_| ()),
        ),
        ("e", manifest(&["Ingress"], only_updates)),
    ]);
    let all = &CallScope::all(Phase::Validation);
    assert_eq!(names(&set, all, &subject("Ingress")), ["b", "d"]);
    assert_eq!(names(&set, all, &subject("Service")), ["c"]);
    assert_eq!(names(&set, all, &subject("Ingest")), ["b"]);
    assert!(names(&set, all, &subject("Pod")).is_empty());
    let update = RequestSubject {
        operation: Operation::Update,
        ..subject("Ingress")
    };
    assert_eq!(names(&set, all, &update), ["b", "d", "e"]);
}

#[test]
fn policies_of_a_namespace_change_an_object_before_those_of_the_cluster() {
    let both = |manifest: &mut Value| {
        let rules = manifest["spec"]["rules"].as_array_mut().unwrap();
        let mut changing = rules[0].clone();
        changing["name"] = "changes".into();
        changing.as_object_mut().unwrap().remove("validate");
        let patch = json!({ "metadata": { "labels": { "a": "b" } } });
        changing["mutate"] = json!({ "patchStrategicMerge": patch });
        rules.push(changing);
    };
    let of_namespace = |manifest: &mut Value| {
        manifest["kind"] = "Policy".into();
        manifest["metadata"]["namespace"] = "n".into();
        both(manifest);
    };
    let set = PolicySet::build(
        &PolicySet::default(),
        [
            (ObjectKey::new("", "b"), manifest(&["Ingress"], both)),
            (ObjectKey::new("", "a"), manifest(&["Ingress"], both)),
            (
                ObjectKey::new("n", "y"),
                manifest(&["Ingress"], of_namespace),
            ),
            (
                ObjectKey::new("n", "x"),
                manifest(&["Ingress"], of_namespace),
            ),
        ],
    );
    assert_eq!(set.counts(), (4, 0));
    for (phase, expected) in [
        (Phase::Mutation, ["n/x", "n/y", "a", "b"]),
        (Phase::Validation, ["a", "b", "n/x", "n/y"]),
    ] {
        let found = names(&set, &CallScope::all(phase), &subject("Ingress"));
        assert_eq!(found, expected, "{phase:?}");
    }
}

/// A policy in CEL that does not compile, and is found by what can be read of it.
fn in_cel(kind: PolicyKind, resources: &[&str]) -> (ObjectKey, Bytes) {
    let manifest = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": kind.as_str(),
        "metadata": { "name": "p", "namespace": "n" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["", "networking.k8s.io"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": resources,
            }] },
            "validations": [{ "expression": "(" }],
        },
    });
    let body = anteroom_wire::body::encode_json(&manifest).unwrap();
    (kind.key("n", "p"), body)
}

#[test]
fn policies_are_found_by_kind_and_by_plural() {
    let by_kind = ["Ingress", "*"].map(|kind| {
        let key = ObjectKey::new("", kind.to_lowercase());
        (key, manifest(&[kind], |_| ()))
    });
    let by_plural = [
        in_cel(PolicyKind::Validating, &["ingresses"]),
        in_cel(PolicyKind::NamespacedValidating, &["*"]),
        in_cel(PolicyKind::Mutating, &["pods", "pods/exec"]),
    ];
    let set = PolicySet::build(&PolicySet::default(), by_kind.into_iter().chain(by_plural));
    let found = |kind, resource, subresource, namespace| {
        let mut subject = subject(kind);
        subject.served.resource = resource;
        subject.served.subresource = subresource;
        subject.namespace = namespace;
        names(&set, &CallScope::all(Phase::Validation), &subject)
    };
    let (all, validating) = ("*", "ValidatingPolicy/p");
    let (namespaced, mutating) = ("n/NamespacedValidatingPolicy/p", "MutatingPolicy/p");
    let own = Some("n");
    assert_eq!(
        found("Ingress", "ingresses", "", own),
        [all, validating, "ingress", namespaced]
    );
    // A different kind with the same plural, as in a newer version of the API.
    assert_eq!(
        found("Other", "ingresses", "", Some("o")),
        [all, validating]
    );
    assert_eq!(found("Pod", "pods", "", Some("o")), [all, mutating]);
    assert_eq!(found("Pod", "pods", "exec", own), [mutating]);
    assert_eq!(found("Service", "services", "", own), [all, namespaced]);
    assert_eq!(found("Service", "services", "", None), [all, namespaced]);
    assert_eq!(found("Service", "services", "", Some("o")), [all]);
}

#[test]
fn a_policy_that_cannot_be_compiled_has_a_limit_of_resources() {
    let many: Vec<_> = (0..1_000).map(|n| format!("r{n}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let manifests = [in_cel(PolicyKind::Validating, &many)];
    let set = PolicySet::build(&PolicySet::default(), manifests);
    let registered = set.all()[0].registered_kinds.get(Phase::Validation);
    assert_eq!(registered[0].kinds.len(), READABLE_MAX);
}

#[test]
fn each_phase_has_its_own_policies_and_their_request_fields() {
    let changing = |manifest: &mut Value| {
        let rule = manifest["spec"]["rules"][0].as_object_mut().unwrap();
        rule.remove("validate");
        let patch = json!({ "patchStrategicMerge": { "a": "{{ request.object.b }}" } });
        rule.insert("mutate".to_owned(), patch);
    };
    let both = |manifest: &mut Value| {
        let mut rule = json!({ "rules": [manifest["spec"]["rules"][0]] });
        rule["rules"][0]["name"] = json!("another");
        let mut other = json!({ "spec": rule });
        changing(&mut other);
        let rules = manifest["spec"]["rules"].as_array_mut().unwrap();
        rules.push(other["spec"]["rules"][0].take());
    };
    let set = policies(vec![
        ("a", manifest(&["Ingress"], changing)),
        ("b", manifest(&["Ingress"], |_| ())),
        ("c", manifest(&["Ingress"], both)),
        (
            "d",
            manifest(&["Ingress"], |manifest| {
                manifest["spec"]["rules"][0]["mutate"] = json!(1);
            }),
        ),
    ]);
    let object = json!({ "a": 1, "b": 2 });
    for (phase, expected, read) in [
        (Phase::Mutation, &["a", "c"][..], object.clone()),
        (Phase::Validation, &["b", "c", "d"], json!({})),
    ] {
        let concerned = set.concerned(&CallScope::all(phase), &subject("Ingress"));
        let names: Vec<_> = concerned
            .policies
            .iter()
            .map(|entry| &*entry.key.name)
            .collect();
        assert_eq!(names, expected, "{phase:?}");
        let parts = concerned.parts.field("object", &object.to_string());
        assert_eq!(parts.unwrap().unwrap(), read, "{phase:?}");
    }
}

#[test]
fn a_call_is_about_the_policies_of_its_webhook_or_about_all() {
    let with = |failure: &'static str| {
        manifest(&["Ingress"], move |manifest| {
            manifest["spec"]["failurePolicy"] = failure.into();
        })
    };
    let set = policies(vec![
        ("assigned", with("Fail")),
        ("ignoring", with("Ignore")),
        ("moved", with("Ignore")),
        ("new", with("Fail")),
    ]);
    let key = |name| ObjectKey::new("", name);
    let mut assignment = Assignment::default();
    // It said `Fail` then, and is called there until the API server goes by another configuration.
    assignment.add("fail-10".to_owned(), [key("assigned"), key("moved")]);
    assignment.add("ignore-10".to_owned(), [key("ignoring"), key("gone")]);
    let assignment = Arc::new(assignment);
    let called = |webhook| CallScope {
        phase: Phase::Validation,
        ignores_errors: webhook == "ignore-10",
        called: assignment.position(webhook).map(|webhook| CalledWebhook {
            assignment: Arc::clone(&assignment),
            webhook,
        }),
    };
    for (scope, expected) in [
        (called("fail-10"), &["assigned", "moved", "new"][..]),
        (called("ignore-10"), &["ignoring"]),
        (called("fail-7"), &["assigned", "ignoring", "moved", "new"]),
        (
            CallScope::all(Phase::Validation),
            &["assigned", "ignoring", "moved", "new"],
        ),
    ] {
        assert_eq!(
            names(&set, &scope, &subject("Ingress")),
            expected,
            "{scope:?}"
        );
    }
}

#[test]
fn a_policy_with_match_conditions_is_grouped_and_reads_their_fields() {
    let with = |expression: &str| {
        let conditions = json!([{ "name": "c", "expression": expression }]);
        manifest(&["Ingress"], move |manifest| {
            manifest["spec"]["webhookConfiguration"] = json!({ "matchConditions": conditions });
        })
    };
    let set = policies(vec![
        (
            "conditional",
            with("object.metadata.annotations.a == request.userInfo.username"),
        ),
        ("malformed", with("object.(")),
        (
            "authorizer",
            with("authorizer.path('/x').check('get').allowed()"),
        ),
    ]);
    let scope = CallScope {
        called: Some(CalledWebhook {
            assignment: Arc::default(),
            webhook: 0,
        }),
        ..CallScope::all(Phase::Validation)
    };
    assert_eq!(names(&set, &scope, &subject("Ingress")), ["conditional"]);
    assert_eq!(set.counts(), (1, 2));
    let concerned = set.concerned(&scope, &subject("Ingress"));
    let object = json!({ "metadata": { "annotations": { "a": "b", "c": "d" } } });
    let read = concerned.parts.field("object", &object.to_string());
    let read = read.unwrap().unwrap();
    assert_eq!(read["metadata"]["annotations"]["a"], "b", "{read}");
    let user = concerned.parts.field("userInfo", r#"{"username":"u"}"#);
    assert_eq!(user.unwrap().unwrap(), json!({ "username": "u" }));
}

#[test]
fn only_changed_policies_are_compiled_again() {
    let key = |name| ObjectKey::new("", name);
    let (one, two) = (manifest(&["Pod"], |_| ()), manifest(&["Service"], |_| ()));
    let before = policies(vec![
        ("a", one.clone()),
        ("b", one.clone()),
        ("c", one.clone()),
    ]);
    let after = PolicySet::build(&before, [(key("a"), one.clone()), (key("b"), two)]);
    let position = |name| {
        before
            .all()
            .iter()
            .position(|e| e.key == key(name))
            .unwrap()
    };
    assert_eq!(after.all().len(), 2);
    assert!(Arc::ptr_eq(&before.all()[position("a")], &after.all()[0]));
    assert!(!Arc::ptr_eq(&before.all()[position("b")], &after.all()[1]));
}

#[test]
fn a_policy_that_does_not_compile_is_found_by_its_readable_match() {
    let unknown = |manifest: &mut Value| {
        manifest["spec"]["rules"][0]["validate"] = json!({ "manifests": {} });
    };
    let unreadable = |manifest: &mut Value| manifest["spec"]["rules"] = json!("none");
    let legacy = |manifest: &mut Value| {
        unknown(manifest);
        manifest["spec"]["rules"][0]["match"] = json!({ "resources": { "kinds": ["Ingress"] } });
    };
    let set = policies(vec![
        ("a", manifest(&["Ingress"], unknown)),
        ("b", manifest(&["Ingress"], unreadable)),
        ("c", manifest(&[], legacy)),
    ]);
    assert_eq!(set.counts(), (0, 3));
    let concerned = set.concerned(&CallScope::all(Phase::Validation), &subject("Ingress"));
    let concerned = concerned.policies;
    let found: Vec<_> = concerned.iter().map(|entry| &*entry.key.name).collect();
    assert_eq!(found, ["a", "c"]);
    // It must not keep anybody from working.
    assert!(
        concerned
            .iter()
            .all(|entry| entry.class.ignore && entry.outcome.is_err())
    );
}

#[test]
fn a_namespaced_policy_is_found_in_its_namespace_alone() {
    let namespaced = |manifest: &mut Value| {
        manifest["kind"] = json!("Policy");
        manifest["metadata"]["namespace"] = json!("n");
    };
    let keyed = [
        (ObjectKey::new("", "b"), manifest(&["Ingress"], |_| ())),
        (ObjectKey::new("n", "a"), manifest(&["Ingress"], namespaced)),
        (ObjectKey::new("n", "c"), manifest(&["*"], namespaced)),
        (ObjectKey::new("", "d"), manifest(&["*"], |_| ())),
    ];
    let set = PolicySet::build(&PolicySet::default(), keyed);
    let all = ["b", "d", "n/a", "n/c"];
    for (kind, namespace, expected) in [
        ("Ingress", Some("n"), &all[..]),
        ("Ingress", Some("m"), &all[..2]),
        ("Ingress", Some(""), &all[..2]),
        // Where it lives is not known yet.
        ("Ingress", None, &all[..]),
        ("Service", Some("n"), &["d", "n/c"]),
        ("Service", Some("m"), &["d"]),
    ] {
        let subject = RequestSubject {
            namespace,
            ..subject(kind)
        };
        let found = names(&set, &CallScope::all(Phase::Validation), &subject);
        assert_eq!(found, expected, "{kind} in {namespace:?}");
    }
}

#[test]
fn a_request_is_read_only_for_the_fields_its_policies_use() {
    let reading = |what: &'static str| {
        move |manifest: &mut Value| {
            let deny = &mut manifest["spec"]["rules"][0]["validate"]["deny"];
            deny["conditions"]["all"][0]["key"] = json!(format!("{{{{ request.object.{what} }}}}"));
        }
    };
    let set = policies(vec![
        ("a", manifest(&["Ingress"], reading("a"))),
        ("b", manifest(&["*"], reading("b"))),
        ("c", manifest(&["Service"], reading("c"))),
    ]);
    let object = json!({ "a": 1, "b": 2, "c": 3, "d": 4 });
    for (kind, expected) in [
        ("Ingress", json!({ "a": 1, "b": 2 })),
        ("Service", json!({ "b": 2, "c": 3 })),
        ("Pod", json!({ "b": 2 })),
    ] {
        let concerned = set.concerned(&CallScope::all(Phase::Validation), &subject(kind));
        let read = concerned.parts.field("object", &object.to_string());
        assert_eq!(read.unwrap().unwrap(), expected, "{kind}");
    }
}

/// What a tenant's policy reads costs the tenant alone.
#[test]
fn a_request_is_not_read_for_policies_of_other_namespaces() {
    let reading = |what: &'static str, namespace: &'static str| {
        manifest(&["Ingress"], move |manifest| {
            if !namespace.is_empty() {
                manifest["kind"] = json!("Policy");
                manifest["metadata"]["namespace"] = json!(namespace);
            }
            let deny = &mut manifest["spec"]["rules"][0]["validate"]["deny"];
            deny["conditions"]["all"][0]["key"] = json!(format!("{{{{ request.object.{what} }}}}"));
        })
    };
    let keyed = [
        (ObjectKey::new("", "p"), reading("a", "")),
        (ObjectKey::new("n", "p"), reading("b", "n")),
        (ObjectKey::new("m", "p"), reading("c", "m")),
    ];
    let set = PolicySet::build(&PolicySet::default(), keyed);
    let object = json!({ "a": 1, "b": 2, "c": 3, "d": 4 });
    for (namespace, expected) in [
        (Some("n"), json!({ "a": 1, "b": 2 })),
        (Some("m"), json!({ "a": 1, "c": 3 })),
        (Some("o"), json!({ "a": 1 })),
        (Some(""), json!({ "a": 1 })),
        (None, json!({ "a": 1, "b": 2, "c": 3 })),
    ] {
        let subject = RequestSubject {
            namespace,
            ..subject("Ingress")
        };
        let concerned = set.concerned(&CallScope::all(Phase::Validation), &subject);
        let read = concerned.parts.field("object", &object.to_string());
        assert_eq!(read.unwrap().unwrap(), expected, "{namespace:?}");
    }
}

#[test]
fn a_version_that_does_not_compile_leaves_the_one_before_in_force() {
    let versioned = |uid: &str, pattern: &Value| {
        manifest(&["Ingress"], |manifest| {
            manifest["metadata"]["uid"] = uid.into();
            manifest["spec"]["rules"][0]["match"]["any"][0]["resources"]["kinds"] = pattern.clone();
        })
    };
    let key = || ObjectKey::new("", "p");
    let (good, bad) = (json!(["Ingress"]), json!([{ "no": "kind" }]));
    let next = |before: &PolicySet, body: &Bytes| PolicySet::build(before, [(key(), body.clone())]);
    let first = next(&PolicySet::default(), &versioned("u", &good));
    let broken = versioned("u", &bad);
    let second = next(&first, &broken);
    let third = next(&second, &broken);
    for set in [&second, &third] {
        assert!(Arc::ptr_eq(&set.entries[0], &first.entries[0]));
    }
    // A different policy with the same name, or an invalid first version, is not in force.
    let other = next(&third, &versioned("other", &bad));
    assert_eq!(other.counts(), (0, 1));
    assert_eq!(next(&PolicySet::default(), &broken).counts(), (0, 1));
    // A version that compiles takes its place.
    let mended = next(&third, &versioned("u", &json!(["Service"])));
    let all = &CallScope::all(Phase::Validation);
    assert_eq!(names(&mended, all, &subject("Service")), ["p"]);
    assert!(names(&mended, all, &subject("Ingress")).is_empty());
}
