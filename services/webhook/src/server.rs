//! HTTPS: reviews in, answers out.
//!
//! | path | which policies decide |
//! |---|---|
//! | `/validate` | all, each by its own failure policy |
//! | `/validate/fail`, `/validate/ignore` | those of this failure policy |
//! | `/validate/fail/10` and so on | those of this failure policy and `timeoutSeconds`: what is registered |
//! | `/mutate` and so on | the same, by the rules that change objects |
//! | `/policies` | none: policies themselves are admitted |
//! | `/probe` | none: every review is refused, see [`registration::proof`](crate::registration::proof) |

mod answer;
mod receive;
mod stream;

use std::{
    convert::Infallible,
    net::TcpListener,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use anteroom_engine::{
    decide::Engine, mutate_existing::MutateExisting, phase, policies::Scope, violations::Violations,
};
use anteroom_policy::Phase;
use anteroom_runtime::{Shutdown, certs::Certificates};
use anyhow::Context as _;
use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use futures::future::BoxFuture;
use http::{Method, StatusCode, Uri, header::ALLOW};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tower::{Service, make::Shared};

use crate::{exempt::Exempt, metrics::WebhookMetrics, registration::proof};
use answer::About;
use receive::Receiving;
use stream::Acceptor;

/// Reviews that are decided at once, once their bodies are here. One more is answered with 503, and so by
/// its failure policy: each may hold a body of
/// [`REVIEW_BYTES_MAX`](anteroom_model::limits::REVIEW_BYTES_MAX).
const REVIEWS_MAX: usize = 512;

/// Connections at once, which take about 100 KB each. One more is closed before it speaks.
const CONNECTIONS_MAX: usize = 512;

/// Requests at once on one connection of HTTP/2. An API server that has more opens one more connection.
const STREAMS_MAX: u32 = 200;

/// The headers of a request; more is refused by the transport.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Limit for answering the reviews that were received, once the process is to stop.
const DRAIN: Duration = Duration::from_secs(15);

/// The state of the handlers. Each request holds it, so it is shared as one.
#[derive(Debug)]
struct App {
    engine: Engine,
    exempt: Exempt,
    violations: Violations,
    existing: MutateExisting,
    metrics: WebhookMetrics,
    permits: Semaphore,
    receiving: Receiving,
}

/// Serves until shutdown, and then until what was received is answered.
pub(crate) async fn serve(
    listener: TcpListener,
    certificates: Certificates,
    endpoint: Endpoint,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let tls = RustlsConfig::from_config(certificates.server_config()?);
    let acceptor = Acceptor::new(tls, CONNECTIONS_MAX, endpoint.0.metrics.clone());
    let handle = Handle::new();
    let mut server = axum_server::from_tcp(listener)
        .context("the listener cannot be used")?
        .acceptor(acceptor)
        .handle(handle.clone());
    let mut http = server.http_builder().http1();
    http.max_buf_size(HEADER_BYTES_MAX);
    let mut http = server.http_builder().http2();
    http.max_header_list_size(HEADER_BYTES_MAX as u32);
    http.max_concurrent_streams(STREAMS_MAX);

    let serving = server.serve(Shared::new(endpoint));
    let drain = async {
        shutdown.triggered().await;
        handle.graceful_shutdown(Some(DRAIN));
        std::future::pending().await
    };
    tokio::select! {
        served = serving => served.context("the HTTPS server failed"),
        never = drain => never,
    }
}

/// The HTTP service below TLS. The few paths are told apart by hand, which costs next to nothing.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(Arc<App>);

impl Endpoint {
    pub(crate) fn new(
        (engine, exempt): (Engine, Exempt),
        violations: Violations,
        existing: MutateExisting,
        metrics: WebhookMetrics,
    ) -> Self {
        Self(Arc::new(App {
            engine,
            exempt,
            violations,
            existing,
            metrics,
            permits: Semaphore::new(REVIEWS_MAX),
            receiving: Receiving::default(),
        }))
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let Some(route) = route(request.uri().path()) else {
            return not_found(request.uri());
        };
        if request.method() != Method::POST {
            return only_posts();
        }
        match route {
            Route::Reviews(about) => answer::answer(&self.0, about, request).await,
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
        Box::pin(async move { Ok(endpoint.answer(request.map(Body::new)).await) })
    }
}

/// The purpose of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Reviews(About),
    Probe,
}

/// `None`: there is no such path.
fn route(path: &str) -> Option<Route> {
    match path {
        "/policies" => return Some(Route::Reviews(About::Policies)),
        proof::PATH => return Some(Route::Probe),
        _ => {}
    }
    Phase::ALL.into_iter().find_map(|phase| {
        let scope = scope(path.strip_prefix('/')?.strip_prefix(phase::verb(phase))?)?;
        Some(Route::Reviews(About::Objects(phase, scope)))
    })
}

/// From what follows the verb, as in `/fail/10`.
fn scope(rest: &str) -> Option<Scope> {
    if rest.is_empty() {
        return Some(Scope::default());
    }
    let rest = rest.strip_prefix('/')?;
    let (action, timeout_seconds) = match rest.split_once('/') {
        None => (rest, None),
        Some((action, seconds)) => (action, Some(seconds.parse().ok()?)),
    };
    Some(Scope {
        ignore: Some(ignores(action)?),
        timeout_seconds,
    })
}

fn ignores(action: &str) -> Option<bool> {
    match action {
        "fail" => Some(false),
        "ignore" => Some(true),
        _ => None,
    }
}

fn not_found(uri: &Uri) -> Response {
    let message = format!(
        "there is no {}: AdmissionReviews go to /validate/fail or /validate/ignore, and those of objects \
         that may be changed to /mutate/fail or /mutate/ignore",
        uri.path()
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
    fn a_path_says_which_policies_decide() {
        let of = |phase, ignore, timeout_seconds| {
            let scope = Scope {
                ignore,
                timeout_seconds,
            };
            Some(Route::Reviews(About::Objects(phase, scope)))
        };
        let reviews = |ignore, seconds| of(Phase::Validation, ignore, seconds);
        let changes = |ignore, seconds| of(Phase::Mutation, ignore, seconds);
        for (path, expected) in [
            ("/policies", Some(Route::Reviews(About::Policies))),
            (proof::PATH, Some(Route::Probe)),
            ("/validate", reviews(None, None)),
            ("/validate/fail", reviews(Some(false), None)),
            ("/validate/ignore", reviews(Some(true), None)),
            ("/validate/fail/10", reviews(Some(false), Some(10))),
            ("/validate/ignore/30", reviews(Some(true), Some(30))),
            ("/mutate", changes(None, None)),
            ("/mutate/fail", changes(Some(false), None)),
            ("/mutate/ignore/30", changes(Some(true), Some(30))),
            ("/mutate/", None),
            ("/mutated/fail", None),
            ("/validate/", None),
            ("/validate/nope", None),
            ("/validate/fail/", None),
            ("/validate/fail/soon", None),
            ("/validate/fail/10/", None),
            ("/validate/fail/10/policy/p", None),
            ("/validate/nope/10", None),
            ("/validated", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }
}
