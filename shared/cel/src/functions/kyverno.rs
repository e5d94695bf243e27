//! The functions that only Kyverno's policy kinds have.

mod codecs;
mod images;
mod math;
mod nondeterministic;
mod objects;
mod rewriting;

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{kind::Kind::Any, value::Val};

pub(super) const ALL: &[&[Function]] = &[
    OPTIONALS,
    codecs::FUNCTIONS,
    images::FUNCTIONS,
    math::FUNCTIONS,
    objects::FUNCTIONS,
    rewriting::FUNCTIONS,
    nondeterministic::FUNCTIONS,
];

const OPTIONALS: &[Function] = &[method("orValue", (2, 2), &[], Any, or_value).passing()];

/// Any value that is no optional is there, null too.
fn or_value<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Optional(Some(value)), _] => Ok((**value).clone()),
        [Val::Optional(None), other] => Ok(other.clone()),
        [value, _] => Ok(value.clone()),
        other => call.mismatch(other),
    }
}

#[cfg(test)]
mod tests;
