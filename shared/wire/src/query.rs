//! A query request and its reply.

use std::collections::BTreeMap;

use anteroom_model::{FactError, Incarnation, ResourceVersion, Revision};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Queries to one view, answered together from one state of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryRequest {
    /// The entry through which the reader came, for messages and traces; empty: the view itself.
    #[serde(default)]
    pub entry: String,
    /// At most `QUERIES_PER_REQUEST_MAX`.
    pub queries: Vec<Query>,
    /// The oldest news that the reader accepts; `None`: the replica's own limit.
    #[serde(default)]
    pub age_max_ms: Option<u64>,
    /// The least revision that the reader accepts: the replica waits for it within the deadline.
    #[serde(default)]
    pub revision_min: Option<Revision>,
}

/// One expression with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    /// JMESPath over the entry's data; empty: the data whole.
    pub expression: String,
    /// What each `$name` of the expression is bound to.
    #[serde(default)]
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Whether a key that an object lacks is an error, as in a policy's context, rather than null.
    #[serde(default)]
    pub missing_key_is_error: bool,
}

/// The answer, with what it was read from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryReply {
    /// Who answered, for people.
    pub replica: String,
    /// The log that `revision` is a position of.
    pub incarnation: Incarnation,
    /// The position that the view had reached.
    pub revision: Revision,
    /// The source's resource version at that position.
    pub version: ResourceVersion,
    /// How old the news was.
    pub age_ms: u64,
    /// Objects in the view.
    pub objects: u64,
    /// One for each query, in order: the result as a MessagePack body.
    pub results: Vec<Result<Bytes, FactError>>,
}

/// A whole request refused, or answered.
pub type QueryOutcome = Result<QueryReply, FactError>;
