//! Mathematics. A shift to the right fills an int with zeros too.

use std::cmp::Ordering;

use anteroom_functions::pure;

use super::{CallContext, CallResult, Function, Val, global};
use crate::{
    EvalError,
    kind::Kind::{self, Any, Bool, Double, Int, List, Uint},
    scan::TOKENS_MAX,
    value::{compare, no_overload},
};

const NUMBERS: &[Kind] = &[Int, Uint, Double];
const WHOLE: &[Kind] = &[Int, Uint];
const OF_DOUBLE: &[Kind] = &[Double];
const NUMBERS_OR_LIST: &[Kind] = &[Int, Uint, Double, List];

/// The bits of a number.
const BITS: u32 = 64;

pub(super) const FUNCTIONS: &[Function] = &[
    global("math.abs", (1, 1), NUMBERS, Any, abs),
    global("math.bitAnd", (2, 2), WHOLE, Any, bits),
    global("math.bitNot", (1, 1), WHOLE, Any, bit_not),
    global("math.bitOr", (2, 2), WHOLE, Any, bits),
    global("math.bitShiftLeft", (2, 2), WHOLE, Any, shift),
    global("math.bitShiftRight", (2, 2), WHOLE, Any, shift),
    global("math.bitXor", (2, 2), WHOLE, Any, bits),
    global("math.ceil", (1, 1), OF_DOUBLE, Double, rounded),
    global("math.floor", (1, 1), OF_DOUBLE, Double, rounded),
    global(
        "math.greatest",
        (1, TOKENS_MAX),
        NUMBERS_OR_LIST,
        Any,
        extreme,
    ),
    global("math.isFinite", (1, 1), OF_DOUBLE, Bool, is_of_kind),
    global("math.isInf", (1, 1), OF_DOUBLE, Bool, is_of_kind),
    global("math.isNaN", (1, 1), OF_DOUBLE, Bool, is_of_kind),
    global("math.least", (1, TOKENS_MAX), NUMBERS_OR_LIST, Any, extreme),
    global("math.round", (1, 2), OF_DOUBLE, Double, rounded),
    global("math.sign", (1, 1), NUMBERS, Any, sign),
    global("math.sqrt", (1, 1), NUMBERS, Double, sqrt),
    global("math.trunc", (1, 1), OF_DOUBLE, Double, rounded),
];

fn abs<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Int(value)] => match value.checked_abs() {
            Some(value) => Ok(Val::Int(value)),
            None => Err(EvalError::Overflow("integer")),
        },
        [value @ Val::Uint(_)] => Ok(value.clone()),
        [Val::Double(value)] => Ok(Val::Double(value.abs())),
        other => call.mismatch(other),
    }
}

fn sign<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Int(value)] => Ok(Val::Int(value.signum())),
        [Val::Uint(value)] => Ok(Val::Uint((*value).min(1))),
        [Val::Double(value)] if *value == 0.0 || value.is_nan() => Ok(Val::Double(*value)),
        [Val::Double(value)] => Ok(Val::Double(value.signum())),
        other => call.mismatch(other),
    }
}

fn sqrt<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    Ok(Val::Double(match arguments {
        [Val::Int(value)] => (*value as f64).sqrt(),
        [Val::Uint(value)] => (*value as f64).sqrt(),
        [Val::Double(value)] => value.sqrt(),
        other => return call.mismatch(other),
    }))
}

fn rounded<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let value = match arguments {
        [Val::Double(value)] => *value,
        [Val::Double(value), Val::Int(places)] => {
            let Ok(places) = u64::try_from(*places) else {
                return Err(EvalError::refused(
                    "math.round() takes no negative number of places",
                ));
            };
            return Ok(Val::Double(pure::rounded(*value, places)));
        }
        other => return call.mismatch(other),
    };
    Ok(Val::Double(match call.name {
        "math.ceil" => value.ceil(),
        "math.floor" => value.floor(),
        "math.trunc" => value.trunc(),
        _ => value.round(),
    }))
}

fn is_of_kind<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Double(value)] = arguments else {
        return call.mismatch(arguments);
    };
    Ok(Val::Bool(match call.name {
        "math.isFinite" => value.is_finite(),
        "math.isInf" => value.is_infinite(),
        _ => value.is_nan(),
    }))
}

/// The first of the greatest, or of the least.
fn extreme<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let wanted = match call.name {
        "math.greatest" => Ordering::Greater,
        _ => Ordering::Less,
    };
    let listed: Vec<Val<'v>>;
    let numbers = match arguments {
        [Val::List(list)] => {
            call.budget().elements(list.len())?;
            listed = list.iter().collect();
            &listed
        }
        numbers => numbers,
    };
    let mut best: Option<&Val<'v>> = None;
    for number in numbers {
        call.budget().step()?;
        if !matches!(number, Val::Int(_) | Val::Uint(_) | Val::Double(_)) {
            return Err(no_overload(call.name, std::slice::from_ref(number)));
        }
        let is_better = match best {
            None => true,
            Some(best) => match compare(number, best, call.budget())?.flatten() {
                Some(order) => order == wanted,
                None => return Err(EvalError::refused("NaN values cannot be ordered")),
            },
        };
        if is_better {
            best = Some(number);
        }
    }
    match best {
        Some(best) => Ok(best.clone()),
        None => Err(EvalError::Refused(format!(
            "{}() of an empty list",
            call.name
        ))),
    }
}

fn bits<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let of = |left: u64, right: u64| match call.name {
        "math.bitAnd" => left & right,
        "math.bitOr" => left | right,
        _ => left ^ right,
    };
    match arguments {
        [Val::Int(left), Val::Int(right)] => Ok(Val::Int(
            of(left.cast_unsigned(), right.cast_unsigned()).cast_signed(),
        )),
        [Val::Uint(left), Val::Uint(right)] => Ok(Val::Uint(of(*left, *right))),
        other => call.mismatch(other),
    }
}

fn bit_not<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Int(value)] => Ok(Val::Int(!value)),
        [Val::Uint(value)] => Ok(Val::Uint(!value)),
        other => call.mismatch(other),
    }
}

fn shift<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [value, Val::Int(by)] = arguments else {
        return call.mismatch(arguments);
    };
    if *by < 0 {
        let message = format!("{}() takes no negative offset", call.name);
        return Err(EvalError::Refused(message));
    }
    let by = u32::try_from(*by).unwrap_or(BITS);
    let of = |value: u64| match call.name {
        "math.bitShiftLeft" => value.checked_shl(by),
        _ => value.checked_shr(by),
    };
    match value {
        Val::Int(value) => Ok(Val::Int(
            of(value.cast_unsigned()).unwrap_or(0).cast_signed(),
        )),
        Val::Uint(value) => Ok(Val::Uint(of(*value).unwrap_or(0))),
        _ => call.mismatch(arguments),
    }
}
