use serde_json::json;

use super::*;
use crate::ir::matching::SubjectPattern;

/// On the side of `match`.
fn includes(filter: &Filter, request: &AdmissionRequest) -> bool {
    matches(filter, request, FilterSide::Include) == Matched::Yes
}

fn matches(filter: &Filter, request: &AdmissionRequest, side: FilterSide) -> Matched {
    filter.matches(request, &Surroundings::default(), side)
}

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
    assert!(includes(
        &whole(),
        &request("CREATE", "prod-1", &pod("web-1"))
    ));
    assert!(includes(
        &whole(),
        &request("CREATE", "stage", &pod("web-1"))
    ));
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
        assert!(!includes(&whole(), &request(operation, namespace, &object)));
    }
}

#[test]
fn a_deletion_is_matched_by_the_old_object() {
    assert!(includes(
        &filter("Pod"),
        &request("DELETE", "ns", &pod("a"))
    ));
    let named = Filter {
        names: vec!["a".to_owned(), "b*".to_owned()],
        ..filter("Pod")
    };
    assert!(includes(&named, &request("DELETE", "ns", &pod("a"))));
    assert!(!includes(&named, &request("DELETE", "ns", &pod("c"))));
}

#[test]
fn a_name_still_to_be_generated_is_matched_by_its_prefix() {
    let named = Filter {
        name: Some("web-*".to_owned()),
        ..filter("Pod")
    };
    let object = json!({"kind": "Pod", "metadata": {"generateName": "web-"}});
    assert!(includes(&named, &request("CREATE", "ns", &object)));
}

/// Otherwise a user could have many objects excluded whose names nobody wrote into the policy.
#[test]
fn a_name_still_to_be_generated_is_excluded_only_where_all_names_with_its_prefix_are() {
    let pod = |prefix: &str| json!({"kind": "Pod", "metadata": {"generateName": prefix}});
    let namespace = json!({"kind": "Namespace", "metadata": {"generateName": "web"}});
    let of_name = |name: &str| Filter {
        name: Some(name.to_owned()),
        ..filter("Pod")
    };
    let of_names = Filter {
        names: vec!["other".to_owned(), "web".to_owned()],
        ..filter("Pod")
    };
    let of_namespaces = Filter {
        namespaces: vec!["web".to_owned()],
        ..filter("Namespace")
    };
    for (excluded, object, expected) in [
        (of_name("web"), pod("web"), false),
        (of_name("we?"), pod("web"), false),
        (of_name("web-*"), pod("web-"), true),
        (of_name("web*"), pod("web-a"), true),
        (of_name("web-a*"), pod("web-"), false),
        (of_names, pod("web"), false),
        (of_namespaces, namespace, false),
    ] {
        let request = request("CREATE", "ns", &object);
        let is_excluded = matches(&excluded, &request, FilterSide::Exclude) == Matched::Yes;
        assert_eq!(is_excluded, expected, "{object}");
    }
}

#[test]
fn a_namespace_is_matched_by_its_own_name() {
    let prod = Filter {
        namespaces: vec!["prod".to_owned()],
        ..filter("Namespace")
    };
    let namespace = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name}});
    assert!(includes(
        &prod,
        &request("CREATE", "prod", &namespace("prod"))
    ));
    assert!(!includes(
        &prod,
        &request("CREATE", "dev", &namespace("dev"))
    ));
    assert_eq!(
        request("CREATE", "prod", &namespace("prod")).object_namespace(),
        ""
    );
}

#[test]
fn any_all_and_exclude_filters_combine() {
    let named = |name: &str| Filter {
        name: Some(name.to_owned()),
        ..filter("Pod")
    };
    let speaks = |of: &Match, name: &str| {
        let request = request("CREATE", "ns", &pod(name));
        of.matches(&request, &Surroundings::default()) == Matched::Yes
    };
    let any = Match {
        include: Filters::Any(vec![named("a*"), named("b*")]),
        exclude: Some(Filters::Any(vec![named("*x"), named("*y")])),
        kinds_alone: Vec::new(),
        spares: false,
    };
    assert!(speaks(&any, "a") && speaks(&any, "b"));
    assert!(!speaks(&any, "c") && !speaks(&any, "ax") && !speaks(&any, "by"));
    let all = Match {
        include: Filters::All(vec![named("a*"), named("*b")]),
        exclude: Some(Filters::All(vec![named("*x*"), named("*y*")])),
        kinds_alone: Vec::new(),
        spares: false,
    };
    assert!(speaks(&all, "ab") && speaks(&all, "axb"));
    assert!(!speaks(&all, "a") && !speaks(&all, "axyb"));
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
        kinds_alone: Vec::new(),
        spares: false,
    };
    let registered_kinds: Vec<_> = with.registered_kinds(crate::Phase::Validation).collect();
    assert_eq!(registered_kinds[0].operations, [Operation::Delete]);
    assert_eq!(registered_kinds[0].kinds[0].subresource, "exec");
    assert_eq!(registered_kinds[1].operations, Operation::ALL);
    assert_eq!(registered_kinds[1].kinds, [KindPattern::any()]);
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
        assert_eq!(
            includes(&by(key, value), &request),
            matches,
            "{key}={value}"
        );
    }
    assert!(!includes(
        &by("*", "*"),
        &request("CREATE", "ns", &pod("web"))
    ));
}

/// Returns [`request`] with this user.
fn asked_by(user: &Value) -> AdmissionRequest {
    AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "ns", "object": pod("a"), "userInfo": user,
        "roles": ["ns:edit"], "clusterRoles": ["admin"],
    }))
    .unwrap()
}

#[test]
fn a_user_must_match_subjects_roles_and_cluster_roles() {
    let robot = json!({"username": "system:serviceaccount:ns:robot", "groups": ["a", "ops-1"]});
    let robot = asked_by(&robot);
    let texts = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let users = |subjects, roles: &[&str], cluster_roles: &[&str]| Users {
        subjects,
        roles: texts(roles),
        cluster_roles: texts(cluster_roles),
    };
    let user = |name: &str| SubjectPattern::User(name.to_owned());
    let group = |name: &str| SubjectPattern::Group(name.to_owned());
    let account =
        |name: &str| SubjectPattern::ServiceAccount(format!("system:serviceaccount:{name}"));
    for (users, matches) in [
        (users(vec![account("ns:robot")], &[], &[]), true),
        (users(vec![account("*:robot")], &[], &[]), true),
        (users(vec![account("other:robot")], &[], &[]), false),
        (users(vec![user("*robot")], &[], &[]), true),
        (users(vec![user("alice"), group("ops-*")], &[], &[]), true),
        (users(vec![group("ops")], &[], &[]), false),
        (users(vec![], &["ns:edit"], &["view", "admin"]), true),
        (users(vec![], &["ns:edit"], &["view"]), false),
        (users(vec![user("alice")], &["ns:edit"], &[]), false),
        // A role's name is a name.
        (users(vec![], &["*"], &[]), false),
    ] {
        let told = format!("{users:?}");
        let filter = Filter {
            users,
            ..filter("Pod")
        };
        assert_eq!(includes(&filter, &robot), matches, "{told}");
        let excludes = super::tests::matches(&filter, &robot, FilterSide::Exclude);
        assert_eq!(excludes, matches.into(), "{told}");
    }
}

#[test]
fn filters_on_users_match_nothing_when_the_user_is_unknown() {
    let nobody = asked_by(&Value::Null);
    let of_alice = |is_about_users| Filter {
        users: Users {
            subjects: vec![SubjectPattern::User("alice".to_owned())],
            ..Users::default()
        },
        is_about_users,
        ..Filter::default()
    };
    assert!(includes(&of_alice(false), &nobody));
    assert!(!includes(&of_alice(true), &nobody));
    for is_about_users in [false, true] {
        let excludes = matches(&of_alice(is_about_users), &nobody, FilterSide::Exclude);
        assert_eq!(excludes, Matched::No);
    }
}

#[test]
fn a_namespace_selector_is_about_the_labels_of_the_namespace() {
    let selected = Filter {
        namespace_selector: Some(Selector {
            labels: vec![("env".to_owned(), "prod".to_owned())],
            requirements: vec![],
        }),
        ..Filter::default()
    };
    let labels = |env: &str| {
        let Value::Object(labels) = json!({"env": env}) else {
            unreachable!();
        };
        labels
    };
    let in_ns = || request("CREATE", "ns", &pod("a"));
    assert!(includes(
        &selected,
        &in_ns().with_namespace_labels(labels("prod"))
    ));
    assert!(!includes(
        &selected,
        &in_ns().with_namespace_labels(labels("dev"))
    ));
    // What nobody said is not known, but for an object that is in no namespace.
    let unknown = |namespace| {
        let request = request("CREATE", namespace, &pod("a"));
        matches(&selected, &request, FilterSide::Include)
    };
    assert_eq!(unknown("ns"), Matched::Unknown);
    assert_eq!(unknown(""), Matched::No);
    // A Namespace is in none.
    let namespace =
        json!({"kind": "Namespace", "metadata": {"name": "ns", "labels": {"env": "prod"}}});
    let namespace = request("CREATE", "ns", &namespace).with_namespace_labels(labels("prod"));
    assert!(!includes(&selected, &namespace));
}
