use serde_json::json;

use super::*;

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
    assert_eq!(request.root()["request"]["namespace"], "there");
    assert_eq!(request.root()["request"]["object"]["spec"], json!({"x": 2}));
    assert_eq!(request.root()["serviceAccountName"], "robot");
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
    let has_images = |sub_resource, kind| of(sub_resource, kind).root().contains_key(IMAGES);
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
    assert!(of("CREATE", "object").root().contains_key(IMAGES));
    assert!(!of("DELETE", "oldObject").root().contains_key(IMAGES));
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
    assert_eq!(earlier.old_object(), None);
    assert!(earlier.of_old_object().is_none());
}
