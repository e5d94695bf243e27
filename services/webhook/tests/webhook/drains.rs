//! A webhook that is asked to end drains: an API server that has not heard of the end yet loses no review.

use std::{convert::Infallible, time::Duration};

use anteroom_bus::BusExt as _;
use anteroom_wire::webhook_beat::WebhookBeat;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode, header::CONNECTION};
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http1::SendRequest,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, sync::oneshot, task::JoinHandle, time::Instant};

use crate::{
    client::{Client, Http, ingress},
    cluster::{Cluster, taken, unique_host},
    slow::{connection, post},
};

type Body = BoxBody<Bytes, Infallible>;

/// A drain that no test sees the end of.
const LONG_SECONDS: u64 = 120;

/// The default.
const SECONDS: u64 = 5;

const REASON: &str = "the test says so";

/// Opens a connection over HTTP/1.1. The task ends with the connection.
async fn kept(client: &Client) -> (SendRequest<Body>, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(client.connect(Http::One).await);
    let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn text() -> String {
    ingress("CREATE", "shop", "a.example").to_string()
}

fn review() -> Request<Body> {
    post("/validate", Full::<Bytes>::from(text()).boxed())
}

async fn is_allowed(answer: Response<Incoming>) -> bool {
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    answer["response"]["allowed"].as_bool().unwrap()
}

#[tokio::test]
async fn a_kept_connection_is_served_and_told_to_close_with_the_answer() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook_draining(LONG_SECONDS).await;
    let (mut sender, connection) = kept(&client).await;
    for (drains, said) in [(false, None), (true, Some("close"))] {
        if drains {
            cluster.service.shutdown.trigger(REASON);
        }
        sender.ready().await.unwrap();
        let answer = sender.send_request(review()).await.unwrap();
        let header = answer.headers().get(CONNECTION);
        assert_eq!(header.map(|value| value.to_str().unwrap()), said);
        assert!(!is_allowed(answer).await);
    }
    let _closed = connection.await.unwrap();
    // A new connection is for one review, too.
    let (mut sender, connection) = kept(&client).await;
    let answer = sender.send_request(review()).await.unwrap();
    assert_eq!(answer.headers()[CONNECTION], "close");
    assert!(!is_allowed(answer).await);
    let _closed = connection.await.unwrap();
}

/// A policy that is ready is enforced by every webhook that API servers may still reach.
#[tokio::test]
async fn policies_that_come_while_a_webhook_drains_decide() {
    let cluster = Cluster::with(&[]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook_draining(LONG_SECONDS).await;
    cluster.service.shutdown.trigger(REASON);
    let review = ingress("CREATE", "shop", "a.example");
    let admitted = client.review("/validate", &review).await;
    assert_eq!(admitted["allowed"], true);
    cluster.policies(&[unique_host("hosts", |_| ())]).await;
    client.until("/validate", &review, false).await;
}

#[tokio::test]
async fn over_http2_the_client_is_told_to_go_and_streams_under_way_are_answered() {
    let cluster = Cluster::with(&[unique_host("hosts", |_| ())]).await;
    let _replica = cluster.replica(taken(&["a.example"])).await;
    let (_webhook, client) = cluster.webhook_draining(LONG_SECONDS).await;
    let mut sender = connection(&client).await;
    let (rest, late) = oneshot::channel::<()>();
    let body = stream::once(async move {
        late.await.unwrap();
        Ok(Frame::data(Bytes::from(text())))
    });
    let body = StreamBody::new(body).boxed();
    let under_way = tokio::spawn(sender.send_request(post("/validate", body)));
    // The webhook answers the later request, so the earlier one has arrived.
    let nowhere = || post("/nowhere", Empty::<Bytes>::new().boxed());
    sender.ready().await.unwrap();
    let answer = sender.send_request(nowhere()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);

    cluster.service.shutdown.trigger(REASON);
    // Requests that cross the word on their way are answered. Then the client sends none.
    while sender.ready().await.is_ok() {
        match sender.send_request(nowhere()).await {
            Ok(answer) => assert_eq!(answer.status(), StatusCode::NOT_FOUND),
            Err(_told_to_go) => break,
        }
    }
    rest.send(()).unwrap();
    let answer = under_way.await.unwrap().unwrap();
    assert!(!is_allowed(answer).await);

    let (status, answer) = client.post(Http::Two, "/validate", text().into()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["response"]["allowed"], false);
}

#[tokio::test]
async fn once_a_webhook_has_drained_it_says_that_it_leaves_and_its_listener_is_closed() {
    let cluster = Cluster::with(&[]).await;
    let (webhook, client) = cluster.webhook_draining(SECONDS).await;
    let address = webhook.address();
    let (mut sender, idle) = kept(&client).await;
    assert!(is_allowed(sender.send_request(review()).await.unwrap()).await);
    let mut beats = cluster.bus.signals::<WebhookBeat>().await.unwrap();
    tokio::time::pause();
    let begun = Instant::now();
    cluster.service.shutdown.trigger(REASON);
    let mut before = 0;
    while !beats.next().await.unwrap().leaving {
        assert!(!idle.is_finished(), "a review may still come by it");
        before += 1;
    }
    assert!(before >= SECONDS - 1, "{before}");
    assert!(begun.elapsed() >= Duration::from_secs(SECONDS));
    webhook.join().await.unwrap();
    let _closed = idle.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
