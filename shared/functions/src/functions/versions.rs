//! Semantic versions against ranges, as in `>=1.2.0 <2.0.0 || 3.x`.

use std::cmp::Ordering;

use anteroom_jmespath::{FunctionTable, Signature, Types};
use semver::Version;

use super::arguments::string;

pub(super) fn register(table: &mut FunctionTable) {
    let signature = Signature::of([Types::STRING, Types::STRING]);
    table.register("semver_compare", signature, |call| {
        let (version, range) = (string(call, 0)?, string(call, 1)?);
        // What is no version is the first of all.
        let version = Version::parse(&version).unwrap_or(Version::new(0, 0, 0));
        let within = is_within(&version, &range)
            .ok_or_else(|| call.invalid_value(format!("`{range}` is no range of versions")))?;
        call.new_boolean(within)
    });
}

/// Returns whether a version meets all comparisons of one of the alternatives. `None` where the range is
/// malformed, wherever in it.
fn is_within(version: &Version, range: &str) -> Option<bool> {
    let mut within = false;
    for alternative in words(range).split(|word| word == "||") {
        let mut all = !alternative.is_empty();
        if alternative.is_empty() {
            return None;
        }
        for word in alternative {
            let operator_end = word.find(|c| !"<>=!".contains(c))?;
            let (operator, wanted) = word.split_at(operator_end);
            all &= meets(version, operator, wanted)?;
        }
        within |= all;
    }
    Some(within)
}

/// Splits at spaces, but for those behind an operator. A character alone is passed over, as the dash in
/// `1.0.0 - 2.0.0` is.
fn words(range: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    for c in range.chars().chain([' ']) {
        match c {
            ' ' if word.ends_with(['<', '>', '=']) => {}
            ' ' => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| word.len() > 1);
    words
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
        // Nothing is before and beyond what is meant.
        "!" | "!=" => to.is_none() && position.is_ne(),
        ">" => position.is_gt(),
        ">=" => position.is_ge(),
        "<" => position.is_lt(),
        "<=" => position.is_le(),
        _ => return None,
    })
}

/// One version, or the first one meant by `1.x` or `1.2.x` and the first one beyond. `1.x.x` is `1.0.x`.
fn bounds(wanted: &str) -> Option<(Version, Option<Version>)> {
    let Some(fixed) = wanted.strip_suffix(".x") else {
        return Some((Version::parse(wanted).ok()?, None));
    };
    let shorter = fixed.strip_suffix(".x").map(|fixed| format!("{fixed}.0"));
    let fixed = shorter.as_deref().unwrap_or(fixed);
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
