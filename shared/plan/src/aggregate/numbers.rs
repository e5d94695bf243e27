//! Sums that are what adding one number to the other in order gives, whatever the order that they
//! came in.
//!
//! Whole numbers are added exactly. The evaluator adds floats as floats, where the order matters;
//! but not as long as nothing is rounded: all of them are multiples of 2⁻²⁰, and all magnitudes
//! together are at most 2³³, so that every sum on the way has at most 53 bits.

use anteroom_jmespath::Number;
use serde_json::Value;

/// What floats are counted in: 2⁻²⁰.
const PARTS: f64 = 1_048_576.0;

/// The most parts of which every number is a float: 2⁵³.
const PARTS_MAX: u128 = 1 << 53;

/// The sum of many numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    count: i128,
    /// Of what is whole by its kind.
    integers: i128,
    floats: i128,
    /// Of all that is counted in parts.
    parts: i128,
    magnitude: u128,
    /// Numbers that are not whole parts, or too many.
    uneven: i128,
}

/// In or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

impl Way {
    pub(super) fn sign(self) -> i128 {
        match self {
            Self::In => 1,
            Self::Out => -1,
        }
    }
}

impl Sum {
    pub(super) fn add(&mut self, number: Number, way: Way) {
        let sign = way.sign();
        self.count += sign;
        match number.integer() {
            Some(integer) => self.integers += sign * integer,
            None => self.floats += sign,
        }
        match parts_of(number) {
            Some(parts) => {
                self.parts += sign * parts;
                let magnitude = parts.unsigned_abs();
                self.magnitude = match way {
                    Way::In => self.magnitude.saturating_add(magnitude),
                    Way::Out => self.magnitude.saturating_sub(magnitude),
                };
            }
            None => self.uneven += sign,
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.integers += other.integers;
        self.floats += other.floats;
        self.parts += other.parts;
        self.magnitude = self.magnitude.saturating_add(other.magnitude);
        self.uneven += other.uneven;
    }

    /// As `sum()` gives it; `None` where that depends on the order, and of nothing, which not every `sum()`
    /// takes.
    pub(super) fn sum(&self) -> Option<Value> {
        if self.count == 0 {
            return None;
        }
        Some(Value::from(match self.total()? {
            Total::Whole(sum) => Number::from_integer(sum),
            Total::Float(sum) => Number::F64(sum),
        }))
    }

    /// As `avg()` gives it.
    pub(super) fn mean(&self) -> Option<Value> {
        if self.count == 0 {
            return Some(Value::Null);
        }
        #[expect(clippy::cast_precision_loss, reason = "as the evaluator does it")]
        let divisor = self.count as f64;
        Some(Value::from(match self.total()? {
            Total::Whole(sum) if sum % self.count == 0 => Number::from_integer(sum / self.count),
            Total::Whole(sum) => Number::F64(Number::from_integer(sum).float() / divisor),
            Total::Float(sum) => Number::F64(sum / divisor),
        }))
    }

    fn total(&self) -> Option<Total> {
        if self.floats == 0 {
            return Some(Total::Whole(self.integers));
        }
        if self.uneven > 0 || self.magnitude > PARTS_MAX {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 53 bits")]
        let parts = self.parts as f64;
        Some(Total::Float(parts / PARTS))
    }
}

enum Total {
    Whole(i128),
    Float(f64),
}

fn parts_of(number: Number) -> Option<i128> {
    if let Some(integer) = number.integer() {
        return Some(integer << 20); // At most 65 bits, and 20.
    }
    let parts = number.float() * PARTS;
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let within = parts.abs() <= PARTS_MAX as f64;
    #[expect(clippy::cast_possible_truncation, reason = "whole, and in range")]
    let counted = (within && parts.fract() == 0.0).then_some(parts as i128);
    // A zero below zero is no number of parts: a sum of nothing else may be one too.
    counted.filter(|parts| *parts != 0 || number.float().is_sign_positive())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn number(value: &Value) -> Number {
        match (value.as_u64(), value.as_i64(), value.as_f64()) {
            (Some(number), ..) => Number::U64(number),
            (_, Some(number), _) => Number::I64(number),
            (.., float) => Number::F64(float.unwrap()),
        }
    }

    fn any_number() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-100_i64..100).prop_map(Value::from),
            (-400_i32..400).prop_map(|n| json!(f64::from(n) / 8.0)),
            prop::sample::select(vec![
                0.1,
                1e300,
                -0.0,
                9_007_199_254_740_992.0,
                0.5f64.powi(21)
            ])
            .prop_map(Value::from),
        ]
    }

    proptest! {
        /// What is kept is what the evaluator says, to the bit, or nothing.
        #[test]
        fn a_sum_is_that_of_the_evaluator_or_none(
            kept in prop::collection::vec(any_number(), 0..12),
            gone in prop::collection::vec(any_number(), 0..12),
        ) {
            let mut sum = Sum::default();
            gone.iter().for_each(|value| sum.add(number(value), Way::In));
            kept.iter().rev().for_each(|value| sum.add(number(value), Way::In));
            gone.iter().for_each(|value| sum.add(number(value), Way::Out));
            let list = Value::from(kept.clone());
            for (function, found) in [("sum(@)", sum.sum()), ("avg(@)", sum.mean())] {
                let expression = anteroom_jmespath::Expression::parse(function).unwrap();
                let environment = anteroom_jmespath::Environment::standard();
                if let Some(found) = found {
                    let plain = expression.evaluate_json(&list, &environment).unwrap();
                    prop_assert_eq!(found.to_string(), plain.to_string());
                } else {
                    prop_assert!(kept.is_empty() || kept.iter().any(Value::is_f64));
                }
            }
        }
    }

    #[test]
    fn floats_are_summed_as_long_as_nothing_is_rounded() {
        let sum = |numbers: &[f64]| {
            let mut sum = Sum::default();
            numbers
                .iter()
                .for_each(|n| sum.add(Number::F64(*n), Way::In));
            sum.sum()
        };
        assert_eq!(sum(&[0.5, 2.25]), Some(json!(2.75)));
        assert_eq!(sum(&[8_589_934_591.0, 1.0]), Some(json!(8_589_934_592.0)));
        assert_eq!(sum(&[8_589_934_592.0, 1.0]), None);
        assert_eq!(sum(&[0.1]), None);
        assert_eq!(sum(&[0.5, -0.5]), Some(json!(0.0)));
        assert_eq!(sum(&[-0.0]), None);
    }
}
