//! Functions of strings.

use crate::error::EvalError;
use crate::function::{Call, Handle};

pub(super) fn starts_with(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    call.charge_string(call.argument(1))?;
    let starts = call
        .string(call.argument(0))?
        .starts_with(call.string(call.argument(1))?);
    call.new_boolean(starts)
}

pub(super) fn ends_with(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    call.charge_string(call.argument(1))?;
    let ends = call
        .string(call.argument(0))?
        .ends_with(call.string(call.argument(1))?);
    call.new_boolean(ends)
}

pub(super) fn join(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    // It is copied also where it joins nothing.
    call.charge_string(call.argument(0))?;
    let glue = call.string(call.argument(0))?.to_owned();
    let mut joined = String::new();
    for (index, element) in call.elements(call.argument(1))?.enumerate() {
        let glue = if index == 0 { "" } else { &glue };
        // Charged before it is allocated: the glue may be long, and the elements many.
        call.charge_bytes(glue.len() + call.string(element)?.len())?;
        joined.push_str(glue);
        joined.push_str(call.string(element)?);
    }
    call.new_string(&joined)
}
