use anteroom_model::ObjectKey;
use anteroom_policy::CollectionReference;

use super::*;

fn world() -> World {
    let resource = |value| Resource::new(value).unwrap();
    World {
        entries: vec![EntryData {
            name: "hosts".to_owned(),
            resources: Some(vec![json!({"h": "a"}), json!({"h": "b"})]),
            field_path: Some("[].h".to_owned()),
            projections: vec![crate::suite::ProjectionData {
                name: "count".to_owned(),
                path: "length(@)".to_owned(),
            }],
            ..EntryData::default()
        }],
        responses: [("", "any"), ("post", "posted")]
            .map(|(method, body)| ApiCallResponse {
                url_path: "/x".to_owned(),
                method: Some(method.to_owned()),
                response: ResponseData {
                    body: body.into(),
                    ..ResponseData::default()
                },
            })
            .to_vec(),
        resources: vec![
            resource(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
                            "data": {"k": "v"}}),
            ),
            resource(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})),
        ],
        ..World::default()
    }
}

fn asked(variable: &str, subject: FactSubject, expression: &str) -> FactRequest {
    FactRequest {
        id: 0,
        variable: variable.to_owned(),
        subject,
        expression: expression.to_owned(),
        parameters: Default::default(),
        missing_key_is_error: true,
        age_max_ms: None,
        is_pushed_down: false,
        cel: None,
    }
}

fn entry(name: &str, projection: &str) -> FactSubject {
    FactSubject::Entry {
        kind: EntryKind::Global,
        name: name.to_owned(),
        projection: projection.to_owned(),
    }
}

fn pods(namespace: &str) -> FactSubject {
    FactSubject::Collection(CollectionReference {
        resource: "pods".to_owned(),
        namespace: namespace.to_owned(),
        ..CollectionReference::default()
    })
}

fn call(path: &str, is_post: bool) -> FactSubject {
    FactSubject::Api(ResolvedApiCall {
        path: path.to_owned(),
        data: is_post.then(|| json!({})),
        by_view: None,
    })
}

#[test]
fn a_namespace_that_is_not_given_has_its_name_and_labels() {
    let values = RuleValues::default();
    let (world, labels) = (world(), Map::from_iter([("a".to_owned(), "b".into())]));
    let facts = Facts::new(&world, &Map::new(), &values).within("shop", labels);
    let of = |namespace: &str| {
        let namespace = namespace.to_owned();
        let subject = FactSubject::NamespaceLabels { namespace };
        facts.answer(&asked("namespaceObject", subject, ""))
    };
    assert_eq!(
        of("shop").unwrap()["metadata"],
        json!({"name": "shop", "labels": {"a": "b"}})
    );
    assert!(of("other").is_err());
}

#[test]
fn facts_come_from_values_then_entries_then_resources() {
    let world = world();
    let mut values = RuleValues::default();
    values.values.insert("given.a".to_owned(), 1.into());
    values
        .by_element
        .insert("each".to_owned(), vec![1.into(), 2.into()]);
    let facts = Facts::new(&world, &Map::new(), &values);
    assert_eq!(
        Value::Object(facts.given()),
        json!({"given": {"a": 1}, "each": 1})
    );
    let config = FactSubject::ConfigMap {
        object: ObjectKey::new("default", "c"),
        literal: true,
    };
    for (variable, subject, expression, answer) in [
        // What answers beside values counts before them.
        ("given", entry("hosts", ""), "", json!({"a": 1, "count": 2})),
        ("each", entry("hosts", ""), "", json!({"count": 2})),
        ("x", entry("hosts", ""), "", json!({"count": 2})),
        ("x", call("/x", false), "", json!("any")),
        ("x", call("/x", true), "", json!("posted")),
        ("x", entry("hosts", "count"), "", json!(2)),
        ("x", config, "data", json!({"k": "v"})),
        ("x", pods(""), "items[].metadata.name", json!(["p"])),
        ("x", pods("elsewhere"), "items", json!([])),
    ] {
        let found = facts.answer(&asked(variable, subject, expression));
        assert_eq!(found, Ok(answer), "{variable} {expression}");
    }
}

#[test]
fn collections_are_narrowed_as_an_api_server_does() {
    let of = |value| Resource::new(value).unwrap();
    let world = World {
        resources: vec![
            of(json!({"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": "a", "namespace": "n", "labels": {"x": "1"}}})),
            of(json!({"apiVersion": "v1", "kind": "ConfigMap",
                      "metadata": {"name": "b", "namespace": "n"}})),
            of(json!({"apiVersion": "v1", "kind": "Namespace",
                      "metadata": {"name": "n", "labels": {"env": "prod"}}})),
        ],
        ..World::default()
    };
    let values = RuleValues::default();
    let facts = Facts::new(&world, &Map::new(), &values);
    let names = |fields: &str, labels: &str| {
        let subject = FactSubject::Collection(CollectionReference {
            resource: "ConfigMap".to_owned(),
            field_selector: fields.to_owned(),
            label_selector: labels.to_owned(),
            ..CollectionReference::default()
        });
        facts.answer(&asked("x", subject, "items[].metadata.name"))
    };
    assert_eq!(names("", ""), Ok(json!(["a", "b"])));
    assert_eq!(names("metadata.name=b", ""), Ok(json!(["b"])));
    assert_eq!(names("", "x in (1, 2)"), Ok(json!(["a"])));
    assert_eq!(names("metadata.name=b", "x=1"), Ok(json!([])));
    assert!(names("status.phase=x", "").is_err());
    let namespace = |name: &str| {
        let namespace = name.to_owned();
        let subject = FactSubject::NamespaceLabels { namespace };
        facts.answer(&asked("x", subject, "metadata.labels.env"))
    };
    assert_eq!(namespace("n"), Ok(json!("prod")));
    assert!(namespace("other").is_err());
}

#[test]
fn facts_that_are_not_given_are_unknown_and_not_empty() {
    let world = world();
    let values = RuleValues::default();
    let facts = Facts::new(&world, &Map::new(), &values);
    let secrets = CollectionReference {
        resource: "secrets".to_owned(),
        ..CollectionReference::default()
    };
    let config = FactSubject::ConfigMap {
        object: ObjectKey::new("default", "d"),
        literal: true,
    };
    let image = FactSubject::Image {
        reference: "a".to_owned(),
        credentials: Default::default(),
    };
    for (subject, is_nothing) in [
        (entry("names", ""), false),
        (entry("hosts", "sum"), false),
        (FactSubject::Collection(secrets), true),
        (config, false),
        (call("/y", false), true),
        (image, true),
    ] {
        let found = facts.answer(&asked("x", subject.clone(), ""));
        let found = found.map_err(|why| matches!(why, Unanswered::Nothing(_)));
        assert_eq!(found, Err(is_nothing), "{subject:?}");
    }
}

#[test]
fn a_value_is_used_where_nothing_else_answers() {
    let mut world = world();
    let mut values = RuleValues::default();
    values.values.insert("x".to_owned(), "given".into());
    let cluster = |world: &mut World, is_cluster| world.is_cluster = is_cluster;
    let config = |name: &str| FactSubject::ConfigMap {
        object: ObjectKey::new("default", name),
        literal: true,
    };
    let found = |world: &World, subject: FactSubject| {
        let facts = Facts::new(world, &Map::new(), &values);
        facts.answer(&asked("x", subject, ""))
    };
    let is_given = |found: Result<Value, Unanswered>| found == Err(Unanswered::Given);
    for (is_cluster, map, list, called) in [
        (Some(false), true, true, false),
        (Some(true), false, false, false),
        (None, true, false, false),
    ] {
        cluster(&mut world, is_cluster);
        assert_eq!(is_given(found(&world, config("c"))), map, "{is_cluster:?}");
        assert_eq!(is_given(found(&world, pods(""))), list, "{is_cluster:?}");
        assert_eq!(
            is_given(found(&world, call("/x", false))),
            called,
            "{is_cluster:?}"
        );
        // What is not answered by the rest is what is given.
        assert!(is_given(found(&world, config("nope"))));
        assert!(is_given(found(&world, call("/y", false))));
        assert!(is_given(found(&world, entry("nope", ""))));
    }
    // Without a value: the resources are no cluster, unless nothing is said of that.
    let values = RuleValues::default();
    for (is_cluster, answers) in [(Some(false), false), (Some(true), true), (None, true)] {
        cluster(&mut world, is_cluster);
        let facts = Facts::new(&world, &Map::new(), &values);
        let list = facts.answer(&asked("x", pods(""), ""));
        assert_eq!(list.is_ok(), answers, "{is_cluster:?}");
        let map = facts.answer(&asked("x", config("c"), ""));
        assert_eq!(map.is_ok(), answers, "{is_cluster:?}");
        let called = facts.answer(&asked("x", call("/x", false), ""));
        assert_eq!(called, Ok("any".into()));
    }
}

#[test]
fn a_value_does_not_replace_an_answer_that_is_an_error() {
    let mut world = world();
    world.responses[0].response.status_code = Some(500);
    let mut values = RuleValues::default();
    values.values.insert("x".to_owned(), "given".into());
    let facts = Facts::new(&world, &Map::new(), &values);
    for (subject, expression, expected) in [
        (call("/x", false), "", Some("answered with 500")),
        (call("/x", true), "", None), // Answered.
        (entry("hosts", "sum"), "", Some("sum")),
        (entry("hosts", ""), "nope.deeper", Some("nope")),
        (entry("hosts", ""), "[", Some("")),
        (entry("names", ""), "", None), // Not known: the value counts.
    ] {
        let found = facts.answer(&asked("x", subject.clone(), expression));
        match (found, expected) {
            (Err(Unanswered::Failed(error)), Some(says)) => {
                assert!(error.to_string().contains(says), "{error}");
            }
            (Ok(_) | Err(Unanswered::Given), None) => {}
            (other, _) => panic!("{subject:?}: {other:?}"),
        }
    }
}

#[test]
fn a_collection_holds_each_given_object_once() {
    let of = |name: &str, own: &str| {
        let metadata = json!({"name": name, "namespace": "n", "labels": {"own": own}});
        let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        Resource::new(manifest).unwrap()
    };
    let world = World {
        targets: vec![of("a", "target")],
        resources: vec![of("a", "judged"), of("b", "judged"), of("b", "read")],
        ..World::default()
    };
    let values = RuleValues::default();
    let facts = Facts::new(&world, &Map::new(), &values);
    let kept = |object| ViewBackedRead {
        reference: Reference::Collection(CollectionReference {
            group: Some(String::new()),
            resource: "pods".to_owned(),
            ..CollectionReference::default()
        }),
        object,
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
        limit: None,
    };
    let called = |object| {
        FactSubject::Api(ResolvedApiCall {
            path: "/api/v1/pods".to_owned(),
            data: None,
            by_view: Some(kept(object)),
        })
    };
    let each = "items[].[metadata.name, metadata.labels.own]";
    let all = json!([["a", "target"], ["b", "judged"]]);
    for subject in [called(None), pods("")] {
        let found = facts.answer(&asked("x", subject, each));
        assert_eq!(found, Ok(all.clone()));
    }
    let one = called(Some(ObjectKey::new("n", "a")));
    let found = facts.answer(&asked("x", one, "metadata.labels.own"));
    assert_eq!(found, Ok(json!("target")));
}

#[test]
fn a_call_of_one_group_reads_nothing_of_another() {
    let world = world();
    let values = RuleValues::default();
    let facts = Facts::new(&world, &Map::new(), &values);
    let of = |group: &str| {
        let reference = Reference::Collection(CollectionReference {
            group: Some(group.to_owned()),
            resource: "pods".to_owned(),
            ..CollectionReference::default()
        });
        let subject = FactSubject::Api(ResolvedApiCall {
            path: "/pods".to_owned(),
            data: None,
            by_view: Some(ViewBackedRead {
                reference,
                object: None,
                namespace: String::new(),
                label_selector: String::new(),
                field_selector: String::new(),
                limit: None,
            }),
        });
        facts.answer(&asked("x", subject, "items[].metadata.name"))
    };
    assert_eq!(of(""), Ok(json!(["p"])));
    assert!(matches!(of("metrics.k8s.io"), Err(Unanswered::Nothing(_))));
}
