//! Semantic versions against ranges, as in `>=1.2.0 <2.0.0 || 3.x`.

use std::cmp::Ordering;

use anteroom_jmespath::{FunctionTable, Signature, Types};
use semver::Version;

use super::string;

pub(super) fn register(table: &mut FunctionTable) {
    let signature = Signature::of([Types::STRING, Types::STRING]);
    table.register("semver_compare", signature, |call| {
        let (version, range) = (string(call, 0)?, string(call, 1)?);
        let version = Version::parse(&version)
            .map_err(|error| call.invalid_value(format!("`{version}` is no version: {error}")))?;
        let within = is_within(&version, &range)
            .ok_or_else(|| call.invalid_value(format!("`{range}` is no range of versions")))?;
        call.new_boolean(within)
    });
}

/// Whether a version meets all comparisons of one of the alternatives. `None` where the range is
/// malformed, wherever in it.
fn is_within(version: &Version, range: &str) -> Option<bool> {
    let mut within = false;
    for alternative in range.split("||") {
        let mut rest = alternative.trim();
        let mut all = !rest.is_empty();
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let operator_end = rest.find(|c| !"<>=!".contains(c))?;
            let (operator, after) = rest.split_at(operator_end);
            let after = after.trim_start();
            let version_end = after.find(char::is_whitespace).unwrap_or(after.len());
            let (wanted, after) = after.split_at(version_end);
            all &= meets(version, operator, wanted)?;
            rest = after.trim_start();
        }
        within |= all;
    }
    Some(within)
}

fn meets(version: &Version, operator: &str, wanted: &str) -> Option<bool> {
    let (from, to) = bounds(wanted)?;
    // Where the version stands: before, within or after all that is meant.
    let position = if version.cmp_precedence(&from).is_lt() {
        Ordering::Less
    } else if match &to {
        Some(to) => version.cmp_precedence(to).is_lt(),
        None => version.cmp_precedence(&from).is_eq(),
    } {
        Ordering::Equal
    } else {
        Ordering::Greater
    };
    Some(match operator {
        "" | "=" | "==" => position.is_eq(),
        "!" | "!=" => position.is_ne(),
        ">" => position.is_gt(),
        ">=" => position.is_ge(),
        "<" => position.is_lt(),
        "<=" => position.is_le(),
        _ => return None,
    })
}

/// One version, or the first one meant by `1.x` or `1.2.x` and the first one beyond.
fn bounds(wanted: &str) -> Option<(Version, Option<Version>)> {
    let Some(fixed) = wanted.strip_suffix(".x") else {
        return Some((Version::parse(wanted).ok()?, None));
    };
    let fixed = fixed.strip_suffix(".x").unwrap_or(fixed);
    let parts: Vec<u64> = fixed
        .split('.')
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    Some(match *parts {
        [major] => (
            Version::new(major, 0, 0),
            Some(Version::new(major.checked_add(1)?, 0, 0)),
        ),
        [major, minor] => (
            Version::new(major, minor, 0),
            Some(Version::new(major, minor.checked_add(1)?, 0)),
        ),
        _ => return None,
    })
}
