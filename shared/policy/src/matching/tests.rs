use serde_json::json;

use super::*;

fn request(operation: &str, namespace: &str, object: &Value) -> AdmissionRequest {
    let side = if operation == "DELETE" {
        "oldObject"
    } else {
        "object"
    };
    AdmissionRequest::new(json!({
        "operation": operation,
        "kind": {"group": "", "version": "v1", "kind": object["kind"]},
        "namespace": namespace,
        side: object,
    }))
    .unwrap()
}

fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}})
}

fn filter(kind: &str) -> Filter {
    Filter {
        kinds: vec![KindPattern::parse(kind).unwrap()],
        ..Filter::default()
    }
}

#[test]
fn every_part_of_a_filter_must_match() {
    let whole = || Filter {
        name: Some("web-*".to_owned()),
        namespaces: vec!["prod-*".to_owned(), "stage".to_owned()],
        operations: vec![Operation::Create],
        selector: Some(Selector {
            labels: vec![("app".to_owned(), "w*".to_owned())],
            requirements: vec![],
        }),
        ..filter("Pod")
    };
    assert!(whole().matches(&request("CREATE", "prod-1", &pod("web-1"))));
    assert!(whole().matches(&request("CREATE", "stage", &pod("web-1"))));
    for (operation, namespace, object) in [
        ("UPDATE", "prod-1", pod("web-1")),
        ("CREATE", "dev", pod("web-1")),
        ("CREATE", "prod-1", pod("db")),
        (
            "CREATE",
            "prod-1",
            json!({"kind": "Service", "metadata": {"name": "web-1", "labels": {"app": "web"}}}),
        ),
        (
            "CREATE",
            "prod-1",
            json!({"kind": "Pod", "metadata": {"name": "web-1"}}),
        ),
    ] {
        assert!(!whole().matches(&request(operation, namespace, &object)));
    }
}

#[test]
fn a_deletion_is_matched_by_the_old_object() {
    assert!(filter("Pod").matches(&request("DELETE", "ns", &pod("a"))));
    let named = Filter {
        names: vec!["a".to_owned(), "b*".to_owned()],
        ..filter("Pod")
    };
    assert!(named.matches(&request("DELETE", "ns", &pod("a"))));
    assert!(!named.matches(&request("DELETE", "ns", &pod("c"))));
}

#[test]
fn a_name_still_to_be_generated_is_matched_by_its_prefix() {
    let named = Filter {
        name: Some("web-*".to_owned()),
        ..filter("Pod")
    };
    let object = json!({"kind": "Pod", "metadata": {"generateName": "web-"}});
    assert!(named.matches(&request("CREATE", "ns", &object)));
}

#[test]
fn a_namespace_is_matched_by_its_own_name() {
    let prod = Filter {
        namespaces: vec!["prod".to_owned()],
        ..filter("Namespace")
    };
    let namespace = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name}});
    assert!(prod.matches(&request("CREATE", "prod", &namespace("prod"))));
    assert!(!prod.matches(&request("CREATE", "dev", &namespace("dev"))));
    assert_eq!(
        object_namespace(&request("CREATE", "prod", &namespace("prod"))),
        ""
    );
}

#[test]
fn any_all_and_exclude_combine() {
    let named = |name: &str| Filter {
        name: Some(name.to_owned()),
        ..filter("Pod")
    };
    let create = |name: &str| request("CREATE", "ns", &pod(name));
    let any = Match {
        include: Filters::Any(vec![named("a*"), named("b*")]),
        exclude: Some(Filters::Any(vec![named("*x"), named("*y")])),
    };
    assert!(any.matches(&create("a")) && any.matches(&create("b")));
    assert!(
        !any.matches(&create("c")) && !any.matches(&create("ax")) && !any.matches(&create("by"))
    );
    let all = Match {
        include: Filters::All(vec![named("a*"), named("*b")]),
        exclude: Some(Filters::All(vec![named("*x*"), named("*y*")])),
    };
    assert!(all.matches(&create("ab")) && all.matches(&create("axb")));
    assert!(!all.matches(&create("a")) && !all.matches(&create("axyb")));
}

#[test]
fn targets_are_kinds_and_operations_of_every_filter() {
    let with = Match {
        include: Filters::Any(vec![
            Filter {
                operations: vec![Operation::Delete],
                ..filter("Pod/exec")
            },
            Filter {
                name: Some("x".to_owned()),
                ..Filter::default()
            },
        ]),
        exclude: None,
    };
    let targets: Vec<_> = with.targets().collect();
    assert_eq!(targets[0].operations, [Operation::Delete]);
    assert_eq!(targets[0].kinds[0].subresource, "exec");
    assert_eq!(targets[1].operations, Operation::ALL);
    assert_eq!(targets[1].kinds, [KindPattern::any()]);
}

#[test]
fn annotations_match_whole_or_by_wildcard() {
    let by = |key: &str, value: &str| Filter {
        annotations: Some(Selector {
            labels: vec![(key.to_owned(), value.to_owned())],
            requirements: vec![],
        }),
        ..filter("Pod")
    };
    let mut annotated = pod("web");
    annotated["metadata"]["annotations"] = json!({"a.example/host": "x.y"});
    for (key, value, matches) in [
        ("a.example/host", "x.y", true),
        ("a.example/*", "?*", true),
        ("a.example/host", "x", false),
        ("app", "web", false),
    ] {
        let request = request("CREATE", "ns", &annotated);
        assert_eq!(by(key, value).matches(&request), matches, "{key}={value}");
    }
    assert!(!by("*", "*").matches(&request("CREATE", "ns", &pod("web"))));
}
