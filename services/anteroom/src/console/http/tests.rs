//! Pages, and who may ask for them.

use std::time::Instant;

use anteroom_model::{Epoch, Group, Incarnation, Revision, ViewId};
use anteroom_runtime::wall_clock;
use anteroom_wire::{
    beat::{Beat, ViewBeat},
    status::{ObjectStatus, StatusReply},
    tap::{DecisionRecord, RuleDecision, Tapped},
    webhook_beat::WebhookBeat,
};
use axum::body::to_bytes;
use tower::ServiceExt as _;

use super::*;
use crate::console::bind;

/// What a page may take.
const PAGE_BYTES_MAX: usize = 60 * 1024;

/// A large system, in which somebody was denied.
fn console() -> Console {
    let console = Console::new("default".into());
    let mut state = console.state();
    let view = |number| ViewBeat {
        view: ViewId::new(format!(
            "resource-number-{number:03}.v1.some-group.example.com"
        )),
        epoch: Epoch(1),
        revision: Revision(9),
        news_age_ms: 100,
        objects: 3_010,
        bytes: 3_900_000,
        skipped: 0,
        trouble: None,
    };
    let beat = Beat {
        incarnation: Incarnation("i".into()),
        group: Group(1),
        term: 1,
        holder: "anteroom-watcher-7d9f5c8b9-x2x4z".into(),
        page: 0,
        sent_ms: None,
        views: (0..500).map(view).collect(),
    };
    state.system.writer(beat, Instant::now());
    let webhook = WebhookBeat {
        webhook: "anteroom-webhook-1".into(),
        ..WebhookBeat::default()
    };
    state.system.webhook(webhook, Instant::now());
    let policy = |number: usize| ObjectStatus {
        kind: "ClusterPolicy".into(),
        name: format!("policy-number-{number}"),
        ready: if number == 7 { "False" } else { "True" }.into(),
        reason: "Enforced".into(),
        message: "every webhook enforces it".into(),
        ..ObjectStatus::default()
    };
    state.statuses = Some(Ok(StatusReply {
        objects: (0..300).map(policy).collect(),
        ..StatusReply::default()
    }));
    let denied = DecisionRecord {
        uid: "u-1".into(),
        kind: "Ingress".into(),
        name: "<script>alert(1)</script>".into(),
        phase: "validate".into(),
        rules: vec![RuleDecision {
            policy: "policy-number-7".into(),
            rule: "r".into(),
            result: "fail".into(),
            message: "\"><img src=x onerror=alert(1)>".into(),
            ..RuleDecision::default()
        }],
        ..DecisionRecord::default()
    };
    let told = Tapped {
        records: vec![denied],
        ..Tapped::default()
    };
    state.keep(told.clone(), wall_clock::now(), false);
    state.keep(told, wall_clock::now(), true);
    drop(state);
    console
}

async fn ask(method: &str, path: &str, host: &str) -> (StatusCode, HeaderMap, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, host)
        .body(Body::empty())
        .unwrap();
    let response = router(console()).oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, headers, String::from_utf8(body.into()).unwrap())
}

const PAGES: [&str; 8] = [
    "/",
    "/views",
    "/policies",
    "/policy?kind=ClusterPolicy&name=policy-number-7",
    "/denials",
    "/denial?id=u-1.validate",
    "/tap",
    "/checks",
];

#[tokio::test]
async fn every_page_is_small_and_loads_nothing_from_elsewhere() {
    for path in PAGES {
        let (status, headers, body) = ask("GET", path, "localhost:8700").await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert!(body.len() <= PAGE_BYTES_MAX, "{path}: {} bytes", body.len());
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY);
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
        assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
        assert!(
            !body.contains("http://") && !body.contains("https://"),
            "{path}"
        );
        assert!(
            !body.contains("style=\"") && !body.contains("onclick"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn names_and_messages_are_text() {
    for path in ["/", "/denials", "/denial?id=u-1.validate", "/tap"] {
        let (_, _, body) = ask("GET", path, "127.0.0.1").await;
        assert!(
            !body.contains("<script>alert") && !body.contains("<img"),
            "{path}: {body}"
        );
        assert!(body.contains("&#60;script&#62;alert(1)"), "{path}: {body}");
    }
    let (_, _, body) = ask("GET", "/views?filter=%22%3E%3Cscript%3E", "localhost").await;
    assert!(!body.contains("\"><script>"), "{body}");
}

#[tokio::test]
async fn only_this_machine_asks_and_only_to_read() {
    for (method, host, expected) in [
        ("GET", "localhost", StatusCode::OK),
        ("HEAD", "127.0.0.1:9999", StatusCode::OK),
        ("GET", "[::1]:8700", StatusCode::OK),
        ("GET", "evil.example", StatusCode::FORBIDDEN),
        ("GET", "localhost.evil.example:8700", StatusCode::FORBIDDEN),
        ("GET", "", StatusCode::FORBIDDEN),
        ("POST", "localhost", StatusCode::METHOD_NOT_ALLOWED),
        ("OPTIONS", "localhost", StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "evil.example", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let (status, headers, _) = ask(method, "/", host).await;
        assert_eq!(status, expected, "{method} {host}");
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY);
    }
    for address in ["0.0.0.0:0", "10.0.0.1:0", "[::]:0"] {
        let refused = bind(address.parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("loopback"), "{refused}");
    }
    bind("127.0.0.1:0".parse().unwrap()).unwrap();
}

#[tokio::test]
async fn tables_are_filtered_and_turned() {
    let (_, _, first) = ask("GET", "/views", "localhost").await;
    assert!(first.contains("1 to 100 of 500, page 1 of 5"));
    assert!(first.contains("href=\"/views?page=2\""), "{first}");
    let (_, _, found) = ask("GET", "/views?filter=number-123", "localhost").await;
    assert!(found.contains("resource-number-123") && !found.contains("number-124"));
    let (_, _, bad) = ask("GET", "/policies?trouble=on", "localhost").await;
    assert!(bad.contains("policy-number-7<") && !bad.contains("policy-number-8<"));
}

#[tokio::test]
async fn an_unknown_page_denial_or_policy_is_answered_with_404() {
    for path in ["/nope", "/denial?id=x", "/policy?kind=Policy&name=x"] {
        let (status, _, body) = ask("GET", path, "localhost").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert!(body.contains("<h1>Not found</h1>"), "{path}");
    }
}
