//! `pattern`: what an object must look like, with anchors that say of which objects.
//!
//! | key | means |
//! |---|---|
//! | `key` | it must match; `*` is anything that is there |
//! | `(key)` | what stands beside it speaks only of objects where it matches |
//! | `<(key)` | the whole pattern speaks only of objects where it matches, if it is there |
//! | `=(key)` | it must match, if it is there |
//! | `X(key)` | it must not be there |
//! | `^(key)` | a list: for each pattern, a map, there must be an element that matches |
//!
//! One pattern in a list speaks of every element of the object's list. Recursion is as deep as the
//! pattern, whose depth the manifest's bounds.

mod leaf;
mod metadata;

use std::fmt;

use serde_json::{Map, Value};

use crate::meter;

/// The most bytes of a text that a message quotes.
const QUOTED_BYTES_MAX: usize = 128;

/// Why an object does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The pattern does not speak of it.
    Skip {
        /// The condition that is not met, for people.
        reason: String,
        /// Set if an anchor of the map itself says so, not one of a list or a map within. Only then what
        /// stands beside it does not count either.
        is_direct: bool,
    },
    /// The object differs from the pattern.
    Differs(Difference),
}

/// A difference between an object and a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path of the field, like `/spec/containers/0/image/`.
    pub path: String,
    /// The difference, for people.
    pub message: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns whether `object` matches `pattern`.
///
/// # Errors
/// [`Mismatch`]: the first one, in the pattern's order.
pub fn matches(pattern: &Value, object: &Value) -> Result<(), Mismatch> {
    element(pattern, object, "/")
}

/// The anchor of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    None,
    Condition,
    Global,
    Equality,
    Negation,
    Existence,
}

impl Anchor {
    /// The anchor of a key, and the key without it. Space around an anchor is no part of it, and space inside is part of
    /// the key.
    fn parse(key: &str) -> (Self, &str) {
        let written = key.trim_end();
        // Most keys bear none, and each is looked at for every object.
        if !written.ends_with(')') {
            return (Self::None, key);
        }
        let written = written.trim_start();
        let inside = |prefix: &str| {
            let inside = written.strip_prefix(prefix)?.strip_suffix(')')?;
            (!inside.is_empty() && !inside.contains('\n')).then_some(inside)
        };
        [
            ("(", Self::Condition),
            ("<(", Self::Global),
            ("=(", Self::Equality),
            ("X(", Self::Negation),
            ("^(", Self::Existence),
        ]
        .into_iter()
        .find_map(|(prefix, anchor)| Some((anchor, inside(prefix)?)))
        .unwrap_or((Self::None, key))
    }

    /// Returns whether the anchor is judged before keys without an anchor.
    const fn is_first(self) -> bool {
        !matches!(self, Self::None | Self::Global)
    }
}

fn has_anchors(pattern: &Value) -> bool {
    // Where nothing is left of the meter, nobody looks at the answer.
    if !meter::charge(1) {
        return true;
    }
    match pattern {
        Value::Object(entries) => entries
            .iter()
            .any(|(key, value)| Anchor::parse(key).0 != Anchor::None || has_anchors(value)),
        Value::Array(elements) => elements.iter().any(has_anchors),
        _ => false,
    }
}

fn element(pattern: &Value, object: &Value, path: &str) -> Result<(), Mismatch> {
    match (pattern, object) {
        (Value::Object(pattern), Value::Object(object)) => map(pattern, object, path),
        (Value::Array(pattern), Value::Array(object)) => list(pattern, object, path),
        (Value::Object(_), other) => Err(differs(path, other_shape("an object", other))),
        (Value::Array(_), other) => Err(differs(path, other_shape("a list", other))),
        (leaf, Value::Array(elements)) => elements
            .iter()
            .try_for_each(|element| scalar(leaf, element, path)),
        (leaf, object) => scalar(leaf, object, path),
    }
}

fn scalar(pattern: &Value, value: &Value, path: &str) -> Result<(), Mismatch> {
    match leaf::matches(pattern, value) {
        true => Ok(()),
        false => {
            let found = match value {
                Value::Array(_) | Value::Object(_) => shape(value).to_owned(),
                scalar => format!("the value {}", quoted(scalar)),
            };
            let pattern = quoted(pattern);
            let message = format!("{found} does not match {pattern} at path {path}");
            meter::charge_bytes(message.len());
            Err(differs(path, message))
        }
    }
}

/// Returns a scalar as a message quotes it: of a long text the beginning, since whoever sends it chooses its length.
fn quoted(scalar: &Value) -> String {
    match scalar {
        Value::String(text) if text.len() > QUOTED_BYTES_MAX => {
            let end = text.floor_char_boundary(QUOTED_BYTES_MAX);
            Value::from(format!("{}…", &text[..end])).to_string()
        }
        scalar => scalar.to_string(),
    }
}

fn map(
    pattern: &Map<String, Value>,
    object: &Map<String, Value>,
    path: &str,
) -> Result<(), Mismatch> {
    // Where nothing is left of the meter, nobody looks at the answer.
    if !meter::charge(1 + pattern.len() as u64) {
        return Err(differs(path, String::new()));
    }
    let expanded = metadata::expand(pattern, object);
    let pattern = expanded.as_ref().unwrap_or(pattern);
    let (first, others): (Vec<_>, Vec<_>) = pattern
        .iter()
        .map(|(written, pattern)| PatternKey::parse(written, pattern))
        .partition(|key| key.anchor.is_first());
    anchored(first, object, path)?;
    in_order(others)
        .into_iter()
        .try_for_each(|key| one_key(key, object, path))
}

/// One entry of a pattern's map.
#[derive(Clone, Copy, Debug)]
struct PatternKey<'p> {
    written: &'p str,
    anchor: Anchor,
    name: &'p str,
    pattern: &'p Value,
}

impl<'p> PatternKey<'p> {
    fn parse(written: &'p str, pattern: &'p Value) -> Self {
        let (anchor, name) = Anchor::parse(written);
        Self {
            written,
            anchor,
            name,
            pattern,
        }
    }
}

/// All anchors of a map are asked, in the order of their text, so conditions before all others.
///
/// If an anchor skips this map, the anchors after it are not evaluated. A skip of a nested value counts only if no
/// other anchor of this map applied: a list without a matching element says nothing of the list beside it.
fn anchored(
    mut keys: Vec<PatternKey<'_>>,
    object: &Map<String, Value>,
    path: &str,
) -> Result<(), Mismatch> {
    keys.sort_unstable_by_key(|key| key.written);
    let (mut applied, mut skipped) = (0_usize, None);
    for key in keys {
        match one_key(key, object, path) {
            Ok(()) => applied += 1,
            Err(Mismatch::Skip {
                reason,
                is_direct: true,
            }) => return Err(nested_skip(reason)),
            Err(Mismatch::Skip { reason, .. }) => skipped = Some(reason),
            Err(differs) => return Err(differs),
        }
    }
    match skipped {
        Some(reason) if applied == 0 => Err(nested_skip(reason)),
        _ => Ok(()),
    }
}

/// Sorts keys. First come those that may say that the pattern does not speak of the object, the last of the
/// alphabet before the others; then the rest, in its order. The first that differs is told, and it decides
/// between "differs" and "does not speak of it".
fn in_order(mut keys: Vec<PatternKey<'_>>) -> Vec<PatternKey<'_>> {
    keys.sort_unstable_by_key(|key| key.written);
    let (mut ordered, rest): (Vec<_>, Vec<_>) = keys
        .into_iter()
        .partition(|key| key.anchor == Anchor::Global || has_anchors(key.pattern));
    ordered.reverse();
    ordered.extend(rest);
    ordered
}

fn one_key(key: PatternKey<'_>, object: &Map<String, Value>, outer: &str) -> Result<(), Mismatch> {
    let (found, pattern) = (object.get(key.name), key.pattern);
    let path = format!("{outer}{}/", key.name);
    match (key.anchor, found) {
        (Anchor::None, found) => plain(pattern, found, &path),
        (Anchor::Condition, None) => Err(Mismatch::Skip {
            reason: format!("the conditional anchor at {path} names a field that the object lacks"),
            is_direct: true,
        }),
        (Anchor::Condition | Anchor::Global, Some(found)) => {
            element(pattern, found, &path).map_err(Mismatch::into_direct_skip)
        }
        (Anchor::Equality, Some(found)) => element(pattern, found, &path),
        (Anchor::Negation, Some(_)) => Err(differs(&path, format!("{path} is not allowed"))),
        (Anchor::Existence, Some(found)) => existence(pattern, found, &path),
        (Anchor::Global | Anchor::Equality | Anchor::Negation | Anchor::Existence, None) => Ok(()),
    }
}

fn plain(pattern: &Value, found: Option<&Value>, path: &str) -> Result<(), Mismatch> {
    let found = found.unwrap_or(&Value::Null);
    match (pattern.as_str(), found) {
        (Some("*"), Value::Null) => Err(differs(path, format!("{path} is not there"))),
        (Some("*"), _) => Ok(()),
        _ => element(pattern, found, path),
    }
}

/// For each pattern some element must match.
fn existence(pattern: &Value, found: &Value, path: &str) -> Result<(), Mismatch> {
    let (Value::Array(patterns), Value::Array(elements)) = (pattern, found) else {
        return Err(differs(
            path,
            format!("`^()` is about lists, at path {path}"),
        ));
    };
    let is_there = |pattern: &Value| {
        pattern.is_object()
            && elements
                .iter()
                .any(|found| element(pattern, found, path).is_ok())
    };
    match patterns.iter().all(is_there) {
        true => Ok(()),
        false => Err(differs(path, format!("no element matches at path {path}"))),
    }
}

fn list(pattern: &[Value], object: &[Value], path: &str) -> Result<(), Mismatch> {
    match pattern {
        [] => Err(differs(
            path,
            format!("the pattern has an empty list at {path}"),
        )),
        [every @ Value::Object(_), ..] => each(object.iter().map(|object| (every, object)), path),
        [Value::Array(_), ..] if object.len() < pattern.len() => {
            Err(differs(path, format!("the list at {path} is too short")))
        }
        [Value::Array(_), ..] => each(pattern.iter().zip(object), path),
        [every, ..] => object
            .iter()
            .try_for_each(|object| scalar(every, object, path)),
    }
}

/// Elements that the pattern does not speak of are passed over, unless it speaks of none.
fn each<'v>(
    pairs: impl Iterator<Item = (&'v Value, &'v Value)>,
    path: &str,
) -> Result<(), Mismatch> {
    let (mut matched, mut skipped) = (0_usize, None);
    for (at, (pattern, object)) in pairs.enumerate() {
        match element(pattern, object, &format!("{path}{at}/")) {
            Ok(()) => matched += 1,
            Err(Mismatch::Skip { reason, .. }) => skipped = Some(reason),
            Err(differs) => return Err(differs),
        }
    }
    match skipped {
        Some(reason) if matched == 0 => Err(nested_skip(reason)),
        _ => Ok(()),
    }
}

impl Mismatch {
    fn into_direct_skip(self) -> Self {
        let reason = match self {
            Self::Differs(difference) => difference.message,
            Self::Skip { reason, .. } => reason,
        };
        Self::Skip {
            reason,
            is_direct: true,
        }
    }
}

fn nested_skip(reason: String) -> Mismatch {
    Mismatch::Skip {
        reason,
        is_direct: false,
    }
}

fn differs(path: &str, message: String) -> Mismatch {
    Mismatch::Differs(Difference {
        path: path.to_owned(),
        message,
    })
}

fn other_shape(expected: &str, found: &Value) -> String {
    format!("{expected} is expected, found {}", shape(found))
}

fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
        _ => "a scalar",
    }
}

#[cfg(test)]
mod tests;
