//! Regular expressions, wildcards and labels.

use std::rc::Rc;

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};
use regex_automata::util::captures::Captures;

use super::{
    arguments::{scalar_text, string},
    letters, regexes,
};
use crate::{
    bounded_regex::{BoundedRegex, CompileError},
    wildcard,
};

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
        .register("regex_match", matching(text), |call| {
            let (regex, text) = (regex(call)?, scalar_text(call, call.argument(1))?);
            let found = regex.is_match(&text, |steps| call.charge_steps(steps))?;
            call.new_boolean(found)
        })
        .register("regex_replace_all", replacing(), |call| replace(call, true))
        .register("regex_replace_all_literal", replacing(), |call| {
            replace(call, false)
        })
        .register(
            "label_match",
            Signature::of([Types::OBJECT, Types::OBJECT]),
            label_match,
        );
}

/// The expression that the first argument is.
fn regex(call: &mut Call<'_>) -> Result<Rc<BoundedRegex>, EvalError> {
    let text = string(call, 0)?;
    let compiled = regexes::compile(&text, |steps| call.charge_steps(steps));
    compiled.map_err(|error| match error {
        CompileError::TooCostly(error) => error,
        CompileError::Invalid(error) => {
            call.invalid_value(format!("invalid regular expression: {error}"))
        }
    })
}

/// Replaces all matches. `expands`: the replacement refers to groups by `$1` and `${name}`.
fn replace(call: &mut Call<'_>, expands: bool) -> Result<Handle, EvalError> {
    let regex = regex(call)?;
    let (text, to) = (
        scalar_text(call, call.argument(1))?,
        scalar_text(call, call.argument(2))?,
    );
    let references = match expands {
        true => to.matches('$').count(),
        false => 0,
    };
    let mut replaced = String::new();
    let (mut matches, mut from) = (regex.matches(&text), 0);
    while let Some(found) = matches.next(|steps| call.charge_steps(steps))? {
        // Each reference may be the whole match.
        let expanded = references.saturating_mul(found.len());
        let bytes = (found.start - from)
            .saturating_add(to.len())
            .saturating_add(expanded);
        call.charge_bytes(bytes)?;
        replaced.push_str(&text[from..found.start]);
        from = found.end;
        if references == 0 {
            replaced.push_str(&to);
            continue;
        }
        let groups = regex.captures(&text, found, |steps| call.charge_steps(steps))?;
        let groups = groups.ok_or_else(|| {
            call.invalid_value("the regular expression has too many groups".to_owned())
        })?;
        expand(&to, &text, &groups, &mut replaced);
    }
    call.charge_bytes(text.len() - from)?;
    replaced.push_str(&text[from..]);
    call.new_string(&replaced)
}

/// Appends a replacement. For `$1`, `$name` and `${name}` stands a group of the match, for `$$` a `$`, and for a group
/// that there is not, nothing.
fn expand(to: &str, text: &str, groups: &Captures, replaced: &mut String) {
    let mut rest = to;
    while let Some((before, after)) = rest.split_once('$') {
        replaced.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            replaced.push('$');
            rest = after;
            continue;
        }
        let Some((name, after)) = reference(after) else {
            replaced.push('$');
            rest = after;
            continue;
        };
        let group = match number(name) {
            Some(number) => groups.get_group(number),
            None => groups.get_group_by_name(name),
        };
        replaced.push_str(group.and_then(|of| text.get(of.range())).unwrap_or(""));
        rest = after;
    }
    replaced.push_str(rest);
}

/// Returns the name of a group that a text begins with, with or without braces, and the rest of the text. A name has all
/// letters and digits that follow each other.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (inside, end) = match text.strip_prefix('{') {
        Some(inside) => (inside, "}"),
        None => (text, ""),
    };
    let is_other = |c: char| c != '_' && !letters::is_letter_or_digit(c);
    let length = inside.find(is_other).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(length);
    let rest = rest.strip_prefix(end)?;
    (!name.is_empty()).then_some((name, rest))
}

/// Returns the number that a group's name is.
fn number(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let is_usual = name.len() == 1 || !name.starts_with('0');
    (is_number && is_usual).then(|| name.parse().ok())?
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
