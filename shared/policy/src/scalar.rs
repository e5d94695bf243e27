//! What a scalar can be read as: a duration, a quantity, a number, a range of these.

mod duration;
mod number;
mod quantity;
mod range;

pub(crate) use duration::Duration;
pub(crate) use number::Number;
pub(crate) use quantity::Quantity;
pub(crate) use range::Range;

use std::borrow::Cow;

use serde_json::Value;

/// A duration as Go writes it, as in `1h30m`, in nanoseconds; `None` where the text is none.
pub fn duration_ns(text: &str) -> Option<i128> {
    Duration::parse(text).map(Duration::nanoseconds)
}

/// A value as text: a string as it is, anything else as JSON, as expressions write it.
pub(crate) fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(anteroom_jmespath::json_text(other)),
    }
}

/// Whether two values are the same, numbers by their value (`1` is `1.0`).
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => Number::from(left) == Number::from(right),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        (left, right) => left == right,
    }
}
