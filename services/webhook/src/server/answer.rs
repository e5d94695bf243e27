//! One review, from its body to its answer.

use std::time::Duration;

use anteroom_model::{ErrorCode, limits::REVIEW_BYTES_MAX};
use anteroom_policy::Phase;
use anteroom_runtime::telemetry;
use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty};

use super::App;
use crate::{
    policies::{Scope, TIMEOUT_SECONDS_DEFAULT},
    registration::proof,
    response,
    review::{Review, ReviewError},
    verdict::Decision,
};

/// What the API server says that it waits, at most.
const TIMEOUT_SECONDS_MAX: u64 = 30;

/// How long it is waited for whether a policy may write what it changes.
const ASKING_MAX: Duration = Duration::from_secs(2);

/// What a review is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Objects, which these policies decide on, by their rules of this phase.
    Objects(Phase, Scope),
    /// Policies themselves.
    Policies,
}

impl About {
    /// Whether an error outside of any policy admits.
    fn ignores_errors(&self) -> bool {
        match self {
            Self::Objects(_, scope) => scope.ignores_errors(),
            Self::Policies => true,
        }
    }
}

/// Answers one request of the API server.
pub(super) async fn answer(app: &App, about: About, request: Request) -> Response {
    let Ok(_place) = app.places.try_acquire() else {
        app.metrics.review_error(ErrorCode::BUSY);
        let message = "as many reviews as this webhook takes are being decided: try again";
        let body = response::error(ErrorCode::BUSY, message);
        return json(StatusCode::SERVICE_UNAVAILABLE, body);
    };
    app.metrics.reviews_in_flight.inc();
    let span = span(request.headers());
    let response = within(app, &about, request).instrument(span).await;
    app.metrics.reviews_in_flight.dec();
    response
}

async fn within(app: &App, about: &About, request: Request) -> Response {
    let timeout = timeout(request.uri());
    let received = tokio::time::timeout(timeout, body(request.into_body())).await;
    let begun = Instant::now();
    let result = match received {
        Err(_) => Err(ReviewError::Body {
            problem: format!("it did not arrive within {} ms", timeout.as_millis()),
        }),
        Ok(Err(error)) => Err(error),
        Ok(Ok(body)) => match about {
            About::Objects(phase, scope) => {
                review(app, (*phase, scope), timeout, &body, begun).await
            }
            About::Policies => admit(app, timeout, &body, begun).await,
        },
    };
    result.unwrap_or_else(|error| refused(app, about, &error))
}

/// Refuses the review of a proof.
pub(super) async fn probed(app: &App, request: Request) -> Response {
    let timeout = timeout(request.uri());
    let received = tokio::time::timeout(timeout, body(request.into_body())).await;
    let parsed = match received {
        Ok(Ok(body)) => Review::parse(&body).map(|review| response::probed(&review)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(ReviewError::Body {
            problem: format!("it did not arrive within {} ms", timeout.as_millis()),
        }),
    };
    match parsed {
        Ok(refusal) => json(StatusCode::OK, refusal),
        Err(error) => {
            let about = About::Objects(Phase::Validation, Scope::default());
            refused(app, &about, &error)
        }
    }
}

/// Decides and answers.
async fn review(
    app: &App,
    (phase, scope): (Phase, &Scope),
    timeout: Duration,
    body: &Bytes,
    begun: Instant,
) -> Result<Response, ReviewError> {
    let review = Review::parse(body)?;
    let span = Span::current();
    span.record("uid", &*review.head.uid);
    span.record("kind", &*review.head.kind.kind);
    span.record("namespace", &*review.head.namespace);
    span.record("name", &*review.head.name);
    span.record("operation", review.operation().as_str());
    if proof::is_asked_by(&review) {
        // Of the proof of another webhook configuration: no policy keeps the API server from that.
        return Ok(json(StatusCode::OK, response::passed(&review)));
    }
    let mut decision = app.decider.decide(&review, phase, scope, timeout).await?;
    if let Some(triggered) = decision.triggered.take() {
        app.existing.hand_over(triggered, body.len());
    }
    let took = begun.elapsed();
    app.metrics
        .decided(phase, decision.allowed(), decision.error, took);
    if let Some(kyverno) = &app.metrics.kyverno {
        kyverno.decided(&review, phase, &decision, took);
    }
    app.violations.tell(&review, &decision);
    log(&review, &decision, took);
    let answer = response::decided(&review, &decision);
    Ok(json(StatusCode::OK, answer))
}

/// Admits a policy, or refuses it.
async fn admit(
    app: &App,
    timeout: Duration,
    body: &Bytes,
    begun: Instant,
) -> Result<Response, ReviewError> {
    let review = Review::parse(body)?;
    let mut admission = app.decider.admit(&review)?;
    let deadline = begun + ASKING_MAX.min(timeout / 2);
    app.decider.ask_for_writes(&mut admission, deadline).await;
    if !admission.refused.is_empty() {
        let (kind, namespace, name) = (
            &*review.head.kind.kind,
            &*review.head.namespace,
            &*review.head.name,
        );
        let reason = &*admission.refused.join("; ");
        tracing::info!(kind, namespace, name, reason, "policy refused");
    }
    let answer = response::admitted(&review, &admission);
    Ok(json(StatusCode::OK, answer))
}

/// What was decided, and from what: for whoever asks afterwards.
fn log(review: &Review<'_>, decision: &Decision, took: Duration) {
    let span = Span::current();
    span.record("allowed", decision.allowed());
    if decision.error {
        span.record("otel.status_code", "ERROR");
    }
    if decision.rules.is_empty() && decision.allowed() {
        return;
    }
    let head = &review.head;
    let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let (uid, kind) = (&*head.uid, &*head.kind.kind);
    let (namespace, name) = (&*head.namespace, &*head.name);
    let record = || response::record(decision);
    // Admitting is the usual case, and at info would be a line for every request.
    if decision.error {
        let what = match decision.rules.is_empty() {
            true => "no policy has been read yet",
            false => "a rule could not be evaluated",
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
            "denied"
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
            "allowed"
        );
    }
}

/// A review that cannot be decided on. Where it has a uid it is answered as a review, so that the
/// user of the API server reads why; otherwise by HTTP, and the API server goes by its failure
/// policy.
fn refused(app: &App, about: &About, error: &ReviewError) -> Response {
    let code = error.code();
    app.metrics.review_error(code);
    Span::current().record("otel.status_code", "ERROR");
    tracing::warn!(code = code.as_str(), %error, "review refused");
    match error.uid() {
        Some(uid) => {
            let answer = response::malformed(uid, error, about.ignores_errors());
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

async fn body(body: Body) -> Result<Bytes, ReviewError> {
    match Limited::new(body, REVIEW_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ReviewError::TooLarge {
            bytes_max: REVIEW_BYTES_MAX,
        }),
        Err(error) => Err(ReviewError::Body {
            problem: error.to_string(),
        }),
    }
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

/// The span of one review, below the API server's where it sends one.
fn span(headers: &HeaderMap) -> Span {
    let span = tracing::info_span!(
        "admission",
        otel.kind = "server",
        otel.status_code = Empty,
        uid = Empty,
        kind = Empty,
        namespace = Empty,
        name = Empty,
        operation = Empty,
        allowed = Empty,
    );
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(traceparent) = header("traceparent") {
        telemetry::set_parent(&span, traceparent, header("tracestate").unwrap_or_default());
    }
    span
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
}
