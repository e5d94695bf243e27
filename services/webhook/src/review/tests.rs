use anteroom_policy::LARGE_REQUEST_BYTES_MIN;
use serde_json::{Value, json};

use super::*;

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "name": "a", "namespace": "n",
            "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"},
            "resource": {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"},
            "userInfo": {"username": "alice"},
            "object": {"metadata": {"name": "a", "namespace": "n"}}, "oldObject": null,
        },
    })
}

fn with(pointer: &str, value: Value) -> String {
    let mut review = review();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    review.pointer_mut(parent).unwrap()[field] = value;
    review.to_string()
}

#[test]
fn a_review_is_read() {
    let body = review().to_string();
    let review = Review::parse(body.as_bytes()).unwrap();
    assert_eq!(review.operation(), Operation::Create);
    assert_eq!(review.head.kind.kind, "Ingress");
    assert_eq!(review.head.resource.resource, "ingresses");
    assert_eq!(review.request(&RequestParts::ALL).unwrap().name(), "a");
}

#[test]
fn a_request_is_large_by_what_came_and_not_by_what_policies_read() {
    let bytes_without = {
        let body = with("/request/object/note", json!(""));
        Review::parse(body.as_bytes()).unwrap().bytes()
    };
    for (bytes, is_large) in [
        (LARGE_REQUEST_BYTES_MIN - 1, false),
        (LARGE_REQUEST_BYTES_MIN, true),
    ] {
        let note = "a".repeat(bytes - bytes_without);
        let body = with("/request/object/note", json!(note));
        let review = Review::parse(body.as_bytes()).unwrap();
        for parts in [RequestParts::ALL, RequestParts::default()] {
            let request = review.request(&parts).unwrap();
            assert_eq!(request.is_large(), is_large, "{bytes} bytes");
        }
    }
}

#[test]
fn the_memory_of_a_review_is_that_of_its_parts_with_the_copies_of_its_object() {
    let list = |count: usize| json!(vec![json!({ "a": 0 }); count]);
    let bytes = |objects: u64, of_object: usize, of_old: usize| {
        let mut review = review();
        review["request"]["object"]["list"] = list(of_object);
        review["request"]["oldObject"] = json!({ "list": list(of_old) });
        let body = review.to_string();
        let review = Review::parse(body.as_bytes()).unwrap();
        review.parsed_bytes_max(objects)
    };
    let none = bytes(1, 0, 0);
    assert!((5_000..10_000).contains(&none), "{none}");
    let small = bytes(1, 1_000, 0) - none;
    assert!((830_000..850_000).contains(&small), "{small}");
    for (objects, times) in [(1, 2), (5, 6)] {
        let both = bytes(objects, 1_000, 1_000) - bytes(objects, 0, 0);
        assert!(both.abs_diff(times * small) < 10, "{both}");
    }
}

#[test]
fn the_field_manager_is_that_of_the_options() {
    for (options, expected) in [
        (
            json!({"kind": "UpdateOptions", "fieldManager": "a", "dryRun": ["All"]}),
            "a",
        ),
        (json!({"kind": "UpdateOptions"}), ""),
        (json!({"fieldManager": null}), ""),
        (json!({"fieldManager": 1}), ""),
        (json!("a"), ""),
        (Value::Null, ""),
    ] {
        let body = with("/request/options", options);
        let review = Review::parse(body.as_bytes()).unwrap();
        assert_eq!(review.field_manager(), expected, "{body}");
    }
}

#[test]
fn a_malformed_review_says_why_and_whether_it_can_be_answered() {
    let request_error = "the AdmissionReview's request is malformed: request.";
    let cases = [
        ("", "AR401", None, "the body is not an AdmissionReview: EOF"),
        (
            "rubbish",
            "AR401",
            None,
            "the body is not an AdmissionReview: expected value",
        ),
        ("[1]", "AR401", None, "the body is not an AdmissionReview"),
        ("[]", "AR402", None, "the body is \"\" of \"\"; only"),
        ("{}", "AR402", None, "the body is \"\" of \"\"; only"),
        (
            &with("/apiVersion", json!("admission.k8s.io/v1beta1")),
            "AR402",
            None,
            "\"admission.k8s.io/v1beta1\"; only AdmissionReview of admission.k8s.io/v1",
        ),
        (
            &with("/kind", json!("Pod")),
            "AR402",
            None,
            "the body is \"Pod\"",
        ),
        (
            &with("/request", json!(null)),
            "AR401",
            None,
            "has no request",
        ),
        (
            &with("/request", json!("text")),
            "AR401",
            None,
            "malformed: invalid type",
        ),
        (
            &with("/request/uid", json!("")),
            "AR401",
            None,
            "request.uid is missing",
        ),
        (
            &with("/request/operation", json!("PATCH")),
            "AR401",
            Some("u"),
            "request.operation is \"PATCH\", none of",
        ),
        (
            &with("/request/kind", json!({})),
            "AR401",
            Some("u"),
            "request.kind is missing",
        ),
        (
            &with("/request/object", json!(null)),
            "AR401",
            Some("u"),
            &format!("{request_error}object is missing: a CREATE request carries it"),
        ),
        (
            &with("/request/object", json!([1])),
            "AR401",
            Some("u"),
            &format!("{request_error}object is missing"),
        ),
        (
            &with("/request/operation", json!("DELETE")),
            "AR401",
            Some("u"),
            &format!("{request_error}oldObject is missing: a DELETE request carries it"),
        ),
    ];
    for (body, code, uid, message) in cases {
        let error = Review::parse(body.as_bytes()).unwrap_err();
        assert_eq!(error.code().as_str(), code, "{body}");
        assert_eq!(error.uid(), uid, "{body}");
        assert!(error.to_string().contains(message), "{error} for {body}");
    }
}

#[test]
fn nesting_without_end_is_an_error_and_no_crash() {
    let deep = 200_000;
    let nested = "[".repeat(deep) + &"]".repeat(deep);
    let body = review().to_string().replace("\"alice\"", &nested);
    // It is not even looked at, unless a policy reads it.
    let review = Review::parse(body.as_bytes()).unwrap();
    assert!(review.head.name == "a");
    let error = review.request(&RequestParts::ALL).unwrap_err();
    assert_eq!((error.code().as_str(), error.uid()), ("AR406", Some("u")));
    let error = Review::parse(nested.as_bytes()).unwrap_err();
    assert_eq!(error.code().as_str(), "AR401");
}

/// The API server passes the text of some fields on as it came, where that is JSON to Go.
#[test]
fn a_part_that_go_alone_reads_refuses_whatever_the_failure_policy_once_it_is_read() {
    for value in [r#""\ud800""#, r#""\udc00 and more""#, "1e400"] {
        let body = review().to_string().replace("\"object\":{", &{
            format!("\"object\":{{\"data\":{{\"a\":{value}}},")
        });
        let review = Review::parse(body.as_bytes()).unwrap();
        assert!(review.request(&RequestParts::default()).is_ok(), "{value}");
        let error = review.request(&RequestParts::ALL).unwrap_err();
        assert_eq!((error.code().as_str(), error.uid()), ("AR401", Some("u")));
        assert!(error.always_refuses(), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("request's object cannot be read"),
            "{message}"
        );
    }
}

#[test]
fn a_body_that_is_no_utf_8_is_answered_by_its_uid_and_refuses_whatever_the_failure_policy() {
    let head = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"0ab-1","object":{"a":""#;
    let mut body = head.as_bytes().to_vec();
    body.extend_from_slice(b"\xff\"}}}");
    let error = Review::parse(&body).unwrap_err();
    assert_eq!(
        (error.code().as_str(), error.uid()),
        ("AR401", Some("0ab-1"))
    );
    assert!(error.always_refuses(), "{error}");
}

#[test]
fn an_error_repeats_only_little_of_a_senders_text() {
    let body = with("/kind", json!("x".repeat(10_000)));
    let error = Review::parse(body.as_bytes()).unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
}

#[test]
fn a_request_counts_for_its_namespace_and_else_for_its_user() {
    let owner = |namespace: &str, user: &str| {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "namespace": namespace, "object": {},
                "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
                "userInfo": { "username": user },
            },
        });
        Review::parse(review.to_string().as_bytes())
            .unwrap()
            .owner()
    };
    assert_eq!(owner("n", "alice"), owner("n", "bob"));
    assert_ne!(owner("n", "alice"), owner("m", "alice"));
    assert_eq!(owner("", "alice"), owner("", "alice"));
    assert_ne!(owner("", "alice"), owner("", "bob"));
    assert_ne!(owner("", "n"), owner("n", "n"));
}
