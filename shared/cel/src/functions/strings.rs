//! Functions of strings. Places are those of characters.

use super::{
    format,
    function::{CallContext, CallResult, Function, global, method},
    lists,
};
use crate::{
    EvalError,
    kind::Kind::{self, Any, Bool, Bytes, Int, List, Map, Text},
    value::Val,
};

const OF_TEXT: &[Kind] = &[Text];
const OF_TEXT_OR_LIST: &[Kind] = &[Text, List];
const SIZED: &[Kind] = &[Text, Bytes, List, Map];

pub(super) const FUNCTIONS: &[Function] = &[
    global("size", (1, 1), SIZED, Int, size),
    method("size", (1, 1), SIZED, Int, size),
    method("startsWith", (2, 2), OF_TEXT, Bool, affix),
    method("endsWith", (2, 2), OF_TEXT, Bool, affix),
    method("contains", (2, 2), OF_TEXT, Bool, affix),
    method("charAt", (2, 2), OF_TEXT, Text, char_at),
    method("indexOf", (2, 3), OF_TEXT_OR_LIST, Int, index_of),
    method("lastIndexOf", (2, 3), OF_TEXT_OR_LIST, Int, index_of),
    method("join", (1, 2), &[List], Text, join),
    method("lowerAscii", (1, 1), OF_TEXT, Text, changed),
    method("upperAscii", (1, 1), OF_TEXT, Text, changed),
    method("trim", (1, 1), OF_TEXT, Text, changed),
    method("reverse", (1, 1), OF_TEXT_OR_LIST, Any, reverse).passing(),
    method("replace", (3, 4), OF_TEXT, Text, replace),
    method("split", (2, 3), OF_TEXT, List, split),
    method("substring", (2, 3), OF_TEXT, Text, substring),
    method("format", (2, 2), OF_TEXT, Text, format::format),
    global("strings.quote", (1, 1), OF_TEXT, Text, quote),
];

fn size<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let size = match arguments {
        [Val::Text(text)] => {
            call.budget().charge_scan(text.len())?;
            text.chars().count()
        }
        [Val::Bytes(bytes)] => bytes.len(),
        [Val::List(list)] => list.len(),
        [Val::Map(map)] => map.len(),
        other => return call.mismatch(other),
    };
    Ok(Val::Int(size as i64))
}

fn affix<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Text(part)] = arguments else {
        return call.mismatch(arguments);
    };
    Ok(Val::Bool(match call.name {
        "startsWith" => text.starts_with(&**part),
        "endsWith" => text.ends_with(&**part),
        _ => {
            call.budget().charge_scan(text.len())?;
            text.contains(&**part)
        }
    }))
}

fn out_of_range<'v>(at: i64) -> CallResult<'v> {
    Err(EvalError::Refused(format!("index out of range: {at}")))
}

fn char_at<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text), Val::Int(at)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().charge_scan(text.len())?;
    let Ok(place) = usize::try_from(*at) else {
        return out_of_range(*at);
    };
    match text.chars().nth(place) {
        Some(found) => Ok(Val::text(found.to_string())),
        None if text.chars().count() == place => Ok(Val::text("")),
        None => out_of_range(*at),
    }
}

fn index_of<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let is_last = call.name == "lastIndexOf";
    let (text, part, offset) = match arguments {
        [Val::Text(text), Val::Text(part)] => (text, part, None),
        [Val::Text(text), Val::Text(part), Val::Int(offset)] => (text, part, Some(*offset)),
        [Val::List(list), value] => return lists::index_of(call, list, value, is_last),
        other => return call.mismatch(other),
    };
    call.budget().charge_scan(2 * text.len())?;
    let length = text.chars().count();
    let from = match offset.map(|offset| usize::try_from(offset).map_err(|_| offset)) {
        None if is_last => length,
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(offset)) => return out_of_range(offset),
    };
    if part.is_empty() {
        return Ok(Val::Int(from.min(length) as i64));
    }
    if from >= length && offset.is_some() {
        return Ok(Val::Int(-1));
    }
    let from = byte_of(text, from);
    let found = match is_last {
        false => text[from..].find(&**part).map(|found| from + found),
        true => {
            // It may begin at the place, and go on after it.
            let mut end = (from + part.len()).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text[..end].rfind(&**part)
        }
    };
    let place = found.map_or(-1, |found| text[..found].chars().count() as i64);
    Ok(Val::Int(place))
}

/// Returns the byte at which a character begins, or the text ends.
fn byte_of(text: &str, place: usize) -> usize {
    let found = text.char_indices().nth(place);
    found.map_or(text.len(), |(at, _)| at)
}

fn join<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (list, separator) = match arguments {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::Text(separator)] => (list, &**separator),
        other => return call.mismatch(other),
    };
    let mut joined = String::new();
    for (at, element) in list.iter().enumerate() {
        let Some(text) = element.as_text() else {
            return call.mismatch(arguments);
        };
        call.budget().step()?;
        call.budget().build(text.len() + separator.len())?;
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    Ok(Val::text(joined))
}

fn changed<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(text.len())?;
    Ok(match call.name {
        "lowerAscii" => Val::text(text.to_ascii_lowercase()),
        "upperAscii" => Val::text(text.to_ascii_uppercase()),
        _ => Val::text(text.trim()),
    })
}

fn reverse<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => {
            call.budget().build(text.len())?;
            Ok(Val::text(text.chars().rev().collect::<String>()))
        }
        [Val::List(list)] => {
            call.budget().elements(list.len())?;
            let mut elements: Vec<_> = list.iter().collect();
            elements.reverse();
            Ok(Val::list(elements))
        }
        other => call.mismatch(other),
    }
}

/// At most so many; a negative number: all.
fn count(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn replace<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (text, old, new, limit) = match arguments {
        [Val::Text(text), Val::Text(old), Val::Text(new)] => (text, old, new, -1),
        [
            Val::Text(text),
            Val::Text(old),
            Val::Text(new),
            Val::Int(limit),
        ] => (text, old, new, *limit),
        other => return call.mismatch(other),
    };
    call.budget().charge_scan(text.len())?;
    let found = match old.is_empty() {
        true => text.len() + 1,
        false => text.matches(&**old).count(),
    };
    let found = found.min(count(limit));
    call.budget()
        .build(text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Val::text(text.replacen(&**old, new, found)))
}

fn split<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (text, separator, limit) = match arguments {
        [Val::Text(text), Val::Text(separator)] => (text, separator, -1),
        [Val::Text(text), Val::Text(separator), Val::Int(limit)] => (text, separator, *limit),
        other => return call.mismatch(other),
    };
    call.budget().build(text.len())?;
    let limit = count(limit);
    let parts: Vec<Val<'v>> = match (limit, separator.is_empty()) {
        (0, _) => Vec::new(),
        (limit, true) => {
            let chars = text.chars().count();
            call.budget().elements(chars.min(limit))?;
            let whole = chars.min(limit.saturating_sub(1));
            let rest = byte_of(text, whole);
            let mut parts: Vec<_> = text.chars().take(whole).map(String::from).collect();
            if rest < text.len() {
                parts.push(text[rest..].to_owned());
            }
            parts.into_iter().map(Val::text).collect()
        }
        (limit, false) => {
            let count = text.matches(&**separator).count() + 1;
            call.budget().elements(count.min(limit))?;
            text.splitn(limit, &**separator).map(Val::text).collect()
        }
    };
    Ok(Val::list(parts))
}

fn substring<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let (text, start, end) = match arguments {
        [Val::Text(text), Val::Int(start)] => (text, *start, None),
        [Val::Text(text), Val::Int(start), Val::Int(end)] => (text, *start, Some(*end)),
        other => return call.mismatch(other),
    };
    call.budget().build(text.len())?;
    let length = text.chars().count() as i64;
    let end = end.unwrap_or(length);
    if !(0..=length).contains(&start) {
        return out_of_range(start);
    }
    if !(0..=length).contains(&end) {
        return out_of_range(end);
    }
    if start > end {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::Refused(message));
    }
    let (start, end) = (byte_of(text, start as usize), byte_of(text, end as usize));
    Ok(Val::text(&text[start..end]))
}

fn quote<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(2 * text.len() + 2)?;
    Ok(Val::text(format::quoted(text)))
}
