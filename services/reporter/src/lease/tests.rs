use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

fn lease(holder: &str, version: &str) -> Lease {
    Lease {
        metadata: ObjectMeta {
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        }),
    }
}

#[test]
fn a_lease_is_free_once_it_was_unchanged_for_its_duration() {
    let begin = Instant::now();
    let mut seen = None;
    for (after_s, holder, version, free) in [
        (0, "b", "1", false),
        (14, "b", "1", false),
        (15, "b", "1", true),
        (16, "b", "2", false),
        (30, "b", "2", false),
        (31, "b", "2", true),
        (32, "a", "3", true),
        (33, "", "4", true),
    ] {
        let now = begin + Duration::from_secs(after_s);
        let found = is_free(&mut seen, &lease(holder, version), "a", now);
        assert_eq!(found, free, "after {after_s} s");
    }
    assert!(RENEWAL_MAX < DURATION);
}

#[test]
fn a_lease_holder_stops_before_the_lease_expires_for_others() {
    let renewed = Instant::now();
    let after = |after: Duration| time_left(renewed, renewed + after);
    assert_eq!(after(Duration::ZERO), Some(RENEWAL_MAX));
    let least = Duration::from_millis(1);
    assert_eq!(after(RENEWAL_MAX - least), Some(least));
    assert_eq!(after(RENEWAL_MAX), None);
    assert_eq!(after(DURATION), None);
}

/// An API server with a single Lease, which answers only the clients within reach.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    lease: Option<Lease>,
    version: u64,
    /// The candidate whose requests never arrive.
    deaf_to: Option<String>,
}

impl Server {
    fn candidate(&self, holder: &'static str) -> Candidate {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().answer(holder, request));
        Candidate::new(&Client::new(service, "n"), "n", "lease", holder.to_owned())
    }

    async fn answer(
        self,
        from: &'static str,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let (head, body) = request.into_parts();
        if self.0.lock().deaf_to.as_deref() == Some(from) {
            std::future::pending::<()>().await;
        }
        let body = body.collect().await.unwrap().to_bytes();
        let mut kept = self.0.lock();
        let (status, answer) = match head.method {
            http::Method::GET => match &kept.lease {
                Some(lease) => (200, json!(lease)),
                None => refused(404),
            },
            _ => {
                let mut sent: Lease = serde_json::from_slice(&body).unwrap();
                let known = kept
                    .lease
                    .as_ref()
                    .map(|known| known.metadata.resource_version.clone());
                if known.unwrap_or_default() == sent.metadata.resource_version {
                    kept.version += 1;
                    sent.metadata.resource_version = Some(kept.version.to_string());
                    kept.lease = Some(sent.clone());
                    (200, json!(sent))
                } else {
                    refused(409)
                }
            }
        };
        let answer = Body::from(answer.to_string().into_bytes());
        Ok(Response::builder().status(status).body(answer).unwrap())
    }

    fn holder(&self) -> Option<String> {
        self.0
            .lock()
            .lease
            .as_ref()?
            .spec
            .as_ref()?
            .holder_identity
            .clone()
    }
}

fn refused(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Conflict" };
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "message": reason, "reason": reason}),
    )
}

#[tokio::test(start_paused = true)]
async fn a_lease_holder_that_is_cut_off_stops_before_another_begins() {
    let server = Server::default();
    let (mut first, mut second) = (server.candidate("first"), server.candidate("second"));
    first.take(|_| {}).await;
    // It is kept for as long as it is renewed.
    tokio::select! {
        lost = first.hold() => panic!("{lost}"),
        () = second.take(|_| {}) => panic!("it is held"),
        () = tokio::time::sleep(Duration::from_secs(600)) => {}
    }
    let begun = Instant::now();
    server.0.lock().deaf_to = Some("first".to_owned());
    let lost = async {
        first.hold().await;
        begun.elapsed()
    };
    let taken = async {
        second.take(|_| {}).await;
        begun.elapsed()
    };
    let (lost, taken) = tokio::join!(lost, taken);
    assert!(lost <= RENEWAL_MAX, "{lost:?}");
    assert!(taken > lost && taken >= DURATION - PERIOD, "{taken:?}");
    assert!(taken <= DURATION + 3 * PERIOD, "{taken:?}");
    assert_eq!(server.holder().as_deref(), Some("second"));
    // The first one is back, and waits.
    server.0.lock().deaf_to = None;
    tokio::select! {
        () = first.take(|_| {}) => panic!("it is held"),
        lost = second.hold() => panic!("{lost}"),
        () = tokio::time::sleep(Duration::from_secs(600)) => {}
    }
    second.release().await;
    let freed = Instant::now();
    first.take(|_| {}).await;
    assert!(freed.elapsed() <= PERIOD, "nobody has to wait");
}

#[tokio::test(start_paused = true)]
async fn one_of_two_candidates_gets_a_free_lease() {
    let server = Server::default();
    let (mut first, mut second) = (server.candidate("first"), server.candidate("second"));
    let both = futures::future::join(first.try_once(), second.try_once()).await;
    let won = [&both.0, &both.1]
        .into_iter()
        .filter(|tried| **tried == Ok(None));
    assert_eq!(won.count(), 1, "{both:?}");
}
