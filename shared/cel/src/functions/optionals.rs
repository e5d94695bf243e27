//! Values that may be missing.

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Any, Bool, List, Optional},
    value::Val,
};

const OF_OPTIONAL: &[Kind] = &[Optional];

pub(super) const FUNCTIONS: &[Function] = &[
    global("optional.of", (1, 1), &[], Optional, of).passing(),
    global(
        "optional.ofNonZeroValue",
        (1, 1),
        &[],
        Optional,
        of_non_zero,
    ),
    global("optional.none", (0, 0), &[], Optional, none),
    global("optional.unwrap", (1, 1), &[List], List, unwrap),
    method("unwrapOpt", (1, 1), &[List], List, unwrap),
    method("hasValue", (1, 1), OF_OPTIONAL, Bool, has_value),
    method("value", (1, 1), OF_OPTIONAL, Any, value).passing(),
    method("or", (2, 2), OF_OPTIONAL, Optional, or)
        .passing()
        .falling_back(),
    method("orValue", (2, 2), OF_OPTIONAL, Any, or_value)
        .passing()
        .falling_back(),
];

fn of<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [value] => Ok(Val::some(value.clone())),
        other => call.mismatch(other),
    }
}

fn of_non_zero<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [value] = arguments else {
        return call.mismatch(arguments);
    };
    let is_zero = match value {
        Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Duration(0) => true,
        Val::Double(value) => *value == 0.0,
        Val::Text(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.len() == 0,
        Val::Map(map) => map.len() == 0,
        _ => false,
    };
    Ok(match is_zero {
        true => Val::Optional(None),
        false => Val::some(value.clone()),
    })
}

fn none<'v>(_: &mut CallContext<'_>, _: &[Val<'v>]) -> CallResult<'v> {
    Ok(Val::Optional(None))
}

/// Returns the values of a list of optionals, without empty ones.
fn unwrap<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::List(list)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().elements(list.len())?;
    let mut found = Vec::new();
    for element in list.iter() {
        match element {
            Val::Optional(inner) => found.extend(inner.map(|inner| (*inner).clone())),
            _ => return call.mismatch(arguments),
        }
    }
    Ok(Val::list(found))
}

fn has_value<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Optional(value)] => Ok(Val::Bool(value.is_some())),
        other => call.mismatch(other),
    }
}

fn value<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Optional(Some(value))] => Ok((**value).clone()),
        [Val::Optional(None)] => Err(EvalError::refused("optional.none() dereference")),
        other => call.mismatch(other),
    }
}

/// Called with the first argument alone, unless that is an empty optional: as all that fall back.
fn or<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Optional(None), other @ Val::Optional(_)] => Ok(other.clone()),
        [value @ Val::Optional(Some(_))] => Ok(value.clone()),
        other => call.mismatch(other),
    }
}

fn or_value<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Optional(None), other] => Ok(other.clone()),
        [Val::Optional(Some(value))] => Ok((**value).clone()),
        other => call.mismatch(other),
    }
}
