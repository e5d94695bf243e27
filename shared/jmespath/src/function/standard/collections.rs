//! Arrays and objects, and what they share with strings.

use crate::error::EvalError;
use crate::function::{Call, Handle};
use crate::node::{Number, Shape};

/// The elements of an array, the entries of an object, the code points of a string.
pub(super) fn length(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let subject = call.argument(0);
    call.charge_string(subject)?;
    let length = match call.shape(subject) {
        Shape::String(string) => string.chars().count(),
        Shape::Array(length) | Shape::Object(length) => length,
        _ => 0,
    };
    call.new_number(Number::U64(length as u64))
}

/// Returns whether an array has the element, or a string the string. A string has nothing but strings.
pub(super) fn contains(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let (subject, wanted) = (call.argument(0), call.argument(1));
    call.charge_string(subject)?;
    let contains = match (call.shape(subject), call.shape(wanted)) {
        (Shape::String(string), Shape::String(wanted)) => string.contains(wanted),
        (Shape::String(_), _) => false,
        _ => call.contains(subject, wanted)?,
    };
    call.new_boolean(contains)
}

pub(super) fn keys(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let keys: Vec<_> = call
        .entries(call.argument(0))?
        .map(|(key, _)| key)
        .collect();
    call.new_array(&keys)
}

pub(super) fn values(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let values: Vec<_> = call
        .entries(call.argument(0))?
        .map(|(_, value)| value)
        .collect();
    call.new_array(&values)
}

pub(super) fn map(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let expression = call.reference(0)?;
    let mut mapped = Vec::new();
    for element in call.elements(call.argument(1))? {
        mapped.push(call.apply(expression, element)?);
    }
    call.new_array(&mapped)
}

pub(super) fn merge(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let mut merged = Vec::new();
    for object in call.arguments() {
        merged.extend(call.entries(object)?);
    }
    call.new_object(&merged)
}

/// An array from its end, or a string by code points.
pub(super) fn reverse(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let subject = call.argument(0);
    if let Shape::String(string) = call.shape(subject) {
        let bytes = string.len();
        call.charge_bytes(bytes)?;
        let reversed: String = call.string(subject)?.chars().rev().collect();
        return call.new_string(&reversed);
    }
    let mut elements: Vec<_> = call.elements(subject)?.collect();
    elements.reverse();
    call.new_array(&elements)
}
