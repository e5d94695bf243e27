use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anteroom_runtime::Service;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::{Client, client::Body};
use tokio::sync::mpsc;

use super::*;
use crate::source::metrics::SourceMetrics;

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

/// Starts a reflector on such an API server; returns its notes, and the number of opened watches.
fn reflect(lines: &'static str) -> (mpsc::UnboundedReceiver<Note>, Arc<AtomicUsize>) {
    let watches = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&watches);
    let answer = move |request| {
        let opened = Arc::clone(&opened);
        async move { api_server(request, lines, opened).await }
    };
    (reflect_by(answer), watches)
}

fn reflect_by<F>(
    answer: impl Fn(Request<Body>) -> F + Send + 'static,
) -> mpsc::UnboundedReceiver<Note>
where
    F: Future<Output = Response<Answer>> + Send + 'static,
{
    let (sender, notes) = mpsc::unbounded_channel();
    reflect_into(answer, Channel(sender));
    notes
}

fn reflect_into<F>(
    answer: impl Fn(Request<Body>) -> F + Send + 'static,
    sink: impl Sink + Sync + 'static,
) where
    F: Future<Output = Response<Answer>> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let watched = WatchedCollection {
        collection: Collection::all(GroupVersionResource::new("", "v1", "pods")),
        left_at: ResourceVersion::default(),
        metadata_only: false,
    };
    let metrics = SourceMetrics::register(&Service::new("test").metrics);
    let metrics = metrics.of_watch(&anteroom_model::ViewId::new("pods.v1"));
    let (_, served) = watch::channel(());
    let api = ApiServer::new(Client::new(service, "default"));
    tokio::spawn(run(api, watched, sink, metrics, served));
}

/// Forbids everything until it is told not to, and says of itself that it is not ready for so many
/// questions.
fn forbidding(
    not_ready: usize,
) -> (
    mpsc::UnboundedReceiver<Note>,
    Arc<AtomicUsize>,
    watch::Sender<bool>,
) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (allow, allowed) = watch::channel(false);
    let questions = Arc::clone(&asked);
    let notes = reflect_by(move |request: Request<Body>| {
        let (questions, allowed) = (Arc::clone(&questions), *allowed.borrow());
        async move {
            let answer = |code: u16, text: &'static str| {
                let body = Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync();
                Response::builder().status(code).body(body).unwrap()
            };
            if request.uri().path() == crate::source::apiserver::READY_PATH {
                match questions.fetch_add(1, Ordering::Relaxed) {
                    first if first < not_ready => answer(500, "[-]rbac failed"),
                    _ => answer(200, "ok"),
                }
            } else if allowed {
                api_server(request, "\n", Arc::default()).await
            } else {
                answer(403, r#"{"message":"pods is forbidden"}"#)
            }
        }
    });
    (notes, asked, allow)
}

/// An API server that starts forbids everything until it has read its rules: nobody's rights
/// were taken away.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_an_unready_api_server_is_not_believed() {
    let (mut notes, asked, allow) = forbidding(3);
    while asked.load(Ordering::Relaxed) < 3 {
        match notes.recv().await.unwrap() {
            Note::Troubled(failure) => assert!(failure.message.contains("not ready itself")),
            other => panic!("{other:?}"),
        }
    }
    allow.send_replace(true);
    loop {
        match notes.recv().await.unwrap() {
            Note::Listed { .. } => break,
            Note::Refused(failure) => panic!("{failure}"),
            _ => {}
        }
    }
}

/// The second refusal of a ready server is believed, and its readiness is not asked again.
#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_ready_api_server_is_believed_at_once() {
    let (mut notes, asked, allow) = forbidding(0);
    for _ in 0..3 {
        match notes.recv().await.unwrap() {
            Note::Refused(failure) => assert_eq!(failure.reason, "Forbidden"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    allow.send_replace(true);
    while !matches!(notes.recv().await.unwrap(), Note::Listed { .. }) {}
}

/// Time is virtual, and stands still until nothing else can happen.
#[tokio::test(start_paused = true)]
async fn a_watch_that_went_silent_is_noticed_within_a_minute_and_opened_again() {
    let begun = Instant::now();
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

/// Takes no object before the page behind it was asked for.
struct Behind {
    pages_asked: watch::Receiver<usize>,
    taken: usize,
    notes: mpsc::UnboundedSender<Note>,
}

#[async_trait]
impl Sink for Behind {
    async fn note(&mut self, note: Note) {
        if matches!(note, Note::Put { .. }) {
            self.taken += 1;
            let ahead = (self.taken + 1).min(3);
            let asked = self.pages_asked.wait_for(|asked| *asked >= ahead).await;
            asked.unwrap();
        }
        let _ = self.notes.send(note);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_is_made_while_the_one_before_it_is_handed_on() {
    let (asked, pages_asked) = watch::channel(0);
    let answer = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        if !query.contains("watch=1") {
            asked.send_modify(|asked| *asked += 1);
        }
        async move {
            let (name, next) = match &query {
                query if query.contains("watch=1") => {
                    return Response::new(StreamBody::new(stream::pending()).boxed_unsync());
                }
                query if query.contains("continue=second") => ("b", "third"),
                query if query.contains("continue=third") => ("c", ""),
                _ => ("a", "second"),
            };
            let list = format!(
                r#"{{"metadata":{{"resourceVersion":"10","continue":"{next}"}},
                    "items":[{{"metadata":{{"name":"{name}","resourceVersion":"3"}}}}]}}"#
            );
            Response::new(Full::new(Bytes::from(list)).boxed_unsync())
        }
    };
    let (notes, mut heard) = mpsc::unbounded_channel();
    let sink = Behind {
        pages_asked: pages_asked.clone(),
        taken: 0,
        notes,
    };
    reflect_into(answer, sink);
    let mut names = Vec::new();
    loop {
        let note = tokio::time::timeout(STALE_AFTER / 2, heard.recv()).await;
        match note.expect("no page is asked for ahead").unwrap() {
            Note::Put { object, .. } => names.push(object.key.name.to_string()),
            Note::Listed { .. } => break,
            _ => {}
        }
    }
    assert_eq!(names, ["a", "b", "c"]);
    // Each page once.
    assert_eq!(*pages_asked.borrow(), 3);
}

#[test]
fn few_quiet_watches_are_opened_anew_soon_and_many_within_a_pace() {
    let minute = Duration::from_secs(60);
    for (watches, least) in [
        (0, 6.0),
        (30, 6.0),
        (100, 20.0),
        (120, 24.0),
        (100_000, 24.0),
    ] {
        let lives = lives(minute, watches);
        let least = Duration::from_secs_f64(least);
        let most = least.mul_f64(1.25);
        assert_eq!(lives, least..most, "{watches}");
    }
    let shortest = lives(STALE_AFTER_MIN, 0);
    assert!(
        shortest.start >= LIFE_MIN && shortest.end < STALE_AFTER_MIN / 2 + Duration::from_secs(1)
    );
}

/// Returns the number of objects of the page that is asked for.
fn limit_of(request: &Request<Body>) -> usize {
    let query = request.uri().query().unwrap_or_default();
    let mut pairs = query.split('&');
    let limit = pairs.find_map(|pair| pair.strip_prefix("limit="));
    limit.unwrap().parse().unwrap()
}

/// Pages of large objects are smaller, also where a collection is read once.
#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_in_halves() {
    let limits = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let asked = Arc::clone(&limits);
    let service = tower::service_fn(move |request: Request<Body>| {
        let limit = limit_of(&request);
        asked.lock().push(limit);
        let long = "a".repeat(if limit > 100 { PAGE_BYTES_MAX } else { 1 });
        let list = serde_json::json!({
            "metadata": {"resourceVersion": "7"},
            "items": [{"metadata": {"namespace": "n", "name": "a", "resourceVersion": "1"}, "long": long}],
        });
        let body = Full::new(Bytes::from(list.to_string())).boxed_unsync();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let api = ApiServer::new(Client::new(service, "default"));
    let collection = Collection::all(GroupVersionResource::new("", "v1", "pods"));
    let mut read = 0;
    let take = |objects: Vec<RawObject>| {
        read += objects.len();
        std::future::ready(true)
    };
    let version = once(&api, &collection, take).await.unwrap();
    assert_eq!((read, version), (1, Some(ResourceVersion::new("7"))));
    assert_eq!(*limits.lock(), [500, 250, 125, 62]);
}

fn gvr(resource: &str) -> GroupVersionResource {
    GroupVersionResource::new("", "v1", resource)
}

/// Returns an API server whose answers have this body.
fn answering<B, F>(body: B) -> ApiServer
where
    B: Fn() -> F + Send + 'static,
    F: futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
{
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::new(StreamBody::new(body()).boxed_unsync());
        async move { Ok::<_, Infallible>(answer) }
    });
    ApiServer::new(Client::new(service, "default"))
}

#[tokio::test]
async fn few_pages_of_all_lists_are_in_memory_at_once() {
    use crate::source::apiserver::PAGES_MAX;
    use futures::FutureExt as _;

    let api = answering(stream::empty);
    let mut held = Vec::new();
    for number in 0..PAGES_MAX {
        let permit = api.page_permit(&gvr(&format!("kind{number}"))).await;
        held.push(permit.unwrap());
    }
    let (of_another_list, pods) = (api.clone(), gvr("pods"));
    assert!(of_another_list.page_permit(&pods).now_or_never().is_none());
    held.pop();
    assert!(of_another_list.page_permit(&pods).now_or_never().is_some());
}

#[tokio::test]
async fn lists_of_one_type_leave_places_for_pages_to_other_types() {
    use crate::source::apiserver::TYPE_PAGES_MAX;
    use futures::FutureExt as _;

    let api = answering(stream::empty);
    let (slow, other) = (gvr("slow"), gvr("pods"));
    let mut held = Vec::new();
    for _ in 0..TYPE_PAGES_MAX {
        held.push(api.page_permit(&slow).await.unwrap());
    }
    assert!(api.page_permit(&slow).now_or_never().is_none());
    assert!(api.page_permit(&other).now_or_never().is_some());
    held.pop();
    assert!(api.page_permit(&slow).now_or_never().is_some());
}

/// A byte that comes after a second.
async fn slow_byte() -> Result<Frame<Bytes>, Infallible> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(Frame::data(Bytes::from_static(b" ")))
}

#[tokio::test(start_paused = true)]
async fn a_page_that_comes_byte_by_byte_is_given_up_and_gives_its_place_back() {
    let api = answering(|| stream::repeat(()).then(|()| slow_byte()));
    let pods = Collection::all(gvr("pods"));
    let begun = Instant::now();
    for _ in 0..=crate::source::apiserver::PAGES_MAX {
        let listed = once(&api, &pods, |_| std::future::ready(true)).await;
        assert!(matches!(listed, Err(Fault::Slow { .. })), "{listed:?}");
    }
    // Each list asks for five pages, the last of them of 31 objects.
    assert!(begun.elapsed() < Duration::from_secs(900));
}

/// Otherwise every view of a type whose objects take long to convert would fail to be listed.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_slow_is_asked_for_in_halves() {
    let limits = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let asked = Arc::clone(&limits);
    let service = tower::service_fn(move |request: Request<Body>| {
        let limit = limit_of(&request);
        asked.lock().push(limit);
        let list = br#"{"kind":"List","metadata":{"resourceVersion":"7"},"items":[]}"#;
        let body = match limit > 200 {
            true => StreamBody::new(stream::repeat(()).then(|()| slow_byte())).boxed_unsync(),
            false => Full::new(Bytes::from_static(list)).boxed_unsync(),
        };
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let api = ApiServer::new(Client::new(service, "default"));
    let pods = Collection::all(gvr("pods"));
    let version = once(&api, &pods, |_| std::future::ready(true)).await;
    assert_eq!(version.unwrap(), Some(ResourceVersion::new("7")));
    assert_eq!(*limits.lock(), [500, 250, 125]);
}
