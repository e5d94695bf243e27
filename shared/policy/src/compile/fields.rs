//! Walking a manifest: a value with its path, and the tables of known fields.

use std::{borrow::Cow, ops::RangeInclusive};

use serde_json::{Map, Value};

use crate::ir::problem::Problems;

/// The fields of one object of a manifest.
pub(super) struct KnownFields {
    /// Read by the caller.
    pub(super) evaluated: &'static [&'static str],
    /// Accepted, since they change nothing that is decided here.
    pub(super) inert: &'static [&'static str],
    /// Kyverno's, and not evaluated by this version.
    pub(super) later: &'static [&'static str],
}

/// A value of the manifest, with its path.
pub(super) struct Field<'m> {
    value: &'m Value,
    path: Cow<'m, str>,
}

/// An object of the manifest, its unknown fields already noted.
pub(super) struct ManifestObject<'m> {
    entries: &'m Map<String, Value>,
    path: String,
}

impl<'m> Field<'m> {
    pub(super) fn root(value: &'m Value) -> Self {
        Self {
            value,
            path: Cow::Borrowed(""),
        }
    }

    /// Returns a value that was made from the field at `path`.
    pub(super) fn at(value: &'m Value, path: String) -> Self {
        Self {
            value,
            path: Cow::Owned(path),
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn value(&self) -> &'m Value {
        self.value
    }

    /// The object that this is, after noting every field that is not in `known`.
    pub(super) fn object(
        &self,
        known: &KnownFields,
        problems: &mut Problems,
    ) -> Option<ManifestObject<'m>> {
        let entries = self.expect(self.value.as_object(), "an object", problems)?;
        let object = ManifestObject {
            entries,
            path: self.path.clone().into_owned(),
        };
        for (name, value) in entries.iter().filter(|(_, value)| !value.is_null()) {
            let has = |names: &[&str]| names.contains(&&**name);
            if has(known.later) {
                let message =
                    format!("`{name}` is a Kyverno field that this version does not evaluate");
                problems.unsupported(object.child(name), message);
            } else if !has(known.evaluated) && !has(known.inert) {
                problems.invalid(object.child(name), unknown_field(name, value, known));
            }
        }
        Some(object)
    }

    /// The elements that are not null; none where this is no list.
    pub(super) fn list(&self, problems: &mut Problems) -> Vec<Field<'m>> {
        self.expect(self.value.as_array(), "a list", problems)
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(at, value)| Field {
                value,
                path: Cow::Owned(format!("{}[{at}]", self.path)),
            })
            .collect()
    }

    /// A list of texts that are not empty and have no variables in them.
    pub(super) fn texts(&self, problems: &mut Problems) -> Vec<String> {
        self.list(problems)
            .iter()
            .filter_map(|field| field.plain_text(problems))
            .collect()
    }

    /// Returns a list of texts without variables. A text may be empty, such as a cluster-scoped object's namespace or
    /// the value of a label.
    pub(super) fn texts_or_empty(&self, problems: &mut Problems) -> Vec<String> {
        let fields = self.list(problems);
        let one = |field: &Field<'_>| match field.value.as_str() {
            Some("") => Some(String::new()),
            _ => field.plain_text(problems),
        };
        fields.iter().filter_map(one).collect()
    }

    pub(super) fn text(&self, problems: &mut Problems) -> Option<&'m str> {
        self.expect(self.value.as_str(), "a string", problems)
    }

    /// A text that is not empty and has no variables in it.
    pub(super) fn plain_text(&self, problems: &mut Problems) -> Option<String> {
        let text = self.text(problems)?;
        if text.is_empty() {
            problems.invalid(&self.path, "it is empty");
        }
        if text.contains("{{") {
            problems.unsupported(&self.path, "variables are not resolved here");
        }
        Some(text.to_owned())
    }

    /// Returns the field's text, if the text is one of `known`.
    pub(super) fn known_text(&self, known: &[&str], problems: &mut Problems) -> Option<&'m str> {
        let text = self.text(problems)?;
        if known.contains(&text) {
            return Some(text);
        }
        problems.invalid(
            &self.path,
            format!("`{text}` is none of {}", known.join(", ")),
        );
        None
    }

    pub(super) fn boolean(&self, problems: &mut Problems) -> Option<bool> {
        self.expect(self.value.as_bool(), "true or false", problems)
    }

    pub(super) fn integer(
        &self,
        range: RangeInclusive<u32>,
        problems: &mut Problems,
    ) -> Option<u32> {
        let within = |number| {
            u32::try_from(number)
                .ok()
                .filter(|number| range.contains(number))
        };
        let expected = format!("an integer from {} to {}", range.start(), range.end());
        self.expect(self.value.as_u64().and_then(within), &expected, problems)
    }

    /// The text of a field, which a different crate checks.
    pub(super) fn text_at(&self, name: &str) -> Option<&'m str> {
        self.value
            .get(name)?
            .as_str()
            .filter(|text| !text.is_empty())
    }

    fn expect<T>(&self, found: Option<T>, expected: &str, problems: &mut Problems) -> Option<T> {
        if found.is_none() {
            let found = type_name(self.value);
            problems.invalid(
                &self.path,
                format!("{expected} is expected here, found {found}"),
            );
        }
        found
    }
}

impl<'m> ManifestObject<'m> {
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The path of a field of this.
    pub(super) fn child(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Returns the field, if the object has it with a value other than null. An API server treats null as missing.
    pub(super) fn get(&self, name: &str) -> Option<Field<'m>> {
        let value = self.entries.get(name).filter(|value| !value.is_null())?;
        Some(Field {
            value,
            path: Cow::Owned(self.child(name)),
        })
    }

    pub(super) fn required(&self, name: &str, problems: &mut Problems) -> Option<Field<'m>> {
        let field = self.get(name);
        if field.is_none() {
            problems.invalid(self.child(name), "it is required");
        }
        field
    }

    /// Every field, in the manifest's order.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'m str, Field<'m>)> {
        self.entries
            .keys()
            .filter_map(|name| Some((name.as_str(), self.get(name)?)))
    }

    /// Returns whether the object has a field with one of these names.
    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.get(name).is_some())
    }
}

fn unknown_field(name: &str, value: &Value, known: &KnownFields) -> String {
    let all = || {
        [known.evaluated, known.inert, known.later]
            .into_iter()
            .flatten()
    };
    let kind = type_name(value);
    if let Some(alike) = all().find(|known| known.eq_ignore_ascii_case(name)) {
        return format!("unknown field `{name}`; did you mean `{alike}`?");
    }
    match all().find(|known| is_one_letter_apart(known, name)) {
        Some(alike) => format!("unknown field `{name}` ({kind}); did you mean `{alike}`?"),
        None => format!("unknown field `{name}` ({kind})"),
    }
}

/// The fewest bytes of a field that is named in place of one like it.
const ALIKE_BYTES_MIN: usize = 4;

/// Returns whether one text becomes the other by one letter more, less or otherwise.
fn is_one_letter_apart(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let (short, long) = match one.len() <= other.len() {
        true => (one, other),
        false => (other, one),
    };
    // Most short words are one letter from each other.
    if long.len() - short.len() > 1 || long.len() < ALIKE_BYTES_MIN {
        return false;
    }
    let pairs = short.iter().zip(long);
    let begin = pairs.take_while(|(one, other)| one == other).count();
    let ends = short[begin..].iter().rev().zip(long[begin..].iter().rev());
    let end = ends.take_while(|(one, other)| one == other).count();
    begin + end + 1 >= long.len()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_field_that_is_almost_a_known_one_is_named_with_it() {
        let known = KnownFields {
            evaluated: &["pattern", "deny"],
            inert: &["message"],
            later: &[],
        };
        for (name, meant) in [
            ("patern", Some("pattern")),
            ("patttern", Some("pattern")),
            ("pattera", Some("pattern")),
            ("Deny", Some("deny")),
            ("messages", Some("message")),
            ("paterm", None),
            ("anyPattern", None),
            ("", None),
            ("dény", None),
        ] {
            let said = unknown_field(name, &json!({}), &known);
            let expected = meant.map(|meant| format!("; did you mean `{meant}`?"));
            match expected {
                Some(expected) => assert!(said.ends_with(&expected), "{said}"),
                None => assert!(!said.contains("did you mean"), "{said}"),
            }
        }
    }
}
