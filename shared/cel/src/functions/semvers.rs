//! Semantic versions.

use std::sync::Arc;

use semver::Version;

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Bool, Int, Semver, Text},
    value::Val,
};

const OF_TEXT: &[Kind] = &[Text];
const OF_SEMVER: &[Kind] = &[Semver];

pub(super) const FUNCTIONS: &[Function] = &[
    global("semver", (1, 2), OF_TEXT, Semver, semver),
    global("isSemver", (1, 2), OF_TEXT, Bool, is_semver),
    method("major", (1, 1), OF_SEMVER, Int, part),
    method("minor", (1, 1), OF_SEMVER, Int, part),
    method("patch", (1, 1), OF_SEMVER, Int, part),
];

/// With `normalize` a leading `v`, missing parts and leading zeros are forgiven.
///
/// # Errors
/// The text is too long for the budget: each byte may begin a part.
fn read(
    call: &mut CallContext<'_>,
    arguments: &[Val<'_>],
) -> Result<Option<Option<Version>>, EvalError> {
    let (text, normalize) = match arguments {
        [Val::Text(text)] => (text, false),
        [Val::Text(text), Val::Bool(normalize)] => (text, *normalize),
        _ => return Ok(None),
    };
    call.budget().steps(text.len() as u64)?;
    Ok(Some(match normalize {
        false => Version::parse(text).ok(),
        true => Version::parse(&normalized(text)).ok(),
    }))
}

fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<_> = numbers
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            part => part,
        })
        .collect();
    while parts.len() < 3 {
        parts.push("0");
    }
    format!("{}{rest}", parts.join("."))
}

fn semver<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match read(call, arguments)? {
        Some(Some(version)) => Ok(Val::Semver(Arc::new(version))),
        Some(None) => Err(EvalError::refused("no semantic version as in 1.2.3")),
        None => call.mismatch(arguments),
    }
}

fn is_semver<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match read(call, arguments)? {
        Some(version) => Ok(Val::Bool(version.is_some())),
        None => call.mismatch(arguments),
    }
}

fn part<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Semver(version)] = arguments else {
        return call.mismatch(arguments);
    };
    let part = match call.name {
        "major" => version.major,
        "minor" => version.minor,
        _ => version.patch,
    };
    i64::try_from(part)
        .map(Val::Int)
        .map_err(|_| EvalError::Overflow("integer"))
}
