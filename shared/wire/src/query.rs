//! A query request and its reply.

mod cel;

use std::{collections::BTreeMap, sync::Arc};

use anteroom_jmespath::Node;
use anteroom_model::{
    FactError, Incarnation, ObjectKey, ResourceVersion, Revision, Shape,
    limits::{
        EXPRESSION_BYTES_MAX, MESSAGE_BYTES_MAX, QUERIES_PER_REQUEST_MAX, REQUEST_MEMORY_BYTES_MAX,
    },
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    WireError,
    beneficiary::Beneficiary,
    body::{BodyNode, within, within_memory},
    frame::{self, is_zero},
};

pub use cel::{CEL_EXPRESSION, CEL_VERSION, CelOutcome, CelQuery, VIEW, decode_cel, encode_cel};

/// The largest request or outcome: what [`MESSAGE_BYTES_MAX`] leaves beside headers.
pub const RPC_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 16 * 1024;

/// Queries to a view, all answered from the same state of the view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryRequest {
    /// The entry through which the reader came, for messages and traces; empty: the view itself.
    #[serde(default)]
    pub entry: String,
    /// At most `QUERIES_PER_REQUEST_MAX`.
    pub queries: Vec<Query>,
    /// The namespace of the policies that ask; empty: policies of the cluster, or somebody else. Each namespace has its own
    /// share of a replica.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The namespace of the request or object that the rules judge; empty: the cluster, or a sender that does not tell.
    /// Requests for policies of the cluster have a share of a replica by this namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub review_namespace: String,
    /// A number that all requests for one review share, repeated ones included; 0: a sender that does not tell. By it a
    /// replica knows whether other reviews take the share.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub review: u64,
    /// The query is for a scan of existing objects. All scans by policies of the cluster have one share of a replica.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_scan: bool,
    /// The oldest news that the reader accepts; `None`: the replica's own limit.
    #[serde(default)]
    pub age_max_ms: Option<u64>,
    /// The least revision that the reader accepts: the replica waits for it within the deadline.
    #[serde(default)]
    pub revision_min: Option<Revision>,
    /// The log in which `revision_min` is a position. A replica that serves data from a different log ignores
    /// `revision_min`. `None`: any log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_min_of: Option<Incarnation>,
}

impl QueryRequest {
    /// Returns the number of the review that the query is for; `None`: a scan or a comparison, or a sender that does not tell.
    pub fn admission_review(&self) -> Option<u64> {
        Some(self.review).filter(|review| *review != 0 && !self.of_scan)
    }

    /// Returns the party that the request is counted for.
    pub fn beneficiary(&self) -> Beneficiary {
        Beneficiary::of(&self.namespace, &self.review_namespace, self.of_scan)
    }
}

/// One expression with its parameters: JMESPath, or CEL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// JMESPath over the entry's data; empty: the data whole.
    pub expression: String,
    /// The values that each `$name` of the expression is bound to. Whoever asks with the same ones shares them.
    #[serde(default)]
    pub parameters: Arc<BTreeMap<String, serde_json::Value>>,
    /// True where a key that an object lacks is an error, as in a policy's context, rather than null.
    #[serde(default)]
    pub missing_key_is_error: bool,
    /// The part of the view that the expression is about, and how it is presented; `None`: the view whole, as
    /// a [`Shape::Document`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// The query in CEL; `None`: it is JMESPath. Then `expression` is [`CEL_EXPRESSION`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<Box<CelQuery>>,
}

/// A part of a view that an expression is about, and how it is presented.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Selection {
    /// The form of the document. [`Shape::Object`] needs `object`; a missing object is the error
    /// [`FactError::ObjectNotFound`].
    #[serde(default)]
    pub shape: Shape,
    /// The object that is meant, with [`Shape::Object`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKey>,
    /// Only objects of this namespace; empty: all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Only objects whose labels match, in the API server's syntax; empty: all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    /// Only objects whose `metadata.name` and `metadata.namespace` match, in the API server's syntax
    /// (other fields cannot be selected here: [`FactError::RequestInvalid`]); empty: all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field_selector: String,
    /// At most so many objects, the first in the API server's order; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The answer, with the position and age of its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryReply {
    /// The replica that answered, for people.
    pub replica: String,
    /// The log that `revision` is a position of.
    pub incarnation: Incarnation,
    /// The position that the view had reached.
    pub revision: Revision,
    /// The source's resource version at that position.
    pub version: ResourceVersion,
    /// The age of the news.
    pub age_ms: u64,
    /// Objects in the view.
    pub objects: u64,
    /// Objects that the queries were evaluated over, counted for each query; a result that was remembered counts none.
    /// 0 also where the replica is of an earlier version.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub examined: u64,
    /// One for each query, in order: the result as a MessagePack body.
    pub results: Vec<Result<Bytes, FactError>>,
}

/// A whole request refused, or answered.
pub type QueryOutcome = Result<QueryReply, FactError>;

/// A request as a message's body.
///
/// # Errors
/// [`WireError::Limit`] over [`QUERIES_PER_REQUEST_MAX`], [`EXPRESSION_BYTES_MAX`],
/// [`RPC_BYTES_MAX`] or [`REQUEST_MEMORY_BYTES_MAX`].
pub fn encode_request(request: &QueryRequest) -> Result<Bytes, WireError> {
    check(request)?;
    let bytes = sized(frame::encode(request)?)?;
    within_memory(&bytes, REQUEST_MEMORY_BYTES_MAX)?;
    Ok(bytes)
}

/// A message's body as a request.
///
/// # Errors
/// As [`encode_request`], and [`WireError::Protocol`], [`WireError::Body`].
pub fn decode_request(bytes: &[u8]) -> Result<QueryRequest, WireError> {
    within(RPC_BYTES, bytes.len(), RPC_BYTES_MAX)?;
    within_memory(bytes, REQUEST_MEMORY_BYTES_MAX)?;
    let request = frame::decode(bytes)?;
    check(&request)?;
    Ok(request)
}

/// Returns the party that the request in a message's body is [counted for](QueryRequest::beneficiary). The request is not
/// decoded. Of a body that is no request, some party.
pub fn encoded_beneficiary(bytes: &[u8]) -> Beneficiary {
    let request = BodyNode::new(bytes).element(1);
    let field = |name: &str| request.and_then(|request| request.field(name));
    let text = |name: &str| field(name).and_then(BodyNode::as_str).unwrap_or_default();
    let of_scan = field("of_scan").map(Node::shape);
    let of_scan = matches!(of_scan, Some(anteroom_jmespath::Shape::Bool(true)));
    Beneficiary::of(text("namespace"), text("review_namespace"), of_scan)
}

/// An outcome as a message's body.
///
/// # Errors
/// [`WireError::Limit`] over [`RPC_BYTES_MAX`]: answer with a [`FactError`] in its place.
pub fn encode_outcome(outcome: &QueryOutcome) -> Result<Bytes, WireError> {
    sized(frame::encode(outcome)?)
}

/// A message's body as an outcome. Its results are not looked into: [`crate::body::to_json`] does.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Limit`], [`WireError::Body`].
pub fn decode_outcome(bytes: &[u8]) -> Result<QueryOutcome, WireError> {
    within(RPC_BYTES, bytes.len(), RPC_BYTES_MAX)?;
    frame::decode(bytes)
}

const RPC_BYTES: &str = "bytes of a request or reply";

/// Checks a request that does not travel against the limits of one that does, but for its size.
///
/// # Errors
/// [`WireError::Limit`] over [`QUERIES_PER_REQUEST_MAX`] or [`EXPRESSION_BYTES_MAX`].
pub fn check(request: &QueryRequest) -> Result<(), WireError> {
    within(
        "queries in a request",
        request.queries.len(),
        QUERIES_PER_REQUEST_MAX,
    )?;
    request.queries.iter().try_for_each(|query| {
        within(
            "bytes of an expression",
            query.expression.len(),
            EXPRESSION_BYTES_MAX,
        )?;
        query.cel.as_deref().map_or(Ok(()), cel::check)
    })
}

fn sized(bytes: Bytes) -> Result<Bytes, WireError> {
    within(RPC_BYTES, bytes.len(), RPC_BYTES_MAX)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
