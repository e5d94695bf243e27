//! Values written: through serde, as JSON text, as `serde_json::Value`.

use std::io;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::budget::BUILT_BYTES_MAX;
use crate::error::{BudgetKind, EvalError};
use crate::node::{Node, Shape};
use crate::value::Value;
use crate::value::text::write_json;

/// The deepest value that is written or compared: the 256 levels that an evaluation builds by default
/// on the 512 that a decoded object has, and some. A deeper one is an error.
pub const VALUE_DEPTH_MAX: u32 = 800;

/// Writes the value as it is. Its size is for the writer to bound: a small expression can build a
/// value that shares its parts and is huge when written (`[@, @] | [@, @] | …`).
impl<'a, N: Node<'a>> Serialize for Value<'a, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Nested {
            value: self,
            depth_left: VALUE_DEPTH_MAX,
        }
        .serialize(serializer)
    }
}

struct Nested<'v, 'a, N> {
    value: &'v Value<'a, N>,
    depth_left: u32,
}

impl<'a, N: Node<'a>> Serialize for Nested<'_, 'a, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value.shape() {
            Shape::Null => serializer.serialize_unit(),
            Shape::Bool(boolean) => serializer.serialize_bool(boolean),
            Shape::Number(number) => number.serialize(serializer),
            Shape::String(string) => serializer.serialize_str(string),
            Shape::Array(length) => {
                let mut sequence = serializer.serialize_seq(Some(length))?;
                for element in self.value.elements() {
                    sequence.serialize_element(&self.below(&element)?)?;
                }
                sequence.end()
            }
            Shape::Object(length) => {
                let mut map = serializer.serialize_map(Some(length))?;
                for (key, value) in self.value.entries() {
                    map.serialize_entry(&*key, &self.below(&value)?)?;
                }
                map.end()
            }
        }
    }
}

impl<'a, N> Nested<'_, 'a, N> {
    fn below<'v, E: serde::ser::Error>(
        &self,
        value: &'v Value<'a, N>,
    ) -> Result<Nested<'v, 'a, N>, E> {
        let depth_left = self.depth_left.checked_sub(1).ok_or_else(|| {
            E::custom(format!(
                "the value nests deeper than {VALUE_DEPTH_MAX} levels"
            ))
        })?;
        Ok(Nested { value, depth_left })
    }
}

impl<'a, N: Node<'a>> Value<'a, N> {
    /// The value as a JSON document of its own.
    ///
    /// # Errors
    /// [`EvalError::Budget`] if it is larger than [`BUILT_BYTES_MAX`], or deeper than
    /// [`VALUE_DEPTH_MAX`].
    pub fn to_json(&self) -> Result<serde_json::Value, EvalError> {
        self.to_json_within(BUILT_BYTES_MAX)
    }

    /// The value as a JSON document of at most `bytes_max` bytes, about as it would be written.
    ///
    /// # Errors
    /// [`EvalError::Budget`] if it is larger, or deeper than [`VALUE_DEPTH_MAX`].
    pub fn to_json_within(&self, bytes_max: u64) -> Result<serde_json::Value, EvalError> {
        self.to_sized_json(bytes_max).map(|(json, _)| json)
    }

    /// Like [`Self::to_json_within`], with the document's bytes.
    pub(crate) fn to_sized_json(
        &self,
        bytes_max: u64,
    ) -> Result<(serde_json::Value, u64), EvalError> {
        let mut conversion = ToJson {
            bytes_left: bytes_max,
            bytes_max,
        };
        let json = conversion.convert(self, VALUE_DEPTH_MAX)?;
        Ok((json, bytes_max - conversion.bytes_left))
    }
}

struct ToJson {
    bytes_left: u64,
    bytes_max: u64,
}

impl ToJson {
    fn convert<'a, N: Node<'a>>(
        &mut self,
        value: &Value<'a, N>,
        depth_left: u32,
    ) -> Result<serde_json::Value, EvalError> {
        let below = || depth_left.checked_sub(1).ok_or_else(too_deep);
        // The least that any value takes, a separator included.
        self.take(2)?;
        Ok(match value.shape() {
            Shape::Null => serde_json::Value::Null,
            Shape::Bool(boolean) => boolean.into(),
            Shape::Number(number) => number.into(),
            Shape::String(string) => {
                self.take(string.len())?;
                string.into()
            }
            Shape::Array(_) => {
                let below = below()?;
                value
                    .elements()
                    .map(|element| self.convert(&element, below))
                    .collect::<Result<_, _>>()?
            }
            Shape::Object(_) => {
                let below = below()?;
                let mut object = serde_json::Map::new();
                for (key, value) in value.entries() {
                    self.take(key.len())?;
                    object.insert(key.to_string(), self.convert(&value, below)?);
                }
                object.into()
            }
        })
    }

    fn take(&mut self, bytes: usize) -> Result<(), EvalError> {
        let left = self.bytes_left.checked_sub(bytes as u64);
        self.bytes_left = left.ok_or(EvalError::Budget {
            which: BudgetKind::BuiltBytes,
            limit: self.bytes_max,
        })?;
        Ok(())
    }
}

/// The error for what nests deeper than [`VALUE_DEPTH_MAX`].
pub(crate) fn too_deep() -> EvalError {
    EvalError::Budget {
        which: BudgetKind::Depth,
        limit: u64::from(VALUE_DEPTH_MAX),
    }
}

/// JSON text, written until it would be longer than allowed.
pub(crate) struct JsonText {
    text: Vec<u8>,
    bytes_max: usize,
}

impl JsonText {
    /// The value as JSON text of at most `bytes_max` bytes, or which part of the budget says no.
    pub(crate) fn of<'a, N: Node<'a>>(
        value: &Value<'a, N>,
        bytes_max: u64,
    ) -> Result<String, BudgetKind> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut writer = JsonText {
            text: Vec::new(),
            bytes_max,
        };
        match write_json(&mut writer, value) {
            Ok(()) => Ok(String::from_utf8_lossy(&writer.text).into_owned()),
            Err(error) if error.is_io() => Err(BudgetKind::BuiltBytes),
            Err(_) => Err(BudgetKind::Depth),
        }
    }
}

impl io::Write for JsonText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.bytes_max {
            return Err(io::Error::other("too long"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
