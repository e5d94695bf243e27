//! Malformed and incomplete reviews: each gets its own error, is counted, and changes nothing.

use anteroom_model::limits::REVIEW_BYTES_MAX;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{
    client::{Http, ingress},
    cluster::{Cluster, ingresses, unique_host},
    mutations::{config, policy, review},
};

fn changed(pointer: &str, value: Value) -> String {
    let mut review = ingress("CREATE", "shop", "a.example");
    *review.pointer_mut(pointer).unwrap() = value;
    review.to_string()
}

#[tokio::test]
async fn a_body_that_is_no_review_gets_an_error_code_and_is_counted() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let (_webhook, client) = cluster.webhook().await;
    let too_large = " ".repeat(REVIEW_BYTES_MAX) + "{}";
    let at_the_limit = " ".repeat(REVIEW_BYTES_MAX - 2) + "{}";
    let cases = [
        ("rubbish", StatusCode::BAD_REQUEST, "AR401"),
        ("", StatusCode::BAD_REQUEST, "AR401"),
        (
            &changed("/apiVersion", "admission.k8s.io/v1beta1".into()),
            StatusCode::BAD_REQUEST,
            "AR402",
        ),
        (
            &changed("/request", Value::Null),
            StatusCode::BAD_REQUEST,
            "AR401",
        ),
        (&too_large, StatusCode::PAYLOAD_TOO_LARGE, "AR403"),
        (&at_the_limit, StatusCode::BAD_REQUEST, "AR402"),
    ];
    for (body, status, code) in cases {
        let body = body.to_owned().into();
        let (found, answer) = client.post(Http::One, "/validate/fail", body).await;
        assert_eq!(
            (found, answer["code"].as_str()),
            (status, Some(code)),
            "{answer}"
        );
    }
    let metrics = cluster.service.metrics.encode();
    for line in [
        "anteroom_admission_review_errors_total{code=\"AR401\"} 3",
        "anteroom_admission_review_errors_total{code=\"AR402\"} 2",
        "anteroom_admission_review_errors_total{code=\"AR403\"} 1",
        "anteroom_admission_reviews_in_flight 0",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
}

/// The API server writes six bytes for each `<`, so a small object may become a large review.
#[tokio::test]
async fn a_review_that_is_too_large_is_refused_whatever_the_failure_policy() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let (_webhook, client) = cluster.webhook().await;
    let object = "\\u003c".repeat(REVIEW_BYTES_MAX / 6);
    let head = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"0ab-1","object":""#;
    let review = format!("{head}{object}\"}}}}");
    for path in ["/validate/fail", "/validate/ignore"] {
        let (status, answer) = client.post(Http::One, path, review.clone().into()).await;
        assert_eq!(status, StatusCode::OK);
        let response = &answer["response"];
        let found = (&response["uid"], &response["allowed"]);
        assert_eq!(found, (&"0ab-1".into(), &false.into()));
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.starts_with("AR403"), "{message}");
    }
}

/// In a list of small objects, a byte of text takes a hundred bytes of memory, and rules that change it make copies.
#[tokio::test]
async fn a_request_that_takes_more_memory_than_there_is_is_refused_whatever_the_failure_policy() {
    let rules = [
        json!({ "validate": { "failureAction": "Enforce", "message": "no", "pattern": { "kind": "?*" } } }),
        json!({ "mutate": { "patchStrategicMerge": { "metadata": { "labels": { "made": "here" } } } } }),
    ];
    let policies = ["Fail", "Ignore"].map(|failure| policy(failure, failure, &rules));
    let cluster = Cluster::with(&policies).await;
    let given = ["--review-memory-limit", "9Mi"];
    let (_webhook, client) = cluster.webhook_at_once(&given).await;
    let _beats = cluster.beats(&[ingresses().as_str()]);
    cluster.service.readiness.wait_ready().await;
    let maps = |count: usize| json!(vec![json!({ "a": 0 }); count]);
    let cases: [(Value, &[&str]); 3] = [
        (json!({ "a": "x".repeat(400_000) }), &["validate", "mutate"]),
        (maps(1_000), &["validate"]),
        (maps(5_000), &[]),
    ];
    for (data, decided) in cases {
        let review = review("CREATE", &config(&data), &Value::Null);
        for phase in ["validate", "mutate"] {
            for failure in ["fail", "ignore"] {
                let path = format!("/{phase}/{failure}");
                let answer = client.review(&path, &review).await;
                if decided.contains(&phase) {
                    assert_eq!(answer["allowed"], true, "{path}: {answer}");
                    assert_eq!(answer.get("patch").is_some(), phase == "mutate");
                    continue;
                }
                assert_eq!(answer["allowed"], false, "{path}: {answer}");
                assert_eq!(answer["status"]["code"], 413, "{answer}");
                let message = answer["status"]["message"].as_str().unwrap();
                assert!(message.starts_with("AR403 "), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn a_review_without_an_object_goes_by_the_failure_policy() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = serde_json::from_str(&changed("/request/object", Value::Null)).unwrap();
    let denied = client.review("/validate/fail", &review).await;
    assert_eq!(
        (&denied["allowed"], &denied["status"]["code"]),
        (&false.into(), &400.into())
    );
    let message = denied["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("AR401 ") && message.contains("object is missing"),
        "{message}"
    );
    let admitted = client.review("/validate/ignore", &review).await;
    assert_eq!(admitted["allowed"], true);
    assert!(
        admitted["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("AR401 ")
    );
}

/// Depth would be a way around policies otherwise.
#[tokio::test]
async fn a_deep_request_is_decided_and_a_deeper_one_refused_whatever_the_failure_policy() {
    let rules = [
        json!({ "validate": { "failureAction": "Enforce", "message": "no", "pattern": { "x": "?*" } } }),
        json!({ "validate": { "failureAction": "Enforce", "message": "no", "deny": { "conditions": { "any": [{
            "key": "{{ to_string(request.object.deep) }}", "operator": "Equals", "value": "1" }] } } } }),
        json!({ "mutate": { "patchStrategicMerge": { "data": { "made": "here" } } } }),
        json!({ "mutate": { "patchesJson6902": "- {op: add, path: /data/too, value: x}" } }),
    ];
    let policies = ["Fail", "Ignore"].map(|failure| policy(failure, failure, &rules));
    let cluster = Cluster::with(&policies).await;
    let (_webhook, client) = cluster.webhook().await;
    let object = |depth: usize, x: &str| {
        let mut object = config(&json!({ "x": "y" }));
        object["x"] = x.into();
        object["deep"] = (0..depth - 1).fold(json!([]), |inner, _| json!([inner]));
        object
    };
    for failure in ["fail", "ignore"] {
        for phase in ["validate", "mutate"] {
            let path = format!("/{phase}/{failure}");
            let ask = async |depth, x| {
                let review = review("CREATE", &object(depth, x), &Value::Null);
                client.review(&path, &review).await
            };
            for depth in [100, 200, 510] {
                let decided = ask(depth, "set").await;
                assert_eq!(decided["allowed"], true, "{path} {depth}: {decided}");
                assert_eq!(decided.get("patch").is_some(), phase == "mutate");
                let denied = ask(depth, "").await;
                assert_eq!(
                    denied["allowed"],
                    phase == "mutate",
                    "{path} {depth}: {denied}"
                );
            }
            let refused = ask(512, "set").await;
            assert_eq!(refused["allowed"], false, "{path}: {refused}");
            let message = refused["status"]["message"].as_str().unwrap();
            assert!(message.starts_with("AR406 "), "{message}");
        }
    }
}

/// The API server passes such a text on as it came, in the fields of some kinds.
#[tokio::test]
async fn a_request_that_go_alone_reads_is_refused_whatever_the_failure_policy() {
    let rules = [
        json!({ "validate": { "failureAction": "Enforce", "message": "no", "pattern": { "x": "?*" } } }),
        json!({ "mutate": { "patchStrategicMerge": { "data": { "made": "here" } } } }),
    ];
    let policies = ["Fail", "Ignore"].map(|failure| policy(failure, failure, &rules));
    let cluster = Cluster::with(&policies).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = review("CREATE", &config(&json!({ "a": "HERE" })), &Value::Null).to_string();
    for value in [r#""\ud800""#, "1e400"] {
        for path in [
            "/validate/fail",
            "/validate/ignore",
            "/mutate/fail",
            "/mutate/ignore",
        ] {
            let body = review.replace("\"HERE\"", value).into();
            let (status, answer) = client.post(Http::One, path, body).await;
            assert_eq!(status, StatusCode::OK);
            let refused = &answer["response"];
            assert_eq!(refused["allowed"], false, "{path}: {answer}");
            let message = refused["status"]["message"].as_str().unwrap();
            assert!(message.starts_with("AR401 "), "{message}");
        }
    }
}

#[tokio::test]
async fn unknown_paths_are_answered_with_404() {
    let cluster = Cluster::with(&[]).await;
    let (_webhook, client) = cluster.webhook().await;
    let body = || ingress("CREATE", "shop", "a.example").to_string().into();
    for path in ["/", "/validated", "/mutation"] {
        let (status, answer) = client.post(Http::One, path, body()).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert!(
            answer["error"]
                .as_str()
                .unwrap()
                .contains("go to /validate"),
            "{answer}"
        );
    }
}
