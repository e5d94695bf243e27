//! The messages that facts are asked for by.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::LazyLock,
    time::Duration,
};

use anteroom_bus::{Call, RequestError};
use anteroom_model::FactError;
use anteroom_runtime::telemetry;
use anteroom_wire::{WireError, body, envelope::TraceContext};
use bytes::Bytes;
use serde_json::Value;

use super::source::Deadline;

/// Returns the number by which other services know the requests for one review: all of these have the review's deadline,
/// and hardly any other review has the same. In each process the numbers are others.
pub(super) fn review_number(deadline: Deadline) -> u64 {
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    // Never 0, which says nothing, and always of the same length in a message.
    HASHES.hash_one(deadline) | (1 << 63)
}

/// Returns a call with this body, with the rest of the time as its limit and the current span as its parent.
pub(super) fn call(body: Bytes, remaining: Duration) -> Call {
    let trace = telemetry::current_trace().map(|(traceparent, tracestate)| TraceContext {
        traceparent,
        tracestate,
    });
    Call {
        body,
        deadline: remaining,
        trace,
    }
}

/// Returns the memory that the value in a reply takes once it is read.
pub(super) fn memory(body: &Bytes) -> Result<u64, FactError> {
    body::result_memory(body).map_err(|error| result_error(&error))
}

/// Reads the value in a reply, whose memory is known.
pub(super) fn value(body: &Bytes) -> Result<Value, FactError> {
    body::to_json(body).map_err(|error| result_error(&error))
}

/// The error of a result that cannot be read.
fn result_error(error: &WireError) -> FactError {
    match error {
        WireError::Limit { .. } => FactError::BudgetExceeded {
            message: format!("its result: {error}"),
        },
        error => reply_error(error),
    }
}

/// The error of a reply that cannot be read.
pub(super) fn reply_error(error: &WireError) -> FactError {
    FactError::RequestInvalid {
        message: format!("the reply cannot be read: {error}"),
    }
}

/// Returns the error of a request that got no reply; `nobody` is that of an address where nobody listens.
pub(super) fn request_error(error: RequestError, nobody: FactError) -> FactError {
    match error {
        RequestError::NoResponders => nobody,
        RequestError::TimedOut { timeout_ms } => FactError::DeadlineExceeded {
            deadline_ms: timeout_ms,
            over_part: false,
        },
        RequestError::NotSent(error) | RequestError::Bus(error) => FactError::BusUnavailable {
            message: error.to_string(),
        },
    }
}

/// The error of a request that is larger than a message may be.
pub(super) fn too_large(error: &WireError) -> FactError {
    FactError::BudgetExceeded {
        message: error.to_string(),
    }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_of_one_review_have_one_number() {
        let deadline = Deadline::now();
        assert_eq!(review_number(deadline), review_number(deadline));
        let other = deadline + Duration::from_nanos(1);
        assert_ne!(review_number(deadline), review_number(other));
    }
}
