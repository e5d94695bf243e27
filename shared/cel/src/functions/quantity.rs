//! Kubernetes quantities, and what quantities and versions have in common.

use std::cmp::Ordering;

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Any, Bool, Double, Int, Quantity as Amount, Semver, Text},
    value::{ONE, Quantity, Val},
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

fn quantity<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    Quantity::parse(text).map(Val::Quantity).ok_or_else(|| {
        let start: String = text.chars().take(40).collect();
        EvalError::Refused(format!("`{start}` is no quantity as in 100m or 1.5Gi"))
    })
}

fn is_quantity<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => Ok(Val::Bool(Quantity::parse(text).is_some())),
        other => call.mismatch(other),
    }
}

fn sum<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (left, right) = match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => (left.0, right.0),
        [Val::Quantity(left), Val::Int(right)] => (left.0, i128::from(*right) * ONE),
        other => return call.mismatch(other),
    };
    let sum = match call.name {
        "add" => left.checked_add(right),
        _ => left.checked_sub(right),
    };
    sum.map(|sum| Val::Quantity(Quantity(sum)))
        .ok_or(EvalError::Overflow("quantity"))
}

fn order<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let order = match arguments {
        [Val::Quantity(left), Val::Quantity(right)] => left.cmp(right),
        [Val::Semver(left), Val::Semver(right)] => left.cmp_precedence(right),
        other => return call.mismatch(other),
    };
    Ok(match call.name {
        "compareTo" => Val::Int(order as i64),
        "isGreaterThan" => Val::Bool(order == Ordering::Greater),
        _ => Val::Bool(order == Ordering::Less),
    })
}

fn whole<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Quantity(Quantity(value))] = arguments else {
        return call.mismatch(arguments);
    };
    let whole = match value % ONE {
        0 => i64::try_from(value / ONE).ok(),
        _ => None,
    };
    match (call.name, whole) {
        ("sign", _) => Ok(Val::Int(value.signum() as i64)),
        ("isInteger", whole) => Ok(Val::Bool(whole.is_some())),
        (_, Some(whole)) => Ok(Val::Int(whole)),
        (_, None) => Err(EvalError::refused("cannot convert value to integer")),
    }
}

fn float<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Quantity(Quantity(value))] = arguments else {
        return call.mismatch(arguments);
    };
    let (whole, rest) = (value / ONE, value % ONE);
    Ok(Val::Double(whole as f64 + rest as f64 / ONE as f64))
}
