//! `GreaterThan` and its kin: by duration, quantity, number or version, whichever both sides are.

use std::cmp::Ordering;

use semver::Version;
use serde_json::Value;

use crate::values::{Duration, Number, Quantity};

/// Compares the key with the value; `None` where they do not compare.
pub(super) fn compare(key: &Value, value: &Value) -> Option<Ordering> {
    if let Some((key, value)) = durations(key, value) {
        return Some(key.cmp(&value));
    }
    match (key, value) {
        (Value::String(key), Value::String(value)) => compare_strings(key, value),
        (Value::String(text), Value::Number(_)) => {
            Number::parse(text)?.partial_cmp(&number(value)?)
        }
        (Value::Number(_), _) => number(key)?.partial_cmp(&number(value)?),
        _ => None,
    }
}

/// A quantity before a number, since every plain number is a quantity too.
fn compare_strings(key: &str, value: &str) -> Option<Ordering> {
    if let (Some(key), Some(value)) = (Quantity::parse(key), Quantity::parse(value)) {
        return Some(key.cmp(&value));
    }
    if let Some(number) = Number::parse(key) {
        // A number beside a duration is seconds, also where it is written as a string.
        return match Duration::parse(value) {
            Some(duration) if value != "0" => {
                Some(Duration::from_seconds(number.whole()).cmp(&duration))
            }
            _ => number.partial_cmp(&Number::parse(value)?),
        };
    }
    let (key, value) = (Version::parse(key).ok()?, Version::parse(value).ok()?);
    Some(key.cmp_precedence(&value))
}

/// Both sides as durations, if at least one of them is written as one: the other may be a number of
/// seconds. A string `0` is written as a number.
pub(super) fn durations(key: &Value, value: &Value) -> Option<(Duration, Duration)> {
    let written = |side: &Value| match side {
        Value::String(text) if text != "0" => Duration::parse(text),
        _ => None,
    };
    match (written(key), written(value)) {
        (Some(key), Some(value)) => Some((key, value)),
        (Some(key), None) => Some((key, seconds(value)?)),
        (None, Some(value)) => Some((seconds(key)?, value)),
        (None, None) => None,
    }
}

/// For the deprecated operators: both sides are durations whatever they look like.
pub(super) fn compare_durations(key: &Value, value: &Value) -> Option<Ordering> {
    let duration = |side: &Value| match side {
        Value::String(text) => Duration::parse(text),
        other => seconds(other),
    };
    Some(duration(key)?.cmp(&duration(value)?))
}

fn seconds(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(number) => Some(Duration::from_seconds(Number::from(number).whole())),
        _ => None,
    }
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => Some(Number::from(number)),
        Value::String(text) => Number::parse(text),
        _ => None,
    }
}
