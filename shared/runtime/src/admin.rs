//! The admin server, on a port and a thread of its own: probes and metrics, plain HTTP. So whatever keeps the
//! threads that do the work busy, probes are answered.
//!
//! | path | answer |
//! |---|---|
//! | `/livez` | 200 as long as the runtime that does the work ran a task in the last 30 seconds, else 503 |
//! | `/readyz` | 200 or 503; with `?verbose` every check by name and what it waits for |
//! | `/metrics` | OpenMetrics text |
//!
//! Anybody may ask. So connections are few and short: see [`connections`].

mod connections;

use std::{collections::HashMap, convert::Infallible, io, thread, time::Instant};

use anyhow::Context as _;
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{Service, liveness::Liveness};

/// The media type that Prometheus asks for and `prometheus-client` writes.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves on a thread of its own until the process ends, so that probes and scrapes are answered during the drain
/// too: `/readyz` is 503 then. [`process::run`](crate::process::run) does this for every service. A server that ends
/// asks the process to stop.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn spawn(
    listener: std::net::TcpListener,
    service: Service,
    liveness: Liveness,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let serve = move || {
        let shutdown = service.shutdown.clone();
        let served = runtime.block_on(serve(listener, router(service, liveness)));
        let Err(error) = served;
        shutdown.trigger(format!("{error:#}"));
    };
    let thread = thread::Builder::new().name("anteroom-admin".to_owned());
    thread.spawn(serve).map(drop)
}

async fn serve(listener: std::net::TcpListener, router: Router) -> anyhow::Result<Infallible> {
    let failed = "the admin server failed";
    listener.set_nonblocking(true).context(failed)?;
    let listener = TcpListener::from_std(listener).context(failed)?;
    match connections::serve(&listener, &router).await {}
}

fn router(service: Service, liveness: Liveness) -> Router {
    Router::new()
        .route("/livez", get(move || async move { livez(&liveness) }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(not_found)
        .with_state(service)
}

fn livez(liveness: &Liveness) -> Response {
    match liveness.stuck_for(Instant::now()) {
        None => "ok\n".into_response(),
        Some(silent) => {
            let seconds = silent.as_secs();
            let text = format!("the runtime has run no task for {seconds} s\n");
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

async fn readyz(
    State(service): State<Service>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let mut report = service.readiness.report();
    if let Some(reason) = service.shutdown.reason() {
        report.ready = false;
        report.checks.push(crate::CheckReport {
            name: "shutdown".to_owned(),
            waiting_for: Some(format!("the process is shutting down: {reason}")),
            note: None,
        });
    }
    let status = match report.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    if query.contains_key("verbose") {
        (status, axum::Json(report)).into_response()
    } else {
        let text = if report.ready { "ok\n" } else { "not ready\n" };
        (status, text).into_response()
    }
}

async fn metrics(State(service): State<Service>) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, OPENMETRICS)],
        service.metrics.encode(),
    )
}

async fn not_found(uri: Uri) -> impl IntoResponse {
    let body = serde_json::json!({
        "error": format!("there is no {}: try /livez, /readyz?verbose or /metrics", uri.path()),
    });
    (StatusCode::NOT_FOUND, axum::Json(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::SILENCE_MAX;

    async fn readiness(service: &Service, query: &[(&str, &str)]) -> (StatusCode, String) {
        let query = query.iter().map(|(k, v)| ((*k).into(), (*v).into()));
        let response = readyz(State(service.clone()), Query(query.collect())).await;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await;
        (status, String::from_utf8(body.unwrap().into()).unwrap())
    }

    #[tokio::test]
    async fn verbose_readiness_names_the_checks_that_still_wait() {
        let service = Service::new("test");
        let log = service.readiness.check("log", "the first read");
        let unready = (StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned());
        assert_eq!(readiness(&service, &[]).await, unready);
        let (status, body) = readiness(&service, &[("verbose", "")]).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            body,
            r#"{"ready":false,"checks":[{"name":"log","waitingFor":"the first read"}]}"#
        );
        log.ready();
        assert_eq!(
            readiness(&service, &[]).await,
            (StatusCode::OK, "ok\n".into())
        );
        service.shutdown.trigger("SIGTERM received");
        let (status, body) = readiness(&service, &[("verbose", "")]).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("shutting down: SIGTERM received"), "{body}");
    }

    /// A runtime whose only thread is kept busy answers probes all the same.
    #[tokio::test]
    async fn probes_are_answered_while_the_work_holds_up_its_threads() {
        use std::{
            io::{Read as _, Write as _},
            net::{TcpListener, TcpStream},
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        spawn(
            listener,
            Service::new("test"),
            Liveness::new(Instant::now()),
        )
        .unwrap();
        // This thread is the runtime's only one, and nothing here awaits.
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[test]
    fn idle_connections_keep_no_probe_out() {
        use std::{
            io::{Read as _, Write as _},
            net::{TcpListener, TcpStream},
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let liveness = Liveness::new(Instant::now());
        spawn(listener, Service::new("test"), liveness).unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let mut idle: Vec<_> = (0..200).map(|_| connect()).collect();
        let begun = Instant::now();
        let mut probe = connect();
        probe
            .write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok\n"), "{answer}");
        let mut nothing = [0];
        assert!(!matches!(idle[0].read(&mut nothing), Ok(1..)), "closed");
        // Within the time that an idle connection may have.
        assert!(begun.elapsed().as_secs() < 5);
    }

    #[test]
    fn a_runtime_that_is_stuck_is_not_alive() {
        let Some(long_ago) = Instant::now().checked_sub(2 * SILENCE_MAX) else {
            return; // The machine has just started.
        };
        let stuck = livez(&Liveness::new(long_ago));
        assert_eq!(stuck.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            livez(&Liveness::new(Instant::now())).status(),
            StatusCode::OK
        );
    }

    #[tokio::test]
    async fn metrics_are_open_metrics() {
        let response = metrics(State(Service::new("test"))).await.into_response();
        assert_eq!(response.headers()[header::CONTENT_TYPE], OPENMETRICS);
    }
}
