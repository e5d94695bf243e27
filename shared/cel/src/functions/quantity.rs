//! Kubernetes quantities, and what quantities and versions have in common.

use std::{cmp::Ordering, fmt};

use super::{Answer, Function, Given, global, method};
use crate::{
    EvalError,
    compile::Kind::{self, Any, Bool, Double, Int, Quantity as Amount, Semver, Text},
    value::Val,
};

const OF_TEXT: &[Kind] = &[Text];
const OF_QUANTITY: &[Kind] = &[Amount];
const OF_ORDERED: &[Kind] = &[Amount, Semver];

pub(super) const FUNCTIONS: &[Function] = &[
    global("quantity", (1, 1), OF_TEXT, Amount, quantity),
    global("isQuantity", (1, 1), OF_TEXT, Bool, is_quantity),
    method("add", (2, 2), OF_QUANTITY, Amount, sum),
    method("sub", (2, 2), OF_QUANTITY, Amount, sum),
    method("compareTo", (2, 2), OF_ORDERED, Int, order),
    method("isGreaterThan", (2, 2), OF_ORDERED, Bool, order),
    method("isLessThan", (2, 2), OF_ORDERED, Bool, order),
    method("sign", (1, 1), OF_QUANTITY, Int, whole),
    method("isInteger", (1, 1), OF_QUANTITY, Bool, whole),
    method("asInteger", (1, 1), OF_QUANTITY, Any, whole),
    method("asApproximateFloat", (1, 1), OF_QUANTITY, Double, float),
];

/// Billionths in one: what is finer is rounded away from zero, as Kubernetes does.
const ONE: i128 = 1_000_000_000;

/// Characters of a quantity; a longer text is none.
const CHARACTERS_MAX: usize = 64;

/// A quantity such as `100m` or `1.5Gi`, in billionths: exact, up to about 10²⁹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(i128);

/// In as few digits as say it, without a suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.unsigned_abs() / ONE as u128, self.0 % ONE);
        match rest.unsigned_abs() {
            0 => write!(f, "{sign}{whole}"),
            rest => {
                let rest = format!("{rest:09}");
                write!(f, "{sign}{whole}.{}", rest.trim_end_matches('0'))
            }
        }
    }
}

impl Quantity {
    fn parse(text: &str) -> Option<Self> {
        if text.len() > CHARACTERS_MAX {
            return None;
        }
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|char: char| !char.is_ascii_digit() && char != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let (factor, power) = suffix_of(suffix)?;
        let digits: i128 = match format!("{whole}{fraction}").trim_start_matches('0') {
            "" => 0,
            digits => digits.parse().ok()?,
        };
        let scaled = digits.checked_mul(factor)?;
        let power = power + 9 - i32::try_from(fraction.len()).ok()?;
        let value = times_ten_to(scaled, power)?;
        Some(Self(if negative { -value } else { value }))
    }
}

/// A factor, and a power of ten.
fn suffix_of(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Rounded up, where it is finer than can be said.
fn times_ten_to(value: i128, power: i32) -> Option<i128> {
    match (value, u32::try_from(power)) {
        (0, _) => Some(0),
        (value, Ok(power)) => value.checked_mul(10_i128.checked_pow(power)?),
        (value, Err(_)) => Some(match 10_i128.checked_pow(power.unsigned_abs()) {
            Some(divisor) => value / divisor + i128::from(value % divisor != 0),
            None => 1,
        }),
    }
}

fn quantity<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Text(text)] = arguments else {
        return given.mismatch(arguments);
    };
    Quantity::parse(text).map(Val::Quantity).ok_or_else(|| {
        let start: String = text.chars().take(40).collect();
        EvalError::Refused(format!("`{start}` is no quantity as in 100m or 1.5Gi"))
    })
}

fn is_quantity<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    match arguments {
        [Val::Text(text)] => Ok(Val::Bool(Quantity::parse(text).is_some())),
        other => given.mismatch(other),
    }
}

fn sum<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let (left, right) = match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => (left.0, right.0),
        [Val::Quantity(left), Val::Int(right)] => (left.0, i128::from(*right) * ONE),
        other => return given.mismatch(other),
    };
    let sum = match given.name {
        "add" => left.checked_add(right),
        _ => left.checked_sub(right),
    };
    sum.map(|sum| Val::Quantity(Quantity(sum)))
        .ok_or(EvalError::Overflow("quantity"))
}

fn order<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let order = match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => left.cmp(right),
        [Val::Semver(left), Val::Semver(right)] => left.cmp_precedence(right),
        other => return given.mismatch(other),
    };
    Ok(match given.name {
        "compareTo" => Val::Int(order as i64),
        "isGreaterThan" => Val::Bool(order == Ordering::Greater),
        _ => Val::Bool(order == Ordering::Less),
    })
}

fn whole<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Quantity(Quantity(value))] = arguments else {
        return given.mismatch(arguments);
    };
    let whole = match value % ONE {
        0 => i64::try_from(value / ONE).ok(),
        _ => None,
    };
    match (given.name, whole) {
        ("sign", _) => Ok(Val::Int(value.signum() as i64)),
        ("isInteger", whole) => Ok(Val::Bool(whole.is_some())),
        (_, Some(whole)) => Ok(Val::Int(whole)),
        (_, None) => Err(EvalError::refused("cannot convert value to integer")),
    }
}

fn float<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Quantity(Quantity(value))] = arguments else {
        return given.mismatch(arguments);
    };
    let (whole, rest) = (value / ONE, value % ONE);
    Ok(Val::Double(whole as f64 + rest as f64 / ONE as f64))
}
