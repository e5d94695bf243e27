//! The check of a body that comes from outside.

use anteroom_model::limits::OBJECT_DEPTH_MAX;

use super::{
    BODY_BYTES,
    format::{ValueHead, head, key},
    within,
};
use crate::WireError;

/// A container whose values are still being read.
struct Open {
    /// Values (of a map, pairs) still to come.
    left: usize,
    is_map: bool,
}

/// Checks that `bytes` is one body and nothing else: one pass, no recursion, and no memory but a few
/// words for each level of nesting.
pub(super) fn check(bytes: &[u8], bytes_max: usize) -> Result<(), WireError> {
    within(BODY_BYTES, bytes.len(), bytes_max)?;
    let mut open: Vec<Open> = Vec::new();
    let mut rest = bytes;
    loop {
        let (value, after) = head(rest)
            .ok_or_else(|| malformed("a value is malformed or cut short", bytes, rest))?;
        match value {
            ValueHead::Nil | ValueHead::Bool(_) | ValueHead::U64(_) | ValueHead::I64(_) => {}
            ValueHead::F64(number) if number.is_finite() => {}
            ValueHead::F64(_) => return Err(malformed("a float is not finite", bytes, rest)),
            ValueHead::Str(text) => utf8(text, bytes, rest)?,
            ValueHead::Foreign => {
                return Err(malformed("binary data or an extension", bytes, rest));
            }
            ValueHead::Array(left) => open.push(Open {
                left,
                is_map: false,
            }),
            ValueHead::Map(left) => open.push(Open { left, is_map: true }),
        }
        if open.len() > OBJECT_DEPTH_MAX {
            return Err(WireError::Limit {
                what: "depth of a body",
                limit: OBJECT_DEPTH_MAX,
            });
        }
        rest = after;
        while open.pop_if(|container| container.left == 0).is_some() {}
        let Some(container) = open.last_mut() else {
            break;
        };
        container.left -= 1;
        if container.is_map {
            let (name, after) =
                key(rest).ok_or_else(|| malformed("a key is not a string", bytes, rest))?;
            utf8(name, bytes, rest)?;
            rest = after;
        }
    }
    if !rest.is_empty() {
        return Err(malformed("bytes after the value", bytes, rest));
    }
    Ok(())
}

fn utf8(text: &[u8], bytes: &[u8], rest: &[u8]) -> Result<(), WireError> {
    // Nearly all text is ASCII, and short: asking that first halves the time of the whole check.
    if text.is_ascii() || std::str::from_utf8(text).is_ok() {
        return Ok(());
    }
    Err(malformed("a string is not UTF-8", bytes, rest))
}

#[cold]
fn malformed(problem: &str, bytes: &[u8], rest: &[u8]) -> WireError {
    WireError::body(format_args!(
        "{problem} at byte {}",
        bytes.len() - rest.len()
    ))
}
