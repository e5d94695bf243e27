//! Tests of the calls that a namespaced policy may make.

use super::*;

/// Rule 7: a `Policy` reads its own namespace alone, by every road.
#[test]
fn a_confined_policy_is_refused_paths_outside_its_namespace() {
    let refused = |entry: Value, words: &str| {
        let problem = policy_of(Some("own"), &entry).unwrap_err();
        assert!(
            problem.starts_with("AR304 ") && problem.contains(words),
            "{problem}"
        );
    };
    for path in [
        "/version",
        "/api/v1/pods",
        "/api/v1/nodes/a",
        "/api/v1/namespaces",
        "/apis/apps/v1/deployments",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/api/v1/watch/namespaces/own/pods",
        "/api/v1/pods/namespaces/own",
        "/api/v1/namespaces/own/services/x/proxy/y",
        "/AAA/v1/namespaces/own/pods",
    ] {
        let path = with_variables(path);
        refused(
            json!({"apiCall": {"urlPath": path}}),
            "nothing outside its own",
        );
    }
    let words = "urlPath namespace \"other\" is different from policy namespace \"own\"";
    refused(
        json!({"apiCall": {"urlPath": "/api/v1/namespaces/other/pods"}}),
        words,
    );
    refused(
        json!({"apiCall": {"urlPath": "/api/v1/namespaces/other"}}),
        words,
    );
    refused(
        json!({"apiCall": {"service": {"url": "http://s.own/"}}}),
        "from anywhere",
    );
    let words = "configMap namespace \"other\" is different from policy namespace \"own\"";
    refused(
        json!({"configMap": {"name": "c", "namespace": "other"}}),
        words,
    );
    let words = "resourceCache namespace \"other\" is different from policy namespace \"own\"";
    refused(
        json!({"resourceCache": {"kind": "pods", "namespace": "other"}}),
        words,
    );
}

/// Rule 7: and again when the variables are known.
#[test]
fn a_confined_policy_is_refused_a_variable_that_leads_outside() {
    let path = "/api/v1/namespaces/AAA/pods";
    let error = api_target(Some("own"), path, "other", "").unwrap_err();
    assert_eq!(
        error,
        "AR304 context entry `x`: path `/api/v1/namespaces/other/pods` leads outside namespace own, \
         and a Policy reads nothing outside its own"
    );
    let found = api_target(Some("own"), path, "own", "")
        .unwrap()
        .by_view
        .unwrap();
    assert_eq!(found.reference, collection("", "pods", "own").into());
    let proxy = "/api/v1/namespaces/own/services/s/AAA/x";
    assert!(
        api_target(Some("own"), proxy, "proxy", "")
            .unwrap_err()
            .starts_with("AR304 ")
    );
    let entry = json!({"configMap": {"name": "c", "namespace": A}});
    let policy = policy_of(Some("own"), &entry).unwrap();
    let error = subject(&policy, &request("other", "")).unwrap_err();
    assert!(
        error.contains("configMap namespace \"other\" is different from policy namespace \"own\""),
        "{error}"
    );
    assert!(subject(&policy, &request("own", "")).is_ok());
}

/// Rule 7: data kept for a `Policy` is of its own namespace, even if nothing is known of its paths.
#[test]
fn references_of_a_confined_policy_stay_in_its_namespace() {
    for (entry, expected) in [
        (
            json!({"apiCall": {"urlPath": with_variables("/api/v1/namespaces/AAA/pods")}}),
            collection("", "pods", "own").into(),
        ),
        (
            json!({"apiCall": {"urlPath": with_variables("/apis/apps/v1/namespaces/AAA/deployments")}}),
            collection("apps", "deployments", "own").into(),
        ),
        (
            json!({"apiCall": {"urlPath": with_variables("/api/v1/namespaces/AAA/pods/x")}}),
            object("", "pods", "own", "x").into(),
        ),
        (
            json!({"apiCall": {"urlPath": with_variables("/api/v1/namespaces/own/pods/AAA")}}),
            collection("", "pods", "own").into(),
        ),
        (
            json!({"apiCall": {"urlPath": with_variables("/api/v1/namespaces/AAA")}}),
            Reference::from(object("", "namespaces", "", "own")),
        ),
        (
            json!({"resourceCache": {"group": "", "version": "v1", "kind": "pods"}}),
            CollectionReference {
                declared: true,
                inline: true,
                ..collection("", "pods", "own")
            }
            .into(),
        ),
    ] {
        let policy = policy_of(Some("own"), &entry).unwrap();
        assert_eq!(
            policy.references().collect::<Vec<_>>(),
            [expected],
            "{entry}"
        );
    }
}
