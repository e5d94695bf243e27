//! `AnyIn` and its kin: whether elements of the key are in the value.
//!
//! Key and value are compared as text, with wildcards in either. The key is a scalar or a list of
//! them. The value is a list, or a string: a range as in `1-10`, a JSON array of strings, or one
//! pattern. A null in a list is the text `<nil>`.

use std::{borrow::Cow, collections::HashSet};

use anteroom_jmespath::Scalar;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    meter,
    values::{self, Range},
    wildcard,
};

/// The bytes of members that are looked through in one step of the [`meter`].
const BYTES_PER_STEP: usize = 256;

/// The bytes that comparing two texts counts as, beside those of the member.
const PAIR_BYTES: usize = 16;

/// The bytes of members that are looked through before the [`meter`] is charged.
const BYTES_PER_CHARGE: usize = 4 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantifier {
    Any,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    In,
    NotIn,
}

/// Returns whether any or all elements of the key are in, or not in, the value. A value that is neither a
/// list nor a string has no elements: then both `In` and `NotIn` are false.
pub(super) fn holds(quantifier: Quantifier, set: Set, key: &Value, value: &Value) -> bool {
    let elements: Vec<Cow<'_, str>> = match key {
        Value::Array(elements) => elements.iter().map(member_text).collect(),
        Value::Null | Value::Object(_) => return false,
        scalar => {
            return scalar_in(&values::text(scalar), value)
                .is_some_and(|is_in| is_in == (set == Set::In));
        }
    };
    let Some(members) = Members::of_list_key(quantifier, &elements, value) else {
        return false;
    };
    let members = members.hashed_for(elements.len());
    let mut elements = elements.iter();
    match (quantifier, set) {
        (Quantifier::Any, Set::In) => elements.any(|element| members.have(element)),
        (Quantifier::All, Set::In) => elements.all(|element| members.have(element)),
        (Quantifier::Any, Set::NotIn) => elements.any(|element| members.lack(element)),
        (Quantifier::All, Set::NotIn) => !elements.any(|element| members.have(element)),
    }
}

/// Pairs of texts above which plain ones are found by their hash.
const PAIRS_COMPARED_MAX: usize = 256;

/// The values among which keys are looked for.
enum Members<'a> {
    Patterns(Vec<Cow<'a, str>>),
    /// Many: those without wildcards by their hash, and those with.
    Hashed(HashSet<Cow<'a, str>>, Vec<Cow<'a, str>>),
    Range(Range<'a>),
}

impl<'a> Members<'a> {
    /// `None`: nothing can be in the value, nor out of it.
    fn of_list_key(
        quantifier: Quantifier,
        elements: &[Cow<'_, str>],
        value: &'a Value,
    ) -> Option<Self> {
        match value {
            Value::Array(members) => {
                Some(Self::Patterns(members.iter().map(member_text).collect()))
            }
            Value::String(text) => {
                // A single element that is spelled like the value is in it, even if it looks like a
                // range or an array.
                if let [only] = elements
                    && only == text
                {
                    return Some(Self::Patterns(vec![Cow::Borrowed(text)]));
                }
                match Range::parse(text) {
                    Some(range) => Some(Self::Range(range)),
                    None => string_members(text).map(Self::Patterns),
                }
            }
            Value::Number(_) | Value::Bool(_) if quantifier == Quantifier::Any => {
                Some(Self::Patterns(vec![values::text(value)]))
            }
            _ => None,
        }
    }

    /// Adds hashes of the elements, if there are enough `keys` to make hashing pay.
    fn hashed_for(self, keys: usize) -> Self {
        match self {
            Self::Patterns(patterns)
                if keys.saturating_mul(patterns.len()) > PAIRS_COMPARED_MAX =>
            {
                let is_plain = |pattern: &Cow<'_, str>| !wildcard::has_wildcard(pattern);
                let (plain, patterns): (Vec<_>, _) = patterns.into_iter().partition(is_plain);
                Self::Hashed(plain.into_iter().collect(), patterns)
            }
            other => other,
        }
    }

    fn have(&self, element: &str) -> bool {
        match self {
            Self::Patterns(patterns) => any_alike(element, patterns.iter()),
            Self::Hashed(plain, patterns) => {
                plain.contains(element)
                    || any_alike(element, patterns.iter())
                    || (wildcard::has_wildcard(element) && any_alike(element, plain.iter()))
            }
            Self::Range(range) => range.contains(element),
        }
    }

    /// Not just the opposite of [`have`](Self::have): what does not compare with a range is neither
    /// within nor outside.
    fn lack(&self, element: &str) -> bool {
        match self {
            Self::Patterns(_) | Self::Hashed(..) => !self.have(element),
            Self::Range(range) => range.excludes(element),
        }
    }
}

/// Returns an element of a list as the text that it is compared as.
fn member_text(element: &Value) -> Cow<'_, str> {
    match element {
        Value::Null => Cow::Borrowed(Scalar::NULL_TEXT),
        other => values::text(other),
    }
}

/// Returns whether one scalar is in the value; `None` where the value has no elements.
fn scalar_in(key: &str, value: &Value) -> Option<bool> {
    match value {
        Value::Array(members) => Some(any_alike(key, members.iter().map(member_text))),
        Value::String(text) => {
            if wildcard::matches(text, key) {
                return Some(true);
            }
            if let Some(range) = Range::parse(text) {
                return Some(range.contains(key));
            }
            Some(string_members(text)?.iter().any(|member| member == key))
        }
        _ => None,
    }
}

/// Returns whether one of these is like `one`. Each is charged to the meter.
fn any_alike<T: AsRef<str>>(one: &str, mut others: impl Iterator<Item = T>) -> bool {
    let is_pattern = wildcard::has_wildcard(one);
    let mut bytes = 0;
    let found = others.any(|other| {
        let other = other.as_ref();
        bytes += PAIR_BYTES + other.len();
        if bytes >= BYTES_PER_CHARGE {
            // Where nothing is left of the meter, nobody looks at the answer.
            if !charge_members(bytes) {
                return true;
            }
            bytes = 0;
        }
        // Wildcards in either direction.
        one == other
            || (is_pattern && wildcard::matches(one, other))
            || (wildcard::has_wildcard(other) && wildcard::matches(other, one))
    });
    charge_members(bytes);
    found
}

fn charge_members(bytes: usize) -> bool {
    meter::charge((bytes / BYTES_PER_STEP) as u64)
}

/// A string that is JSON is an array of strings or nothing; any other string is its own member.
fn string_members(text: &str) -> Option<Vec<Cow<'_, str>>> {
    if let Some(members) = json_strings(text) {
        return Some(members);
    }
    // JSON has numbers that no value holds.
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => None,
        Err(_) => Some(vec![Cow::Borrowed(text)]),
    }
}

/// Returns the strings of a JSON array that has nothing else, and none of `null`; a null in the array is an empty string.
/// All other JSON would be read in vain, and may take much memory.
fn json_strings(text: &str) -> Option<Vec<Cow<'static, str>>> {
    let strings: Option<Vec<Option<String>>> = serde_json::from_str(text).ok()?;
    let strings = strings.unwrap_or_default().into_iter();
    let strings = strings.map(|one| Cow::Owned(one.unwrap_or_default()));
    Some(strings.collect())
}

/// The deprecated `In` and `NotIn`: a scalar key with wildcards, a list of strings without them. A
/// string is an array of strings in JSON, or has no elements but itself; a list of nothing but that string
/// meets both.
pub(super) fn in_strings(key: &Value, value: &Value, negated: bool) -> bool {
    if let (Value::Array(elements), Value::String(_)) = (key, value)
        && let [only] = &**elements
        && only == value
    {
        return true;
    }
    let is_in = match key {
        Value::Null | Value::Object(_) => None,
        Value::Array(elements) => list_in_strings(elements, value),
        scalar => scalar_in_strings(&values::text(scalar), value),
    };
    is_in.is_some_and(|is_in| is_in != negated)
}

fn list_in_strings(elements: &[Value], value: &Value) -> Option<bool> {
    let elements = strings(elements)?;
    let members = match value {
        Value::Array(members) => strings(members)?.into_iter().map(Cow::Borrowed).collect(),
        Value::String(text) => json_strings(text)?.into_iter().collect(),
        _ => return None,
    };
    let members: HashSet<Cow<'_, str>> = members;
    Some(elements.iter().all(|element| members.contains(*element)))
}

fn scalar_in_strings(key: &str, value: &Value) -> Option<bool> {
    match value {
        Value::Array(_) => scalar_in(key, value),
        Value::String(text) if wildcard::matches(text, key) => Some(true),
        Value::String(text) => {
            let members = json_strings(text)?;
            Some(members.iter().any(|member| member == key))
        }
        _ => None,
    }
}

fn strings(values: &[Value]) -> Option<Vec<&str>> {
    values.iter().map(Value::as_str).collect()
}
