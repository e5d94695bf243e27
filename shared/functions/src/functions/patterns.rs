//! Regular expressions, wildcards and labels.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};
use regex::{NoExpand, Regex};

use super::{
    arguments::{scalar_text, string},
    regexes::{self, CompileError},
};
use crate::{meter, wildcard};

pub(super) fn register(table: &mut FunctionTable) {
    let text = Types::STRING | Types::NUMBER;
    let matching = |what| Signature::of([Types::STRING, what]);
    let replacing = || Signature::of([Types::STRING, text, text]);
    table
        .register("pattern_match", matching(text), |call| {
            let (pattern, text) = (string(call, 0)?, scalar_text(call, call.argument(1))?);
            call.charge_steps(pattern.len().saturating_mul(text.len()))?;
            call.new_boolean(wildcard::matches(&pattern, &text))
        })
        .register("regex_match", matching(text | Types::BOOLEAN), |call| {
            let (regex, text) = (regex(call)?, scalar_text(call, call.argument(1))?);
            charge_search(call, &text)?;
            call.new_boolean(regex.is_match(&text))
        })
        .register("regex_replace_all", replacing(), |call| {
            replace(call, |regex, text, to| {
                regex.replace_all(text, to).into_owned()
            })
        })
        .register("regex_replace_all_literal", replacing(), |call| {
            replace(call, |regex, text, to| {
                regex.replace_all(text, NoExpand(to)).into_owned()
            })
        })
        .register(
            "label_match",
            Signature::of([Types::OBJECT, Types::OBJECT]),
            label_match,
        );
}

/// The expression that the first argument is.
fn regex(call: &mut Call<'_>) -> Result<Regex, EvalError> {
    let text = string(call, 0)?;
    let compiled = regexes::compile(&text, |steps| call.charge_steps(steps));
    compiled.map_err(|error| match error {
        CompileError::TooCostly(error) => error,
        CompileError::Invalid(message) => call.invalid_value(message),
    })
}

/// Charges a search in a text, which takes time in proportion to its length.
fn charge_search(call: &mut Call<'_>, text: &str) -> Result<(), EvalError> {
    call.charge_steps(text.len() / meter::BYTES_PER_STEP)
}

fn replace(
    call: &mut Call<'_>,
    replace: fn(&Regex, &str, &str) -> String,
) -> Result<Handle, EvalError> {
    let regex = regex(call)?;
    let (text, to) = (
        scalar_text(call, call.argument(1))?,
        scalar_text(call, call.argument(2))?,
    );
    charge_search(call, &text)?;
    // A replacement may refer to a group as often as it has `$`s, and each may be the whole text.
    let groups = to.matches('$').count();
    let found = regex.find_iter(&text).count();
    let bytes = to.len().saturating_mul(found).saturating_add(text.len());
    call.charge_bytes(bytes.saturating_add(groups.saturating_mul(text.len())))?;
    let replaced = replace(&regex, &text, &to);
    call.new_string(&replaced)
}

/// Returns whether every label of a selector is among the labels.
fn label_match(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let labels = call.argument(1);
    for (key, wanted) in call.entries(call.argument(0))? {
        let key = call.string(key)?.to_owned();
        let is_there = match call.field(labels, &key) {
            Some(found) => call.equal(found, wanted)?,
            None => false,
        };
        if !is_there {
            return call.new_boolean(false);
        }
    }
    call.new_boolean(true)
}
