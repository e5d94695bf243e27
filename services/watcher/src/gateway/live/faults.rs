//! The errors of live reads.

use std::time::Duration;

use anteroom_model::FactError;

use super::failed;
use crate::gateway::calls::CallFault;

/// The error of a failed read, in the words of the server that was asked.
pub(super) fn read_failed(fault: &CallFault) -> FactError {
    FactError::LiveReadFailed {
        code: match fault {
            // No server answered 413, but its meaning is the same.
            CallFault::TooLarge { .. } => 413,
            fault => fault.code(),
        },
        message: fault.to_string(),
    }
}

/// The error of a read whose task ended.
pub(super) fn ended() -> FactError {
    failed("the read ended unexpectedly")
}

/// The error of a read that had so much time.
pub(super) fn exceeded(given: Duration) -> FactError {
    FactError::DeadlineExceeded {
        deadline_ms: u64::try_from(given.as_millis()).unwrap_or(u64::MAX),
        over_part: false,
    }
}
