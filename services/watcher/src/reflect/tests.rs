use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anteroom_model::GroupVersionResource;
use anteroom_runtime::Service;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::{Client, client::Body};
use tokio::sync::mpsc;

use super::*;
use crate::metrics::WatcherMetrics;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

struct Channel(mpsc::UnboundedSender<Note>);

#[async_trait]
impl Sink for Channel {
    async fn note(&mut self, note: Note) {
        let _ = self.0.send(note);
    }
}

/// Lists are empty and at version 10. Watches are accepted, say `lines`, and then nothing more.
async fn api_server(
    request: Request<Body>,
    lines: &'static str,
    watches: Arc<AtomicUsize>,
) -> Response<Answer> {
    let query = request.uri().query().unwrap_or_default();
    if query.contains("watch=1") {
        assert!(query.contains("resourceVersion=10"), "{query}");
        watches.fetch_add(1, Ordering::Relaxed);
        let said = stream::iter([Ok(Frame::data(Bytes::from_static(lines.as_bytes())))]);
        return Response::new(StreamBody::new(said.chain(stream::pending())).boxed_unsync());
    }
    let list = br#"{"kind":"List","metadata":{"resourceVersion":"10"},"items":[]}"#;
    Response::new(Full::new(Bytes::from_static(list)).boxed_unsync())
}

/// A reflector of such an API server: what it notes, and how many watches it opened.
fn reflect(lines: &'static str) -> (mpsc::UnboundedReceiver<Note>, Arc<AtomicUsize>) {
    let watches = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&watches);
    let service = tower::service_fn(move |request| {
        let opened = Arc::clone(&opened);
        async move { Ok::<_, Infallible>(api_server(request, lines, opened).await) }
    });
    let target = Target {
        collection: Collection::all(GroupVersionResource::new("", "v1", "pods")),
        left_at: ResourceVersion::default(),
        metadata_only: false,
    };
    let (sender, notes) = mpsc::unbounded_channel();
    let metrics = WatcherMetrics::register(&Service::new("test").metrics);
    let metrics = metrics.of_watch(&anteroom_model::ViewId::new("pods.v1"));
    let (_, served) = watch::channel(());
    let api = ApiServer::new(Client::new(service, "default"));
    tokio::spawn(run(api, target, Channel(sender), metrics, served));
    (notes, watches)
}

/// Time is virtual, and stands still until nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_watch_that_went_silent_is_noticed_within_a_minute_and_opened_again() {
    let begun = Clock::now();
    let (mut notes, watches) = reflect("\n");
    let trouble = loop {
        match notes.recv().await.unwrap() {
            Note::Troubled(failure) => break failure,
            Note::Heard { .. } => panic!("a watch that was only accepted is no news"),
            _ => {}
        }
    };
    assert_eq!(trouble.reason, "Unreachable");
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
    while watches.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_handed_on_before_it_counts_as_heard() {
    let (mut notes, _) = reflect(concat!(
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"11"}}}"#,
        "\n",
        r#"{"type":"ADDED","object":{"metadata":{}}}"#,
        "\n",
        r#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"12"}}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"13"}}}"#,
        "\n",
    ));
    let mut heard = Vec::new();
    while heard.last() != Some(&"heard 13".to_owned()) {
        heard.push(match notes.recv().await.unwrap() {
            Note::Begin { .. } => "begin".into(),
            Note::Listed { version } => format!("listed {version}"),
            Note::Put { object, .. } => format!("put {}", object.version),
            Note::Gone { version, .. } => format!("gone {version}"),
            Note::Heard { version } => format!("heard {}", version.unwrap_or_default()),
            Note::Skipped => "skipped".into(),
            Note::Refused(failure) | Note::Troubled(failure) => failure.to_string(),
        });
    }
    let expected = [
        "begin",
        "listed 10",
        "put 11",
        "heard 11",
        "skipped",
        "heard ",
        "gone 12",
        "heard 12",
        "heard 13",
    ];
    assert_eq!(heard, expected);
}
