//! From one type to another.

use crate::error::EvalError;
use crate::function::{Call, Handle};
use crate::node::{Number, Shape};

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

/// A string as the decimal number that it is; null for all else but numbers.
pub(super) fn to_number(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let subject = call.argument(0);
    call.charge_string(subject)?;
    let parsed = match call.shape(subject) {
        Shape::Number(_) => return Ok(subject),
        Shape::String(string) => parsed(string),
        _ => None,
    };
    match parsed {
        Some(number) => call.new_number(number),
        None => call.new_null(),
    }
}

/// Reads a number, `+1`, `.5`, `1_000` and `1e3` included; exact for an integer of 64 bits.
fn parsed(text: &str) -> Option<Number> {
    let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let mut underscores = text.match_indices('_');
    if !underscores.all(|(at, _)| at > 0 && is_digit(at - 1) && is_digit(at + 1)) {
        return None;
    }
    let plain = text.replace('_', "");
    if let Ok(integer) = plain.parse::<i128>()
        && (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&integer)
    {
        return Some(Number::from_integer(integer));
    }
    Number::from_float(plain.parse().ok()?)
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
