use serde_json::json;

use super::{derived::NOBODY, *};

#[test]
fn required_fields_of_a_request_are_checked() {
    let whole = json!({
        "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"metadata": {"name": "a"}},
    });
    assert!(AdmissionRequest::new(whole.clone()).is_ok());
    for (change, error) in [
        (
            json!({"operation": null}),
            "request.operation is missing or is not a string",
        ),
        (
            json!({"operation": "PATCH"}),
            "request.operation `PATCH` is none of CREATE, UPDATE, DELETE, CONNECT",
        ),
        (
            json!({"kind": null}),
            "request.kind.version is missing or is not a string",
        ),
        (
            json!({"object": null}),
            "request.object is missing: a CREATE request carries it",
        ),
        (
            json!({"operation": "DELETE"}),
            "request.oldObject is missing: a DELETE request carries it",
        ),
    ] {
        let mut request = whole.clone();
        for (key, value) in change.as_object().unwrap() {
            request[key] = value.clone();
        }
        assert_eq!(
            AdmissionRequest::new(request).unwrap_err().to_string(),
            error
        );
    }
    assert!(AdmissionRequest::new(json!("text")).is_err());
}

#[test]
fn service_accounts_are_taken_apart() {
    assert_eq!(
        service_account("system:serviceaccount:ns:robot"),
        ("ns", "robot")
    );
    assert_eq!(service_account("system:serviceaccount:"), ("", ""));
    assert_eq!(service_account("alice"), ("", ""));
}

#[test]
fn a_variable_of_the_context_is_put_in_place() {
    let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"metadata": {"name": "a"}, "spec": 1}, "namespace": "here",
    }))
    .unwrap()
    .with_variable(&path("request.namespace"), "there".into())
    .with_variable(&path("request.object.spec.x"), 2.into())
    .with_variable(&path("serviceAccountName"), "robot".into())
    .with_variable(&[], 3.into());
    assert_eq!(request.namespace(), "here");
    let root = request.whole_root();
    assert_eq!(root["request"]["namespace"], "there");
    assert_eq!(root["request"]["object"]["spec"], json!({"x": 2}));
    assert_eq!(root["serviceAccountName"], "robot");
}

#[test]
fn images_are_read_from_a_subresource_that_carries_a_pod() {
    let of = |sub_resource: &str, kind: &str| {
        AdmissionRequest::new(json!({
            "operation": "UPDATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "subResource": sub_resource,
            "object": {"kind": kind, "metadata": {"name": "a"},
                "spec": {"ephemeralContainers": [{"name": "e", "image": "nginx"}]}},
        }))
        .unwrap()
    };
    let has_images = |sub_resource, kind| of(sub_resource, kind).images().found.is_some();
    assert!(has_images("ephemeralcontainers", "Pod"));
    assert!(!has_images("binding", "Binding"));
    assert!(has_images("", ""));
}

#[test]
fn a_deletion_has_no_images() {
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    let of = |operation: &str, field: &str| {
        let mut request =
            json!({"operation": operation, "kind": {"group": "", "version": "v1", "kind": "Pod"}});
        request[field] = pod.clone();
        AdmissionRequest::new(request).unwrap()
    };
    assert!(of("CREATE", "object").images().found.is_some());
    assert!(of("DELETE", "oldObject").images().found.is_none());
}

/// An UPDATE of a Pod by a service account.
fn update() -> Value {
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": name}]}});
    json!({
        "operation": "UPDATE", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "ns",
        "userInfo": {"username": "system:serviceaccount:ns:robot"}, "roles": ["ns:r"],
        "object": pod("new"), "oldObject": pod("old"),
    })
}

/// Returns the document that a rule's expressions see, with `images` as the path of the image alone.
fn seen(request: &AdmissionRequest) -> Value {
    let mut root = request.whole_root();
    let path = root
        .remove(IMAGES)
        .map(|images| images["containers"]["c"]["path"].clone());
    root.insert(IMAGES.to_owned(), path.unwrap_or_default());
    Value::Object(root)
}

#[test]
fn a_derived_request_has_the_whole_document_with_its_changes() {
    let document = |request: &Value, image: &str| {
        let mut document = json!({"serviceAccountName": "robot", "serviceAccountNamespace": "ns"});
        (document["request"], document["images"]) = (request.clone(), image.into());
        document
    };
    let changed = |changes: Value| {
        let mut request = update();
        let fields = request.as_object_mut().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            fields.insert(name.clone(), value.clone());
        }
        request
    };
    let mut request = AdmissionRequest::new(update()).unwrap();
    assert_eq!(seen(&request), document(&update(), "new"));
    assert_eq!(request.value(), update());
    let old = update()["oldObject"].clone();
    let earlier = changed(json!({"object": old, "oldObject": {}, "operation": "CREATE"}));
    let found = request.of_old_object().unwrap();
    assert_eq!(seen(&found), document(&earlier, "old"));
    let found = request.with_object(old.clone());
    assert_eq!(
        seen(&found),
        document(&changed(json!({"object": old})), "old")
    );
    let found = request.clone().with_old_object(json!({}));
    assert_eq!(
        seen(&found),
        document(&changed(json!({"oldObject": {}})), "new")
    );
    let roles = Roles {
        roles: vec!["ns:s".to_owned()],
        cluster_roles: Vec::new(),
    };
    let found = request.with_roles(&roles);
    assert_eq!(
        seen(&found),
        document(&changed(json!({"roles": ["ns:s"]})), "new")
    );
    let user = json!({"username": NOBODY, "groups": [NOBODY]});
    let mut by_nobody = changed(json!({"userInfo": user}));
    by_nobody.as_object_mut().unwrap().remove("roles");
    assert_eq!(seen(&request.by_nobody()), document(&by_nobody, "new"));
    let root = request.clone().by_unknown_user().whole_root();
    assert_eq!(root.keys().collect::<Vec<_>>(), [IMAGES, REQUEST]);
    // None of this has changed the original.
    assert_eq!(seen(&request), document(&update(), "new"));
    let objects = request.take_objects();
    let taken = changed(json!({"object": null, "oldObject": null}));
    assert_eq!(request.value(), taken);
    assert!(request.images().found.is_none());
    assert_eq!(
        seen(&request.with_objects(objects)),
        document(&update(), "new")
    );
}

#[test]
fn requests_that_are_derived_share_the_objects_that_they_keep() {
    let request = AdmissionRequest::new(update()).unwrap();
    let shared = |derived: &AdmissionRequest| {
        let is_same = |one: Option<&Arc<Value>>, other: Option<&Arc<Value>>| {
            one.zip(other)
                .is_some_and(|(one, other)| Arc::ptr_eq(one, other))
        };
        let (RequestObjects { new, old }, own) = (&derived.objects, &request.objects);
        (
            is_same(new.as_ref(), own.new.as_ref()),
            is_same(old.as_ref(), own.old.as_ref()),
        )
    };
    assert_eq!(shared(&request.clone()), (true, true));
    assert_eq!(shared(&request.by_nobody()), (true, true));
    assert_eq!(shared(&request.with_roles(&Roles::default())), (true, true));
    assert_eq!(shared(&request.with_object(json!({}))), (false, true));
    let earlier = request.of_old_object().unwrap();
    let old = request.objects.old.as_ref().unwrap();
    assert!(Arc::ptr_eq(&earlier.shared_object(), old));
    let object = Arc::new(json!({"a": 1}));
    let changed = request.with_object(Arc::clone(&object));
    assert!(Arc::ptr_eq(&changed.shared_object(), &object));
    assert!(Arc::ptr_eq(&request.root, &changed.root));
}

#[test]
fn the_images_of_a_request_are_those_of_the_kind_that_it_says() {
    let request = AdmissionRequest::new(update()).unwrap();
    let other = request.clone().with_resource_kind("", "v1", "Other");
    assert_eq!(other.images().found, request.images().found);
    assert!(other.images().found.is_some());
}

#[test]
fn the_old_object_becomes_a_create_request() {
    let request = AdmissionRequest::new(json!({
        "operation": "UPDATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "object": {"metadata": {"name": "new"}}, "oldObject": {"metadata": {"name": "old"}},
    }))
    .unwrap();
    let earlier = request.of_old_object().unwrap();
    assert_eq!(earlier.operation(), Operation::Create);
    assert_eq!(earlier.matched_object()["metadata"]["name"], "old");
    // An old object without fields: what a rule reads of it is missing, and not null.
    assert_eq!(earlier.old_object(), Some(&json!({})));
    assert!(earlier.of_old_object().is_none());
}

#[test]
fn the_old_object_of_a_subresource_is_of_its_own_kind() {
    let request = AdmissionRequest::new(json!({
        "operation": "UPDATE", "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
        "subResource": "scale", "object": {"spec": {"replicas": 3}},
        "oldObject": {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}},
    }))
    .unwrap()
    .with_resource_kind("apps", "v1", "Deployment");
    assert_eq!(request.subresource(), "scale");
    let earlier = request.of_old_object().unwrap();
    let kind = (earlier.group(), earlier.version(), earlier.kind());
    assert_eq!(kind, ("autoscaling", "v1", "Scale"));
    assert_eq!(earlier.subresource(), "");
    let without_kind = request.with_old_object(json!({}));
    assert_eq!(without_kind.of_old_object().unwrap().kind(), "Deployment");
}

#[test]
fn a_request_says_its_roles_even_where_its_lists_are_empty() {
    for (lists, expected) in [
        (json!({}), None),
        (json!({"roles": []}), Some((0, 0))),
        (json!({"roles": ["ns:r"]}), Some((1, 0))),
        (
            json!({"roles": [], "clusterRoles": ["a", "b"]}),
            Some((0, 2)),
        ),
    ] {
        let mut request = update();
        let fields = request.as_object_mut().unwrap();
        fields.remove("roles");
        fields.extend(lists.as_object().unwrap().clone());
        let request = AdmissionRequest::new(request).unwrap();
        let roles = request.roles();
        let found = roles.map(|of| (of.roles.len(), of.cluster_roles.len()));
        assert_eq!(found, expected, "{lists}");
        assert_eq!(request.says_roles(), expected.is_some(), "{lists}");
        // To an expression, an empty list is a missing key.
        assert_ne!(request.value().get("roles"), Some(&json!([])), "{lists}");
    }
}

#[test]
fn a_schema_is_only_for_objects_of_the_kind_of_the_request() {
    let schema = Arc::new(ObjectSchema::built_in("v1", "Pod").unwrap());
    let of = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    let mut request = update();
    request["object"] = of("v1", "Pod");
    let request = AdmissionRequest::new(request).unwrap();
    assert!(request.schema_of(&of("v1", "Pod")).is_none());
    let request = request.with_schema(schema);
    for (object, expected) in [
        (of("v1", "Pod"), true),
        (of("v2", "Pod"), false),
        (of("v1", "Service"), false),
    ] {
        let found = request.schema_of(&object);
        assert_eq!(found.is_some(), expected, "{object}");
    }
}

#[test]
fn each_policy_has_random_numbers_of_its_own_whatever_the_seed() {
    let request = AdmissionRequest::new(update()).unwrap();
    assert!(request.cel_arrival_of("p").is_none());
    for seed in [0, u64::MAX] {
        let request = request.clone().arrived(Arrival { now_ns: 5, seed });
        let seed_of = |policy: &str| request.cel_arrival_of(policy).unwrap().seed;
        assert_ne!(seed_of("p"), seed_of("q"));
    }
    // As FNV-1a is published.
    assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
}

#[test]
fn a_request_is_large_from_a_number_of_bytes_on() {
    let request = AdmissionRequest::new(update()).unwrap();
    let is_large = |bytes| request.clone().of_review_bytes(bytes).is_large();
    assert!(!is_large(0) && !is_large(LARGE_REQUEST_BYTES_MIN - 1));
    assert!(is_large(LARGE_REQUEST_BYTES_MIN));
}

#[test]
fn an_operation_on_an_existing_object_is_about_that_object() {
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}});
    let on = |operation| AdmissionRequest::on_existing(&pod, "pods", operation).unwrap();
    let (changed, deleted) = (on(Operation::Update), on(Operation::Delete));
    assert_eq!((changed.object(), changed.old_object()), (Some(&pod), None));
    assert_eq!((deleted.object(), deleted.old_object()), (None, Some(&pod)));
    let subject = ExistingObjects {
        version: "v1".into(),
        kind: "Pod".into(),
        resource: "pods".into(),
        namespace: "ns".into(),
        name: "a".into(),
        ..ExistingObjects::default()
    };
    assert_eq!(changed.subject(), subject);
    assert_eq!(deleted.subject(), subject);
}
