//! HTTPS: reviews in, answers out.
//!
//! | path | which policies decide |
//! |---|---|
//! | `/validate/CONFIGURATION/WEBHOOK` | the policies of this webhook of this configuration, as it is registered |
//! | `/validate`, and whatever else begins so | all, each by its own failure policy |
//! | `/mutate` and so on | the same, by the rules that change objects |
//! | `/policies` | none: policies themselves are admitted |
//! | `/probe` | none: every review is refused, see [`registration::proof`](crate::registration::proof) |
//!
//! Before each of these paths stands `/r/TOKEN`, which the API server knows from the webhook configurations: see
//! [`PathTokens`]. Without the token nothing is read or decided, unless plain paths are allowed.
//!
//! A path that this process does not know comes from a configuration that another webhook wrote, or from a
//! hand-written one. Such a call admits nothing for that reason.

mod answer;
mod connections;
mod listen;
mod memory;
mod receive;
mod stream;
mod trace;

use std::{
    convert::Infallible,
    net::TcpListener,
    sync::Arc,
    task::{Context, Poll},
};

use anteroom_engine::{
    decide::Engine, mutate_existing::MutateExisting, phase, policies::CallScope,
    violations::Violations,
};
use anteroom_model::ErrorCode;
use anteroom_policy::Phase;
use anteroom_runtime::certs::{Certificates, clients::Clients};
use anyhow::Context as _;
use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};
use axum_server::tls_rustls::RustlsConfig;
use futures::future::BoxFuture;
use http::{
    HeaderValue, Method, StatusCode, Version,
    header::{ALLOW, CONNECTION, CONTENT_TYPE},
};
use hyper::body::Incoming;
use tower::Service;

use crate::{
    drain::Drain,
    exempt::Exempt,
    metrics::WebhookMetrics,
    registration::{KnownConfigurations, POLICIES_PATH, PathTokens, action, proof},
    response,
    tap::Taps,
};
pub(crate) use memory::ReviewMemory;
pub(crate) use receive::Receiving;

use answer::ReviewSubject;
use connections::Connection;
use stream::Acceptor;

/// Requests at once on one connection of HTTP/2. An API server that has more opens one more connection.
const STREAMS_MAX: u32 = 200;

/// The headers of a request; more is refused by the transport.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The state of the handlers, shared by all requests.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) exempt: Exempt,
    pub(crate) violations: Violations,
    pub(crate) existing: MutateExisting,
    pub(crate) known: KnownConfigurations,
    pub(crate) callers: Callers,
    pub(crate) metrics: WebhookMetrics,
    pub(crate) taps: Taps,
    pub(crate) memory: ReviewMemory,
    pub(crate) receiving: Receiving,
    pub(crate) drain: Drain,
    /// Decisions are recorded, and have no effect.
    pub(crate) is_shadow: bool,
}

/// Serves until the webhook has drained, and then until all received requests are answered.
pub(crate) async fn serve(
    listener: TcpListener,
    certificates: Certificates,
    clients: Option<Clients>,
    endpoint: Endpoint,
) -> anyhow::Result<()> {
    let tls = RustlsConfig::from_config(certificates.server_config(clients)?);
    let acceptor = Acceptor::new(tls, endpoint.0.metrics.clone());
    let listener = tokio::net::TcpListener::from_std(listener);
    let listener = listener.context("the listener cannot be used")?;
    let drain = endpoint.0.drain.clone();
    listen::serve(listener, acceptor, endpoint, drain).await;
    Ok(())
}

/// The HTTP service below TLS. It compares the few paths by hand, which costs next to nothing.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(Arc<App>);

impl Endpoint {
    pub(crate) fn new(app: App) -> Self {
        Self(Arc::new(app))
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let path = request.uri().path();
        let Some(path) = self.0.callers.path(path) else {
            // Nothing of its body is read.
            self.0.metrics.review_error(ErrorCode::REVIEW_FORBIDDEN);
            return forbidden();
        };
        // Of a request that did not come by TLS there is none.
        if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
            connection.prove(request.version());
        }
        let Some(route) = self.0.route(path) else {
            return not_found(path);
        };
        if request.method() != Method::POST {
            return only_posts();
        }
        match route {
            Route::Reviews(subject) => answer::answer(&self.0, subject, request).await,
            // Whoever asks here wants to know whether the API server calls us. That is no decision,
            // and counts as none.
            Route::Probe => answer::probed(&self.0, request).await,
        }
    }
}

impl Service<http::Request<Incoming>> for Endpoint {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        let endpoint = self.clone();
        let version = request.version();
        Box::pin(async move {
            let mut response = endpoint.answer(request.map(Body::new)).await;
            // Over HTTP/2 the connection says the same by GOAWAY.
            if version < Version::HTTP_2 && endpoint.0.drain.has_begun() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok(response)
        })
    }
}

/// The callers that may ask for decisions.
#[derive(Clone, Debug)]
pub(crate) struct Callers {
    pub(crate) tokens: PathTokens,
    /// Requests without a token are accepted too, because no caller was given a token.
    pub(crate) takes_plain_paths: bool,
}

impl Callers {
    /// Returns the path without its token; `None`: the caller does not know one.
    fn path<'p>(&self, path: &'p str) -> Option<&'p str> {
        let known = self.tokens.accepted(path);
        known.or_else(|| self.takes_plain_paths.then_some(path))
    }
}

/// The purpose of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Reviews(ReviewSubject),
    Probe,
}

impl App {
    /// `None`: there is no such path.
    fn route(&self, path: &str) -> Option<Route> {
        match path {
            POLICIES_PATH => return Some(Route::Reviews(ReviewSubject::Policies)),
            proof::PATH => return Some(Route::Probe),
            _ => {}
        }
        Phase::ALL.into_iter().find_map(|phase| {
            let rest = path.strip_prefix('/')?.strip_prefix(phase::verb(phase))?;
            let called = match rest.strip_prefix('/') {
                None if !rest.is_empty() => return None,
                None => CalledPath::default(),
                Some(rest) => called(rest),
            };
            let scope = CallScope {
                phase,
                ignores_errors: called.ignores_errors,
                called: called.by.and_then(|(configuration, webhook)| {
                    let known = self.known.called(phase, configuration, webhook);
                    if known.is_none() {
                        self.metrics.unknown_configurations.inc();
                    }
                    known
                }),
            };
            Some(Route::Reviews(ReviewSubject::Objects(scope)))
        })
    }
}

/// The meaning of the path's segments after the verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CalledPath<'a> {
    /// The failure policy of the webhook admits requests after errors. The webhook's name begins with it.
    ignores_errors: bool,
    /// The configuration and the webhook, if the path names both.
    by: Option<(&'a str, &'a str)>,
}

/// Reads the segments after the verb, as in `CONFIGURATION/fail-10`.
fn called(rest: &str) -> CalledPath<'_> {
    let ignores = |segment: &str| match segment.split(['-', '.']).next() {
        Some(first) if first == action(true) => Some(true),
        Some(first) if first == action(false) => Some(false),
        _ => None,
    };
    CalledPath {
        ignores_errors: rest.split('/').find_map(ignores).unwrap_or(false),
        by: rest.split_once('/'),
    }
}

fn forbidden() -> Response {
    let code = ErrorCode::REVIEW_FORBIDDEN;
    let message = "reviews are taken at the paths of the webhook configurations alone";
    let body = response::error(code, message);
    let headers = [(CONTENT_TYPE, "application/json"), (CONNECTION, "close")];
    (StatusCode::FORBIDDEN, headers, body).into_response()
}

fn not_found(path: &str) -> Response {
    let message = format!(
        "there is no {path}: AdmissionReviews go to /validate, and those of objects that may be changed to /mutate",
    );
    let body = axum::Json(serde_json::json!({ "error": message }));
    (StatusCode::NOT_FOUND, body).into_response()
}

fn only_posts() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_which_webhook_is_called() {
        let of = |ignores_errors, by| CalledPath { ignores_errors, by };
        for (rest, expected) in [
            ("", of(false, None)),
            ("fail", of(false, None)),
            ("ignore", of(true, None)),
            ("ignored", of(false, None)),
            ("c/fail-10", of(false, Some(("c", "fail-10")))),
            ("c/ignore-30", of(true, Some(("c", "ignore-30")))),
            ("c/ignore.team-a", of(true, Some(("c", "ignore.team-a")))),
            ("c/fail.ignore", of(false, Some(("c", "fail.ignore")))),
            ("ignore/10", of(true, Some(("ignore", "10")))),
            ("fail/ignore", of(false, Some(("fail", "ignore")))),
            ("c/d/e", of(false, Some(("c", "d/e")))),
        ] {
            assert_eq!(called(rest), expected, "{rest}");
        }
    }
}
