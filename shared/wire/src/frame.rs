//! The frame of messages without headers: a MessagePack array of the protocol version and the
//! record. Any later version keeps this much, so that an error can name a mismatch.

use serde::{Serialize, de::DeserializeOwned};

use crate::{PROTOCOL_VERSION, WireError, body};
use anteroom_jmespath::{Node, Number, Shape};
use bytes::Bytes;

/// The marker of an array of two.
const PAIR: u8 = 0x92;

pub(crate) fn encode<T: Serialize>(record: &T) -> Result<Bytes, WireError> {
    body::encode(&(PROTOCOL_VERSION, record))
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    if bytes.first() != Some(&PAIR) {
        return Err(WireError::body("not a versioned record"));
    }
    let version = body::BodyNode::new(bytes).element(0).map(Node::shape);
    match version {
        Some(Shape::Number(Number::U64(found))) if found == u64::from(PROTOCOL_VERSION) => {}
        Some(Shape::Number(Number::U64(found))) => {
            return Err(WireError::Protocol {
                found: found.to_string(),
            });
        }
        _ => return Err(WireError::body("not a versioned record")),
    }
    let (_, record): (u16, T) = body::decode(bytes)?;
    Ok(record)
}
