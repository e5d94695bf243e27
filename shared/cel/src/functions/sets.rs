//! Lists as sets.

use super::function::{CallContext, CallResult, Function, global};
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

fn sets<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(left), Val::List(right)] = arguments else {
        return call.mismatch(arguments);
    };
    Ok(Val::Bool(match call.name {
        "sets.contains" => has_all(call, left, right)?,
        "sets.equivalent" => has_all(call, left, right)? && has_all(call, right, left)?,
        _ => {
            for element in left.iter() {
                call.budget().step()?;
                if has(call, right, &element)? {
                    return Ok(Val::Bool(true));
                }
            }
            false
        }
    }))
}

fn has_all(
    call: &mut CallContext<'_>,
    of: &List<'_>,
    wanted: &List<'_>,
) -> Result<bool, EvalError> {
    for element in wanted.iter() {
        if !has(call, of, &element)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has(call: &mut CallContext<'_>, of: &List<'_>, wanted: &Val<'_>) -> Result<bool, EvalError> {
    for element in of.iter() {
        if equal(&element, wanted, call.budget())? {
            return Ok(true);
        }
    }
    Ok(false)
}
