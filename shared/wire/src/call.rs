//! The metadata of a request: protocol version, deadline, trace context.
//!
//! It travels in headers, or, without a trace, in [`PREFIX_BYTES`] before a small body: headers cost both ends
//! and the server between them more than all else of a small call. A message with headers has no prefix.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    PROTOCOL_VERSION, WireError,
    header::{self, TraceContext},
};

/// The header that stands before a body: [`PREFIX`], the protocol version and the deadline in milliseconds, both
/// with their high bytes first.
pub const PREFIX_BYTES: usize = 1 + size_of::<u16>() + size_of::<u32>();

/// The longest body that is copied to stand behind a prefix; a longer one travels beside headers.
pub const PREFIXED_BYTES_MAX: usize = 16 * 1024;

/// No body begins so: MessagePack has no use for it.
const PREFIX: u8 = 0xc1;

/// The header of a call, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHead {
    /// The time for which the caller will still wait, when it sent the call; whole milliseconds.
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

/// The body behind its prefix; `None` where the call has to travel beside headers: it is traced, or long.
pub fn prefixed(deadline: Duration, trace: Option<&TraceContext>, body: &[u8]) -> Option<Bytes> {
    if trace.is_some() || body.len() > PREFIXED_BYTES_MAX {
        return None;
    }
    let mut message = BytesMut::with_capacity(PREFIX_BYTES + body.len());
    message.put_u8(PREFIX);
    message.put_u16(PROTOCOL_VERSION);
    // Nobody waits for 49 days.
    message.put_u32(u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX));
    message.put_slice(body);
    Some(message.freeze())
}

/// Takes the prefix off a message that has no headers.
///
/// # Errors
/// [`WireError::Protocol`]; [`WireError::Header`] where there is no prefix.
pub fn take_prefix(mut message: Bytes) -> Result<(CallHead, Bytes), WireError> {
    let Some(([first, version @ .., d3, d2, d1, d0], _)) =
        message.split_first_chunk::<PREFIX_BYTES>()
    else {
        return Err(header::missing(header::PROTOCOL));
    };
    if *first != PREFIX {
        return Err(header::missing(header::PROTOCOL));
    }
    let found = version
        .iter()
        .fold(0, |found, byte| found << 8 | u16::from(*byte));
    if found != PROTOCOL_VERSION {
        return Err(WireError::Protocol {
            found: found.to_string(),
        });
    }
    let deadline_ms = u32::from_be_bytes([*d3, *d2, *d1, *d0]);
    let head = CallHead {
        deadline: Duration::from_millis(deadline_ms.into()),
        trace: None,
    };
    Ok((head, message.split_off(PREFIX_BYTES)))
}

/// Returns true if the headers have a call's head. Servers of NATS add headers of their own to what crosses accounts.
pub fn is_head<'h>(find: impl Fn(&str) -> Option<&'h str>) -> bool {
    find(header::PROTOCOL).is_some()
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
    fn a_calls_headers_survive_encoding() {
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
            assert!(is_head(find));
            assert_eq!(decode(find), Ok(CallHead { deadline, trace }));
        }
        assert!(!is_head(
            |name| (name == "Nats-Request-Info").then_some("{}")
        ));
    }

    #[test]
    fn a_small_call_is_read_back_from_behind_its_prefix() {
        let most = vec![7; PREFIXED_BYTES_MAX];
        for (deadline, back) in [(0, 0), (150, 150), (u64::MAX, u64::from(u32::MAX))] {
            for body in [&most[..0], b"\x93", &most] {
                let message = prefixed(Duration::from_millis(deadline), None, body).unwrap();
                let (head, found) = take_prefix(message).unwrap();
                assert_eq!(head.deadline, Duration::from_millis(back));
                assert_eq!((head.trace, &*found), (None, body));
            }
        }
    }

    #[test]
    fn a_long_or_traced_call_is_not_prefixed() {
        let deadline = Duration::from_millis(150);
        let longer = vec![7; PREFIXED_BYTES_MAX + 1];
        assert_eq!(prefixed(deadline, None, &longer), None);
        let trace = TraceContext::default();
        assert_eq!(prefixed(deadline, Some(&trace), b""), None);
    }

    #[test]
    fn a_message_without_a_valid_prefix_is_refused() {
        let message = prefixed(Duration::from_millis(150), None, b"body").unwrap();
        for bytes in 0..PREFIX_BYTES {
            let error = take_prefix(message.slice(..bytes)).unwrap_err();
            let name = header::PROTOCOL;
            assert!(
                matches!(error, WireError::Header { name: n, .. } if n == name),
                "{bytes}"
            );
        }
        let changed = |at: usize, to: u8| {
            let mut message = message.to_vec();
            message[at] = to;
            take_prefix(message.into()).unwrap_err()
        };
        assert!(matches!(changed(0, 0x92), WireError::Header { .. }));
        let found = |found: &str| WireError::Protocol {
            found: found.to_owned(),
        };
        assert_eq!(changed(2, 99), found("99"));
        assert_eq!(changed(1, 1), found("258"));
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
