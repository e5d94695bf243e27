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
    global("sign", (1, 1), OF_QUANTITY, Int, sign),
    // Kubernetes has the plain function alone.
    method("sign", (1, 1), OF_QUANTITY, Int, sign),
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
        [Val::Quantity(left), Val::Quantity(right)] => (*left, *right),
        [Val::Quantity(left), Val::Int(right)] => (*left, Quantity::from(*right)),
        other => return call.mismatch(other),
    };
    let sum = match call.name {
        "add" => left.plus(right),
        _ => right.negated().and_then(|right| left.plus(right)),
    };
    sum.map(Val::Quantity)
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

fn sign<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Quantity(value)] => Ok(Val::Int(value.billionths().signum() as i64)),
        other => call.mismatch(other),
    }
}

fn whole<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Quantity(value)] = arguments else {
        return call.mismatch(arguments);
    };
    match (call.name, value.whole()) {
        ("isInteger", whole) => Ok(Val::Bool(whole.is_some())),
        (_, Some(whole)) => Ok(Val::Int(whole)),
        (_, None) => Err(EvalError::refused("cannot convert value to integer")),
    }
}

fn float<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Quantity(value)] = arguments else {
        return call.mismatch(arguments);
    };
    let (whole, rest) = (value.billionths() / ONE, value.billionths() % ONE);
    Ok(Val::Double(whole as f64 + rest as f64 / ONE as f64))
}
