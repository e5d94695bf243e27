//! Failures, in the shape in which Kubernetes answers them.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use crate::resource::ResourceType;

/// A request that failed: a `Status` object and its HTTP status.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Map<String, Value>,
    /// The token by which an expired list may go on, inconsistently.
    pub(crate) continue_token: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            continue_token: None,
        }
    }

    /// Names the object that it is about.
    pub(crate) fn about(mut self, resource: &ResourceType, name: &str) -> Self {
        for (key, value) in [
            ("name", name),
            ("group", &resource.group),
            ("kind", &resource.plural),
        ] {
            if !value.is_empty() {
                self.details.insert(key.into(), value.into());
            }
        }
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.details
            .insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    fn cause(mut self, reason: &str, message: &str) -> Self {
        self.details.insert(
            "causes".into(),
            json!([{"reason": reason, "message": message}]),
        );
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Options or an object that are well-formed and still not allowed.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub(crate) fn not_found(resource: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.name());
        Self::new(404, "NotFound", message).about(resource, name)
    }

    pub(crate) fn already_exists(resource: &ResourceType, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.name());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    pub(crate) fn conflict(resource: &ResourceType, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.name()
        );
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// The history no longer reaches back to `asked`.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// The future: nothing is known of `asked` yet.
    pub(crate) fn too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message)
            .cause("ResourceVersionTooLarge", "Too large resource version")
            .retry_after(1)
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        status
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = json_response(self.code, &self.to_json());
        if let Some(seconds) = self
            .details
            .get("retryAfterSeconds")
            .and_then(Value::as_u64)
        {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A response with a JSON body.
pub(crate) fn json_response(code: u16, body: &Value) -> Response {
    raw_json_response(code, body.to_string())
}

/// A response whose body is already JSON.
pub(crate) fn raw_json_response(code: u16, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Answers as Kubernetes does at a path that it does not serve: within a group of its own a `Status`,
/// elsewhere plain text.
pub(crate) fn no_such_path(in_own_group: bool) -> Response {
    if in_own_group {
        let message = "the server could not find the requested resource";
        return Failure::new(404, "NotFound", message).into_response();
    }
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}
