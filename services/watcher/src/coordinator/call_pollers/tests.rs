use std::{collections::VecDeque, time::Duration};

use ::http::{HeaderMap, Response, header};
use anteroom_bus::LogSize;
use anteroom_model::{Op, ResourceVersion, ViewState};
use anteroom_wire::envelope::Record;
use serde_json::{Value, json};

use super::*;
use crate::{
    gateway::calls::{
        CallTarget, OnFailure, Service,
        testing::{Endpoint, api_server, caller, caller_of, ok, status},
    },
    log_writer::publish::{Batch, Work},
};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pollers and what they hand to the log.
struct Rig {
    calls: CallPollers,
    publisher: Publisher,
    written: VecDeque<String>,
}

impl Rig {
    fn new(caller: Caller) -> Self {
        let publisher = Publisher::new(1);
        Self {
            calls: CallPollers::new(caller, publisher.clone(), SourceMetrics::default()),
            publisher,
            written: VecDeque::new(),
        }
    }

    fn start(&mut self, target: CallTarget, retries: u32, on_failure: OnFailure) -> ViewId {
        self.start_after(InheritedView::default(), target, retries, on_failure)
    }

    fn start_after(
        &mut self,
        left: InheritedView,
        target: CallTarget,
        retries: u32,
        on_failure: OnFailure,
    ) -> ViewId {
        let spec = Arc::new(CallSpec {
            target,
            data: None,
            interval: Duration::from_millis(20),
            retries,
            on_failure,
        });
        let info = SourceInfo {
            source: spec.source(),
            kind: String::new(),
            namespaced: false,
        };
        let view = info.source.view_id();
        self.calls.start(info, spec, left);
        view
    }

    /// Returns the next write: a body, or a state.
    async fn next(&mut self) -> String {
        let next = async {
            loop {
                if let Some(written) = self.written.pop_front() {
                    return written;
                }
                match self.publisher.with(|queue| queue.next_work(Instant::now())) {
                    Some(Work::Append(batch)) => self.written.extend(told(&batch)),
                    Some(Work::Purge(view)) => self.written.push_back(format!("purged {view}")),
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.unwrap()
    }

    async fn expect<const N: usize>(&mut self, expected: [&str; N]) {
        for expected in expected {
            assert_eq!(self.next().await, expected);
        }
    }

    /// Returns the time of the view's last news.
    fn heard(&self, view: &ViewId) -> Option<Instant> {
        let stats = self.publisher.read(|queue| queue.stats(Instant::now()));
        stats.into_iter().find(|stats| stats.view == *view)?.heard
    }
}

fn told(batch: &Batch) -> Vec<String> {
    let records = batch.records.iter().map(|(record, _)| match record {
        Record::Delta { delta, .. } => match &delta.op {
            Op::Put(body) => anteroom_wire::body::to_json(body).unwrap().to_string(),
            Op::Delete => "deleted".to_owned(),
        },
        Record::Control(record) => match &record.state {
            ViewState::Failed { failure } => failure.to_string(),
            ViewState::Dropped => "Dropped".to_owned(),
            state => {
                assert!(
                    record.age_max_ms.is_some(),
                    "readers know how old it may become"
                );
                format!("{state:?}")
            }
        },
    });
    records.collect()
}

fn service(endpoint: &Endpoint) -> CallTarget {
    CallTarget::Service(Service {
        url: format!("http://{}/data?token=hidden", endpoint.address)
            .parse()
            .unwrap(),
        ca_bundle: None,
        headers: HeaderMap::new(),
    })
}

async fn until(mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

/// An unchanged answer publishes only the time at which it was received.
#[tokio::test]
async fn an_unchanged_answer_publishes_nothing() {
    let endpoint = Endpoint::start(|at, _| match at {
        0 => ok(r#"{"a": 1, "b": 2}"#),
        1..8 => ok(r#"{ "a":1,"b":2 }"#),
        _ => ok(r#"{"a": 3}"#),
    })
    .await;
    let mut rig = Rig::new(caller(1_000));
    let view = rig.start(service(&endpoint), 1, OnFailure::Error);
    rig.expect(["Syncing", r#"{"a":1,"b":2}"#, "Synced"]).await;
    let first = rig.heard(&view).unwrap();
    until(|| rig.heard(&view).unwrap() > first).await;
    rig.expect([r#"{"a":3}"#]).await;
    assert!(endpoint.served() > 8);
}

/// Conditional requests where the endpoint offers them.
#[tokio::test]
async fn an_endpoint_that_offers_it_is_asked_for_changes_alone() {
    let endpoint = Endpoint::start(|at, request| {
        let asked = request.headers().get(header::IF_NONE_MATCH);
        let current = if at < 5 { "\"one\"" } else { "\"two\"" };
        if asked.is_some_and(|etag| etag == current) {
            return status(304, "");
        }
        assert!(at == 0 || at == 5, "only what is new is sent");
        let response = Response::builder().header(header::ETAG, current);
        Some(response.body(json!({"now": current}).to_string()).unwrap())
    })
    .await;
    let mut rig = Rig::new(caller(1_000));
    let view = rig.start(service(&endpoint), 1, OnFailure::Error);
    rig.expect(["Syncing", r#"{"now":"\"one\""}"#, "Synced"])
        .await;
    let first = rig.heard(&view).unwrap();
    rig.expect([r#"{"now":"\"two\""}"#]).await;
    assert!(rig.heard(&view).unwrap() > first);
}

/// Retries, then the endpoint's words, and nothing of them once it answers again.
#[tokio::test]
async fn a_failed_call_is_reported_after_retries_and_recovery_at_once() {
    let endpoint = Endpoint::start(|at, _| match at {
        0 => ok("[1]"),
        // Within its retries a failure is nobody's business.
        1 => status(500, "hiccup"),
        2 => ok("[1]"),
        3..6 => status(500, "broken"),
        _ => ok("[1]"),
    })
    .await;
    let mut rig = Rig::new(caller(1_000));
    let view = rig.start(service(&endpoint), 1, OnFailure::Error);
    let url = format!("http://{}/data", endpoint.address);
    let failure = format!("CallFailed: failed to GET resource with raw url: {url}: broken");
    rig.expect(["Syncing", "[1]", "Synced", &failure, "Synced"])
        .await;
    rig.calls.stop(&view);
    rig.expect(["Dropped", &format!("purged {view}")]).await;
}

/// `ServeStale` serves the last good data, and says so when they are too old.
#[tokio::test]
async fn stale_data_are_served_for_as_long_as_the_entry_lets_them() {
    let endpoint = Endpoint::start(|at, _| match at {
        0 => ok("[1]"),
        _ => status(500, "broken"),
    })
    .await;
    let mut rig = Rig::new(caller(1_000));
    let most = Duration::from_millis(300);
    let view = rig.start(service(&endpoint), 1, OnFailure::ServeStale(most));
    rig.expect(["Syncing", "[1]", "Synced"]).await;
    let good = rig.heard(&view).unwrap();
    let failed = rig.next().await;
    assert!(failed.ends_with(": broken"), "{failed}");
    assert!(good.elapsed() >= most, "not before they are too old");
    assert!(endpoint.served() > 3, "it is tried again meanwhile");
}

/// A successor that the endpoint does not answer serves what the log has, as old as readers
/// say that it is, until it is too old.
#[tokio::test]
async fn a_successor_serves_what_was_read_before_it() {
    let endpoint = Endpoint::start(|at, _| match at {
        0..20 => status(500, "broken"),
        _ => ok("[2]"),
    })
    .await;
    let mut left = InheritedView::default();
    left.objects
        .insert(poller::key(), ResourceVersion::new("before"));
    let mut rig = Rig::new(caller(1_000));
    let (age, longer) = (Duration::from_secs(20), Duration::from_secs(20));
    let on_failure = OnFailure::ServeStale(age + longer);
    let view = rig.start_after(left, service(&endpoint), 0, on_failure);
    rig.expect(["Syncing"]).await;
    let good = Instant::now().checked_sub(age).unwrap();
    rig.calls.report_good_at(&view, good);
    rig.expect(["Synced"]).await;
    assert_eq!(rig.heard(&view), Some(good), "no newer than it is");
    rig.expect(["[2]"]).await;
    until(|| rig.heard(&view).unwrap() > good).await;
}

/// An answer that is too large to keep is the entry's error.
#[tokio::test]
async fn an_answer_that_cannot_be_kept_is_an_error() {
    for (answer, reason) in [
        ("<html>hidden</html>".to_owned(), "Unreadable"),
        (String::new(), "Unreadable"),
        (format!("\"{}\"", "x".repeat(2_000)), "TooLarge"),
    ] {
        let endpoint = Endpoint::start(move |_, _| ok(&answer)).await;
        let mut rig = Rig::new(caller(1_000));
        rig.start(service(&endpoint), 1, OnFailure::Error);
        rig.expect(["Syncing"]).await;
        let failure = rig.next().await;
        assert!(failure.starts_with(reason), "{failure}");
        assert!(
            !failure.contains("hidden"),
            "neither the answer nor the query: {failure}"
        );
    }
}

/// A path of the API server, and what it says to those without permission.
#[tokio::test]
async fn a_path_is_asked_of_the_api_server() {
    let api = api_server(|request| {
        let (code, text) = match request.uri().path() {
            "/apis/x/v1/things" => (200, json!({"kind": "ThingList", "items": []})),
            "/apis/x/v1/nowhere" => (404, json!({"message": "no such thing"})),
            _ => (403, json!({"message": "things is forbidden"})),
        };
        let response = Response::builder().status(code);
        response.body(Value::to_string(&text)).unwrap()
    });
    let mut rig = Rig::new(caller_of(api, 1_000));
    let path = |path: &str| CallTarget::Api { path: path.into() };
    rig.start(path("/apis/x/v1/things?limit=5"), 1, OnFailure::Error);
    rig.expect(["Syncing", r#"{"items":[],"kind":"ThingList"}"#, "Synced"])
        .await;
    rig.start(path("/apis/x/v1/unknown?a=b"), 1, OnFailure::Error);
    let said = "Forbidden: failed to GET resource with raw url: /apis/x/v1/unknown: \
                permission denied: things is forbidden";
    rig.expect(["Syncing", said]).await;
    // `apicall-failed`: clients match on these words whether or not the resource exists.
    rig.start(path("/apis/x/v1/nowhere"), 1, OnFailure::Error);
    let said = "NotFound: failed to GET resource with raw url: /apis/x/v1/nowhere: \
                permission denied, or no such resource: no such thing";
    rig.expect(["Syncing", said]).await;
}

/// A view that the log has no room for is called for again once there is some.
#[tokio::test]
async fn an_answer_that_the_log_had_no_room_for_is_written_once_there_is_room() {
    let endpoint = Endpoint::start(|_, _| ok(r#"{"a":1}"#)).await;
    let mut rig = Rig::new(caller(1 << 20));
    let full = LogSize {
        bytes: 1_000,
        bytes_max: Some(1_000),
    };
    rig.publisher.with(|queue| queue.set_room(full));
    let view = rig.start(service(&endpoint), 0, OnFailure::Error);
    let purged = format!("purged {view}");
    rig.expect(["Syncing", "Dropped", purged.as_str()]).await;
    assert!(rig.next().await.starts_with("LogFull"));
    let empty = LogSize { bytes: 0, ..full };
    rig.publisher.with(|queue| queue.set_room(empty));
    let mut next = rig.next().await;
    while next.starts_with("LogFull") {
        next = rig.next().await;
    }
    assert_eq!(next, "Syncing");
    rig.expect([r#"{"a":1}"#, "Synced"]).await;
}
