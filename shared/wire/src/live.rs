//! A live read: what no view answers, asked of the watcher, which evaluates next to the data so that
//! only the result travels.

use anteroom_model::{
    ExistingObjects, FactError, ObjectKey,
    limits::{
        EXPRESSION_BYTES_MAX, MESSAGE_BYTES_MAX, REQUEST_MEMORY_BYTES_MAX, RESULT_MEMORY_BYTES_MAX,
    },
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    WireError,
    beneficiary::Beneficiary,
    body::{within, within_memory},
    frame::{self, is_zero},
    query::Query,
};

/// The largest request or outcome.
const LIVE_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 16 * 1024;

/// A read, and the policy in whose name it is made: the watcher makes no call that the policy does
/// not contain, so whoever can only ask can read nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveRequest {
    /// The policy: its key among those of all kinds.
    pub policy: ObjectKey,
    /// The rule in it.
    pub rule: String,
    /// The context entry of the rule.
    pub variable: String,
    /// The object, list or image to read.
    pub call: LiveCall,
    /// The expression to evaluate over the answer, as it came.
    pub query: Query,
    /// The namespace of the request or object that the rule judges; empty: the cluster, or a sender that does not tell.
    /// Each namespace has a fair part of the live reads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub review_namespace: String,
    /// A number that all requests for one review share, repeated ones included; 0: a sender that does not tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub review: u64,
    /// The read is for a scan of existing objects, so it leaves room for reads of admission.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_scan: bool,
}

impl LiveRequest {
    /// Returns the number of the review that the read is for; `None`: a scan or a comparison, or a sender that does not tell.
    pub fn admission_review(&self) -> Option<u64> {
        Some(self.review).filter(|review| *review != 0 && !self.of_scan)
    }

    /// Returns the party that the read is counted for.
    pub fn beneficiary(&self) -> Beneficiary {
        let policy_namespace = &self.policy.namespace;
        Beneficiary::of(policy_namespace, &self.review_namespace, self.of_scan)
    }
}

/// The target of a live read. Variables have been put in their places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum LiveCall {
    /// A path of the API server.
    Api {
        /// The path, as in `/api/v1/namespaces/a/pods/b?x=y`.
        path: String,
        /// `None`: GET. Otherwise POST with this body.
        #[serde(default)]
        data: Option<Value>,
    },
    /// A service outside of the API server. Headers and authority are the policy's own.
    Service {
        /// Its URL.
        url: String,
        /// `None`: GET. Otherwise POST with this body.
        #[serde(default)]
        data: Option<Value>,
    },
    /// A ConfigMap: `{data, metadata}`.
    ConfigMap {
        /// The object.
        object: ObjectKey,
    },
    /// The data of an image in its registry.
    Image {
        /// The reference, as in `ghcr.io/shop/web:1.2`.
        reference: String,
    },
    /// Objects that a rule changes, or the triggers of the rule: `{items, continue}`.
    Existing {
        /// The objects.
        objects: ExistingObjects,
    },
    /// An object that exists already is written, as a rule has changed it: no read. The result is null.
    Write {
        /// The index of the rule's target that it is of.
        target: usize,
        /// The object, whole, with the `resourceVersion` that it rests on.
        object: Value,
    },
    /// The rights to change objects like these: null, or what the watcher lacks. Of any policy, since it is asked
    /// before there is one.
    MayWrite {
        /// The objects.
        objects: ExistingObjects,
    },
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveReply {
    /// The watcher that answered, for people.
    pub watcher: String,
    /// The time from the begin of the read to the reply, by the watcher's clock.
    pub age_ms: u64,
    /// True if the read was shared with a second reader that asked the same question at the same time.
    pub shared: bool,
    /// The query's result, as a MessagePack body.
    pub result: Bytes,
    /// The result is of Secrets: what is made of it is told to the user alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

/// Refused or failed, or answered.
pub type LiveOutcome = Result<LiveReply, FactError>;

const LIVE_BYTES: &str = "bytes of a live read";

fn check(request: &LiveRequest) -> Result<(), WireError> {
    let expression_bytes = request.query.expression.len();
    within(
        "bytes of an expression",
        expression_bytes,
        EXPRESSION_BYTES_MAX,
    )
}

fn sized(bytes: Bytes) -> Result<Bytes, WireError> {
    within(LIVE_BYTES, bytes.len(), LIVE_BYTES_MAX)?;
    Ok(bytes)
}

/// The most memory of the values in a request, once it is read. An object that is written travels whole.
fn memory_max(is_write: bool) -> usize {
    match is_write {
        true => RESULT_MEMORY_BYTES_MAX,
        false => REQUEST_MEMORY_BYTES_MAX,
    }
}

/// A request as a message's body.
///
/// # Errors
/// [`WireError::Limit`] over [`EXPRESSION_BYTES_MAX`], a message, or the memory of its values:
/// [`REQUEST_MEMORY_BYTES_MAX`], or [`RESULT_MEMORY_BYTES_MAX`] for an object that is written.
pub fn encode_request(request: &LiveRequest) -> Result<Bytes, WireError> {
    check(request)?;
    let bytes = sized(frame::encode(request)?)?;
    let is_write = matches!(request.call, LiveCall::Write { .. });
    within_memory(&bytes, memory_max(is_write))?;
    Ok(bytes)
}

/// The part of a request that says how to admit it. Its values are passed over, so it takes little memory to read.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveRequestHead {
    /// The party that the read is counted for, as [`LiveRequest::beneficiary`].
    pub beneficiary: Beneficiary,
    /// The number of its review, as [`LiveRequest::admission_review`].
    pub admission_review: Option<u64>,
    /// The memory that the values in the request take once it is decoded.
    pub memory: u64,
}

/// The fields that a head is made of, under the names that [`LiveRequest`] gives them.
#[derive(Deserialize)]
struct EncodedHead {
    policy: ObjectKey,
    call: EncodedCall,
    #[serde(default)]
    review_namespace: String,
    #[serde(default)]
    review: u64,
    #[serde(default)]
    of_scan: bool,
}

/// The tag of a [`LiveCall`].
#[derive(Deserialize)]
struct EncodedCall {
    #[serde(rename = "type")]
    kind: String,
}

/// The tag of [`LiveCall::Write`].
const WRITE: &str = "write";

/// The head of a request in a message's body.
///
/// # Errors
/// Those of [`decode_request`], but for what stands beside the head.
pub fn read_head(bytes: &[u8]) -> Result<LiveRequestHead, WireError> {
    within(LIVE_BYTES, bytes.len(), LIVE_BYTES_MAX)?;
    let head: EncodedHead = frame::decode(bytes)?;
    let memory = within_memory(bytes, memory_max(head.call.kind == WRITE))?;
    let policy_namespace = &head.policy.namespace;
    Ok(LiveRequestHead {
        beneficiary: Beneficiary::of(policy_namespace, &head.review_namespace, head.of_scan),
        admission_review: Some(head.review).filter(|review| *review != 0 && !head.of_scan),
        memory,
    })
}

/// A message's body as a request.
///
/// # Errors
/// As [`encode_request`], and [`WireError::Protocol`], [`WireError::Body`].
pub fn decode_request(bytes: &[u8]) -> Result<LiveRequest, WireError> {
    read_head(bytes)?;
    let request = frame::decode(bytes)?;
    check(&request)?;
    Ok(request)
}

/// An outcome as a message's body.
///
/// # Errors
/// [`WireError::Limit`] over a message: answer with a [`FactError`] in its place.
pub fn encode_outcome(outcome: &LiveOutcome) -> Result<Bytes, WireError> {
    sized(frame::encode(outcome)?)
}

/// A message's body as an outcome.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode_outcome(bytes: &[u8]) -> Result<LiveOutcome, WireError> {
    within(LIVE_BYTES, bytes.len(), LIVE_BYTES_MAX)?;
    frame::decode(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn request(call: LiveCall) -> LiveRequest {
        LiveRequest {
            policy: ObjectKey::new("", "p"),
            rule: "r".into(),
            variable: "v".into(),
            call,
            query: Query {
                expression: "gitVersion".into(),
                parameters: Arc::default(),
                missing_key_is_error: true,
                selection: None,
                cel: None,
            },
            review_namespace: "n".into(),
            review: 7,
            of_scan: false,
        }
    }

    fn api(data: Value) -> LiveCall {
        LiveCall::Api {
            path: "/version".into(),
            data: Some(data),
        }
    }

    #[test]
    fn a_live_read_survives_encoding() {
        let mut request = request(api(serde_json::json!({"a": 1})));
        request.of_scan = true;
        let bytes = encode_request(&request).unwrap();
        assert_eq!(decode_request(&bytes), Ok(request));
        let outcome = Err(FactError::LiveReadFailed {
            code: 404,
            message: "no".into(),
        });
        let bytes = encode_outcome(&outcome).unwrap();
        assert_eq!(decode_outcome(&bytes), Ok(outcome));
    }

    #[test]
    fn a_head_says_what_its_request_says() {
        let reads = [
            api(serde_json::json!([{"a": 1}])),
            LiveCall::Write {
                target: 0,
                object: serde_json::json!({}),
            },
            LiveCall::MayWrite {
                objects: ExistingObjects::default(),
            },
        ];
        for (call, of_scan, namespace) in [
            (&reads[0], false, ""),
            (&reads[1], false, "shop"),
            (&reads[2], true, "shop"),
        ] {
            let request = LiveRequest {
                policy: ObjectKey::new(namespace, "p"),
                of_scan,
                ..request(call.clone())
            };
            let bytes = encode_request(&request).unwrap();
            let expected = LiveRequestHead {
                beneficiary: request.beneficiary(),
                admission_review: request.admission_review(),
                memory: crate::body::json_bytes(&bytes),
            };
            assert_eq!(read_head(&bytes), Ok(expected));
        }
    }

    #[test]
    fn the_expression_of_a_live_read_has_a_limit() {
        let with = |bytes: usize| {
            let mut request = request(api(serde_json::json!({})));
            request.query.expression = "x".repeat(bytes);
            request
        };
        let longest = encode_request(&with(EXPRESSION_BYTES_MAX)).unwrap();
        assert!(decode_request(&longest).is_ok());
        let over = with(EXPRESSION_BYTES_MAX + 1);
        let refused = WireError::Limit {
            what: "bytes of an expression",
            limit: EXPRESSION_BYTES_MAX,
        };
        assert_eq!(encode_request(&over), Err(refused.clone()));
        // A sender that does not check its own limits is refused too.
        let sent = frame::encode(&over).unwrap();
        assert_eq!(decode_request(&sent), Err(refused));
    }

    /// A few bytes each, of which a value takes hundreds.
    #[test]
    fn only_an_object_that_is_written_may_take_more_than_a_request_for_queries() {
        let values = |count: usize| Value::from(vec![serde_json::json!({"a": 0}); count]);
        let write = |object: Value| LiveCall::Write { target: 0, object };
        let count = {
            let piece = anteroom_jmespath::json_memory::copied_bytes(&values(1), u64::MAX);
            1 + REQUEST_MEMORY_BYTES_MAX / usize::try_from(piece.unwrap()).unwrap()
        };
        let fits = count / 2;
        assert!(encode_request(&request(api(values(fits)))).is_ok());
        let large = encode_request(&request(write(values(2 * fits + fits / 2))));
        assert!(decode_request(&large.unwrap()).is_ok());
        let over = request(api(values(2 * count)));
        assert!(matches!(
            encode_request(&over),
            Err(WireError::Limit { .. })
        ));
        let sent = frame::encode(&over).unwrap();
        assert!(matches!(read_head(&sent), Err(WireError::Limit { .. })));
        assert!(matches!(
            decode_request(&sent),
            Err(WireError::Limit { .. })
        ));
    }
}
