//! Values written: through serde, as JSON text, as `serde_json::Value`.

use std::io;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::budget::{Budget, JSON_BYTES_MAX, JsonLimits};
use crate::error::{BudgetKind, EvalError};
use crate::json_memory;
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

/// Why a value is not converted to JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoJson {
    /// The document takes more memory than it may.
    TooLarge,
    /// The document nests deeper than [`VALUE_DEPTH_MAX`].
    TooDeep,
}

impl<'a, N: Node<'a>> Value<'a, N> {
    /// The value as a JSON document of its own.
    ///
    /// # Errors
    /// [`EvalError::Budget`] if it takes more memory than [`JSON_BYTES_MAX`](crate::JSON_BYTES_MAX), or is deeper than
    /// [`VALUE_DEPTH_MAX`].
    pub fn to_json(&self) -> Result<serde_json::Value, EvalError> {
        self.to_json_within(JSON_BYTES_MAX)
    }

    /// The value as a JSON document that takes at most so much memory, by the figures of [`json_memory`]. The memory is
    /// counted before it is taken.
    ///
    /// # Errors
    /// [`EvalError::Budget`] if it takes more, or is deeper than [`VALUE_DEPTH_MAX`].
    pub fn to_json_within(&self, bytes_max: u64) -> Result<serde_json::Value, EvalError> {
        let limits = JsonLimits::new(u64::MAX, bytes_max);
        let (json, _) = self.convert_within(limits.bytes_max());
        json.map_err(|error| error.over(limits))
    }

    /// The value as a JSON document, out of the memory and the steps that are left of a budget. An evaluation and its
    /// result can so share one budget.
    ///
    /// # Errors
    /// As [`Value::to_json_within`], also where too few steps are left.
    pub fn to_json_out_of(&self, left: &mut Budget) -> Result<serde_json::Value, EvalError> {
        let limits = JsonLimits::new(left.steps, left.json_bytes);
        let (json, bytes) = self.convert_within(limits.bytes_max());
        left.steps = left.steps.saturating_sub(bytes / json_memory::STEP_BYTES);
        json.map_err(|error| {
            if error == NoJson::TooLarge && limits.are_of_steps() {
                left.steps = 0;
            }
            error.over(limits)
        })
    }

    /// Converts within so much memory. Returns how much was taken, too.
    pub(crate) fn convert_within(
        &self,
        bytes_max: u64,
    ) -> (Result<serde_json::Value, NoJson>, u64) {
        let mut conversion = ToJson {
            bytes_left: bytes_max,
        };
        let json = conversion.convert(self, VALUE_DEPTH_MAX);
        (json, bytes_max - conversion.bytes_left)
    }
}

impl NoJson {
    /// The error of a conversion within these limits.
    fn over(self, limits: JsonLimits) -> EvalError {
        match self {
            NoJson::TooDeep => too_deep(),
            NoJson::TooLarge => limits.error(),
        }
    }
}

/// A conversion. Memory is taken here before it is allocated.
struct ToJson {
    bytes_left: u64,
}

impl ToJson {
    fn convert<'a, N: Node<'a>>(
        &mut self,
        value: &Value<'a, N>,
        depth_left: u32,
    ) -> Result<serde_json::Value, NoJson> {
        let below = || depth_left.checked_sub(1).ok_or(NoJson::TooDeep);
        Ok(match value.shape() {
            Shape::Null => serde_json::Value::Null,
            Shape::Bool(boolean) => boolean.into(),
            Shape::Number(number) => number.into(),
            Shape::String(string) => {
                self.take(json_memory::text_bytes(string.len()))?;
                string.into()
            }
            Shape::Array(length) => {
                let below = below()?;
                self.take(json_memory::list_bytes(length))?;
                let mut elements = Vec::with_capacity(length);
                for element in value.elements() {
                    elements.push(self.convert(&element, below)?);
                }
                serde_json::Value::Array(elements)
            }
            Shape::Object(length) => {
                let below = below()?;
                self.take(json_memory::object_bytes(length))?;
                let mut object = serde_json::Map::new();
                for (key, value) in value.entries() {
                    self.take(json_memory::text_bytes(key.len()))?;
                    object.insert(key.to_string(), self.convert(&value, below)?);
                }
                object.into()
            }
        })
    }

    #[inline]
    fn take(&mut self, bytes: u64) -> Result<(), NoJson> {
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(NoJson::TooLarge),
        }
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
    pub(crate) fn of(value: &impl Serialize, bytes_max: u64) -> Result<String, BudgetKind> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut writer = JsonText {
            text: Vec::new(),
            bytes_max,
        };
        match write_json(&mut writer, value) {
            Ok(()) => Ok(text_of(writer.text)),
            Err(error) if error.is_io() => Err(BudgetKind::BuiltBytes),
            Err(_) => Err(BudgetKind::Depth),
        }
    }
}

/// Bytes as a text: JSON is one.
pub(super) fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
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
