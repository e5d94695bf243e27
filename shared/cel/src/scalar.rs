//! Values by which elements of lists are looked up.

/// A value without parts, by which elements of lists are looked up. Two are equal exactly where CEL's `==` says so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scalar {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number of any type.
    Whole(i128),
    /// Any other number, by its bits. Never NaN, which equals nothing.
    Float(u64),
    /// A text.
    Text(Box<str>),
}

/// The largest double up to which whole numbers are told apart from it: 2^127.
const WHOLE_MAX: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

impl Scalar {
    /// Returns the scalar that is equal to a number; `None` for NaN.
    pub(crate) fn double(value: f64) -> Option<Self> {
        if value.fract() == 0.0 && value.abs() < WHOLE_MAX {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and in range")]
            return Some(Self::Whole(value as i128));
        }
        (!value.is_nan()).then(|| Self::Float(value.to_bits()))
    }
}
