//! The functions that expressions of policies may call: JMESPath's own, and Kyverno's additions.
//!
//! The queries of context entries are evaluated with the same table and a few functions more
//! ([`query_functions`]), which stand for what a rule does with a fact; no policy may write them.
//!
//! Some give another value the next time: [`is_of_occasion`]. What time it is, and what chance gives, comes
//! from the evaluation's [`Occasion`](anteroom_jmespath::Occasion). A rule's evaluation has one; where a view
//! is kept nobody has, so whatever calls one of these is evaluated in the rule.

mod addresses;
mod arithmetic;
mod certificates;
mod chance;
mod collections;
pub(crate) mod cut;
mod hashes;
pub(crate) mod membership;
mod notes;
mod patterns;
mod regexes;
mod strings;
mod times;
mod versions;

use std::sync::LazyLock;

use anteroom_jmespath::{Call, EvalError, Expression, FunctionTable, Handle, Shape};
pub use notes::note;
use serde_json::Value;

/// The table, one for all.
pub fn functions() -> &'static FunctionTable {
    static TABLE: LazyLock<FunctionTable> = LazyLock::new(|| {
        let mut table = FunctionTable::standard();
        strings::register(&mut table);
        patterns::register(&mut table);
        collections::register(&mut table);
        versions::register(&mut table);
        arithmetic::register(&mut table);
        times::register(&mut table);
        hashes::register(&mut table);
        chance::register(&mut table);
        addresses::register(&mut table);
        certificates::register(&mut table);
        table
    });
    &TABLE
}

/// The table that queries are evaluated with, next to the data: [`functions`], and the operators of
/// conditions that may be about lists: `any_in(KEY, VALUE)`, `all_in`, `any_not_in`, `all_not_in`, `is_in`,
/// `is_not_in`, `equals`, `not_equals`.
/// Each takes what a condition's key and value are, of any type, and gives whether the condition is met.
/// And `keep_only(VALUE, FIELDS)`: of a value, and of each element of a list, only these fields.
pub fn query_functions() -> &'static FunctionTable {
    static TABLE: LazyLock<FunctionTable> = LazyLock::new(|| {
        let mut table = functions().clone();
        membership::register(&mut table);
        cut::register(&mut table);
        table
    });
    &TABLE
}

/// Those whose value is another one on another occasion.
const OF_OCCASION: [&str; 4] = ["random", "time_now", "time_now_utc", "time_since"];

/// Whether a function's value is another one the next time: it depends on the time, or on chance.
pub fn is_of_occasion(function: &str) -> bool {
    OF_OCCASION.contains(&function)
}

/// Whether an expression calls such a function.
pub(crate) fn calls_of_occasion(expression: &Expression) -> bool {
    let mut called = expression.ast().functions().iter();
    called.any(|function| is_of_occasion(function))
}

/// The text of a scalar, as functions take it that work on strings and numbers.
fn scalar_text(call: &mut Call<'_>, value: Handle) -> Result<String, EvalError> {
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
fn string(call: &mut Call<'_>, index: usize) -> Result<String, EvalError> {
    let text = call.string(call.argument(index))?.to_owned();
    call.charge_steps(text.len())?;
    Ok(text)
}

#[cfg(test)]
mod tests;
