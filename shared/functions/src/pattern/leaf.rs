//! One value against one pattern that is no object and no list.
//!
//! A text is alternatives with `|` between them, each of parts with `&` between them, each with an
//! operator before it: `>=`, `<=`, `>`, `<`, `!`, or a range as in `1-10`, or all outside it as in `1!-10`.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::Value;

use crate::{
    meter,
    values::{Duration, Number, Quantity},
    wildcard,
};

pub(super) fn matches(pattern: &Value, value: &Value) -> bool {
    charge("", value) && is_match(pattern, value)
}

/// Charges the meter for a comparison. Where nothing is left of the meter, nobody looks at the answer.
fn charge(pattern: &str, value: &Value) -> bool {
    let bytes = pattern.len() + value.as_str().map_or(0, str::len);
    meter::charge(1 + (bytes / meter::BYTES_PER_STEP) as u64)
}

fn is_match(pattern: &Value, value: &Value) -> bool {
    match (pattern, value) {
        (Value::Null, value) => is_zero(value),
        (Value::Bool(pattern), value) => value.as_bool() == Some(*pattern),
        (Value::Number(pattern), Value::Number(value)) => {
            Number::from(pattern) == Number::from(value)
        }
        // Of an integer only the digits are read.
        (Value::Number(pattern), Value::String(value)) if !pattern.is_f64() => {
            value.parse() == Ok(pattern.as_i64().map_or(i128::MAX, i128::from))
        }
        (Value::Number(pattern), Value::String(value)) => {
            Number::parse(value).is_some_and(|value| value == Number::from(pattern))
        }
        (Value::String(pattern), value) => matches_text(pattern, value),
        _ => false,
    }
}

/// Returns whether a value is the zero value of its type.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn matches_text(pattern: &str, value: &Value) -> bool {
    value.as_str() == Some(pattern)
        || pattern.split('|').any(|all| {
            all.split('&')
                .all(|one| charge(one, value) && matches_one(one.trim(), value))
        })
}

/// The relation between a value and the operand of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    More,
    MoreOrEqual,
    Less,
    LessOrEqual,
}

impl Operator {
    fn accepts(self, found: Ordering) -> bool {
        match self {
            Self::Equal => found.is_eq(),
            Self::NotEqual => found.is_ne(),
            Self::More => found.is_gt(),
            Self::MoreOrEqual => found.is_ge(),
            Self::Less => found.is_lt(),
            Self::LessOrEqual => found.is_le(),
        }
    }
}

fn matches_one(pattern: &str, value: &Value) -> bool {
    let operators = [
        (">=", Operator::MoreOrEqual),
        ("<=", Operator::LessOrEqual),
        (">", Operator::More),
        ("<", Operator::Less),
    ];
    // One character alone is no operator.
    let given = operators
        .into_iter()
        .filter(|_| pattern.len() > 1)
        .find_map(|(text, operator)| Some((operator, pattern.strip_prefix(text)?)));
    if let Some((operator, operand)) = given {
        return compare(value, operand.trim(), operator);
    }
    if let Some((from, to)) = ends(pattern) {
        return compare(value, from, Operator::MoreOrEqual)
            && compare(value, to, Operator::LessOrEqual);
    }
    if let Some((from, to)) = outer_ends(pattern) {
        return compare(value, from, Operator::Less) || compare(value, to, Operator::More);
    }
    match pattern.strip_prefix('!').filter(|rest| !rest.is_empty()) {
        None => compare(value, pattern, Operator::Equal),
        Some(rest) => compare(value, rest.trim(), Operator::NotEqual),
    }
}

/// Splits a range `1-10` into its ends.
fn ends(pattern: &str) -> Option<(&str, &str)> {
    // A sign is no dash between.
    let dash = pattern.get(1..)?.find('-')? + 1;
    let (from, to) = (pattern.get(..dash)?, pattern.get(dash + 1..)?);
    (is_end(from) && is_end(to)).then_some((from, to))
}

/// Splits an excluded range `1!-10` into its ends.
fn outer_ends(pattern: &str) -> Option<(&str, &str)> {
    pattern
        .split_once("!-")
        .filter(|(from, to)| is_end(from) && is_end(to))
}

/// A decimal with a suffix of letters.
fn is_end(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number = digits.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_number(whole) && is_number(fraction)
}

/// Compares durations, quantities or texts: the first of these that both sides can be read as.
fn compare(value: &Value, operand: &str, operator: Operator) -> bool {
    let text = match value {
        Value::Null => Some(Cow::Borrowed("0")),
        Value::String(text) => Some(Cow::Borrowed(&**text)),
        Value::Number(number) => Some(Cow::Owned(match fraction(number) {
            Some(float) => format!("{float:.6}"),
            None => number.to_string(),
        })),
        _ => None,
    };
    text.and_then(|text| order(&text, operand)).map_or_else(
        || as_text(value, operand, operator),
        |found| operator.accepts(found),
    )
}

/// `None` where the two are not both durations and not both quantities.
fn order(left: &str, right: &str) -> Option<Ordering> {
    let durations = || Some(Duration::parse(left)?.cmp(&Duration::parse(right)?));
    let quantities = || Some(Quantity::parse(left)?.cmp(&Quantity::parse(right)?));
    durations().or_else(quantities)
}

fn as_text(value: &Value, operand: &str, operator: Operator) -> bool {
    let text = match value {
        Value::String(text) => Cow::Borrowed(&**text),
        Value::Number(number) => Cow::Owned(match fraction(number) {
            Some(float) => scientific(float),
            None => number.to_string(),
        }),
        Value::Bool(value) => Cow::Owned(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => return false,
    };
    match operator {
        Operator::Equal => wildcard::matches(operand, &text),
        Operator::NotEqual => !wildcard::matches(operand, &text),
        _ => false,
    }
}

/// Returns a number that is not written as an integer, or is too large for 64 bits.
fn fraction(number: &serde_json::Number) -> Option<f64> {
    match number.as_i64() {
        Some(_) => None,
        None => number.as_f64(),
    }
}

/// Writes a float like `1.5E+00`, the form that wildcards are matched with.
fn scientific(float: f64) -> String {
    let text = format!("{float:E}");
    match text.split_once('E') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}E-{exponent:0>2}"),
            None => format!("{digits}E+{exponent:0>2}"),
        },
        None => text,
    }
}
