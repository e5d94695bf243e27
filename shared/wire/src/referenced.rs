//! A record of a view of referenced objects ([`Source::Objects`](anteroom_model::Source::Objects)):
//! one for each reference, whether the object is there or not.
//!
//! Its body is a map: `{"state": "found", "object": {…}}`, `{"state": "pending"}`,
//! `{"state": "idle"}`, `{"state": "absent"}`, or `{"state": "failed", "reason": …, "message": …}`.

use anteroom_jmespath::Node as _;
use anteroom_model::Failure;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    WireError,
    body::{self, BodyNode},
};

/// The state of one referenced object.
#[derive(Clone, Debug)]
pub enum Referenced<'a> {
    /// Nothing yet: the source has not answered.
    Pending,
    /// It is not watched at present, since nobody has read it for long: asking for it starts the
    /// watch again.
    Idle,
    /// The object is there.
    Found(BodyNode<'a>),
    /// The object does not exist, according to the API server.
    Absent,
    /// The object cannot be read.
    Failed(Failure),
}

#[derive(Serialize, Deserialize)]
struct ReferencedState {
    state: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
}

fn head(state: &str, failure: Option<&Failure>) -> Result<Bytes, WireError> {
    let (reason, message) = failure.map_or_else(Default::default, |failure| {
        (failure.reason.clone(), failure.message.clone())
    });
    body::encode(&ReferencedState {
        state: state.to_owned(),
        reason,
        message,
    })
}

/// The body that says that nothing is known yet.
///
/// # Errors
/// As [`body::encode`].
pub fn pending() -> Result<Bytes, WireError> {
    head("pending", None)
}

/// The body that says that the object is not watched at present.
///
/// # Errors
/// As [`body::encode`].
pub fn idle() -> Result<Bytes, WireError> {
    head("idle", None)
}

/// The body that says that the object is not there.
///
/// # Errors
/// As [`body::encode`].
pub fn absent() -> Result<Bytes, WireError> {
    head("absent", None)
}

/// The body that says why the object cannot be read.
///
/// # Errors
/// As [`body::encode`].
pub fn failed(failure: &Failure) -> Result<Bytes, WireError> {
    head("failed", Some(failure))
}

/// Returns the record body for an existing object, which holds the object's body.
pub fn found(object: &[u8]) -> Bytes {
    // A map of two entries: `state`, and the object's body as it is.
    const HEAD: &[u8] = b"\x82\xa5state\xa5found\xa6object";
    [HEAD, object].concat().into()
}

/// Reads a body.
///
/// # Errors
/// [`WireError::Body`] where it is none of these.
pub fn read(node: BodyNode<'_>) -> Result<Referenced<'_>, WireError> {
    let text = |name| node.field(name).and_then(BodyNode::as_str);
    match text("state") {
        Some("pending") => Ok(Referenced::Pending),
        Some("idle") => Ok(Referenced::Idle),
        Some("absent") => Ok(Referenced::Absent),
        Some("failed") => Ok(Referenced::Failed(Failure::new(
            text("reason").unwrap_or_default(),
            text("message").unwrap_or_default(),
        ))),
        Some("found") => node
            .field("object")
            .map(Referenced::Found)
            .ok_or_else(record_error),
        _ => Err(record_error()),
    }
}

fn record_error() -> WireError {
    WireError::body("no record of a referenced object")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_state_of_a_referenced_object_survives_encoding() {
        let object = body::encode_json(&json!({"data": {"a": "b"}})).unwrap();
        let whole = found(&object);
        body::validate(&whole).unwrap();
        let Ok(Referenced::Found(node)) = read(BodyNode::new(&whole)) else {
            panic!("not found");
        };
        assert!(node.field("data").is_some());
        let failure = Failure::new("Forbidden", "no");
        let all = [pending(), idle(), absent(), failed(&failure)].map(Result::unwrap);
        let states = all
            .each_ref()
            .map(|body| read(BodyNode::new(body)).unwrap());
        assert!(matches!(
            states,
            [Referenced::Pending, Referenced::Idle, Referenced::Absent, Referenced::Failed(f)] if f == failure
        ));
        let other = body::encode_json(&json!({"a": 1})).unwrap();
        assert!(read(BodyNode::new(&other)).is_err());
    }
}
