//! `regex.replace`, `regex.extract` and `regex.extractAll`.

use regex::{Captures, Regex};

use super::{CallContext, CallResult, Function, Val, global};
use crate::{
    EvalError,
    functions::regexes::{of_pattern, with},
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

/// The steps of a search are those of a text so many times as long: groups are looked for too.
const SEARCH_TIMES: usize = 8;

fn one_group(pattern: &Regex) -> Result<(), EvalError> {
    // The first is the whole match.
    match pattern.captures_len() > 2 {
        true => Err(EvalError::refused(
            "the regular expression has more than one group",
        )),
        false => Ok(()),
    }
}

/// The group of a match, or all of it where there is no group. `None`: the group is empty.
fn found<'t>(captures: &Captures<'t>, pattern: &Regex) -> Option<&'t str> {
    match pattern.captures_len() {
        1 => captures.get(0).map(|whole| whole.as_str()),
        _ => captures
            .get(1)
            .map(|group| group.as_str())
            .filter(|text| !text.is_empty()),
    }
}

fn extract<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(source)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(text.len())?;
    call.budget().charge_scan(SEARCH_TIMES * text.len())?;
    with(call, source, |_, pattern| {
        one_group(pattern)?;
        let captures = pattern.captures(text);
        let found = captures.and_then(|captures| found(&captures, pattern));
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
        let mut matches = pattern.captures_iter(text);
        let mut from = 0;
        loop {
            // Each search may look through all that is left.
            call.budget()
                .charge_scan(SEARCH_TIMES * (text.len() - from))?;
            call.budget().elements(1)?;
            let Some(captures) = matches.next() else {
                break;
            };
            from = captures.get(0).map_or(from, |whole| whole.end());
            if let Some(found) = found(&captures, pattern) {
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
fn parts<'t>(replacement: &'t str, pattern: &Regex) -> Result<Vec<ReplacementPart<'t>>, EvalError> {
    let mut parts = Vec::new();
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once('\\') {
        parts.push(ReplacementPart::Text(before));
        let Some(next) = after.chars().next() else {
            return Err(EvalError::refused("a replacement ends in a backslash"));
        };
        match next.to_digit(10) {
            Some(group) if (group as usize) < pattern.captures_len() => {
                parts.push(ReplacementPart::Group(group as usize));
            }
            Some(group) => {
                let message = format!(
                    "the replacement names group {group}, and the regular expression has {}",
                    pattern.captures_len() - 1
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
        let mut matches = pattern.captures_iter(text);
        let mut from = 0;
        for _ in 0..limit {
            call.budget()
                .charge_scan(SEARCH_TIMES * (text.len() - from))?;
            call.budget().step()?;
            let Some(captures) = matches.next() else {
                break;
            };
            let Some(whole) = captures.get(0) else {
                break;
            };
            replaced.push_str(&text[from..whole.start()]);
            for part in &parts {
                let part = match part {
                    ReplacementPart::Text(text) => text,
                    ReplacementPart::Group(group) => {
                        captures.get(*group).map_or("", |group| group.as_str())
                    }
                };
                call.budget().step()?;
                call.budget().build(part.len())?;
                replaced.push_str(part);
            }
            from = whole.end();
        }
        replaced.push_str(&text[from..]);
        Ok(Val::text(replaced))
    })
}
