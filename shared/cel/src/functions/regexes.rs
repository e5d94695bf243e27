//! Regular expressions, in Go's syntax.

use anteroom_functions::{
    bounded_regex::{BoundedRegex, CompileError, PatternError},
    meter,
};

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Bool, List, Text},
    value::Val,
};

/// The most steps that it takes to compile a pattern that is a literal: some ten milliseconds.
const LITERAL_STEPS_MAX: usize = 500_000;

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

/// Compiles a pattern that is a literal.
///
/// # Errors
/// Why it is none.
pub(crate) fn pattern(text: &str) -> Result<BoundedRegex, String> {
    let mut left = LITERAL_STEPS_MAX;
    let compiled = BoundedRegex::compile(text, |steps| {
        left = left.checked_sub(steps).ok_or(())?;
        meter::charge(steps as u64).then_some(()).ok_or(())
    });
    compiled.map_err(|error| match error {
        CompileError::TooCostly(()) => "the pattern takes too long to compile".to_owned(),
        CompileError::Invalid(error) => refusal(&error),
    })
}

fn refusal(error: &PatternError) -> String {
    match error {
        PatternError::Syntax(problem) => format!("not a regular expression: {problem}"),
        PatternError::TooLong | PatternError::TooLarge => error.to_string(),
    }
}

/// Uses the compiled literal pattern, or compiles the pattern now.
pub(super) fn with<'v>(
    call: &mut CallContext<'_>,
    text: &str,
    run: impl FnOnce(&mut CallContext<'_>, &BoundedRegex) -> CallResult<'v>,
) -> CallResult<'v> {
    if let Some(pattern) = call.pattern {
        return run(call, pattern);
    }
    let made = match call.tools.made.take() {
        Some((source, made)) if source == text => made,
        _ => {
            let compiled = BoundedRegex::compile(text, charging(call));
            compiled.map_err(|error| match error {
                CompileError::TooCostly(error) => error,
                CompileError::Invalid(error) => EvalError::Refused(refusal(&error)),
            })?
        }
    };
    let answer = run(call, &made);
    call.tools.made = Some((text.to_owned(), made));
    answer
}

/// Charges steps to the budget of the evaluation.
pub(super) fn charging(call: &mut CallContext<'_>) -> impl FnMut(usize) -> Result<(), EvalError> {
    |steps| call.budget().steps(steps as u64)
}

fn matches<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(source)] = arguments else {
        return call.mismatch(arguments);
    };
    with(call, source, |call, pattern| {
        Ok(Val::Bool(pattern.is_match(text, charging(call))?))
    })
}

fn find<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(source)] = arguments else {
        return call.mismatch(arguments);
    };
    with(call, source, |call, pattern| {
        let found = pattern.find(text, charging(call))?;
        Ok(Val::text(found.map_or("", |found| &text[found])))
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
        let mut found = pattern.matches(text);
        while all.len() < limit {
            call.budget().elements(1)?;
            let Some(next) = found.next(charging(call))? else {
                break;
            };
            all.push(Val::text(&text[next]));
        }
        Ok(Val::list(all))
    })
}
