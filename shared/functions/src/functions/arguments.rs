//! Arguments as text.

use anteroom_jmespath::{Call, EvalError, Handle, Shape};
use serde_json::Value;

/// The text of a scalar, as functions take it that work on strings and numbers.
pub(super) fn scalar_text(call: &mut Call<'_>, value: Handle) -> Result<String, EvalError> {
    if let Shape::String(text) = call.shape(value) {
        let text = text.to_owned();
        call.charge_steps(text.len())?;
        return Ok(text);
    }
    match call.to_json(value)? {
        Value::Bool(value) => Ok(value.to_string()),
        // As exact as a float of 32 bits, which has no more than some forty digits.
        #[allow(clippy::cast_possible_truncation)]
        Value::Number(number) if number.is_f64() => {
            Ok((number.as_f64().unwrap_or_default() as f32).to_string())
        }
        Value::Number(number) => Ok(number.to_string()),
        other => Err(call.invalid_value(format!("a string or a number is needed, not {other}"))),
    }
}

/// The string argument at `index`, its length charged.
pub(super) fn string(call: &mut Call<'_>, index: usize) -> Result<String, EvalError> {
    let text = call.string(call.argument(index))?.to_owned();
    call.charge_steps(text.len())?;
    Ok(text)
}
