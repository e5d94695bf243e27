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
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use tokio::{sync::mpsc, time::Instant as Clock};

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

/// Lists are empty and at version 10; watches are accepted, and never say a word.
async fn silent(request: Request<Body>, watches: Arc<AtomicUsize>) -> Response<Answer> {
    let query = request.uri().query().unwrap_or_default();
    if query.contains("watch=1") {
        assert!(query.contains("resourceVersion=10"), "{query}");
        watches.fetch_add(1, Ordering::Relaxed);
        return Response::new(StreamBody::new(stream::pending()).boxed_unsync());
    }
    let list = br#"{"kind":"List","metadata":{"resourceVersion":"10"},"items":[]}"#;
    Response::new(Full::new(Bytes::from_static(list)).boxed_unsync())
}

/// Time is virtual, and stands still until nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_watch_that_went_silent_is_noticed_within_a_minute_and_opened_again() {
    let watches = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&watches);
    let service = tower::service_fn(move |request| {
        let opened = Arc::clone(&opened);
        async move { Ok::<_, Infallible>(silent(request, opened).await) }
    });
    let api = ApiServer::new(Client::new(service, "default"));
    let target = Target {
        collection: Collection::all(GroupVersionResource::new("", "v1", "pods")),
        left_at: ResourceVersion::default(),
        metadata_only: false,
    };
    let (sender, mut notes) = mpsc::unbounded_channel();
    let metrics = WatcherMetrics::register(&Service::new("test").metrics);
    let view = anteroom_model::ViewId::new("pods.v1");
    let served = watch::Sender::new(());
    let begun = Clock::now();
    let reflector = run(
        api,
        target,
        Channel(sender),
        metrics.of_watch(&view),
        served.subscribe(),
    );
    let reflector = tokio::spawn(reflector);
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
    reflector.abort();
}
