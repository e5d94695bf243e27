//! Requests for pages, and the headers of answers.
//!
//! | request | answer |
//! |---|---|
//! | any method but GET and HEAD | 405 |
//! | a `Host` that is not this machine's: a page of somebody else that had its name resolve to here | 403 |
//! | one of the pages, the stylesheet or the script | 200 |

use std::{net::TcpListener, time::Duration};

use anyhow::Context as _;
use askama::Template;
use axum::{
    Router,
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use axum_server::Handle;

use super::{
    listen::Console,
    pages::{self, PageQuery},
};

/// The headers of a request; more is refused.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// The time for the headers of a request to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

const STYLESHEET: &str = include_str!("../../templates/console.css");
const SCRIPT: &str = include_str!("../../templates/console.js");

/// Nothing is loaded from elsewhere, and nothing may show the pages within its own.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Serves until the process ends.
pub(super) async fn serve(listener: TcpListener, console: Console) -> anyhow::Result<()> {
    listener.set_nonblocking(true).context("the listener")?;
    let handle = Handle::new();
    let mut server = axum_server::from_tcp(listener)
        .context("the listener cannot be used")?
        .handle(handle);
    let mut http = server.http_builder().http1();
    http.max_buf_size(HEADER_BYTES_MAX);
    http.timer(hyper_util::rt::TokioTimer::new());
    http.header_read_timeout(HEADER_TIMEOUT);
    let served = server.serve(router(console).into_make_service()).await;
    served.context("the console's server failed")
}

fn router(console: Console) -> Router {
    Router::new()
        .route("/", get(overview))
        .route("/views", get(views))
        .route("/policies", get(policies))
        .route("/policy", get(policy))
        .route("/denials", get(denials))
        .route("/denial", get(denial))
        .route("/tap", get(tap))
        .route("/checks", get(checks))
        .route("/console.css", get(async || asset("text/css", STYLESHEET)))
        .route(
            "/console.js",
            get(async || asset("text/javascript", SCRIPT)),
        )
        .fallback(absent)
        .with_state(console)
        .layer(from_fn(guard))
}

/// Refuses what no page of ours asks, and adds the headers of every answer.
async fn guard(request: Request, next: Next) -> Response {
    let mut response = match *request.method() {
        Method::GET | Method::HEAD if is_ours(request.headers()) => next.run(request).await,
        Method::GET | Method::HEAD => {
            (StatusCode::FORBIDDEN, "this Host is not served here\n").into_response()
        }
        _ => {
            let allow = [(header::ALLOW, "GET, HEAD")];
            (StatusCode::METHOD_NOT_ALLOWED, allow, "pages are read\n").into_response()
        }
    };
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns true for a name of this machine, with any port: a forwarded one differs.
fn is_ours(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(host) = host else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}

/// Returns a page with its HTTP status.
fn shown(page: &impl Template, status: StatusCode) -> Response {
    match page.render() {
        Ok(html) => {
            let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            (status, kind, Body::from(html)).into_response()
        }
        // Texts are written into memory, which cannot fail.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn overview(State(console): State<Console>) -> Response {
    console.note_reader(false);
    shown(&pages::overview(&console), StatusCode::OK)
}

async fn views(State(console): State<Console>, Query(asked): Query<PageQuery>) -> Response {
    console.note_reader(false);
    shown(&pages::views(&console, &asked), StatusCode::OK)
}

async fn policies(State(console): State<Console>, Query(asked): Query<PageQuery>) -> Response {
    console.note_reader(false);
    shown(&pages::policies(&console, &asked), StatusCode::OK)
}

async fn policy(State(console): State<Console>, Query(asked): Query<PageQuery>) -> Response {
    console.note_reader(false);
    match pages::policy(&console, &asked) {
        Ok(page) => shown(&page, StatusCode::OK),
        Err(absent) => shown(&absent, StatusCode::NOT_FOUND),
    }
}

async fn denials(State(console): State<Console>, Query(asked): Query<PageQuery>) -> Response {
    console.note_reader(false);
    shown(&pages::denials(&console, &asked), StatusCode::OK)
}

async fn denial(State(console): State<Console>, Query(asked): Query<PageQuery>) -> Response {
    console.note_reader(false);
    match pages::denial(&console, &asked) {
        Ok(page) => shown(&page, StatusCode::OK),
        Err(absent) => shown(&absent, StatusCode::NOT_FOUND),
    }
}

async fn tap(State(console): State<Console>, Query(asked): Query<PageQuery>) -> Response {
    console.note_reader(true);
    shown(&pages::tap(&console, &asked), StatusCode::OK)
}

async fn checks(State(console): State<Console>) -> Response {
    console.note_reader(false);
    shown(&pages::checks(&console), StatusCode::OK)
}

async fn absent(State(console): State<Console>) -> Response {
    let page = pages::absent(&console, "There is no such page.");
    shown(&page, StatusCode::NOT_FOUND)
}

#[cfg(test)]
mod tests;
