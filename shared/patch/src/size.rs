//! Sizes of values, and the limit of what one patch may build.

use serde_json::Value;

use crate::{BUILT_BYTES_MAX, DEPTH_MAX, MADE_MEMORY_BYTES_MAX, PatchError};

/// About the bytes of a value in JSON, never less than one for each value in it.
pub fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => 2 + text.len(),
        Value::Array(elements) => 2 + elements.iter().map(weight).sum::<usize>(),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| 3 + key.len() + weight(value);
            2 + entries.iter().map(entry).sum::<usize>()
        }
    }
}

/// The memory of an object that is not empty, and of each member beside the text of its key. The allocator rounds up, and
/// nodes of maps are half full at worst.
const OBJECT_MEMORY_BYTES: usize = 600;
const MEMBER_MEMORY_BYTES: usize = 150;

/// The memory of a list that is not empty, and of each element.
const LIST_MEMORY_BYTES: usize = 64;
const ELEMENT_MEMORY_BYTES: usize = 80;

/// Returns the memory that a copy of a value takes, beside its own place.
fn memory(value: &Value) -> usize {
    let text_memory = |text: &str| text.len() + text.len() / 4;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text_memory(text),
        Value::Array(elements) if elements.is_empty() => 0,
        Value::Array(elements) => {
            let element = |element| ELEMENT_MEMORY_BYTES + memory(element);
            LIST_MEMORY_BYTES + elements.iter().map(element).sum::<usize>()
        }
        Value::Object(entries) if entries.is_empty() => 0,
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| {
                MEMBER_MEMORY_BYTES + text_memory(key) + memory(value)
            };
            OBJECT_MEMORY_BYTES + entries.iter().map(entry).sum::<usize>()
        }
    }
}

/// Bytes that each value comes to in [`work`], beside its content.
pub(crate) const VALUE_BYTES: usize = 16;

/// The work of going through a value or copying it, in bytes of text: small values take longer than their bytes.
pub(crate) fn work(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(elements) => elements.iter().map(work).sum::<usize>(),
            Value::Object(entries) => {
                let entry = |(key, value): (&String, &Value)| key.len() + work(value);
                entries.iter().map(entry).sum::<usize>()
            }
        }
}

/// The work of a patch, which the caller counts before it is done. The unit is the time to copy a byte of text.
#[derive(Clone, Copy)]
pub(crate) struct Work<'c>(&'c dyn Fn(usize) -> bool);

impl<'c> Work<'c> {
    /// Work that `charge` counts; `false` ends the patch.
    pub(crate) fn counted_by(charge: &'c dyn Fn(usize) -> bool) -> Self {
        Self(charge)
    }

    /// Counts work.
    pub(crate) fn charge(self, bytes: usize) -> Result<(), PatchError> {
        match (self.0)(bytes) {
            true => Ok(()),
            false => Err(PatchError::TooCostly),
        }
    }

    /// Counts the work of going through a value or copying it.
    pub(crate) fn charge_value(self, value: &Value) -> Result<(), PatchError> {
        self.charge(work(value))
    }
}

/// Returns whether a value nests no deeper than [`DEPTH_MAX`].
pub(crate) fn check_depth(value: &Value) -> Result<(), PatchError> {
    check_depth_at(value, 0)
}

/// Checks that a value that stands `above` levels deep nests no deeper than [`DEPTH_MAX`] in all.
pub(crate) fn check_depth_at(value: &Value, above: usize) -> Result<(), PatchError> {
    match DEPTH_MAX.checked_sub(above) {
        Some(levels) if within(value, levels) => Ok(()),
        _ => Err(PatchError::TooDeep),
    }
}

fn within(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| levels > 0 && within(value, levels - 1);
    match value {
        Value::Array(elements) => elements.iter().all(below),
        Value::Object(entries) => entries.values().all(below),
        _ => true,
    }
}

/// The room for what may still be built: bytes of text of the whole document, and memory beside it.
pub(crate) struct Budget {
    bytes: usize,
    memory: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            bytes: BUILT_BYTES_MAX,
            memory: MADE_MEMORY_BYTES_MAX,
        }
    }

    /// Takes the bytes of a document that is there already.
    pub(crate) fn take_document(&mut self, document: &Value) -> Result<(), PatchError> {
        self.take_bytes(weight(document))
    }

    pub(crate) fn take(&mut self, value: &Value) -> Result<(), PatchError> {
        self.take_bytes(weight(value))?;
        self.take_memory(memory(value))
    }

    /// Takes a member of an object that is made, without its value.
    pub(crate) fn take_member(&mut self, key: &str, is_first: bool) -> Result<(), PatchError> {
        self.take_bytes(3 + key.len())?;
        let object = match is_first {
            true => OBJECT_MEMORY_BYTES,
            false => 0,
        };
        self.take_memory(object + MEMBER_MEMORY_BYTES + key.len())
    }

    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), PatchError> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(PatchError::TooLarge)?;
        Ok(())
    }

    fn take_memory(&mut self, bytes: usize) -> Result<(), PatchError> {
        self.memory = self.memory.checked_sub(bytes).ok_or(PatchError::TooLarge)?;
        Ok(())
    }
}
