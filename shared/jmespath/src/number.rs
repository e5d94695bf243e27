//! Arithmetic and comparison of [`Number`]s without loss.

use std::cmp::Ordering;

use crate::node::Number;

/// 2^127 as a float: every finite float below it in magnitude truncates into an `i128` exactly.
pub(crate) const TWO_POW_127: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

impl Number {
    /// The number, if it is an integer by its kind (`1.0` is not).
    pub fn integer(self) -> Option<i128> {
        match self {
            Number::I64(number) => Some(i128::from(number)),
            Number::U64(number) => Some(i128::from(number)),
            Number::F64(_) => None,
        }
    }

    /// The nearest float.
    #[allow(clippy::cast_precision_loss)] // That is what "nearest" says.
    pub fn float(self) -> f64 {
        match self {
            Number::I64(number) => number as f64,
            Number::U64(number) => number as f64,
            Number::F64(number) => number,
        }
    }

    /// The integer as a number, or the nearest float where it fits neither `i64` nor `u64`.
    pub fn from_integer(integer: i128) -> Number {
        if let Ok(number) = u64::try_from(integer) {
            Number::U64(number)
        } else if let Ok(number) = i64::try_from(integer) {
            Number::I64(number)
        } else {
            #[allow(clippy::cast_precision_loss)] // Documented above: promoted to a float.
            Number::F64(integer as f64)
        }
    }

    /// The float as a number; nothing for NaN and the infinities, which JSON can not say.
    pub fn from_float(float: f64) -> Option<Number> {
        float.is_finite().then_some(Number::F64(float))
    }

    /// A whole float as an integer where one is wide enough, else the float.
    pub(crate) fn from_whole_float(float: f64) -> Option<Number> {
        let whole = Number::from_float(float)?;
        if float.abs() >= TWO_POW_127 {
            return Some(whole);
        }
        #[allow(clippy::cast_possible_truncation)] // In range by the check above.
        let integer = float as i128;
        match Number::from_integer(integer) {
            Number::F64(_) => Some(whole),
            exact => Some(exact),
        }
    }

    /// A total order by exact value, over integers and floats together. NaN, which no document
    /// holds, would come last.
    pub fn order(self, other: Number) -> Ordering {
        match (self.integer(), other.integer()) {
            (Some(left), Some(right)) => left.cmp(&right),
            (Some(left), None) => order_mixed(left, other.float()),
            (None, Some(right)) => order_mixed(right, self.float()).reverse(),
            (None, None) => order_floats(self.float(), other.float()),
        }
    }
}

impl PartialEq for Number {
    /// Compares exact values: `1 == 1.0`, and `9007199254740993 != 9007199254740992.0`.
    fn eq(&self, other: &Self) -> bool {
        self.order(*other) == Ordering::Equal
    }
}

fn order_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right)
        .unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

fn order_mixed(integer: i128, float: f64) -> Ordering {
    if float.is_nan() || float >= TWO_POW_127 {
        return Ordering::Less;
    }
    if float < -TWO_POW_127 {
        return Ordering::Greater;
    }
    #[allow(clippy::cast_possible_truncation)] // In range by the checks above.
    let whole = float.trunc() as i128;
    integer
        .cmp(&whole)
        .then_with(|| order_floats(0.0, float.fract()))
}

impl From<Number> for serde_json::Value {
    fn from(number: Number) -> Self {
        match number {
            Number::I64(number) => number.into(),
            Number::U64(number) => number.into(),
            Number::F64(number) => number.into(),
        }
    }
}

impl serde::Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Number::I64(number) => serializer.serialize_i64(number),
            Number::U64(number) => serializer.serialize_u64(number),
            Number::F64(number) => serializer.serialize_f64(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_exact_where_a_float_would_round() {
        let table = [
            (
                Number::U64(9_007_199_254_740_993),
                Number::U64(9_007_199_254_740_992),
                Ordering::Greater,
            ),
            (
                Number::U64(9_007_199_254_740_993),
                Number::F64(9_007_199_254_740_992.0),
                Ordering::Greater,
            ),
            (Number::U64(1), Number::F64(1.0), Ordering::Equal),
            (Number::I64(1), Number::U64(1), Ordering::Equal),
            (Number::I64(-1), Number::F64(-1.5), Ordering::Greater),
            (Number::I64(-2), Number::F64(-1.5), Ordering::Less),
            (Number::U64(1), Number::F64(1.5), Ordering::Less),
            (Number::U64(0), Number::F64(-0.0), Ordering::Equal),
            (
                Number::U64(u64::MAX),
                Number::F64(18_446_744_073_709_551_616.0),
                Ordering::Less,
            ),
            (
                Number::I64(i64::MIN),
                Number::F64(-9_223_372_036_854_775_808.0),
                Ordering::Equal,
            ),
            (
                Number::I64(i64::MIN),
                Number::F64(-1e300),
                Ordering::Greater,
            ),
            (Number::U64(u64::MAX), Number::F64(1e300), Ordering::Less),
            (Number::U64(1), Number::F64(f64::NAN), Ordering::Less),
        ];
        for (left, right, expected) in table {
            assert_eq!(left.order(right), expected, "{left:?} {right:?}");
            assert_eq!(right.order(left), expected.reverse(), "{right:?} {left:?}");
        }
    }

    #[test]
    fn integers_beyond_64_bits_become_floats() {
        assert!(matches!(
            Number::from_integer(i128::from(u64::MAX)),
            Number::U64(u64::MAX)
        ));
        assert!(matches!(
            Number::from_integer(i128::from(i64::MIN)),
            Number::I64(i64::MIN)
        ));
        assert!(matches!(
            Number::from_integer(i128::from(u64::MAX) + 1),
            Number::F64(_)
        ));
        assert!(matches!(
            Number::from_whole_float(3.0),
            Some(Number::U64(3))
        ));
        assert!(matches!(
            Number::from_whole_float(1e300),
            Some(Number::F64(_))
        ));
        assert!(Number::from_whole_float(f64::INFINITY).is_none());
    }
}
