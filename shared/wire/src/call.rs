//! What travels beside a request in headers: protocol version, deadline, trace context.

use std::time::Duration;

use crate::{
    PROTOCOL_VERSION, WireError,
    header::{self, TraceContext},
};

/// The headers of a call, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHead {
    /// How long the caller will still wait, when it sent the call; whole milliseconds.
    pub deadline: Duration,
    /// The caller's span.
    pub trace: Option<TraceContext>,
}

/// A call's headers.
pub fn encode(deadline: Duration, trace: Option<&TraceContext>) -> Vec<(&'static str, String)> {
    let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    let mut headers = vec![
        (header::PROTOCOL, PROTOCOL_VERSION.to_string()),
        (header::DEADLINE, deadline_ms.to_string()),
    ];
    header::push_trace(trace, &mut headers);
    headers
}

/// Reads a call's headers; `header` looks one up by its exact name.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Header`].
pub fn decode<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Result<CallHead, WireError> {
    header::check_protocol(&header)?;
    let deadline = header::required(&header, header::DEADLINE)?;
    let deadline = deadline.parse().map_err(|_| WireError::Header {
        name: header::DEADLINE,
        problem: format!("{deadline:?} is not a number of milliseconds"),
    })?;
    Ok(CallHead {
        deadline: Duration::from_millis(deadline),
        trace: header::trace(header),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_comes_back() {
        let trace = TraceContext {
            traceparent: "00-a".into(),
            tracestate: String::new(),
        };
        for trace in [None, Some(trace)] {
            let headers = encode(Duration::from_millis(150), trace.as_ref());
            let find = |wanted: &str| {
                let header = headers.iter().find(|(name, _)| *name == wanted);
                header.map(|(_, value)| value.as_str())
            };
            let deadline = Duration::from_millis(150);
            assert_eq!(decode(find), Ok(CallHead { deadline, trace }));
        }
    }

    #[test]
    fn a_bad_deadline_is_named() {
        for bad in ["", "-1", "1.5", "99999999999999999999"] {
            let error = decode(|name| match name {
                header::PROTOCOL => Some("2"),
                header::DEADLINE => Some(bad),
                _ => None,
            })
            .unwrap_err();
            assert!(
                matches!(error, WireError::Header { name, .. } if name == header::DEADLINE),
                "{bad}"
            );
        }
    }
}
