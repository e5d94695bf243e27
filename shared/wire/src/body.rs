//! Objects as compact MessagePack, read in place.
//!
//! A *body* is one MessagePack value made of nil, booleans, integers, floats, UTF-8 strings, arrays,
//! and maps with string keys: what JSON can say, and nothing else. Integers keep their value exactly
//! (`i64` and `u64`), and a float stays a float.
//!
//! Bodies from outside are checked once, by [`validate`]; [`BodyNode`] then reads them in place as
//! often as needed. Keys of one map are distinct in every body that this crate writes (of JSON text
//! with a repeated key the last one counts, as `serde_json` has it). They are not checked to be
//! distinct in a body that comes from outside: a lookup finds the first.

mod format;
mod node;
mod validate;

use std::io;

use anteroom_jmespath::{Budget, Node, Value};
use anteroom_model::limits::{
    MESSAGE_BYTES_MAX, OBJECT_BYTES_MAX, OBJECT_DEPTH_MAX, RESULT_BYTES_MAX,
    RESULT_MEMORY_BYTES_MAX,
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

pub use node::{BodyNode, Elements, Entries};

use crate::{WireError, unreadable};

/// The first byte of a body that is sealed, and of a stub: the one that no MessagePack value begins with.
pub const SEALED: u8 = 0xC1;

/// Returns whether a body is sealed: it means nothing to whoever has not opened it.
pub fn is_sealed(body: &[u8]) -> bool {
    body.first() == Some(&SEALED) && unreadable::document(body).is_none()
}

/// An object of the API server as a body.
///
/// # Errors
/// [`WireError::Limit`] over [`OBJECT_BYTES_MAX`] or [`OBJECT_DEPTH_MAX`].
pub fn encode_json(value: &serde_json::Value) -> Result<Bytes, WireError> {
    // The encoder recurses without a limit of its own.
    if !nests_at_most(value, OBJECT_DEPTH_MAX) {
        return Err(WireError::Limit {
            what: "depth of a body",
            limit: OBJECT_DEPTH_MAX,
        });
    }
    to_body(value, OBJECT_BYTES_MAX)
}

/// The result of a query as a body.
///
/// `value` must be bounded in depth (a query's budget sees to that). It may share its parts, and be huge when it is
/// written: nothing is written beyond the limit.
///
/// # Errors
/// [`WireError::Limit`] over [`RESULT_BYTES_MAX`] or [`OBJECT_DEPTH_MAX`]; [`WireError::Body`] where
/// it holds what JSON cannot say, as NaN.
pub fn encode_value(value: &impl Serialize) -> Result<Bytes, WireError> {
    to_body(value, RESULT_BYTES_MAX)
}

/// Bytes of a result that are written in one step.
const STEP_BYTES: u64 = 64;

/// The result of an evaluation as a body, like [`encode_value`]. It is written out of the steps that are left of the
/// evaluation's budget.
///
/// # Errors
/// Those of [`encode_value`], and [`WireError::Limit`] where too few steps are left; then none is left.
pub fn encode_result<'a, N: Node<'a>>(
    value: &Value<'a, N>,
    left: &mut Budget,
) -> Result<Bytes, WireError> {
    let within_steps = left.steps.saturating_add(1).saturating_mul(STEP_BYTES) - 1;
    let within_steps = usize::try_from(within_steps).unwrap_or(usize::MAX);
    if within_steps >= RESULT_BYTES_MAX {
        let body = encode_value(value);
        let bytes = body.as_ref().map_or(RESULT_BYTES_MAX, Bytes::len);
        left.steps -= bytes as u64 / STEP_BYTES;
        return body;
    }
    match to_body(value, within_steps) {
        Ok(body) => {
            left.steps -= body.len() as u64 / STEP_BYTES;
            Ok(body)
        }
        Err(error) => {
            left.steps = 0;
            Err(match error {
                WireError::Limit { limit, .. } if limit == within_steps => WireError::Limit {
                    what: "bytes of a result for the steps that are left",
                    limit,
                },
                error => error,
            })
        }
    }
}

/// The array that holds the elements of all these arrays, in order: results that were worked out piece
/// by piece.
///
/// # Errors
/// [`WireError::Limit`] over [`RESULT_BYTES_MAX`]; [`WireError::Body`] where one is no array.
pub fn join_arrays<'b>(arrays: impl Iterator<Item = &'b [u8]> + Clone) -> Result<Bytes, WireError> {
    let (mut elements, mut bytes) = (0_usize, 0_usize);
    for array in arrays.clone() {
        let (count, rest) = opened(array)?;
        elements += count;
        bytes += rest.len();
    }
    within("bytes of a result", bytes, RESULT_BYTES_MAX)?;
    let mut joined = Vec::with_capacity(bytes + ARRAY_HEAD_BYTES_MAX);
    match (u8::try_from(elements), u16::try_from(elements)) {
        (Ok(count @ 0..=15), _) => joined.push(0x90 | count),
        (_, Ok(count)) => {
            joined.push(0xdc);
            joined.extend(count.to_be_bytes());
        }
        _ => {
            joined.push(0xdd);
            let count = u32::try_from(elements).map_err(WireError::body)?;
            joined.extend(count.to_be_bytes());
        }
    }
    for array in arrays {
        joined.extend_from_slice(opened(array)?.1);
    }
    within("bytes of a result", joined.len(), RESULT_BYTES_MAX)?;
    Ok(joined.into())
}

/// The most bytes that an array takes beside its elements.
const ARRAY_HEAD_BYTES_MAX: usize = 5;

fn opened(array: &[u8]) -> Result<(usize, &[u8]), WireError> {
    match format::head(array) {
        Some((format::ValueHead::Array(count), rest)) => Ok((count, rest)),
        _ => Err(WireError::body("no array")),
    }
}

/// The room of most questions and answers: growing up to it takes longer than writing them.
const USUAL_RECORD_BYTES: usize = 512;

/// A record of our own, as a map of its fields.
///
/// # Errors
/// [`WireError::Limit`] over [`MESSAGE_BYTES_MAX`]; [`WireError::Body`] where the type cannot be
/// written.
pub fn encode<T: Serialize>(value: &T) -> Result<Bytes, WireError> {
    let mut bytes = Vec::with_capacity(USUAL_RECORD_BYTES);
    rmp_serde::encode::write_named(&mut bytes, value).map_err(WireError::body)?;
    within("bytes of a record", bytes.len(), MESSAGE_BYTES_MAX)?;
    Ok(bytes.into())
}

/// Reads what [`encode`] wrote. Unknown fields are passed over, so that a field may be added
/// without a new protocol version.
///
/// # Errors
/// [`WireError::Limit`] over [`MESSAGE_BYTES_MAX`]; [`WireError::Body`] for anything else, nesting
/// deeper than [`OBJECT_DEPTH_MAX`] and the levels of a record around that, and bytes after the value included.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    within("bytes of a record", bytes.len(), MESSAGE_BYTES_MAX)?;
    // Also bounds every length prefix by the bytes that are really there.
    match format::skip(bytes) {
        Some([]) => {}
        Some(_) => return Err(WireError::body("bytes after the value")),
        None => return Err(WireError::body("malformed or cut short")),
    }
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes);
    deserializer.set_max_depth(RECORD_DEPTH_MAX);
    T::deserialize(&mut deserializer).map_err(WireError::body)
}

/// The levels that are decoded: those of the deepest value, and of the record that has it. The decoder fails at the last.
const RECORD_DEPTH_MAX: usize = OBJECT_DEPTH_MAX + 16;

/// A body (an object's or a result's) as a JSON value.
///
/// # Errors
/// As [`validate`], with the limit of a message.
pub fn to_json(bytes: &[u8]) -> Result<serde_json::Value, WireError> {
    validate::check(bytes, MESSAGE_BYTES_MAX)?;
    decode(bytes)
}

/// Returns the memory that the value of a result takes once it is read, by the figures of [`json_bytes`].
///
/// # Errors
/// [`WireError::Limit`] over [`RESULT_MEMORY_BYTES_MAX`].
pub fn result_memory(bytes: &[u8]) -> Result<u64, WireError> {
    within_memory(bytes, RESULT_MEMORY_BYTES_MAX)
}

/// Returns the memory that the JSON values in these bytes take, by the figures of
/// [`json_memory`](anteroom_jmespath::json_memory). A record that is made of other types takes less.
pub fn json_bytes(bytes: &[u8]) -> u64 {
    format::json_bytes(bytes)
}

/// Returns the memory that the values in these bytes take, or an error if they take more than this.
pub(crate) fn within_memory(bytes: &[u8], limit: usize) -> Result<u64, WireError> {
    let memory = json_bytes(bytes);
    let counted = usize::try_from(memory).unwrap_or(usize::MAX);
    within("bytes of memory for the values in it", counted, limit)?;
    Ok(memory)
}

/// Checks an object's body in one pass: one well-formed value and nothing after it, made only of
/// what a body is made of, at most [`OBJECT_BYTES_MAX`] long and [`OBJECT_DEPTH_MAX`] deep.
///
/// # Errors
/// [`WireError::Limit`] or [`WireError::Body`].
pub fn validate(bytes: &[u8]) -> Result<(), WireError> {
    validate::check(bytes, OBJECT_BYTES_MAX)
}

fn to_body(value: &impl Serialize, bytes_max: usize) -> Result<Bytes, WireError> {
    let mut body = LimitedBody {
        bytes: Vec::new(),
        bytes_max,
        is_over: false,
    };
    let written = rmp_serde::encode::write_named(&mut body, value);
    if body.is_over {
        return Err(over_limit(BODY_BYTES, bytes_max));
    }
    written.map_err(WireError::body)?;
    // What is let out here is what every reader lets in.
    validate::check(&body.bytes, bytes_max)?;
    Ok(body.bytes.into())
}

const BODY_BYTES: &str = "bytes of a body";

/// A body that is written until it would be longer than it may.
struct LimitedBody {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_over: bool,
}

impl io::Write for LimitedBody {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            self.is_over = true;
            return Err(io::ErrorKind::Other.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns an error where `bytes` is over `limit`.
pub(crate) fn within(what: &'static str, bytes: usize, limit: usize) -> Result<(), WireError> {
    match bytes > limit {
        true => Err(over_limit(what, limit)),
        false => Ok(()),
    }
}

fn over_limit(what: &'static str, limit: usize) -> WireError {
    WireError::Limit { what, limit }
}

fn nests_at_most(value: &serde_json::Value, depth: usize) -> bool {
    use serde_json::Value;
    match value {
        Value::Array(values) => depth > 0 && values.iter().all(|v| nests_at_most(v, depth - 1)),
        Value::Object(map) => depth > 0 && map.values().all(|v| nests_at_most(v, depth - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
