//! The admin server, on a port of its own: probes and metrics, plain HTTP.
//!
//! | path | answer |
//! |---|---|
//! | `/livez` | 200 as long as the process can answer at all |
//! | `/readyz` | 200 or 503; with `?verbose` every check by name and what it waits for |
//! | `/metrics` | OpenMetrics text |

use std::collections::HashMap;

use anyhow::Context as _;
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::Service;

/// The media type that Prometheus asks for and `prometheus-client` writes.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until it is dropped, so that probes and scrapes are answered during the drain too:
/// `/readyz` is 503 then. [`process::run`](crate::process::run) does this for every service.
pub async fn serve(listener: TcpListener, service: Service) -> anyhow::Result<()> {
    axum::serve(listener, router(service))
        .await
        .context("the admin server failed")
}

/// The admin server's routes, for whoever serves them otherwise.
pub fn router(service: Service) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(not_found)
        .with_state(service)
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

    #[tokio::test]
    async fn metrics_are_open_metrics() {
        let response = metrics(State(Service::new("test"))).await.into_response();
        assert_eq!(response.headers()[header::CONTENT_TYPE], OPENMETRICS);
    }
}
