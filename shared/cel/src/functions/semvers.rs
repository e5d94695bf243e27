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
        true => normalized(text).and_then(|text| Version::parse(&text).ok()),
    }))
}

/// `None`: parts are missing before a suffix, as in `1.2-rc.1`.
fn normalized(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<_> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last()?.contains(['-', '+']) {
        return None;
    }
    parts.resize(3, "0");
    Some(parts.join("."))
}

/// A part of a version, with one zero at most before what is no digit.
fn without_zeros(part: &str) -> &str {
    let zeros = part.bytes().take_while(|byte| *byte == b'0').count();
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let kept = match part.as_bytes().get(zeros).is_some_and(is_digit) {
        true => zeros,
        false => zeros.saturating_sub(1),
    };
    &part[kept..]
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
