//! Conversions between types.

use jiff::Timestamp;

use super::function::{CallContext, CallResult, Function, global};
use crate::{
    EvalError,
    kind::Kind::{Any, Bool, Bytes, Double, Int, Text, Type, Uint},
    value::{Val, is_timestamp},
};

/// Nanoseconds of a second.
const SECOND_NS: i128 = 1_000_000_000;

/// The digits of a fraction of a second that count.
const FRACTION_DIGITS: usize = 9;

pub(super) const FUNCTIONS: &[Function] = &[
    global("string", (1, 1), &[], Text, string),
    global("int", (1, 1), &[], Int, int),
    global("uint", (1, 1), &[], Uint, uint),
    global("double", (1, 1), &[], Double, double),
    global("bool", (1, 1), &[], Bool, boolean),
    global("bytes", (1, 1), &[], Bytes, bytes),
    global("type", (1, 1), &[], Type, type_of),
    global("dyn", (1, 1), &[], Any, same),
];

fn string<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    Ok(match arguments {
        [text @ Val::Text(_)] => text.clone(),
        [Val::Bytes(bytes)] => {
            call.budget().build(bytes.len())?;
            match std::str::from_utf8(bytes) {
                Ok(text) => Val::text(text),
                Err(_) => return Err(EvalError::refused("invalid UTF-8 in bytes")),
            }
        }
        [
            Val::Null
            | Val::List(_)
            | Val::Map(_)
            | Val::Optional(_)
            | Val::Type(_)
            | Val::Image(_)
            | Val::Struct(_),
        ] => return call.mismatch(arguments),
        [value] => {
            let text = shown(value);
            call.budget().build(text.len())?;
            Val::text(text)
        }
        other => return call.mismatch(other),
    })
}

/// A value that has no parts, as a string.
pub(super) fn shown(value: &Val<'_>) -> String {
    match value {
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => value.to_string(),
        Val::Double(value) => shown_double(*value),
        Val::Text(text) => text.to_string(),
        Val::Duration(ns) => shown_duration(*ns),
        Val::Timestamp(at) => at.to_string(),
        Val::Quantity(quantity) => quantity.to_string(),
        Val::Url(url) => url.to_string(),
        Val::Ip(ip) => ip.to_string(),
        Val::Cidr(cidr) => cidr.to_string(),
        Val::Semver(version) => version.to_string(),
        Val::Type(name) => (*name).to_owned(),
        Val::Null => "null".to_owned(),
        Val::Image(image) => image.to_string(),
        Val::Bytes(_)
        | Val::List(_)
        | Val::Map(_)
        | Val::Optional(_)
        | Val::Format(_)
        | Val::Struct(_) => value.type_name().to_owned(),
    }
}

/// The shortest digits that say it, with an exponent from seven places on.
fn shown_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(power) if !(-4..6).contains(&power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:0>2}", power.unsigned_abs())
        }
        _ => value.to_string(),
    }
}

fn refuse_text<'v>(text: &str, to: &str) -> CallResult<'v> {
    let start: String = text.chars().take(40).collect();
    Err(EvalError::Refused(format!("`{start}` is no {to}")))
}

fn int<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let overflow = || EvalError::Overflow("integer");
    Ok(Val::Int(match arguments {
        [Val::Int(value)] => *value,
        [Val::Uint(value)] => i64::try_from(*value).map_err(|_| overflow())?,
        // Both ends are left out: an int's own are not exact as doubles.
        [Val::Double(value)] if *value > i64::MIN as f64 && *value < i64::MAX as f64 => {
            *value as i64
        }
        [Val::Double(_)] => return Err(overflow()),
        [Val::Text(text)] => match text.parse() {
            Ok(value) => value,
            Err(_) => return refuse_text(text, "int"),
        },
        [Val::Timestamp(at)] => match i64::try_from(at.as_nanosecond().div_euclid(SECOND_NS)) {
            Ok(seconds) => seconds,
            Err(_) => return Err(overflow()),
        },
        [Val::Duration(ns)] => *ns,
        other => return call.mismatch(other),
    }))
}

fn uint<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let overflow = || EvalError::Overflow("unsigned integer");
    Ok(Val::Uint(match arguments {
        [Val::Uint(value)] => *value,
        [Val::Int(value)] => u64::try_from(*value).map_err(|_| overflow())?,
        [Val::Double(value)] if *value >= 0.0 && *value < u64::MAX as f64 => *value as u64,
        [Val::Double(_)] => return Err(overflow()),
        [Val::Text(text)] => match text.parse() {
            Ok(value) if !text.starts_with('+') => value,
            _ => return refuse_text(text, "uint"),
        },
        other => return call.mismatch(other),
    }))
}

fn double<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    Ok(Val::Double(match arguments {
        [Val::Double(value)] => *value,
        [Val::Int(value)] => *value as f64,
        [Val::Uint(value)] => *value as f64,
        [Val::Text(text)] => match text.parse() {
            Ok(value) if is_of_double(text, value) => value,
            _ => return refuse_text(text, "double"),
        },
        other => return call.mismatch(other),
    }))
}

/// Digits are beyond any double where they come to infinity, and `nan` has no sign.
fn is_of_double(text: &str, value: f64) -> bool {
    match value.is_nan() {
        true => !text.starts_with(['+', '-']),
        false => value.is_finite() || !text.contains(|char: char| char.is_ascii_digit()),
    }
}

fn boolean<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    Ok(Val::Bool(match arguments {
        [Val::Bool(value)] => *value,
        [Val::Text(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            text => return refuse_text(text, "bool"),
        },
        other => return call.mismatch(other),
    }))
}

fn bytes<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [bytes @ Val::Bytes(_)] => Ok(bytes.clone()),
        [Val::Text(text)] => {
            call.budget().build(text.len())?;
            Ok(Val::Bytes(text.as_bytes().into()))
        }
        other => call.mismatch(other),
    }
}

fn type_of<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [value] => Ok(Val::Type(value.type_name())),
        other => call.mismatch(other),
    }
}

fn same<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [value] => Ok(value.clone()),
        other => call.mismatch(other),
    }
}

/// Reads a timestamp for `timestamp()` and its kin: RFC 3339, without leap seconds and from the year 1 on.
pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let is_there = |at: usize, byte: u8| bytes.get(at) == Some(&byte);
    // Shorter forms are allowed by ISO 8601, but not by RFC 3339.
    let is_full = is_there(4, b'-') && is_there(10, b'T') && is_there(16, b':');
    let (time, tail) = (text.get(..19)?, text.get(19..)?);
    let (fraction, zone) = match tail.strip_prefix('.') {
        Some(after) => after.split_at(after.find(|char: char| !char.is_ascii_digit())?),
        None => ("", tail),
    };
    let has_fraction = !fraction.is_empty() || zone.len() == tail.len();
    if !is_full || !has_fraction || time.ends_with("60") || !is_zone(zone) {
        return None;
    }
    let fraction = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
    let point = if fraction.is_empty() { "" } else { "." };
    let at = format!("{time}{point}{fraction}{zone}").parse().ok()?;
    is_timestamp(at).then_some(at)
}

/// `Z`, or an offset as in `+05:30`.
fn is_zone(text: &str) -> bool {
    match text.as_bytes() {
        [b'Z'] => true,
        [b'+' | b'-', hour @ .., b':', ten, one] => {
            let is_hour = matches!(hour, [b'0' | b'1', b'0'..=b'9'] | [b'2', b'0'..=b'3']);
            is_hour && matches!(ten, b'0'..=b'5') && one.is_ascii_digit()
        }
        _ => false,
    }
}

/// In seconds, as in `5400s` or `1.5s`.
fn shown_duration(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let (ns, second) = (ns.unsigned_abs(), 1_000_000_000_u64);
    let (seconds, rest) = (ns / second, ns % second);
    match rest {
        0 => format!("{sign}{seconds}s"),
        rest => {
            let rest = format!("{rest:09}");
            format!("{sign}{seconds}.{}s", rest.trim_end_matches('0'))
        }
    }
}
