//! Values that can be looked up.

use std::borrow::Cow;

use crate::{
    node::{Number, Shape},
    number::TWO_POW_127,
    value::json_text,
};

/// A value without parts. Two are equal exactly where `==` says so, in JMESPath and in CEL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scalar {
    /// `null`, and what is not there.
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number, of any type and however it is written.
    Whole(i128),
    /// Any other number, by its bits.
    Float(u64),
    /// A text.
    Text(Box<str>),
    /// An entry of an object: its name and its value. Equal to no other value.
    Entry(Box<(Box<str>, Scalar)>),
}

impl Scalar {
    /// The text that conditions about lists compare a null as.
    pub const NULL_TEXT: &str = "<nil>";

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
    pub fn of_json(value: &serde_json::Value) -> Option<Self> {
        let value = crate::Value::<&serde_json::Value>::json(value);
        Self::of(value.shape())
    }

    /// An entry of this name.
    pub fn entry(name: &str, value: Self) -> Self {
        Self::Entry(Box::new((name.into(), value)))
    }

    /// The other values than a text that conditions about lists compare as this text: at most two. But for a null, they are
    /// written so in JSON, however.
    pub fn spelled(text: &str) -> impl Iterator<Item = Self> {
        let first = match text {
            Self::NULL_TEXT => Some(Self::Null),
            text => text.parse().ok().map(Self::Whole),
        };
        // Of a list or an object there is no scalar, and it may take much memory.
        let is_scalar = !text.trim_start().starts_with(['[', '{']);
        let other = is_scalar.then(|| serde_json::from_str::<serde_json::Value>(text).ok());
        let other = other.flatten().and_then(|other| match other {
            // A float read from JSON may differ in its last bit from the float of this text.
            serde_json::Value::Number(number) if number.is_f64() => {
                text.trim().parse().ok().map(Self::float)
            }
            other => Self::of_json(&other),
        });
        let other = other.filter(|other| !matches!(other, Self::Null | Self::Text(_)));
        first.into_iter().chain(other)
    }

    /// The two texts that conditions about lists may compare a value as that is no text.
    pub fn spellings(&self) -> [Cow<'static, str>; 2] {
        let float = |float: f64| Cow::Owned(json_text(&float.into()));
        match self {
            Self::Null | Self::Text(_) | Self::Entry(_) => twice(Self::NULL_TEXT),
            Self::Bool(true) => twice("true"),
            Self::Bool(false) => twice("false"),
            Self::Whole(0) => [Cow::Borrowed("0"), float(-0.0)],
            #[expect(
                clippy::cast_precision_loss,
                reason = "that is the float it may have been"
            )]
            Self::Whole(whole) => [Cow::Owned(whole.to_string()), float(*whole as f64)],
            Self::Float(bits) => [float(f64::from_bits(*bits)), float(f64::from_bits(*bits))],
        }
    }

    fn number(number: Number) -> Self {
        match number.integer() {
            Some(whole) => Self::Whole(whole),
            None => Self::float(number.float()),
        }
    }

    /// The value of a number that may be whole. NaN, which JSON does not have, equals itself here.
    pub fn float(value: f64) -> Self {
        if value.fract() == 0.0 && value.abs() < TWO_POW_127 {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and in range")]
            return Self::Whole(value as i128);
        }
        Self::Float(value.to_bits())
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len().next_multiple_of(16),
            Self::Entry(entry) => {
                size_of::<(Box<str>, Self)>() + entry.0.len().next_multiple_of(16) + entry.1.bytes()
            }
            _ => 0,
        }
    }
}

fn twice(text: &'static str) -> [Cow<'static, str>; 2] {
    [Cow::Borrowed(text), Cow::Borrowed(text)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn numbers_are_equal_by_value_and_scalars_of_different_types_differ() {
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
            (json!(0.5), json!(0)),
            (json!(1e300), json!(1e301)),
        ] {
            assert_ne!(of(one), of(other));
        }
        assert_eq!(of(json!([])), None);
        assert_eq!(of(json!({})), None);
        let first_beyond = Scalar::Float(TWO_POW_127.to_bits());
        assert_eq!(Scalar::float(TWO_POW_127), first_beyond);
    }

    #[test]
    fn a_text_spells_the_scalars_that_are_compared_as_it_and_are_no_texts() {
        for (text, expected) in [
            ("1", vec![Scalar::Whole(1), Scalar::Whole(1)]),
            ("+1", vec![Scalar::Whole(1)]),
            ("1.0", vec![Scalar::Whole(1)]),
            ("0.5", vec![Scalar::float(0.5)]),
            // Read from JSON, this would be another float.
            (
                "7.1100000000000005e-22",
                vec![Scalar::float(7.1100000000000005e-22)],
            ),
            ("-0", vec![Scalar::Whole(0), Scalar::Whole(0)]),
            ("true", vec![Scalar::Bool(true)]),
            ("<nil>", vec![Scalar::Null]),
            ("null", vec![]),
            ("\"1\"", vec![]),
            ("[1]", vec![]),
            (" {}", vec![]),
            ("a", vec![]),
        ] {
            let spelled: Vec<_> = Scalar::spelled(text).collect();
            assert_eq!(spelled, expected, "{text}");
        }
        assert_eq!(Scalar::Whole(0).spellings(), ["0", "-0"]);
    }

    #[test]
    fn a_scalar_takes_the_memory_of_its_texts() {
        let text = |text: &str| Scalar::Text(text.into());
        let entry_bytes = size_of::<(Box<str>, Scalar)>();
        for (scalar, bytes) in [
            (Scalar::Whole(7), 0),
            (text("abc"), 16),
            (text("12345678901234567"), 32),
            (Scalar::entry("a", text("b")), entry_bytes + 16 + 16),
        ] {
            assert_eq!(scalar.bytes(), bytes, "{scalar:?}");
        }
    }
}
