//! The kinds of PATCH.
//!
//! A strategic merge patch is treated as a merge patch: lists are replaced, not merged by key.
//! Server-side apply makes the object or merges into it, and tracks no ownership: a field that an
//! applier leaves out stays, and nothing ever conflicts.

use axum::http::{HeaderMap, header};
use serde_json::Value;

use crate::{request::Params, status::Failure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Merge,
    Apply,
}

impl Kind {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = content_type
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        match media_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                Ok(Self::Merge)
            }
            "application/apply-patch+yaml" => Ok(Self::Apply),
            other => {
                let message =
                    format!("the body of the request was in an unknown format: {other:?}");
                Err(Failure::new(415, "UnsupportedMediaType", message))
            }
        }
    }
}

/// Applies `body` to `object`.
pub(crate) fn apply(
    kind: Kind,
    object: &mut Value,
    body: &[u8],
    params: &Params,
) -> Result<(), Failure> {
    let unreadable = |error: serde_json::Error| {
        Failure::bad_request(format!(
            "the patch is not JSON (the simulator reads no YAML): {error}"
        ))
    };
    match kind {
        Kind::Json => {
            let patch: json_patch::Patch = serde_json::from_slice(body).map_err(unreadable)?;
            json_patch::patch(object, &patch).map_err(|error| Failure::invalid(error.to_string()))
        }
        Kind::Merge | Kind::Apply => {
            if kind == Kind::Apply && params.field_manager.is_none() {
                let message = "PatchOptions is invalid: fieldManager: Required value: is required for apply patch";
                return Err(Failure::invalid(message));
            }
            let patch: Value = serde_json::from_slice(body).map_err(unreadable)?;
            if !patch.is_object() {
                return Err(Failure::bad_request("the patch is no object"));
            }
            json_patch::merge(object, &patch);
            Ok(())
        }
    }
}
