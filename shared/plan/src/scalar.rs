//! Values that can be looked up.

use anteroom_jmespath::{Number, Shape};
use serde_json::Value;

/// The largest float up to which whole numbers are told apart from it: 2^127.
const WHOLE_MAX: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

/// A value without parts. Two are equal exactly where the evaluator's `==` says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// `null`, and what is not there.
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number, however it is written.
    Whole(i128),
    /// Any other number, by its bits.
    Float(u64),
    /// A text.
    Text(Box<str>),
}

impl Scalar {
    /// The value of this shape; `None` for an array or an object.
    pub fn of(shape: Shape<'_>) -> Option<Self> {
        Some(match shape {
            Shape::Null => Self::Null,
            Shape::Bool(value) => Self::Bool(value),
            Shape::Number(number) => Self::number(number),
            Shape::String(text) => Self::Text(text.into()),
            Shape::Array(_) | Shape::Object(_) => return None,
        })
    }

    /// The value of JSON; `None` for an array or an object.
    pub fn of_json(value: &Value) -> Option<Self> {
        let value = anteroom_jmespath::Value::<&Value>::json(value);
        Self::of(value.shape())
    }

    fn number(number: Number) -> Self {
        if let Some(whole) = number.integer() {
            return Self::Whole(whole);
        }
        let float = number.float();
        if float.fract() == 0.0 && float.abs() < WHOLE_MAX {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and in range")]
            return Self::Whole(float as i128);
        }
        Self::Float(float.to_bits())
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len().next_multiple_of(16),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_equal_by_value_and_nothing_else_is_by_chance() {
        let of = |value: Value| Scalar::of_json(&value);
        for (one, other) in [
            (json!(1), json!(1.0)),
            (json!(0), json!(-0.0)),
            (json!(-3), json!(-3.0)),
            (
                json!(9_007_199_254_740_992_u64),
                json!(9_007_199_254_740_992.0),
            ),
            (json!(0.5), json!(0.5)),
        ] {
            assert_eq!(of(one), of(other));
        }
        for (one, other) in [
            (
                json!(9_007_199_254_740_993_u64),
                json!(9_007_199_254_740_992.0),
            ),
            (json!(1), json!("1")),
            (json!(1), json!(true)),
            (json!(null), json!(false)),
            (json!(""), json!(null)),
        ] {
            assert_ne!(of(one), of(other));
        }
        assert_eq!(of(json!([])), None);
        assert_eq!(of(json!({})), None);
    }
}
