//! Answers a review, from its body to its response.

use std::time::Duration;

use anteroom_engine::{
    incoming::{Incoming as _, MUTATED_OBJECTS_MAX},
    off_thread::off_thread_if_large,
    policies::{CallScope, TIMEOUT_SECONDS_DEFAULT},
    verdict::Decision,
};
use anteroom_functions::{meter, operator};
use anteroom_model::{ErrorCode, ObjectKey};
use anteroom_policy::{Operation, Phase, PolicyKind, RequestParts};
use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, Uri, header::CONTENT_TYPE};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::{
    App,
    memory::{self, NeededMemory, NoMemory},
    receive::NotReceived,
    trace,
};
use crate::{
    admission::{self, Admission},
    registration::proof,
    response,
    review::{Review, ReviewError},
    tap::Decided,
    violations,
};

/// Longest timeout that an API server names.
const TIMEOUT_SECONDS_MAX: u64 = 30;

/// The time limit for asking whether a policy may write the objects that it changes.
const ASKING_MAX: Duration = Duration::from_secs(2);

/// The subject of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReviewSubject {
    /// Objects, decided by the rules of this scope.
    Objects(CallScope),
    /// Policies themselves.
    Policies,
}

impl ReviewSubject {
    /// Returns true if an error outside of any policy admits.
    fn ignores_errors(&self) -> bool {
        match self {
            Self::Objects(scope) => scope.ignores_errors,
            Self::Policies => true,
        }
    }

    /// Returns the most memory that a decision on the review takes.
    fn memory(&self, review: &Review<'_>, body: usize) -> NeededMemory {
        let (objects, beside) = match self {
            Self::Objects(scope) if scope.phase == Phase::Mutation => (MUTATED_OBJECTS_MAX, 0),
            Self::Objects(_) => (1, 0),
            Self::Policies => (1, memory::COMPILED_BYTES_MAX),
        };
        NeededMemory {
            body,
            parsed: review.parsed_bytes_max(objects),
            beside,
        }
    }
}

/// Answers one request of the API server.
pub(super) async fn answer(app: &App, subject: ReviewSubject, request: Request) -> Response {
    let span = trace::span(request.headers());
    answer_in_span(app, &subject, request)
        .instrument(span)
        .await
}

/// Receives the review, reserves its memory, and answers it.
async fn answer_in_span(app: &App, subject: &ReviewSubject, request: Request) -> Response {
    let timeout = timeout(request.uri());
    // The API server has begun to wait, so all time counts from here on.
    let arrived = Instant::now();
    let received = app
        .receiving
        .receive(request.into_body(), arrived + timeout)
        .await;
    let body = match received {
        Ok(body) => body,
        Err(NotReceived::Invalid(error)) => return refused(app, subject, &error),
        Err(NotReceived::Busy) => return busy(app, "as many reviews as this webhook takes arrive"),
    };
    let begun = Instant::now();
    // The head of the review borrows from the body, so it needs no memory. The parts of the rest are counted there too.
    let parsed = off_thread_if_large(body.len(), || {
        Review::parse(&body).map(|review| (subject.memory(&review, body.len()), review))
    });
    let (needed, review) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return refused(app, subject, &error),
    };
    // Only what can be decided on takes memory.
    let owner = review.owner();
    let admitted = app.memory.admit(owner, needed, arrived + timeout).await;
    let memory = match admitted {
        Ok(memory) => Some(memory),
        // No more of it is read.
        Err(_) if is_exempt(app, subject, &review) => None,
        Err(reason) => return without_memory(app, subject, &review, reason),
    };
    let waited = memory
        .as_ref()
        .map_or(Duration::ZERO, |memory| memory.waited);
    let _in_flight = InFlight::begin(&app.metrics.reviews_in_flight);
    let times = Times {
        begun: begun + waited,
        deadline: deadline(arrived, timeout),
    };
    let result = match subject {
        ReviewSubject::Objects(scope) => answer_objects(app, scope, &review, times).await,
        ReviewSubject::Policies => answer_policies(app, timeout, &review, times).await,
    };
    result.unwrap_or_else(|error| refused(app, subject, &error))
}

/// A review in progress. It is dropped if the caller goes away.
struct InFlight(Gauge);

impl InFlight {
    fn begin(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The time at which a review was complete and had its memory, and the time by which its answer has to be sent.
#[derive(Clone, Copy)]
struct Times {
    begun: Instant,
    deadline: Instant,
}

/// Refuses the review of a proof.
pub(super) async fn probed(app: &App, request: Request) -> Response {
    let deadline = Instant::now() + timeout(request.uri());
    let received = app.receiving.receive(request.into_body(), deadline).await;
    let parsed = match received {
        Ok(body) => off_thread_if_large(body.len(), || {
            Review::parse(&body).map(|review| response::probed(&review))
        }),
        Err(NotReceived::Invalid(error)) => Err(error),
        Err(NotReceived::Busy) => return busy(app, "as many reviews as this webhook takes arrive"),
    };
    match parsed {
        Ok(refusal) => json(StatusCode::OK, refusal),
        Err(error) => {
            let subject = ReviewSubject::Objects(CallScope::all(Phase::Validation));
            refused(app, &subject, &error)
        }
    }
}

/// There is no memory, of one kind or the other.
fn busy(app: &App, what: &str) -> Response {
    app.metrics.review_error(ErrorCode::BUSY);
    trace::undecided(ErrorCode::BUSY);
    let body = response::error(ErrorCode::BUSY, &format!("{what}: try again"));
    json(StatusCode::SERVICE_UNAVAILABLE, body)
}

/// The answer to a review that found no memory. Where its own namespace or user takes the memory, or it would take more
/// than there is, it is refused under any failure policy: otherwise large requests would make way for one that a policy
/// forbids.
fn without_memory(
    app: &App,
    subject: &ReviewSubject,
    review: &Review<'_>,
    reason: NoMemory,
) -> Response {
    match (reason, subject) {
        (NoMemory::Never { bytes, bytes_max }, _) => {
            refused(app, subject, &review.over_review_memory(bytes, bytes_max))
        }
        (NoMemory::OwnReviews, ReviewSubject::Objects(_)) => {
            refused(app, subject, &review.over_its_part())
        }
        // A policy that is admitted unseen is compiled before it is in force.
        (NoMemory::OwnReviews, ReviewSubject::Policies) | (NoMemory::OtherReviews, _) => busy(
            app,
            "the reviews that are being decided take all the memory that they may",
        ),
    }
}

/// Returns whether no policy is asked about a review.
fn is_exempt(app: &App, subject: &ReviewSubject, review: &Review<'_>) -> bool {
    let catalog = app.engine.catalog();
    let kind = review.head().named_kind(catalog.as_deref());
    *subject != ReviewSubject::Policies && app.exempt.by(kind, review).is_some()
}

/// Decides about an object, records the decision, and answers.
async fn answer_objects(
    app: &App,
    scope: &CallScope,
    review: &Review<'_>,
    times: Times,
) -> Result<Response, ReviewError> {
    let span = Span::current();
    span.record("uid", &*review.head.uid);
    span.record("kind", &*review.head.kind.kind);
    span.record("namespace", &*review.head.namespace);
    span.record("name", &*review.head.name);
    span.record("operation", review.operation().as_str());
    if proof::is_asked_by(review) {
        // Of the proof of another webhook configuration: no policy keeps the API server from that.
        return Ok(json(StatusCode::OK, response::passed(review)));
    }
    let mut decision = decide_unless_exempt(app, review, scope, times.deadline).await?;
    let triggered = decision.triggered.take();
    if let Some(triggered) = triggered.filter(|_| !app.is_shadow) {
        app.existing.hand_over(triggered, times.deadline).await;
    }
    let took = times.begun.elapsed();
    let phase = scope.phase;
    app.metrics
        .decided(phase, decision.allowed(), decision.error, took);
    if let Some(kyverno) = &app.metrics.kyverno {
        kyverno.decided(review, phase, &decision, took);
    }
    if !app.is_shadow
        && let Some(violation) = violations::violation_of(review, &decision)
    {
        app.violations.send(violation);
    }
    app.taps.decided(Decided {
        review,
        phase,
        decision: &decision,
        took,
    });
    trace::decided(phase, &decision);
    log(review, &decision, took);
    let bytes = answer_bytes(review, &decision);
    // The decision is dropped there too.
    let answer = off_thread_if_large(bytes, move || match app.is_shadow {
        true => response::recorded(review, &decision),
        false => response::decided(review, &decision),
    });
    Ok(json(StatusCode::OK, answer))
}

/// Returns about the bytes that an answer is made of. The patch of a small request may be large.
fn answer_bytes(review: &Review<'_>, decision: &Decision) -> usize {
    let patch = decision.patch.as_ref().map_or(0, operator::length);
    let patch = usize::try_from(patch).unwrap_or(usize::MAX);
    let patch = patch.saturating_mul(meter::BYTES_PER_STEP);
    review.bytes().saturating_add(patch)
}

/// Asks the policies, but for a request that is exempt.
async fn decide_unless_exempt(
    app: &App,
    review: &Review<'_>,
    scope: &CallScope,
    deadline: Instant,
) -> Result<Decision, ReviewError> {
    let catalog = app.engine.catalog();
    let kind = review.head().named_kind(catalog.as_deref());
    if let Some(by) = app.exempt.by(kind, review) {
        app.metrics.exempt(scope.phase, by);
        return Ok(Decision::default());
    }
    app.engine
        .decide(catalog.as_ref(), review, scope, deadline)
        .await
}

/// Returns the key of the policy that a review is about, unique among all kinds.
fn policy_key(review: &Review<'_>) -> ObjectKey {
    let (head, of) = (&review.head, &review.head.kind);
    let api_version = format!("{}/{}", of.group, of.version);
    match PolicyKind::of_manifest(&api_version, &of.kind) {
        Some(kind) => kind.key(&head.namespace, &head.name),
        None => ObjectKey::new(&*head.namespace, &*head.name),
    }
}

/// Judges a policy that is written, and answers.
async fn answer_policies(
    app: &App,
    timeout: Duration,
    review: &Review<'_>,
    times: Times,
) -> Result<Response, ReviewError> {
    if app.is_shadow {
        return Ok(json(StatusCode::OK, response::passed(review)));
    }
    // Compiling may take long, whatever the size of the policy.
    let place_until = times.deadline.min(times.begun + timeout / 2);
    let judged = app
        .engine
        .run_long(review.owner(), place_until, || judge_policy(app, review))
        .await;
    let Ok(admission) = judged else {
        return Ok(busy(app, "large reviews take all the places that they may"));
    };
    let mut admission = admission?;
    let asked_until = times.begun + ASKING_MAX.min(timeout / 2);
    let deadline = asked_until.min(times.deadline);
    let policy = policy_key(review);
    let asked = admission.ask_for_writes(&policy, app.engine.facts(), deadline);
    asked.await;
    if !admission.refused.is_empty() {
        let (kind, namespace, name) = (
            &*review.head.kind.kind,
            &*review.head.namespace,
            &*review.head.name,
        );
        let reason = &*admission.refused.join("; ");
        tracing::info!(kind, namespace, name, reason, "write of a policy refused");
    }
    let answer = response::admitted(review, &admission);
    Ok(json(StatusCode::OK, answer))
}

/// Judges a policy that is created or changed; any other review is admitted.
fn judge_policy(app: &App, review: &Review<'_>) -> Result<Admission, ReviewError> {
    if review.operation() == Operation::Delete {
        return Ok(Admission::default());
    }
    let request = review.request(&RequestParts::ALL)?;
    let catalog = app.engine.catalog();
    Ok(admission::judge(
        request.matched_object(),
        request.old_object(),
        catalog.as_deref(),
    ))
}

/// Logs the decision and the facts behind it.
fn log(review: &Review<'_>, decision: &Decision, took: Duration) {
    if decision.rules.is_empty() && decision.allowed() {
        return;
    }
    let head = &review.head;
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let (uid, kind) = (&*head.uid, &*head.kind.kind);
    let (namespace, name) = (&*head.namespace, &*head.name);
    let record = || response::record(decision, review.arrival());
    // Admitting is the usual case, and at info would be a line for every request.
    if decision.error {
        let what = match decision.rules.is_empty() {
            true => "policies not read yet: the request gets an error",
            false => "rule not evaluated: `record` says why",
        };
        tracing::warn!(
            uid,
            kind,
            namespace,
            name,
            took_us,
            record = record(),
            "{what}"
        );
    } else if !decision.allowed() {
        tracing::info!(
            uid,
            kind,
            namespace,
            name,
            took_us,
            record = record(),
            "request denied"
        );
    } else if tracing::enabled!(tracing::Level::DEBUG) {
        tracing::debug!(
            uid,
            kind,
            namespace,
            name,
            took_us,
            record = record(),
            changed = decision.patch.is_some(),
            "request allowed"
        );
    }
}

/// Answers a review that cannot be decided. If it has a uid, the answer is a review, so that the API server's user
/// reads the reason. Otherwise the answer is an HTTP error, and the API server applies its failure policy.
fn refused(app: &App, subject: &ReviewSubject, error: &ReviewError) -> Response {
    let code = error.code();
    app.metrics.review_error(code);
    trace::undecided(code);
    tracing::warn!(code = code.as_str(), %error, "review refused: it cannot be decided");
    match error.uid() {
        Some(uid) => {
            let ignores = app.is_shadow || subject.ignores_errors() && !error.always_refuses();
            let answer = response::malformed(uid, error, ignores);
            json(StatusCode::OK, answer)
        }
        None => json(error.status(), response::error(code, &error.to_string())),
    }
}

fn json(status: StatusCode, body: Bytes) -> Response {
    let content_type = HeaderValue::from_static("application/json");
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Returns the time by which a review has to be decided that came at `arrived`, if the API server waits for
/// `timeout`. The answer needs the rest of the time to get back: a tenth, between 20 and 500 ms.
fn deadline(arrived: Instant, timeout: Duration) -> Instant {
    let margin = (timeout / 10).clamp(Duration::from_millis(20), Duration::from_millis(500));
    arrived + timeout - margin
}

/// The API server says in `?timeout=10s` how long it waits.
fn timeout(uri: &Uri) -> Duration {
    uri.query()
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| {
            pair.strip_prefix("timeout=")?
                .strip_suffix('s')?
                .parse()
                .ok()
        })
        .filter(|seconds| (1..=TIMEOUT_SECONDS_MAX).contains(seconds))
        .map_or(
            Duration::from_secs(TIMEOUT_SECONDS_DEFAULT.into()),
            Duration::from_secs,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_says_how_long_it_waits() {
        for (query, seconds) in [
            ("/validate/fail?timeout=5s", 5),
            ("/validate/fail?a=b&timeout=30s", 30),
            ("/validate/fail", 10),
            ("/validate/fail?timeout=0s", 10),
            ("/validate/fail?timeout=31s", 10),
            ("/validate/fail?timeout=soon", 10),
        ] {
            let uri: Uri = query.parse().unwrap();
            assert_eq!(timeout(&uri), Duration::from_secs(seconds), "{query}");
        }
    }

    /// NATS drops an answer that comes later than it says there.
    #[test]
    fn nats_allows_answers_for_as_long_as_a_webhook_may_wait() {
        let deployed = include_str!("../../../../deploy/chart/files/nats.conf");
        let granted = deployed
            .lines()
            .filter_map(|line| line.trim().strip_prefix("allow_responses: "));
        let seconds: Vec<u64> = granted
            .map(|granted| {
                let (_, expires) = granted.split_once("expires: \"").unwrap();
                expires.split_once("s\"").unwrap().0.parse().unwrap()
            })
            .collect();
        let [watcher, replica] = seconds[..] else {
            panic!("watchers and replicas answer: {seconds:?}");
        };
        assert!(replica >= TIMEOUT_SECONDS_MAX);
        // Rules on objects that exist wait longer for a live read's turn.
        assert!(
            watcher >= TIMEOUT_SECONDS_MAX.max(anteroom_engine::mutate_existing::TIMEOUT.as_secs())
        );
    }
}
