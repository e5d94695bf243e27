//! Equality and order.

use std::cmp::Ordering;

use super::{List, Map, Val};
use crate::{budget::Budget, error::EvalError};

/// Returns whether two values are equal. Values of different types are not, numbers aside.
pub(crate) fn equal(
    left: &Val<'_>,
    right: &Val<'_>,
    budget: &mut Budget,
) -> Result<bool, EvalError> {
    budget.step()?;
    Ok(match (left, right) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(left), Val::Bool(right)) => left == right,
        (Val::Text(left), Val::Text(right)) => {
            budget.charge_scan(left.len().min(right.len()))?;
            **left == **right
        }
        (Val::Bytes(left), Val::Bytes(right)) => {
            budget.charge_scan(left.len().min(right.len()))?;
            left == right
        }
        (Val::List(left), Val::List(right)) => equal_lists(left, right, budget)?,
        (Val::Map(left), Val::Map(right)) => equal_maps(left, right, budget)?,
        (Val::Duration(left), Val::Duration(right)) => left == right,
        (Val::Timestamp(left), Val::Timestamp(right)) => left == right,
        (Val::Type(left), Val::Type(right)) => left == right,
        (Val::Optional(None), Val::Optional(None)) => true,
        (Val::Optional(Some(left)), Val::Optional(Some(right))) => equal(left, right, budget)?,
        (Val::Quantity(left), Val::Quantity(right)) => left == right,
        (Val::Url(left), Val::Url(right)) => {
            budget.charge_scan(left.text.len().min(right.text.len()))?;
            left.text == right.text
        }
        (Val::Ip(left), Val::Ip(right)) => left == right,
        (Val::Cidr(left), Val::Cidr(right)) => left == right,
        (Val::Semver(left), Val::Semver(right)) => left.cmp_precedence(right) == Ordering::Equal,
        (Val::Format(left), Val::Format(right)) => std::ptr::eq(*left, *right),
        (Val::Image(left), Val::Image(right)) => left == right,
        (Val::Struct(left), Val::Struct(right)) => left.equals(right, budget)?,
        (left, right) => numbers(left, right) == Some(Some(Ordering::Equal)),
    })
}

fn equal_lists(left: &List<'_>, right: &List<'_>, budget: &mut Budget) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.iter().zip(right.iter()) {
        if !equal(&left, &right, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(left: &Map<'_>, right: &Map<'_>, budget: &mut Budget) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    budget.entries(left.len())?;
    for (key, value) in left.entries() {
        budget.look_up_value(&key, right.len())?;
        let Some(other) = right.get(&key) else {
            return Ok(false);
        };
        if !equal(&value, &other, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares two values; `None` where they have no order. With a NaN it is `Some(None)`.
pub(crate) fn compare(
    left: &Val<'_>,
    right: &Val<'_>,
    budget: &mut Budget,
) -> Result<Option<Option<Ordering>>, EvalError> {
    Ok(Some(Some(match (left, right) {
        (Val::Bool(left), Val::Bool(right)) => left.cmp(right),
        (Val::Text(left), Val::Text(right)) => {
            budget.charge_scan(left.len().min(right.len()))?;
            (**left).cmp(&**right)
        }
        (Val::Bytes(left), Val::Bytes(right)) => {
            budget.charge_scan(left.len().min(right.len()))?;
            left.cmp(right)
        }
        (Val::Duration(left), Val::Duration(right)) => left.cmp(right),
        (Val::Timestamp(left), Val::Timestamp(right)) => left.cmp(right),
        (left, right) => return Ok(numbers(left, right)),
    })))
}

/// Compares two numbers exactly; `None` where one is no number.
pub(crate) fn numbers(left: &Val<'_>, right: &Val<'_>) -> Option<Option<Ordering>> {
    let whole = |value: &Val<'_>| match value {
        Val::Int(value) => Some(i128::from(*value)),
        Val::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    Some(match (left, right) {
        (Val::Double(left), Val::Double(right)) => left.partial_cmp(right),
        (Val::Double(left), right) => whole_and_double(whole(right)?, *left).map(Ordering::reverse),
        (left, Val::Double(right)) => whole_and_double(whole(left)?, *right),
        (left, right) => Some(whole(left)?.cmp(&whole(right)?)),
    })
}

fn whole_and_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Beyond any int and uint, and exact below that.
    const BEYOND: f64 = 1e20;
    if double >= BEYOND {
        return Some(Ordering::Less);
    }
    if double <= -BEYOND {
        return Some(Ordering::Greater);
    }
    let floor = double.floor();
    Some(whole.cmp(&(floor as i128)).then(match double > floor {
        true => Ordering::Less,
        false => Ordering::Equal,
    }))
}
