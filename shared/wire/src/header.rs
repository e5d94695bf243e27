//! The names of headers, and those that every message has.

use crate::{PROTOCOL_VERSION, WireError};

/// The protocol version, in decimal.
pub(crate) const PROTOCOL: &str = "Anteroom-Protocol";
/// The operation of a record.
pub(crate) const OP: &str = "Anteroom-Op";
/// The epoch that wrote a delta: `term.generation`.
pub(crate) const EPOCH: &str = "Anteroom-Epoch";
/// A delta's resource version, escaped as in a subject.
pub(crate) const VERSION: &str = "Anteroom-Version";
/// The milliseconds that a caller will still wait, in decimal.
pub(crate) const DEADLINE: &str = "Anteroom-Deadline-Ms";

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// A longer `tracestate` is left out: the recommendation asks for at least 512 to be carried.
const TRACESTATE_BYTES_MAX: usize = 1024;

/// W3C `traceparent` (and `tracestate`) of whoever wrote a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace parent of the W3C Trace Context recommendation; empty: not traced.
    pub traceparent: String,
    /// Vendor data; empty: none.
    pub tracestate: String,
}

/// Adds the trace context. What could not stand in a header is left out: a trace is never worth a
/// message.
pub(crate) fn push_trace(trace: Option<&TraceContext>, to: &mut Vec<(&'static str, String)>) {
    let Some(trace) = trace else { return };
    if !is_value(&trace.traceparent) {
        return;
    }
    to.push((TRACEPARENT, trace.traceparent.clone()));
    if is_value(&trace.tracestate) && trace.tracestate.len() <= TRACESTATE_BYTES_MAX {
        to.push((TRACESTATE, trace.tracestate.clone()));
    }
}

/// The trace context, if there is one.
pub(crate) fn trace<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Option<TraceContext> {
    let traceparent = header(TRACEPARENT).filter(|value| !value.is_empty())?;
    Some(TraceContext {
        traceparent: traceparent.into(),
        tracestate: header(TRACESTATE).unwrap_or_default().into(),
    })
}

/// Refuses a message of another protocol version.
pub(crate) fn check_protocol<'h>(
    header: impl Fn(&str) -> Option<&'h str>,
) -> Result<(), WireError> {
    let found = required(header, PROTOCOL)?;
    if found.parse() == Ok(PROTOCOL_VERSION) {
        return Ok(());
    }
    Err(WireError::Protocol {
        found: found.into(),
    })
}

/// A header that must be there.
pub(crate) fn required<'h>(
    header: impl Fn(&str) -> Option<&'h str>,
    name: &'static str,
) -> Result<&'h str, WireError> {
    header(name).ok_or_else(|| missing(name))
}

/// The error of a header that is not there.
pub(crate) fn missing(name: &'static str) -> WireError {
    WireError::Header {
        name,
        problem: "missing".into(),
    }
}

fn is_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
}
