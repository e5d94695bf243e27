//! Values of YAML, with a count of the memory that they take: references make much of a short text, so the text says
//! little.
//!
//! The count is a variable of the thread, since a reader hands nothing on to what it reads.

use std::{cell::Cell, fmt};

use anteroom_jmespath::json_memory::{
    ELEMENT_BYTES, LIST_BYTES, MEMBER_BYTES, OBJECT_BYTES, text_bytes,
};
use serde::{
    Deserialize, Deserializer,
    de::{
        Error, MapAccess, SeqAccess, Visitor,
        value::{I128Deserializer, U128Deserializer},
    },
};
use serde_json::{Map, Number, Value};

thread_local! {
    /// The memory that is left; `None`: more was asked for.
    static BYTES_LEFT: Cell<Option<u64>> = const { Cell::new(Some(u64::MAX)) };
}

/// Reads [`CountedValue`]s that take at most so much memory together. Returns also the memory that they took, even if they
/// could not be read to their end: more than `bytes_max` where that was the reason.
pub(super) fn within<T>(bytes_max: u64, read: impl FnOnce() -> T) -> (T, u64) {
    let around = BYTES_LEFT.replace(Some(bytes_max));
    let value = read();
    let taken = match BYTES_LEFT.replace(around) {
        Some(left) => bytes_max.saturating_sub(left),
        None => bytes_max.saturating_add(1),
    };
    (value, taken)
}

/// Takes memory, before it is allocated.
fn take<E: Error>(bytes: u64) -> Result<(), E> {
    let left = BYTES_LEFT.get().and_then(|left| left.checked_sub(bytes));
    BYTES_LEFT.set(left);
    match left {
        Some(_) => Ok(()),
        None => Err(E::custom("the value takes too much memory")),
    }
}

/// A value that is counted while it is read. Counting changes nothing of the value.
pub(super) struct CountedValue(pub(super) Value);

impl<'de> Deserialize<'de> for CountedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountedVisitor).map(Self)
    }
}

struct CountedVisitor;

impl<'de> Visitor<'de> for CountedVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        Number::deserialize(I128Deserializer::new(value)).map(Value::Number)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        Number::deserialize(U128Deserializer::new(value)).map(Value::Number)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        take(text_bytes(value.len()))?;
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        take(text_bytes(value.len()))?;
        Ok(value.into())
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(CountedValue(element)) = access.next_element()? {
            let first = match elements.is_empty() {
                true => LIST_BYTES,
                false => 0,
            };
            take(first + ELEMENT_BYTES)?;
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let first = match members.is_empty() {
                true => OBJECT_BYTES,
                false => 0,
            };
            take(first + MEMBER_BYTES + text_bytes(key.len()))?;
            let CountedValue(value) = access.next_value()?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use anteroom_jmespath::json_memory::copied_bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::any_json;

    fn read(text: &str, bytes_max: u64) -> (Option<Value>, u64) {
        let (read, bytes) = within(bytes_max, || serde_json::from_str::<CountedValue>(text));
        (read.ok().map(|CountedValue(value)| value), bytes)
    }

    proptest! {
        #[test]
        fn a_counted_value_is_the_same_and_ends_at_its_memory(value in any_json()) {
            let text = value.to_string();
            let value: Value = serde_json::from_str(&text).unwrap();
            let taken = copied_bytes(&value, u64::MAX).unwrap();
            prop_assert_eq!(read(&text, taken), (Some(value), taken));
            if let Some(fewer) = taken.checked_sub(1) {
                prop_assert_eq!(read(&text, fewer), (None, taken));
            }
        }
    }
}
