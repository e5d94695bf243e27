//! Errors of a request to the API server.

use std::time::Duration;

use anteroom_model::{Failure, source_reason};
use http::header::RETRY_AFTER;
use serde::Deserialize;
use thiserror::Error;

/// The longest `Retry-After` that is followed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// The reason why a read has no result, by the step to take.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Fault {
    /// The API server refuses and says why: no such resource (404), forbidden (403), a selector
    /// that it does not support (400).
    #[error("{failure}")]
    Refused {
        /// The status code of the answer.
        code: u16,
        /// The failure that readers of the view see.
        failure: Failure,
    },
    /// The resource version, or the continue token, is too old (410).
    #[error("the resource version is too old: {message}")]
    Gone {
        /// The API server's words.
        message: String,
    },
    /// Ask again later (429, or 503 with `Retry-After`).
    #[error("the API server is busy ({code}): {message}")]
    Throttled {
        /// The status code of the answer.
        code: u16,
        /// The shortest time to wait.
        after: Option<Duration>,
        /// The API server's words.
        message: String,
    },
    /// Anything else that the API server answered.
    #[error("the API server answered {code}: {message}")]
    Server {
        /// The status code of the answer.
        code: u16,
        /// The API server's words.
        message: String,
    },
    /// The connection failed.
    #[error("the API server is out of reach: {message}")]
    Transport {
        /// The words of the transport.
        message: String,
    },
    /// Nothing came for longer than anything may take.
    #[error("the API server was silent for {} s", after.as_secs())]
    Silent {
        /// For how long.
        after: Duration,
    },
    /// An answer that was not there whole within its time, although parts of it may have come.
    #[error("the API server's answer was not there whole within {} s", after.as_secs())]
    Slow {
        /// The time.
        after: Duration,
    },
    /// An answer over its limit.
    #[error("an answer over the limit of {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// Bytes that are no answer of the Kubernetes API.
    #[error("an answer that cannot be read: {message}")]
    Unreadable {
        /// The problem with it.
        message: String,
    },
}

/// The fields of `metav1.Status` that are needed; everything is optional, since it may come from a
/// proxy in between.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    code: u16,
    reason: String,
    message: String,
    details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: u64,
}

impl Fault {
    pub(crate) fn transport(error: impl std::error::Error) -> Self {
        Self::Transport {
            message: with_sources(&error),
        }
    }

    pub(crate) fn unreadable(error: impl std::fmt::Display) -> Self {
        Self::Unreadable {
            message: error.to_string(),
        }
    }

    /// Returns the fault of an answer without success.
    pub(super) fn from_response(head: &http::response::Parts, body: &[u8]) -> Self {
        let mut status: Status = serde_json::from_slice(body).unwrap_or_default();
        status.code = head.status.as_u16();
        if status.message.is_empty() {
            let text = String::from_utf8_lossy(body);
            status.message = text.trim().chars().take(512).collect();
        }
        let after = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        if let Some(seconds) = after.and_then(|text| text.trim().parse().ok()) {
            status.details.retry_after_seconds = seconds;
        }
        Self::from_status(status)
    }

    /// Returns the fault of the `Status` of an answer, or of an `ERROR` event inside a watch.
    pub(crate) fn from_status(status: Status) -> Self {
        let Status {
            code,
            reason,
            message,
            details,
        } = status;
        let after = Some(details.retry_after_seconds).filter(|seconds| *seconds > 0);
        let after = after.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        match code {
            // A watch may spell an expired version either way.
            410 => Self::Gone { message },
            _ if reason == "Expired" || reason == "Gone" => Self::Gone { message },
            400 => Self::refused(
                code,
                "BadRequest",
                format!("{message}. Check its selectors"),
            ),
            403 => Self::refused(
                code,
                source_reason::FORBIDDEN,
                format!("{message}. Grant the watcher's ServiceAccount `list` and `watch` on it"),
            ),
            404 => Self::refused(code, source_reason::RESOURCE_NOT_FOUND, message),
            405 => Self::refused(code, source_reason::NOT_WATCHABLE, message),
            429 => Self::Throttled {
                code,
                after,
                message,
            },
            503 if after.is_some() => Self::Throttled {
                code,
                after,
                message,
            },
            _ => Self::Server { code, message },
        }
    }

    fn refused(code: u16, reason: &str, message: String) -> Self {
        Self::Refused {
            code,
            failure: Failure::new(reason, message),
        }
    }

    /// Returns the label for the metric of errors: the status code, or a word for another fault.
    pub(crate) fn code(&self) -> String {
        match self {
            Self::Refused { code, .. }
            | Self::Throttled { code, .. }
            | Self::Server { code, .. } => code.to_string(),
            Self::Gone { .. } => "410".into(),
            Self::Transport { .. } => "transport".into(),
            Self::Silent { .. } => "silent".into(),
            Self::Slow { .. } => "slow".into(),
            Self::TooLarge { .. } => "too_large".into(),
            Self::Unreadable { .. } => "unreadable".into(),
        }
    }

    /// Returns the reason and message of a condition.
    pub(crate) fn failure(&self) -> Failure {
        let reason = match self {
            Self::Refused { failure, .. } => return failure.clone(),
            Self::Gone { .. } => "Expired",
            Self::Throttled { .. } => "Throttled",
            Self::Server { code: 401, .. } => "Unauthorized",
            Self::Server { .. } => "ServerError",
            Self::Transport { .. } | Self::Silent { .. } | Self::Slow { .. } => "Unreachable",
            Self::TooLarge { .. } | Self::Unreadable { .. } => "Unreadable",
        };
        Failure::new(reason, format!("{self}; it is tried again"))
    }
}

/// Returns the text of an error with its causes, since only the causes explain a failure of the transport.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};

    use super::*;

    fn fault(code: u16, retry_after: Option<&str>, body: &str) -> Fault {
        let mut response = Response::builder().status(StatusCode::from_u16(code).unwrap());
        if let Some(value) = retry_after {
            response = response.header(RETRY_AFTER, value);
        }
        let (head, ()) = response.body(()).unwrap().into_parts();
        Fault::from_response(&head, body.as_bytes())
    }

    #[test]
    fn an_answer_is_sorted_by_what_has_to_be_done() {
        let status = r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}"#;
        for (code, retry_after, body, label, reason) in [
            (403, None, status, "403", "Forbidden"),
            (404, None, "404 page not found", "404", "ResourceNotFound"),
            (
                400,
                None,
                r#"{"message":"field label not supported"}"#,
                "400",
                "BadRequest",
            ),
            (410, None, r#"{"reason":"Expired"}"#, "410", "Expired"),
            (429, Some("7"), "{}", "429", "Throttled"),
            (503, Some("1"), "{}", "503", "Throttled"),
            (503, None, "{}", "503", "ServerError"),
            (401, None, "{}", "401", "Unauthorized"),
            (500, None, "<html>", "500", "ServerError"),
        ] {
            let fault = fault(code, retry_after, body);
            assert_eq!(
                (fault.code().as_str(), fault.failure().reason.as_str()),
                (label, reason)
            );
        }
    }

    #[test]
    fn retry_after_is_followed_within_reason() {
        let after = |text| match fault(429, Some(text), "{}") {
            Fault::Throttled { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("86400"), Some(RETRY_AFTER_MAX));
        assert_eq!(
            after("Fri, 20 Nov 2026 10:00:00 GMT"),
            None,
            "our own backoff then"
        );
    }
}
