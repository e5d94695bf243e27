//! `Equals`: what it means is decided by the key's type.

use serde_json::Value;

use crate::{
    values::{self, Number, Quantity},
    wildcard,
};

/// A key of one type is compared with values of these:
///
/// | key | value |
/// |---|---|
/// | bool | bool |
/// | number | number, or a string that is one |
/// | string | duration (one side may be a number of seconds); else, if the key is a quantity, another quantity; else the value is a pattern with wildcards |
/// | list, map | the same, whole |
pub(super) fn equals(key: &Value, value: &Value) -> bool {
    match (key, value) {
        (Value::Bool(key), Value::Bool(value)) => key == value,
        (Value::Number(key), Value::Number(value)) => Number::from(key) == Number::from(value),
        (Value::Number(key), Value::String(value)) => {
            Number::parse(value).is_some_and(|value| Number::from(key) == value)
        }
        (Value::String(text), _) => string_equals(text, key, value),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
            values::equal(key, value)
        }
        _ => false,
    }
}

fn string_equals(text: &str, key: &Value, value: &Value) -> bool {
    if let Some((key, value)) = super::ordering::durations(key, value) {
        return key == value;
    }
    let Value::String(pattern) = value else {
        return false;
    };
    match Quantity::parse(text) {
        Some(quantity) => Quantity::parse(pattern) == Some(quantity),
        None => wildcard::matches(pattern, text),
    }
}
