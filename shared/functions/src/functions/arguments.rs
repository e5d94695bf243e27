//! Arguments as text.

use anteroom_jmespath::{Call, EvalError, Handle, Number, Shape};

/// The text of a scalar, as functions take it that work on strings and numbers. A null, a list and an object are refused
/// as they are.
pub(super) fn scalar_text(call: &mut Call<'_>, value: Handle) -> Result<String, EvalError> {
    if let Shape::String(text) = call.shape(value) {
        let text = text.to_owned();
        call.charge_steps(text.len())?;
        return Ok(text);
    }
    match call.shape(value) {
        Shape::Bool(value) => Ok(value.to_string()),
        Shape::Number(Number::I64(number)) => Ok(number.to_string()),
        Shape::Number(Number::U64(number)) => Ok(number.to_string()),
        // As exact as a float of 32 bits, which has no more than some forty digits.
        #[allow(clippy::cast_possible_truncation)]
        Shape::Number(Number::F64(number)) => Ok((number as f32).to_string()),
        other => {
            let found = other.type_name();
            Err(call.invalid_value(format!(
                "a string or a number is needed, and this is of type {found}"
            )))
        }
    }
}

/// The string argument at `index`, its length charged.
pub(super) fn string(call: &mut Call<'_>, index: usize) -> Result<String, EvalError> {
    let text = call.string(call.argument(index))?.to_owned();
    call.charge_steps(text.len())?;
    Ok(text)
}
