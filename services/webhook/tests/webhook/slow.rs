//! Callers who are slow to say what they want: they cost nobody else anything.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{body::Frame, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

use crate::{
    client::{Client, Http, ingress},
    cluster::{Cluster, ingresses, taken, unique_host},
};

/// Requests at once on one connection, one less than the webhook takes.
const STREAMS: usize = 199;

/// A connection over HTTP/2.
pub(crate) type Sender = SendRequest<BoxBody<Bytes, Infallible>>;

pub(crate) async fn connection(client: &Client) -> Sender {
    let io = TokioIo::new(client.connect(Http::Two).await);
    let executor = TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn post(
    path: &str,
    body: BoxBody<Bytes, Infallible>,
) -> Request<BoxBody<Bytes, Infallible>> {
    let uri = format!("https://anteroom-webhook.anteroom.svc{path}");
    Request::post(uri).body(body).unwrap()
}

/// A body of which nothing ever comes.
fn nothing() -> BoxBody<Bytes, Infallible> {
    BodyExt::boxed(StreamBody::new(stream::pending()))
}

#[tokio::test]
async fn streams_without_a_body_delay_no_other_review() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut sender = connection(&client).await;
        for _ in 0..STREAMS {
            let mut sender = sender.clone();
            sender.ready().await.unwrap();
            let sent = sender.send_request(post("/validate?timeout=30s", nothing()));
            open.push(tokio::spawn(sent));
        }
        // The server answers the last request, so the earlier requests have arrived.
        sender.ready().await.unwrap();
        let empty = BodyExt::boxed(http_body_util::Empty::new());
        let answer = sender.send_request(post("/nowhere", empty)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
    let denied = client
        .review("/validate", &ingress("CREATE", "shop", "a.example"))
        .await;
    assert_eq!(denied["status"]["code"], 403, "{denied}");
    let (status, answer) = open.swap_remove(0).await.unwrap().unwrap().into_parts();
    let answer = answer.collect().await.unwrap().to_bytes();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(status.status, StatusCode::BAD_REQUEST, "{answer}");
    assert_eq!(answer["code"], json!("AR401"), "it does not wait for 30 s");
}

#[tokio::test]
async fn the_time_that_a_body_takes_is_part_of_what_the_caller_waits() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let _replica = cluster.replica_that(|_, _| None).await;
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "shop", "a.example").to_string();
    let body = stream::once(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(Frame::data(Bytes::from(review)))
    });
    let body = BodyExt::boxed(StreamBody::new(body));
    let mut sender = connection(&client).await;
    let answer = sender.send_request(post("/validate?timeout=3s", body));
    let answer = answer.await.unwrap().into_body().collect().await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.to_bytes()).unwrap();
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    let (_, left) = message.split_once("no answer within ").unwrap();
    let (left_ms, _) = left.split_once(" ms").unwrap();
    assert!(left_ms.parse::<u64>().unwrap() <= 2_400, "{message}");
}

/// Whoever crowds the memory with requests that are slow would otherwise get the next one past every such policy.
#[tokio::test]
async fn a_namespace_over_its_part_of_the_memory_is_refused_whatever_the_failure_policy() {
    let ignored = unique_host("hosts", |policy| {
        policy["spec"]["failurePolicy"] = "Ignore".into();
    });
    let cluster = Cluster::with(&[ignored]).await;
    let _replica = cluster.replica_that(|_, _| None).await;
    // A small request takes some two fifths of what small requests have.
    let given = ["--review-memory-limit", "1200Ki"];
    let (_webhook, client) = cluster.webhook_at_once(&given).await;
    let _beats = cluster.beats(&[ingresses().as_str()]);
    cluster.service.readiness.wait_ready().await;
    let slow = tokio::spawn({
        let client = client.clone();
        let review = ingress("CREATE", "slow", "a.example");
        async move { client.review("/validate/ignore?timeout=30s", &review).await }
    });
    let metrics = || cluster.service.metrics.encode();
    while !metrics().contains("anteroom_admission_reviews_in_flight 1") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let path = "/validate/ignore?timeout=1s";
    let next = ingress("DELETE", "next", "a.example");
    let refused = client.review(path, &next).await;
    assert_eq!(refused["allowed"], false, "{refused}");
    assert_eq!(refused["status"]["code"], 429, "{refused}");
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("AR208 the requests in namespace shop"),
        "{message}"
    );
    let mut other = next.clone();
    other["request"]["namespace"] = "other".into();
    assert_eq!(client.review(path, &other).await["allowed"], true);
    let event = json!({ "group": "", "version": "v1", "kind": "Event" });
    let mut exempt = next;
    exempt["request"]["kind"] = event;
    assert_eq!(client.review(path, &exempt).await["allowed"], true);
    slow.abort();
}
