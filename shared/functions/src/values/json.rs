//! JSON values as text, and their equality.

use std::borrow::Cow;

use serde_json::Value;

use super::number::Number;

/// Returns a value as text: a string as it is, anything else as JSON, as expressions write it.
pub fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(anteroom_jmespath::json_text(other)),
    }
}

/// Returns a value as [`text`] of at most so many bytes; `None`: it is longer.
pub fn text_within(value: &Value, bytes_max: usize) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => (text.len() <= bytes_max).then_some(Cow::Borrowed(text)),
        other => anteroom_jmespath::json_text_within(other, bytes_max).map(Cow::Owned),
    }
}

/// Returns whether two values are the same, numbers by their value (`1` is `1.0`).
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_told_up_to_its_longest() {
        for (value, expected) in [(json!("ab"), "ab"), (json!([1]), "[1]")] {
            let length = expected.len();
            assert_eq!(text_within(&value, length).as_deref(), Some(expected));
            assert_eq!(text_within(&value, length - 1), None);
        }
    }
}
