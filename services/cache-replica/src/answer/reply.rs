//! The outcome of a request, as bytes and in its span.

use anteroom_model::FactError;
use anteroom_wire::query::{self, QueryOutcome, QueryRequest};
use bytes::Bytes;
use tracing::Span;

/// An outcome as bytes; one that is too large is an error in its place.
pub(super) fn encode(outcome: QueryOutcome) -> (Bytes, QueryOutcome) {
    match query::encode_outcome(&outcome) {
        Ok(body) => (body, outcome),
        Err(error) => {
            let outcome = Err(FactError::BudgetExceeded {
                message: format!("the reply: {error}; ask for less, or in several requests"),
            });
            // An error is far below any limit.
            let body = query::encode_outcome(&outcome).unwrap_or_default();
            (body, outcome)
        }
    }
}

pub(super) fn record_request(span: &Span, request: &QueryRequest) {
    if !span.is_disabled() {
        span.record("entry", request.entry.as_str());
        span.record("queries", request.queries.len());
    }
}

pub(super) fn record_outcome(span: &Span, outcome: &QueryOutcome) {
    match outcome {
        _ if span.is_disabled() => {}
        Ok(reply) => {
            span.record("revision", reply.revision.0);
            span.record("age_ms", reply.age_ms);
            span.record("objects", reply.objects);
        }
        Err(error) => {
            span.record("error", error.code().as_str());
        }
    }
}
