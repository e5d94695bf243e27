//! `/sim/...`: faults and figures over HTTP, for whoever runs the simulator as a process.
//!
//! | request | does |
//! |---|---|
//! | `POST /sim/faults` | puts the [`Fault`] of its body in force |
//! | `GET /sim/stats` | answers the [`Stats`](crate::Stats) |

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    http::{Method, Request},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::{
    SimError,
    faults::Fault,
    server::App,
    status::{Failure, json_response, no_such_path},
    store::StoreError,
};

/// The largest fault that is read: a malformed object may be long.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

pub(crate) async fn answer(app: &Arc<App>, what: &str, request: Request<Body>) -> Response {
    match (request.method(), what) {
        (&Method::POST, "faults") => {
            let applied = async {
                let body = to_bytes(request.into_body(), BODY_BYTES_MAX).await;
                let body = body.map_err(|error| Failure::bad_request(error.to_string()))?;
                let fault: Fault = serde_json::from_slice(&body)
                    .map_err(|error| Failure::bad_request(format!("this is no fault: {error}")))?;
                apply(app, fault).map_err(|error| Failure::invalid(error.to_string()))
            };
            match applied.await {
                Ok(()) => json_response(200, &json!({"applied": true})),
                Err(failure) => failure.into_response(),
            }
        }
        (&Method::GET, "stats") => {
            let stats = serde_json::to_value(&*app.recorder.subscribe().borrow());
            json_response(200, &stats.unwrap_or_default())
        }
        _ => no_such_path(false),
    }
}

/// Puts a fault in force, in the store where it is the store's.
pub(crate) fn apply(app: &App, fault: Fault) -> Result<(), SimError> {
    match &fault {
        Fault::Compact { resource } => app.store.compact(resource.as_ref()),
        Fault::Malform {
            resource,
            namespace,
            name,
            body,
        } => {
            let put = app
                .store
                .put_malformed(resource, namespace, name, body.clone().into());
            put.map_err(|_| SimError::NoResource {
                resource: resource.clone(),
            })?;
        }
        Fault::Restore {
            resource_version,
            raised_by,
        } => {
            let restored = app.store.restore(*resource_version, *raised_by);
            restored.map_err(|error| SimError::OutOfReach {
                version: *resource_version,
                oldest: if let StoreError::Expired(oldest) = error {
                    oldest
                } else {
                    0
                },
                newest: app.store.version(),
            })?;
        }
        _ => {}
    }
    app.faults.set(fault);
    Ok(())
}
