//! Lists as sets.

use super::function::{Answer, Function, Given, global};
use crate::{
    EvalError,
    kind::Kind::{self, Bool, List as Listed},
    value::{List, Val, equal},
};

const OF_LIST: &[Kind] = &[Listed];

pub(super) const FUNCTIONS: &[Function] = &[
    global("sets.contains", (2, 2), OF_LIST, Bool, sets),
    global("sets.equivalent", (2, 2), OF_LIST, Bool, sets),
    global("sets.intersects", (2, 2), OF_LIST, Bool, sets),
];

fn sets<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::List(left), Val::List(right)] = arguments else {
        return given.mismatch(arguments);
    };
    Ok(Val::Bool(match given.name {
        "sets.contains" => has_all(given, left, right)?,
        "sets.equivalent" => has_all(given, left, right)? && has_all(given, right, left)?,
        _ => {
            for element in left.iter() {
                if has(given, right, &element)? {
                    return Ok(Val::Bool(true));
                }
            }
            false
        }
    }))
}

fn has_all(given: &mut Given<'_>, of: &List<'_>, wanted: &List<'_>) -> Result<bool, EvalError> {
    for element in wanted.iter() {
        if !has(given, of, &element)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has(given: &mut Given<'_>, of: &List<'_>, wanted: &Val<'_>) -> Result<bool, EvalError> {
    for element in of.iter() {
        if equal(&element, wanted, given.budget())? {
            return Ok(true);
        }
    }
    Ok(false)
}
