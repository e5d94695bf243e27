//! `+ - * / %`

use jiff::{SignedDuration, Timestamp};

use crate::{
    Budget, EvalError,
    ast::Operator,
    value::{List, Val, is_timestamp, no_overload},
};

pub(super) fn negate<'v>(value: &Val<'v>) -> Result<Val<'v>, EvalError> {
    match value {
        Val::Int(value) => value
            .checked_neg()
            .map(Val::Int)
            .ok_or(EvalError::Overflow("integer")),
        Val::Double(value) => Ok(Val::Double(-value)),
        other => Err(no_overload("-_", std::slice::from_ref(other))),
    }
}

pub(super) fn compute<'v>(
    operator: Operator,
    left: Val<'v>,
    right: Val<'v>,
    budget: &mut Budget,
) -> Result<Val<'v>, EvalError> {
    match (&left, &right) {
        (Val::Int(one), Val::Int(other)) => int(operator, *one, *other),
        (Val::Uint(one), Val::Uint(other)) => uint(operator, *one, *other),
        (Val::Double(one), Val::Double(other)) if operator != Operator::Modulo => {
            Ok(Val::Double(match operator {
                Operator::Add => one + other,
                Operator::Subtract => one - other,
                Operator::Multiply => one * other,
                _ => one / other,
            }))
        }
        _ if operator == Operator::Add => add(left, right, budget),
        _ if operator == Operator::Subtract => subtract(left, right),
        _ => Err(no_overload(operator.name(), &[left, right])),
    }
}

fn int<'v>(operator: Operator, left: i64, right: i64) -> Result<Val<'v>, EvalError> {
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide if right == 0 => return Err(EvalError::DivisionByZero),
        Operator::Divide => left.checked_div(right),
        _ if right == 0 => return Err(EvalError::ModulusByZero),
        _ => left.checked_rem(right),
    };
    result.map(Val::Int).ok_or(EvalError::Overflow("integer"))
}

fn uint<'v>(operator: Operator, left: u64, right: u64) -> Result<Val<'v>, EvalError> {
    let result = match operator {
        Operator::Add => left.checked_add(right),
        Operator::Subtract => left.checked_sub(right),
        Operator::Multiply => left.checked_mul(right),
        Operator::Divide if right == 0 => return Err(EvalError::DivisionByZero),
        Operator::Divide => left.checked_div(right),
        _ if right == 0 => return Err(EvalError::ModulusByZero),
        _ => left.checked_rem(right),
    };
    result
        .map(Val::Uint)
        .ok_or(EvalError::Overflow("unsigned integer"))
}

fn add<'v>(left: Val<'v>, right: Val<'v>, budget: &mut Budget) -> Result<Val<'v>, EvalError> {
    Ok(match (&left, &right) {
        (Val::Text(one), Val::Text(other)) => {
            budget.build(one.len() + other.len())?;
            Val::text([&**one, &**other].concat())
        }
        (Val::Bytes(one), Val::Bytes(other)) => {
            budget.build(one.len() + other.len())?;
            Val::Bytes([&**one, &**other].concat().into())
        }
        (Val::List(one), Val::List(other)) => concat(one, other, budget)?,
        (Val::Duration(one), Val::Duration(other)) => Val::Duration(
            one.checked_add(*other)
                .ok_or(EvalError::Overflow("duration"))?,
        ),
        (Val::Timestamp(at), Val::Duration(by)) | (Val::Duration(by), Val::Timestamp(at)) => {
            moved(*at, *by)?
        }
        _ => return Err(no_overload("_+_", &[left, right])),
    })
}

fn concat<'v>(
    left: &List<'v>,
    right: &List<'v>,
    budget: &mut Budget,
) -> Result<Val<'v>, EvalError> {
    budget.elements(left.len() + right.len())?;
    Ok(Val::list(left.iter().chain(right.iter()).collect()))
}

fn subtract<'v>(left: Val<'v>, right: Val<'v>) -> Result<Val<'v>, EvalError> {
    let overflow = EvalError::Overflow("duration");
    Ok(match (&left, &right) {
        (Val::Duration(one), Val::Duration(other)) => {
            Val::Duration(one.checked_sub(*other).ok_or(overflow)?)
        }
        (Val::Timestamp(one), Val::Timestamp(other)) => {
            let ns = one.duration_since(*other).as_nanos();
            Val::Duration(i64::try_from(ns).map_err(|_| overflow)?)
        }
        (Val::Timestamp(at), Val::Duration(by)) => moved(*at, by.checked_neg().ok_or(overflow)?)?,
        _ => return Err(no_overload("_-_", &[left, right])),
    })
}

fn moved<'v>(at: Timestamp, by: i64) -> Result<Val<'v>, EvalError> {
    let moved = at.checked_add(SignedDuration::from_nanos(by)).ok();
    let moved = moved.filter(|at| is_timestamp(*at)).map(Val::Timestamp);
    moved.ok_or(EvalError::Overflow("timestamp"))
}
