//! Arithmetic. Integers stay integers as long as the result is one that `i64` or `u64` holds.

use crate::error::EvalError;
use crate::function::{Call, Handle};
use crate::node::Number;

pub(super) fn abs(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let number = match call.number(call.argument(0))? {
        Number::F64(float) => Number::F64(float.abs()),
        integer => Number::from_integer(integer.integer().unwrap_or_default().abs()),
    };
    call.new_number(number)
}

pub(super) fn ceil(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    round(call, f64::ceil)
}

pub(super) fn floor(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    round(call, f64::floor)
}

fn round(call: &mut Call<'_>, round: fn(f64) -> f64) -> Result<Handle, EvalError> {
    match call.number(call.argument(0))? {
        Number::F64(float) => {
            let whole = round(float);
            call.new_number(Number::from_whole_float(whole).unwrap_or(Number::F64(whole)))
        }
        _ => Ok(call.argument(0)),
    }
}

/// The sum of an array's numbers: exact while all are integers (a sum that no 64-bit integer holds
/// becomes the nearest float), else a sum of floats.
enum Sum {
    Exact(i128),
    Float(f64),
}

fn sum_of(call: &mut Call<'_>) -> Result<(Sum, usize), EvalError> {
    let numbers = call.elements(call.argument(0))?;
    let count = numbers.len();
    let mut sum = Sum::Exact(0);
    for handle in numbers {
        let number = call.number(handle)?;
        sum = match (sum, number.integer()) {
            // 2^64 numbers of 64 bits fit 128.
            (Sum::Exact(sum), Some(integer)) => Sum::Exact(sum + integer),
            (Sum::Exact(sum), None) => {
                Sum::Float(Number::from_integer(sum).float() + number.float())
            }
            (Sum::Float(sum), _) => Sum::Float(sum + number.float()),
        };
    }
    Ok((sum, count))
}

pub(super) fn sum(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let sum = match sum_of(call)?.0 {
        Sum::Exact(sum) => Number::from_integer(sum),
        Sum::Float(sum) => Number::F64(sum),
    };
    call.new_number(sum)
}

/// The mean: an integer where it is one, null of nothing.
pub(super) fn avg(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let (sum, count) = sum_of(call)?;
    if count == 0 {
        return call.new_null();
    }
    #[allow(clippy::cast_precision_loss)] // No array has 2^53 elements.
    let divisor = count as f64;
    let average = match sum {
        Sum::Exact(sum) if sum % count as i128 == 0 => Number::from_integer(sum / count as i128),
        Sum::Exact(sum) => Number::F64(Number::from_integer(sum).float() / divisor),
        Sum::Float(sum) => Number::F64(sum / divisor),
    };
    call.new_number(average)
}
