//! Functions of lists.

use std::cmp::Ordering;

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Any, Bool, Int, List as Listed, Optional},
    value::{List, Val, compare, equal, no_overload},
};

const OF_LIST: &[Kind] = &[Listed];

/// Lists within lists that flatten() takes apart at most.
const FLATTEN_DEPTH_MAX: i64 = 100;

pub(super) const FUNCTIONS: &[Function] = &[
    method("isSorted", (1, 1), OF_LIST, Bool, is_sorted),
    method("sum", (1, 1), OF_LIST, Any, sum),
    method("min", (1, 1), OF_LIST, Any, extreme),
    method("max", (1, 1), OF_LIST, Any, extreme),
    method("distinct", (1, 1), OF_LIST, Listed, distinct),
    method("flatten", (1, 2), OF_LIST, Listed, flatten).passing(),
    method("slice", (3, 3), OF_LIST, Listed, slice).passing(),
    method("sort", (1, 1), OF_LIST, Listed, sort),
    method("first", (1, 1), OF_LIST, Optional, end).passing(),
    method("last", (1, 1), OF_LIST, Optional, end).passing(),
    global("lists.range", (1, 1), &[Int], Listed, range),
];

/// The first place of a value, or the last; -1: none.
pub(super) fn index_of<'v>(
    call: &mut CallContext<'_>,
    list: &List<'v>,
    value: &Val<'v>,
    is_last: bool,
) -> CallResult<'v> {
    let mut found = -1;
    for (at, element) in list.iter().enumerate() {
        if equal(&element, value, call.budget())? {
            found = at as i64;
            if !is_last {
                break;
            }
        }
    }
    Ok(Val::Int(found))
}

fn end<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list)] = arguments else {
        return call.mismatch(arguments);
    };
    let at = match call.name {
        "first" => Some(0),
        _ => list.len().checked_sub(1),
    };
    let found = at.and_then(|at| list.get(at));
    Ok(found.map_or(Val::Optional(None), Val::some))
}

/// The numbers below one.
fn range<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Int(count)] = arguments else {
        return call.mismatch(arguments);
    };
    let count = usize::try_from(*count).unwrap_or(0);
    call.budget().elements(count)?;
    Ok(Val::list((0..count as i64).map(Val::Int).collect()))
}

/// Compares two elements; a NaN is before none and after none.
fn order(
    call: &mut CallContext<'_>,
    left: &Val<'_>,
    right: &Val<'_>,
) -> Result<Ordering, EvalError> {
    call.budget().step()?;
    match compare(left, right, call.budget())? {
        Some(order) => Ok(order.unwrap_or(Ordering::Equal)),
        None => Err(no_overload(call.name, &[left.clone(), right.clone()])),
    }
}

fn is_sorted<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list)] = arguments else {
        return call.mismatch(arguments);
    };
    let mut before: Option<Val<'v>> = None;
    for element in list.iter() {
        // It has an order at all. Elements of different types are in any order.
        order(call, &element, &element)?;
        if let Some(before) = &before
            && compare(before, &element, call.budget())?.flatten() == Some(Ordering::Greater)
        {
            return Ok(Val::Bool(false));
        }
        before = Some(element);
    }
    Ok(Val::Bool(true))
}

fn sum<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list)] = arguments else {
        return call.mismatch(arguments);
    };
    let mut sum: Option<Val<'v>> = None;
    for element in list.iter() {
        call.budget().step()?;
        let next = match (sum, element) {
            (None, element @ (Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_))) => {
                Some(element)
            }
            (Some(Val::Int(sum)), Val::Int(one)) => sum.checked_add(one).map(Val::Int),
            (Some(Val::Uint(sum)), Val::Uint(one)) => sum.checked_add(one).map(Val::Uint),
            (Some(Val::Double(sum)), Val::Double(one)) => Some(Val::Double(sum + one)),
            (Some(Val::Duration(sum)), Val::Duration(one)) => {
                sum.checked_add(one).map(Val::Duration)
            }
            _ => return call.mismatch(arguments),
        };
        sum = Some(next.ok_or(EvalError::Overflow("integer"))?);
    }
    Ok(sum.unwrap_or(Val::Int(0)))
}

fn extreme<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list)] = arguments else {
        return call.mismatch(arguments);
    };
    let wanted = match call.name {
        "min" => Ordering::Less,
        _ => Ordering::Greater,
    };
    let mut best: Option<Val<'v>> = None;
    for element in list.iter() {
        let is_better = match &best {
            Some(best) => order(call, &element, best)? == wanted,
            None => {
                // That it has an order at all.
                order(call, &element, &element)?;
                true
            }
        };
        if is_better {
            best = Some(element);
        }
    }
    best.ok_or_else(|| EvalError::Refused(format!("{} called on empty list", call.name)))
}

fn distinct<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list)] = arguments else {
        return call.mismatch(arguments);
    };
    let mut found: Vec<Val<'v>> = Vec::new();
    for element in list.iter() {
        let mut is_new = true;
        for known in &found {
            if equal(known, &element, call.budget())? {
                is_new = false;
                break;
            }
        }
        if is_new {
            call.budget().elements(1)?;
            found.push(element);
        }
    }
    Ok(Val::list(found))
}

fn flatten<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (list, depth) = match arguments {
        [Val::List(list)] => (list, 1),
        [Val::List(list), Val::Int(depth)] => (list, *depth),
        other => return call.mismatch(other),
    };
    if !(0..=FLATTEN_DEPTH_MAX).contains(&depth) {
        let message = format!("flatten() takes a depth from 0 to {FLATTEN_DEPTH_MAX}");
        return Err(EvalError::Refused(message));
    }
    let mut flat = Vec::new();
    flatten_into(call, list, depth, &mut flat)?;
    Ok(Val::list(flat))
}

fn flatten_into<'v>(
    call: &mut CallContext<'_>,
    list: &List<'v>,
    depth: i64,
    flat: &mut Vec<Val<'v>>,
) -> Result<(), EvalError> {
    for element in list.iter() {
        call.budget().step()?;
        match element {
            Val::List(inner) if depth > 0 => flatten_into(call, &inner, depth - 1, flat)?,
            element => {
                call.budget().elements(1)?;
                flat.push(element);
            }
        }
    }
    Ok(())
}

fn slice<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = arguments else {
        return call.mismatch(arguments);
    };
    let place = |at: i64| usize::try_from(at).ok().filter(|at| *at <= list.len());
    let (Some(from), Some(to)) = (place(*start), place(*end)) else {
        let message = format!("cannot slice({start}, {end}) of {} elements", list.len());
        return Err(EvalError::Refused(message));
    };
    if from > to {
        let message = format!("cannot slice({start}, {end}): the start is behind the end");
        return Err(EvalError::Refused(message));
    }
    call.budget().elements(to - from)?;
    Ok(Val::list(list.iter().skip(from).take(to - from).collect()))
}

fn sort<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().elements(list.len())?;
    let keyed = list.iter().map(|element| (element, ())).collect();
    let sorted = sorted_alike(call, keyed)?;
    Ok(Val::list(
        sorted.into_iter().map(|(element, ())| element).collect(),
    ))
}

/// In the order of the keys, which are of one type that has an order.
pub(super) fn sorted_alike<'v, T>(
    call: &mut CallContext<'_>,
    keyed: Vec<(Val<'v>, T)>,
) -> Result<Vec<(Val<'v>, T)>, EvalError> {
    if let Some((first, _)) = keyed.first() {
        order(call, first, first)?;
        for (key, _) in &keyed {
            call.budget().step()?;
            if key.type_name() != first.type_name() {
                return Err(no_overload(call.name, &[key.clone(), first.clone()]));
            }
        }
    }
    sorted(call, keyed)
}

/// In the order of the keys; what has the same key stays in the order that it is in.
///
/// A merge sort of our own: that of the standard library may panic where an order is not total, as that of NaN, and
/// where a comparison fails.
fn sorted<'v, T>(
    call: &mut CallContext<'_>,
    mut keyed: Vec<(Val<'v>, T)>,
) -> Result<Vec<(Val<'v>, T)>, EvalError> {
    if keyed.len() < 2 {
        return Ok(keyed);
    }
    let length = keyed.len();
    let right = keyed.split_off(length / 2);
    let mut left = sorted(call, keyed)?.into_iter().peekable();
    let mut right = sorted(call, right)?.into_iter().peekable();
    let mut merged = Vec::with_capacity(length);
    while let (Some((first, _)), Some((second, _))) = (left.peek(), right.peek()) {
        merged.extend(match order(call, second, first)?.is_lt() {
            true => right.next(),
            false => left.next(),
        });
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}
