//! `'%s of %d'.format([…])`
//!
//! As API servers show values: `%f` has commas between thousands, `%e` is written as in `1.500000×10⁰⁴`, with six
//! places whatever is asked for. In lists and maps, texts are in quotes, and doubles without commas.

use super::{
    convert,
    function::{CallContext, CallResult},
};
use crate::{
    EvalError,
    value::{Map, Val},
};

/// The most digits behind the point that can be asked for.
const PRECISION_MAX: usize = 100;

/// Steps for writing a double: its digits are exact, and may be hundreds.
const DOUBLE_STEPS: u64 = 16;

/// Digits behind the point where nobody asks for others.
const PLACES: usize = 6;

/// Lists and maps within each other that are written out.
const SHOWN_DEPTH_MAX: usize = 100;

pub(super) fn format<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(pattern), Val::List(values)] = arguments else {
        return call.mismatch(arguments);
    };
    let mut text = String::new();
    let mut values = values.iter();
    let mut rest = &**pattern;
    while let Some(at) = rest.find('%') {
        call.budget().build(at)?;
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let precision = match rest.strip_prefix('.') {
            None => None,
            Some(after) => {
                let digits = after.bytes().take_while(u8::is_ascii_digit).count();
                rest = &after[digits..];
                Some(precision(&after[..digits])?)
            }
        };
        let Some(verb) = rest.chars().next() else {
            return Err(EvalError::refused("unexpected end of string in a format"));
        };
        rest = &rest[verb.len_utf8()..];
        let Some(value) = values.next() else {
            return Err(EvalError::refused(
                "a format has more verbs than there are values",
            ));
        };
        let shown = format_argument(call, verb, precision, &value)?;
        call.budget().build(shown.len())?;
        text.push_str(&shown);
    }
    call.budget().build(rest.len())?;
    text.push_str(rest);
    Ok(Val::text(text))
}

fn precision(digits: &str) -> Result<usize, EvalError> {
    let precision = digits.parse().ok();
    let known = precision.filter(|precision| *precision <= PRECISION_MAX);
    known.ok_or_else(|| {
        EvalError::Refused(format!("`{digits}` is no precision up to {PRECISION_MAX}"))
    })
}

fn format_argument(
    call: &mut CallContext<'_>,
    verb: char,
    precision: Option<usize>,
    value: &Val<'_>,
) -> Result<String, EvalError> {
    let places = precision.unwrap_or(PLACES);
    if let ('f' | 'e', Val::Double(_)) = (verb, value) {
        call.budget().steps(DOUBLE_STEPS)?;
    }
    if let ('f' | 'e', Val::Text(text)) = (verb, value)
        && let Some(value) = special_named(text)
    {
        return format_argument(call, verb, precision, &Val::Double(value));
    }
    Ok(match (verb, value) {
        ('s', value) => {
            let mut text = String::new();
            show(call, value, 0, &mut text)?;
            text
        }
        ('d', Val::Int(value)) => value.to_string(),
        ('d', Val::Uint(value)) => value.to_string(),
        ('f', Val::Double(value)) => fixed(*value, places),
        // What is asked for are not places, but the least length.
        ('e', Val::Double(value)) => format!("{:>places$}", scientific(*value)),
        ('b', Val::Bool(value)) => u8::from(*value).to_string(),
        ('b', Val::Int(value)) => signed(*value, |value| format!("{value:b}")),
        ('b', Val::Uint(value)) => format!("{value:b}"),
        ('o', Val::Int(value)) => signed(*value, |value| format!("{value:o}")),
        ('o', Val::Uint(value)) => format!("{value:o}"),
        ('x' | 'X', value) => {
            let text = match value {
                Val::Int(value) => signed(*value, |value| format!("{value:x}")),
                Val::Uint(value) => format!("{value:x}"),
                Val::Text(text) => hex(call, text.as_bytes())?,
                Val::Bytes(bytes) => hex(call, bytes)?,
                other => return Err(unfit(verb, other)),
            };
            match verb {
                'X' => text.to_uppercase(),
                _ => text,
            }
        }
        ('d' | 'f' | 'e' | 'b' | 'o', other) => return Err(unfit(verb, other)),
        _ => {
            return Err(EvalError::Refused(format!(
                "a format has no verb `%{verb}`"
            )));
        }
    })
}

fn unfit(verb: char, value: &Val<'_>) -> EvalError {
    EvalError::Refused(format!("`%{verb}` is not for a {}", value.type_name()))
}

fn signed(value: i64, show: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", show(value.unsigned_abs()))
}

fn hex(call: &mut CallContext<'_>, bytes: &[u8]) -> Result<String, EvalError> {
    call.budget().build(2 * bytes.len())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        return Some("NaN");
    }
    value
        .is_infinite()
        .then_some(if value > 0.0 { "∞" } else { "-∞" })
}

/// The double that a text stands for where a verb wants a double.
fn special_named(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// Zero without a sign, as these verbs write it.
fn unsigned_zero(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

fn fixed(value: f64, places: usize) -> String {
    if let Some(special) = special(value) {
        return special.to_owned();
    }
    let text = format!("{:.places$}", unsigned_zero(value));
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => ("-", text),
        None => ("", &*text),
    };
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut shown = String::from(sign);
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown.push_str(fraction);
    shown
}

fn scientific(value: f64) -> String {
    if let Some(special) = special(value) {
        return special.to_owned();
    }
    let text = format!("{:.PLACES$e}", unsigned_zero(value));
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let raised = format!("{exponent:0>2}");
    let raised = raised
        .bytes()
        .map(|digit| RAISED[usize::from(digit % 16) % 10]);
    let mut shown = format!("{digits}×10{sign}");
    shown.extend(raised);
    shown
}

/// Digits as exponents have them.
const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// A value as `%s` shows it.
fn show(
    call: &mut CallContext<'_>,
    value: &Val<'_>,
    depth: usize,
    text: &mut String,
) -> Result<(), EvalError> {
    call.budget().step()?;
    if depth == SHOWN_DEPTH_MAX {
        let message = format!("more than {SHOWN_DEPTH_MAX} lists within each other are not shown");
        return Err(EvalError::Refused(message));
    }
    let before = text.len();
    let is_inside = depth > 0;
    match value {
        Val::Text(value) if is_inside => {
            call.budget().build(value.len())?;
            text.push_str(&quoted(value));
        }
        Val::Text(value) => {
            call.budget().build(value.len())?;
            text.push_str(value);
        }
        Val::List(list) => {
            text.push('[');
            for (at, element) in list.iter().enumerate() {
                if at > 0 {
                    text.push_str(", ");
                }
                show(call, &element, depth + 1, text)?;
            }
            text.push(']');
        }
        Val::Map(map) => show_map(call, map, depth, text)?,
        Val::Bytes(bytes) => {
            call.budget().build(bytes.len())?;
            let Ok(bytes) = std::str::from_utf8(bytes) else {
                return Err(EvalError::refused("invalid UTF-8 in bytes"));
            };
            match is_inside {
                true => text.push_str(&format!("b{}", quoted(bytes))),
                false => text.push_str(bytes),
            }
        }
        Val::Double(value) if is_inside && !value.is_finite() => {
            text.push_str(&quoted(&convert::shown(&Val::Double(*value))));
        }
        Val::Double(value) if is_inside => {
            call.budget().steps(DOUBLE_STEPS)?;
            text.push_str(&format!("{value:.PLACES$}"));
        }
        Val::Duration(_) if is_inside => {
            text.push_str(&format!("duration({})", quoted(&convert::shown(value))));
        }
        Val::Timestamp(_) if is_inside => {
            text.push_str(&format!("timestamp({})", quoted(&convert::shown(value))));
        }
        Val::Null => text.push_str("null"),
        Val::Optional(_) => return Err(unfit('s', value)),
        value => text.push_str(&convert::shown(value)),
    }
    call.budget().charge_scan(text.len() - before)
}

fn show_map(
    call: &mut CallContext<'_>,
    map: &Map<'_>,
    depth: usize,
    text: &mut String,
) -> Result<(), EvalError> {
    call.budget().elements(2 * map.len())?;
    let mut entries = Vec::with_capacity(map.len());
    for (key, value) in map.entries() {
        let mut shown = String::new();
        show(call, &key, depth + 1, &mut shown)?;
        entries.push((shown, value));
    }
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    text.push('{');
    for (at, (key, value)) in entries.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(key);
        text.push(':');
        show(call, value, depth + 1, text)?;
    }
    text.push('}');
    Ok(())
}

/// In quotes, with what cannot stand between them written otherwise.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
