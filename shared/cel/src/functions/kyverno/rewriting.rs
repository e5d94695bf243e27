//! `regex.replace`, `regex.extract` and `regex.extractAll`.

use std::ops::Range;

use anteroom_functions::bounded_regex::BoundedRegex;

use super::{CallContext, CallResult, Function, Val, global};
use crate::{
    EvalError,
    functions::regexes::{charging, of_pattern, with},
    kind::Kind::{self, List, Optional, Text},
};

const OF_TEXT: &[Kind] = &[Text];

pub(super) const FUNCTIONS: &[Function] = &[
    of_pattern(global("regex.extract", (2, 2), OF_TEXT, Optional, extract)),
    of_pattern(global(
        "regex.extractAll",
        (2, 2),
        OF_TEXT,
        List,
        extract_all,
    )),
    of_pattern(global("regex.replace", (3, 4), OF_TEXT, Text, replace)),
];

fn one_group(pattern: &BoundedRegex) -> Result<(), EvalError> {
    match pattern.groups() > 1 {
        true => Err(EvalError::refused(
            "the regular expression has more than one group",
        )),
        false => Ok(()),
    }
}

/// Returns the places of a match's groups, the whole match first. A group that is not part of the match has none.
fn groups(
    call: &mut CallContext<'_>,
    pattern: &BoundedRegex,
    text: &str,
    whole: Range<usize>,
) -> Result<Vec<Option<Range<usize>>>, EvalError> {
    if pattern.groups() == 0 {
        return Ok(vec![Some(whole)]);
    }
    let captures = pattern.captures(text, whole, charging(call))?;
    let captures =
        captures.ok_or_else(|| EvalError::refused("the regular expression has too many groups"))?;
    let places = captures
        .iter()
        .map(|group| group.map(|group| group.range()));
    Ok(places.collect())
}

/// The group of a match, or all of it where there is no group. `None`: the group is empty.
fn extracted<'t>(text: &'t str, groups: &[Option<Range<usize>>]) -> Option<&'t str> {
    match groups {
        [whole] => whole.clone().map(|whole| &text[whole]),
        _ => {
            let group = groups.get(1).cloned().flatten();
            group
                .map(|group| &text[group])
                .filter(|text| !text.is_empty())
        }
    }
}

fn extract<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(source)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(text.len())?;
    with(call, source, |call, pattern| {
        one_group(pattern)?;
        let Some(whole) = pattern.find(text, charging(call))? else {
            return Ok(Val::Optional(None));
        };
        let groups = groups(call, pattern, text, whole)?;
        let found = extracted(text, &groups);
        Ok(found.map_or(Val::Optional(None), |text| Val::some(Val::text(text))))
    })
}

fn extract_all<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(source)] = arguments else {
        return call.mismatch(arguments);
    };
    with(call, source, |call, pattern| {
        one_group(pattern)?;
        let mut all = Vec::new();
        let mut matches = pattern.matches(text);
        loop {
            call.budget().elements(1)?;
            let Some(whole) = matches.next(charging(call))? else {
                break;
            };
            let groups = groups(call, pattern, text, whole)?;
            if let Some(found) = extracted(text, &groups) {
                call.budget().build(found.len())?;
                all.push(Val::text(found));
            }
        }
        Ok(Val::list(all))
    })
}

/// A part of a replacement.
enum ReplacementPart<'t> {
    Text(&'t str),
    Group(usize),
}

/// `\1` is a group, and `\\` a backslash.
fn parts<'t>(
    replacement: &'t str,
    pattern: &BoundedRegex,
) -> Result<Vec<ReplacementPart<'t>>, EvalError> {
    let mut parts = Vec::new();
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once('\\') {
        parts.push(ReplacementPart::Text(before));
        let Some(next) = after.chars().next() else {
            return Err(EvalError::refused("a replacement ends in a backslash"));
        };
        match next.to_digit(10) {
            Some(group) if (group as usize) <= pattern.groups() => {
                parts.push(ReplacementPart::Group(group as usize));
            }
            Some(group) => {
                let message = format!(
                    "the replacement names group {group}, and the regular expression has {}",
                    pattern.groups()
                );
                return Err(EvalError::Refused(message));
            }
            None if next == '\\' => parts.push(ReplacementPart::Text(&after[..1])),
            None => {
                return Err(EvalError::refused(
                    "a digit or a backslash follows a backslash in a replacement",
                ));
            }
        }
        rest = &after[next.len_utf8()..];
    }
    parts.push(ReplacementPart::Text(rest));
    Ok(parts)
}

fn replace<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (text, source, replacement, limit) = match arguments {
        [Val::Text(text), Val::Text(source), Val::Text(to)] => (text, source, to, -1),
        [
            Val::Text(text),
            Val::Text(source),
            Val::Text(to),
            Val::Int(limit),
        ] => (text, source, to, *limit),
        other => return call.mismatch(other),
    };
    // A negative number: all.
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    call.budget().build(text.len())?;
    call.budget().charge_scan(replacement.len())?;
    with(call, source, |call, pattern| {
        let parts = parts(replacement, pattern)?;
        let mut replaced = String::new();
        let mut matches = pattern.matches(text);
        let mut from = 0;
        for _ in 0..limit {
            call.budget().step()?;
            let Some(whole) = matches.next(charging(call))? else {
                break;
            };
            let groups = groups(call, pattern, text, whole.clone())?;
            replaced.push_str(&text[from..whole.start]);
            for part in &parts {
                let part = match part {
                    ReplacementPart::Text(text) => text,
                    ReplacementPart::Group(group) => {
                        let place = groups.get(*group).cloned().flatten();
                        place.map_or("", |place| &text[place])
                    }
                };
                call.budget().step()?;
                call.budget().build(part.len())?;
                replaced.push_str(part);
            }
            from = whole.end;
        }
        replaced.push_str(&text[from..]);
        Ok(Val::text(replaced))
    })
}
