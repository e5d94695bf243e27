//! Strings, and what is encoded in them.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Number, Signature, Types};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{arguments::string, letters};
use crate::{json::parsed_bytes_max, yaml};

const STRING: Types = Types::STRING;

pub(super) fn register(table: &mut FunctionTable) {
    let one = || Signature::of([STRING]);
    let two = || Signature::of([STRING, STRING]);
    let three = || Signature::of([STRING, STRING, STRING]);
    table
        .register("compare", two(), |call| {
            let ordering = string(call, 0)?.cmp(&string(call, 1)?);
            call.new_number(Number::I64(ordering as i64))
        })
        .register("equal_fold", two(), |call| {
            let equal = letters::equal_fold(&string(call, 0)?, &string(call, 1)?);
            call.new_boolean(equal)
        })
        .register("to_upper", one(), |call| {
            let upper = letters::upper(&string(call, 0)?);
            call.new_string(&upper)
        })
        .register("to_lower", one(), |call| {
            let lower = letters::lower(&string(call, 0)?);
            call.new_string(&lower)
        })
        .register("trim", two(), |call| {
            let (text, cut) = (string(call, 0)?, string(call, 1)?);
            call.charge_steps(text.len().saturating_mul(cut.len()))?;
            call.new_string(text.trim_matches(|c| cut.contains(c)))
        })
        .register("trim_prefix", two(), |call| {
            let (text, prefix) = (string(call, 0)?, string(call, 1)?);
            call.new_string(text.strip_prefix(&*prefix).unwrap_or(&text))
        })
        .register("split", two(), split)
        .register("replace_all", three(), |call| replace(call, None))
        .register(
            "replace",
            Signature::of([STRING, STRING, STRING, Types::NUMBER]),
            |call| {
                let count = count(call, 3)?;
                replace(call, count)
            },
        )
        .register("truncate", Signature::of([STRING, Types::NUMBER]), |call| {
            let length = number(call, 1)?.max(0.0) as usize;
            let text: String = string(call, 0)?.chars().take(length).collect();
            call.new_string(&text)
        })
        .register("to_boolean", one(), to_boolean)
        .register("base64_encode", one(), |call| {
            let encoded = base64_text(string(call, 0)?.as_bytes());
            call.new_string(&encoded)
        })
        .register("base64_decode", one(), base64_decode)
        .register("parse_json", one(), |call| {
            let text = string(call, 0)?;
            call.charge_json(parsed_bytes_max(text.as_bytes()))?;
            let json = parsed_json(&text).map_err(|message| call.invalid_value(message))?;
            call.new_json(&json)
        })
        .register("parse_yaml", one(), parse_yaml);
}

/// Levels of nesting of what a text is parsed into.
const YAML_DEPTH_MAX: usize = 64;

/// Values of what a text is parsed into: its own references may make much of little.
const YAML_NODES_MAX: usize = 100_000;

/// The first document.
fn parse_yaml(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let text = string(call, 0)?;
    call.charge_steps(yaml_steps(&text) as usize)?;
    let (parsed, bytes) = parsed_yaml(&text, call.json_bytes_max());
    call.charge_json(bytes)?;
    let parsed = parsed.map_err(|message| call.invalid_value(message))?;
    call.new_json(&parsed)
}

/// Returns the value of a JSON text, which nests at most 127 levels deep.
///
/// # Errors
/// Why it is none, in words.
pub fn parsed_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

/// Returns the steps for reading a YAML text: a short line of it has several tokens, and takes about 10 µs.
pub fn yaml_steps(text: &str) -> u64 {
    const STEPS_PER_BYTE: u64 = 12;
    STEPS_PER_BYTE * text.len() as u64
}

/// Returns the first document of a YAML text, null where there is none, with at most 64 levels and 100,000 values, or why
/// it is none, in words. Returns also the memory that was taken for all documents: more than `bytes_max` where that
/// ended the reading.
pub fn parsed_yaml(text: &str, bytes_max: u64) -> (Result<Value, String>, u64) {
    let (documents, bytes) = yaml::read_all_within(text, YAML_DEPTH_MAX, YAML_NODES_MAX, bytes_max);
    let first = documents.map(|documents| documents.into_iter().next().unwrap_or(Value::Null));
    let first = first.map_err(|error| format!("it is not YAML: {error}"));
    (first, bytes)
}

/// Returns bytes in base64, with padding.
pub fn base64_text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns the bytes of a text in base64 with padding, which may have line breaks in it.
///
/// # Errors
/// Why it is none, in words.
pub fn base64_bytes(text: &str) -> Result<Vec<u8>, String> {
    let is_break = |c: char| matches!(c, '\n' | '\r');
    let decoded = match text.contains(is_break) {
        true => STANDARD.decode(text.replace(is_break, "")),
        false => STANDARD.decode(text),
    };
    decoded.map_err(|error| format!("it is not base64: {error}"))
}

/// Bytes that a part of a text takes beside its characters.
const PART_BYTES: usize = 32;

fn split(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let (text, separator) = (string(call, 0)?, string(call, 1)?);
    // As in Go, an empty separator splits after every character.
    let count = match separator.is_empty() {
        true => text.chars().count(),
        false => text.matches(&*separator).count() + 1,
    };
    call.charge_bytes(count.saturating_mul(PART_BYTES))?;
    let mut handles = Vec::with_capacity(count);
    if separator.is_empty() {
        for part in text.chars() {
            handles.push(call.new_string(part.encode_utf8(&mut [0; 4]))?);
        }
    } else {
        for part in text.split(&*separator) {
            handles.push(call.new_string(part)?);
        }
    }
    call.new_array(&handles)
}

/// The first `count` occurrences; `None`: all of them.
fn replace(call: &mut Call<'_>, count: Option<usize>) -> Result<Handle, EvalError> {
    let (text, from, to) = (string(call, 0)?, string(call, 1)?, string(call, 2)?);
    let found = text
        .matches(&*from)
        .count()
        .min(count.unwrap_or(usize::MAX));
    call.charge_bytes(text.len().saturating_add(found.saturating_mul(to.len())))?;
    let replaced = text.replacen(&*from, &to, found);
    call.new_string(&replaced)
}

/// A count without its fraction; negative: no limit.
fn count(call: &mut Call<'_>, index: usize) -> Result<Option<usize>, EvalError> {
    let count = number(call, index)?.trunc();
    Ok((count >= 0.0).then_some(count as usize))
}

fn number(call: &mut Call<'_>, index: usize) -> Result<f64, EvalError> {
    Ok(match call.number(call.argument(index))? {
        Number::I64(number) => number as f64,
        Number::U64(number) => number as f64,
        Number::F64(number) => number,
    })
}

fn to_boolean(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    match &*string(call, 0)?.to_lowercase() {
        "true" => call.new_boolean(true),
        "false" => call.new_boolean(false),
        other => Err(call.invalid_value(format!("{other:?} is neither true nor false"))),
    }
}

fn base64_decode(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let bytes = base64_bytes(&string(call, 0)?).map_err(|message| call.invalid_value(message))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| call.invalid_value("what it encodes is not UTF-8 text"))?;
    call.new_string(&text)
}
