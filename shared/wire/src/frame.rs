//! The frame of messages without headers: a MessagePack array of the protocol version and the
//! record. Any later version keeps this much, so that an error can name a mismatch.

use serde::{Serialize, de::DeserializeOwned};

use crate::{PROTOCOL_VERSION, WireError, body};
use anteroom_jmespath::{Node, Number, Shape};
use bytes::Bytes;

/// The marker of an array of two.
const PAIR: u8 = 0x92;

/// Returns true for a number that is left out of a record: serde asks so.
pub(crate) fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}

pub(crate) fn encode<T: Serialize>(record: &T) -> Result<Bytes, WireError> {
    body::encode(&(PROTOCOL_VERSION, record))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let found = version(bytes)?;
    if found != u64::from(PROTOCOL_VERSION) {
        return Err(other_version(found));
    }
    let (_, record): (u16, T) = body::decode(bytes)?;
    Ok(record)
}

/// Reads a record of this version, or of a later one that still has all of its fields.
pub(crate) fn decode_later<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let found = version(bytes)?;
    if found <= u64::from(PROTOCOL_VERSION) {
        return decode(bytes);
    }
    let (_, record): (u64, T) = body::decode(bytes).map_err(|_| other_version(found))?;
    Ok(record)
}

fn version(bytes: &[u8]) -> Result<u64, WireError> {
    if bytes.first() != Some(&PAIR) {
        return Err(WireError::body("not a versioned record"));
    }
    match body::BodyNode::new(bytes).element(0).map(Node::shape) {
        Some(Shape::Number(Number::U64(found))) => Ok(found),
        _ => Err(WireError::body("not a versioned record")),
    }
}

fn other_version(found: u64) -> WireError {
    WireError::Protocol {
        found: found.to_string(),
    }
}
