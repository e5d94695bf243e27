//! Queries to replicas, as a webhook sends them.

use std::time::Duration;

use anteroom_bus::{Address, Bus, Call};
use anteroom_model::FactError;
use anteroom_wire::{
    body,
    query::{Query, QueryRequest, decode_outcome, encode_request},
};
use anyhow::Context as _;
use serde_json::Value;

/// The result of one query as a replica tells it.
pub type QueryResult = Result<Value, FactError>;

/// Asks a replica, whatever age and revision it serves. Returns a result for each query, or the error by which it refuses
/// all.
///
/// # Errors
/// There is no answer within the deadline, or none that can be read.
pub async fn ask(
    bus: &dyn Bus,
    to: &Address,
    queries: Vec<Query>,
    deadline: Duration,
) -> anyhow::Result<Result<Vec<QueryResult>, FactError>> {
    let request = QueryRequest {
        queries,
        ..QueryRequest::default()
    };
    let call = Call {
        body: encode_request(&request)?,
        deadline,
        trace: None,
    };
    let reply = match decode_outcome(&bus.request(to, call, deadline).await?)? {
        Ok(reply) => reply,
        Err(refused) => return Ok(Err(refused)),
    };
    let results = reply.results.into_iter().map(|result| match result {
        Ok(bytes) => Ok(Ok(body::to_json(&bytes)?)),
        Err(error) => Ok(Err(error)),
    });
    results.collect::<anyhow::Result<_>>().map(Ok)
}

/// The same with one query: see [`ask`].
///
/// # Errors
/// There is no answer within the deadline, or none that can be read.
pub async fn ask_one(
    bus: &dyn Bus,
    to: &Address,
    query: Query,
    deadline: Duration,
) -> anyhow::Result<QueryResult> {
    match ask(bus, to, vec![query], deadline).await? {
        Ok(mut results) => results.pop().context("one result"),
        Err(refused) => Ok(Err(refused)),
    }
}
