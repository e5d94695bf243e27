//! From one type to another.

use crate::error::EvalError;
use crate::function::{Call, Handle};
use crate::node::{Node, Shape};

pub(super) fn not_null(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let first = call
        .arguments()
        .find(|argument| !matches!(call.shape(*argument), Shape::Null));
    first.map_or_else(|| call.new_null(), Ok)
}

pub(super) fn to_array(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let subject = call.argument(0);
    match call.shape(subject) {
        Shape::Array(_) => Ok(subject),
        _ => call.new_array(&[subject]),
    }
}

/// A string as the number that JSON would read in it; null for all else but numbers.
pub(super) fn to_number(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let subject = call.argument(0);
    let parsed = match call.shape(subject) {
        Shape::Number(_) => return Ok(subject),
        Shape::String(string)
            if string.starts_with(|first: char| first == '-' || first.is_ascii_digit()) =>
        {
            // JSON allows white space behind a number, which a number does not have.
            let trimmed = string.ends_with(|last: char| last.is_ascii_digit());
            trimmed
                .then(|| serde_json::from_str::<serde_json::Number>(string).ok())
                .flatten()
        }
        _ => None,
    };
    match parsed.map(serde_json::Value::Number) {
        Some(number) => match (&number).shape() {
            Shape::Number(number) => call.new_number(number),
            _ => call.new_null(),
        },
        None => call.new_null(),
    }
}

/// A string as it is, all else as JSON text.
pub(super) fn to_string(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let subject = call.argument(0);
    match call.shape(subject) {
        Shape::String(_) => Ok(subject),
        _ => call.new_json_text(subject),
    }
}

pub(super) fn type_name(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let name = call.shape(call.argument(0)).type_name();
    call.new_string(name)
}
