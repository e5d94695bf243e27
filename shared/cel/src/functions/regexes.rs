//! Regular expressions. Matching takes time that is linear in the text.

use regex::{Regex, RegexBuilder};

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Bool, List, Text},
    value::Val,
};

/// Bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Groups within groups of a pattern.
const PATTERN_NESTING_MAX: u32 = 50;

/// Steps that a pattern costs which is made for an object.
const PATTERN_STEPS: u64 = 20_000;

const OF_TEXT: &[Kind] = &[Text];

pub(super) const fn of_pattern(function: Function) -> Function {
    Function {
        takes_pattern: true,
        ..function
    }
}

pub(super) const FUNCTIONS: &[Function] = &[
    of_pattern(method("matches", (2, 2), OF_TEXT, Bool, matches)),
    of_pattern(global("matches", (2, 2), OF_TEXT, Bool, matches)),
    of_pattern(method("find", (2, 2), OF_TEXT, Text, find)),
    of_pattern(method("findAll", (2, 3), OF_TEXT, List, find_all)),
];

/// Compiles a pattern.
///
/// # Errors
/// Why it is none.
pub(crate) fn pattern(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .nest_limit(PATTERN_NESTING_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                format!("the pattern takes more than {PATTERN_BYTES_MAX} bytes when it is compiled")
            }
            error => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default();
                format!(
                    "not a regular expression: {}",
                    last.trim_start_matches("error: ")
                )
            }
        })
}

/// Uses the compiled literal pattern, or compiles the pattern now.
pub(super) fn with<'v>(
    call: &mut CallContext<'_>,
    text: &str,
    run: impl FnOnce(&mut CallContext<'_>, &Regex) -> CallResult<'v>,
) -> CallResult<'v> {
    if let Some(pattern) = call.pattern {
        return run(call, pattern);
    }
    let made = match call.tools.made.take() {
        Some((source, made)) if source == text => made,
        _ => {
            call.budget().steps(PATTERN_STEPS)?;
            pattern(text).map_err(EvalError::Refused)?
        }
    };
    let answer = run(call, &made);
    call.tools.made = Some((text.to_owned(), made));
    answer
}

fn matches<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(source)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().charge_scan(4 * text.len())?;
    with(call, source, |_, pattern| {
        Ok(Val::Bool(pattern.is_match(text)))
    })
}

fn find<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(source)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().charge_scan(4 * text.len())?;
    with(call, source, |_, pattern| {
        let found = pattern.find(text);
        Ok(Val::text(found.map_or("", |found| found.as_str())))
    })
}

fn find_all<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (text, source, limit) = match arguments {
        [Val::Text(text), Val::Text(source)] => (text, source, -1),
        [Val::Text(text), Val::Text(source), Val::Int(limit)] => (text, source, *limit),
        other => return call.mismatch(other),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    with(call, source, |call, pattern| {
        let mut all = Vec::new();
        let mut found = pattern.find_iter(text);
        let mut from = 0;
        while all.len() < limit {
            // Each search may look through all that is left.
            call.budget().charge_scan(4 * (text.len() - from))?;
            call.budget().elements(1)?;
            let Some(next) = found.next() else {
                break;
            };
            from = next.end();
            all.push(Val::text(next.as_str()));
        }
        Ok(Val::list(all))
    })
}
