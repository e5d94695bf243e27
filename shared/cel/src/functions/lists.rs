//! Functions of lists.

use std::cmp::Ordering;

use super::function::{Answer, Function, Given, global, method};
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
    given: &mut Given<'_>,
    list: &List<'v>,
    value: &Val<'v>,
    is_last: bool,
) -> Answer<'v> {
    let mut found = -1;
    for (at, element) in list.iter().enumerate() {
        if equal(&element, value, given.budget())? {
            found = at as i64;
            if !is_last {
                break;
            }
        }
    }
    Ok(Val::Int(found))
}

fn end<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(list)] = arguments else {
        return given.mismatch(arguments);
    };
    let at = match given.name {
        "first" => Some(0),
        _ => list.len().checked_sub(1),
    };
    let found = at.and_then(|at| list.get(at));
    Ok(found.map_or(Val::Optional(None), Val::some))
}

/// The numbers below one.
fn range<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Int(count)] = arguments else {
        return given.mismatch(arguments);
    };
    let count = usize::try_from(*count).unwrap_or(0);
    given.budget().elements(count)?;
    Ok(Val::list((0..count as i64).map(Val::Int).collect()))
}

/// Compares two elements; a NaN is before none and after none.
fn order(given: &mut Given<'_>, left: &Val<'_>, right: &Val<'_>) -> Result<Ordering, EvalError> {
    given.budget().step()?;
    match compare(left, right, given.budget())? {
        Some(order) => Ok(order.unwrap_or(Ordering::Equal)),
        None => Err(no_overload(given.name, &[left.clone(), right.clone()])),
    }
}

fn is_sorted<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(list)] = arguments else {
        return given.mismatch(arguments);
    };
    for (left, right) in list.iter().zip(list.iter().skip(1)) {
        if order(given, &left, &right)?.is_gt() {
            return Ok(Val::Bool(false));
        }
    }
    Ok(Val::Bool(true))
}

fn sum<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(list)] = arguments else {
        return given.mismatch(arguments);
    };
    let mut sum: Option<Val<'v>> = None;
    for element in list.iter() {
        given.budget().step()?;
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
            _ => return given.mismatch(arguments),
        };
        sum = Some(next.ok_or(EvalError::Overflow("integer"))?);
    }
    Ok(sum.unwrap_or(Val::Int(0)))
}

fn extreme<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(list)] = arguments else {
        return given.mismatch(arguments);
    };
    let wanted = match given.name {
        "min" => Ordering::Less,
        _ => Ordering::Greater,
    };
    let mut best: Option<Val<'v>> = None;
    for element in list.iter() {
        let is_better = match &best {
            Some(best) => order(given, &element, best)? == wanted,
            None => {
                // That it has an order at all.
                order(given, &element, &element)?;
                true
            }
        };
        if is_better {
            best = Some(element);
        }
    }
    best.ok_or_else(|| EvalError::Refused(format!("{} called on empty list", given.name)))
}

fn distinct<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(list)] = arguments else {
        return given.mismatch(arguments);
    };
    let mut found: Vec<Val<'v>> = Vec::new();
    for element in list.iter() {
        let mut is_new = true;
        for known in &found {
            if equal(known, &element, given.budget())? {
                is_new = false;
                break;
            }
        }
        if is_new {
            given.budget().elements(1)?;
            found.push(element);
        }
    }
    Ok(Val::list(found))
}

fn flatten<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let (list, depth) = match arguments {
        [Val::List(list)] => (list, 1),
        [Val::List(list), Val::Int(depth)] => (list, *depth),
        other => return given.mismatch(other),
    };
    if !(0..=FLATTEN_DEPTH_MAX).contains(&depth) {
        let message = format!("flatten() takes a depth from 0 to {FLATTEN_DEPTH_MAX}");
        return Err(EvalError::Refused(message));
    }
    let mut flat = Vec::new();
    flatten_into(given, list, depth, &mut flat)?;
    Ok(Val::list(flat))
}

fn flatten_into<'v>(
    given: &mut Given<'_>,
    list: &List<'v>,
    depth: i64,
    flat: &mut Vec<Val<'v>>,
) -> Result<(), EvalError> {
    for element in list.iter() {
        given.budget().step()?;
        match element {
            Val::List(inner) if depth > 0 => flatten_into(given, &inner, depth - 1, flat)?,
            element => {
                given.budget().elements(1)?;
                flat.push(element);
            }
        }
    }
    Ok(())
}

fn slice<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = arguments else {
        return given.mismatch(arguments);
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
    given.budget().elements(to - from)?;
    Ok(Val::list(list.iter().skip(from).take(to - from).collect()))
}

fn sort<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(list)] = arguments else {
        return given.mismatch(arguments);
    };
    given.budget().elements(list.len())?;
    let keyed = list.iter().map(|element| (element, ())).collect();
    let sorted = sorted(given, keyed)?;
    Ok(Val::list(
        sorted.into_iter().map(|(element, ())| element).collect(),
    ))
}

/// In the order of the keys; what has the same key stays in the order that it is in.
pub(super) fn sorted<'v, T>(
    given: &mut Given<'_>,
    mut keyed: Vec<(Val<'v>, T)>,
) -> Result<Vec<(Val<'v>, T)>, EvalError> {
    let mut failed = None;
    keyed.sort_by(|(left, _), (right, _)| match failed {
        Some(_) => Ordering::Equal,
        None => order(given, left, right).unwrap_or_else(|error| {
            failed = Some(error);
            Ordering::Equal
        }),
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(keyed),
    }
}
