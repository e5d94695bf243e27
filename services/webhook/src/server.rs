//! HTTPS: reviews in, answers out.
//!
//! | path | which policies decide |
//! |---|---|
//! | `/validate` | all, each by its own failure policy |
//! | `/validate/fail`, `/validate/ignore` | those of this failure policy |
//! | `/validate/fail/10` and so on | those of this failure policy and `timeoutSeconds`: what is registered |
//! | `/policies` | none: policies themselves are admitted |
//! | `/probe` | none: every review is refused, see [`registration::proof`](crate::registration::proof) |

mod answer;

use std::{net::TcpListener, sync::Arc, time::Duration};

use anteroom_runtime::{Shutdown, certs::Certificates};
use anyhow::Context as _;
use axum::{
    Router,
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
    routing::post,
};
use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use http::{StatusCode, Uri};
use tokio::sync::Semaphore;

use crate::{decide::Decider, metrics::WebhookMetrics, policies::Scope, registration::proof};
use answer::About;

/// Reviews that are decided at once. One more is answered with 503, and so by its failure policy:
/// each may hold a body of [`REVIEW_BYTES_MAX`](anteroom_model::limits::REVIEW_BYTES_MAX).
const REVIEWS_MAX: usize = 512;

/// The headers of a request; more is refused by the transport.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// How long the reviews that were received may take to be answered, once the process is to stop.
const DRAIN: Duration = Duration::from_secs(15);

/// What a handler has. Each request holds it, so it is shared as one.
#[derive(Debug)]
struct App {
    decider: Decider,
    metrics: WebhookMetrics,
    places: Semaphore,
}

/// Serves until shutdown, and then until what was received is answered.
pub(crate) async fn serve(
    listener: TcpListener,
    certificates: Certificates,
    router: Router,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let tls = RustlsConfig::from_config(certificates.server_config()?);
    let acceptor = RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor::new());
    let handle = Handle::new();
    let mut server = axum_server::from_tcp(listener)
        .context("the listener cannot be used")?
        .acceptor(acceptor)
        .handle(handle.clone());
    let mut http = server.http_builder().http1();
    http.max_buf_size(HEADER_BYTES_MAX);
    let mut http = server.http_builder().http2();
    http.max_header_list_size(HEADER_BYTES_MAX as u32);

    let serving = server.serve(router.into_make_service());
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

/// What is served, without TLS.
pub(crate) fn router(decider: Decider, metrics: WebhookMetrics) -> Router {
    Router::new()
        .route("/policies", post(policies))
        .route(proof::PATH, post(probe))
        .route("/validate", post(validate_all))
        .route("/validate/{action}", post(validate_action))
        .route("/validate/{action}/{timeout_seconds}", post(validate_group))
        .fallback(not_found)
        .with_state(Arc::new(App {
            decider,
            metrics,
            places: Semaphore::new(REVIEWS_MAX),
        }))
}

async fn policies(State(app): State<Arc<App>>, request: Request) -> Response {
    answer::answer(&app, About::Policies, request).await
}

/// Whoever asks here wants to know whether the API server calls us. That is no decision, and counts
/// as none.
async fn probe(State(app): State<Arc<App>>, request: Request) -> Response {
    answer::probed(&app, request).await
}

async fn validate_all(State(app): State<Arc<App>>, request: Request) -> Response {
    answer::answer(&app, About::Objects(Scope::default()), request).await
}

async fn validate_action(
    State(app): State<Arc<App>>,
    Path(action): Path<String>,
    request: Request,
) -> Response {
    match ignores(&action) {
        None => not_found(request.uri().clone()).await.into_response(),
        ignore => {
            let scope = Scope {
                ignore,
                timeout_seconds: None,
            };
            answer::answer(&app, About::Objects(scope), request).await
        }
    }
}

async fn validate_group(
    State(app): State<Arc<App>>,
    Path((action, timeout_seconds)): Path<(String, String)>,
    request: Request,
) -> Response {
    match (ignores(&action), timeout_seconds.parse().ok()) {
        (ignore @ Some(_), timeout_seconds @ Some(_)) => {
            let scope = Scope {
                ignore,
                timeout_seconds,
            };
            answer::answer(&app, About::Objects(scope), request).await
        }
        _ => not_found(request.uri().clone()).await.into_response(),
    }
}

fn ignores(action: &str) -> Option<bool> {
    match action {
        "fail" => Some(false),
        "ignore" => Some(true),
        _ => None,
    }
}

async fn not_found(uri: Uri) -> impl IntoResponse {
    let message = format!(
        "there is no {}: AdmissionReviews go to /validate/fail or /validate/ignore",
        uri.path()
    );
    (
        StatusCode::NOT_FOUND,
        axum::Json(serde_json::json!({ "error": message })),
    )
}
