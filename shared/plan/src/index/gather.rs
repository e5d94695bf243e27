//! Objects found in an index.

use std::borrow::Cow;

use anteroom_view::Object;
use serde_json::Value;

use super::{Index, Posting, is_pattern};
use crate::{Matching, Probe, Scalar};

/// What is taken of an index.
#[derive(Clone, Copy)]
pub struct Terms<'t> {
    /// The most objects.
    pub objects_max: usize,
    /// The most values and objects that may be looked at to find them.
    pub steps_max: usize,
    /// Whether an object is asked for at all. One for all the others of its kind has to be.
    pub admits: &'t dyn Fn(&Object) -> bool,
}

/// Objects that are being found.
struct Gathering<'i, 't> {
    index: &'i Index,
    terms: Terms<'t>,
    steps_left: usize,
    found: Vec<Object>,
}

impl Index {
    /// The objects that a probe finds whose operand has this value (`None`: it is not bound, which the
    /// evaluation complains of), and those of which nothing can be told; some more than once. `None`:
    /// that takes more than the terms allow, or the value is none that can be looked up.
    pub fn gather(
        &self,
        probe: &Probe,
        operand: Option<&Value>,
        terms: Terms<'_>,
    ) -> Option<Vec<Object>> {
        let mut gathering = Gathering {
            index: self,
            terms,
            steps_left: terms.steps_max,
            found: Vec::new(),
        };
        if let Some(operand) = operand {
            gathering.probe(probe, operand)?;
        }
        for object in &self.always {
            gathering.push(object)?;
        }
        Some(gathering.found)
    }
}

impl<'i> Gathering<'i, '_> {
    fn probe(&mut self, probe: &Probe, operand: &Value) -> Option<()> {
        match (probe.matching, operand) {
            (Matching::Equal, value) => self.equal(value, probe.once),
            (Matching::Among, Value::Array(values)) => {
                values.iter().try_for_each(|value| self.equal(value, false))
            }
            (Matching::Alike, Value::Null | Value::Object(_)) => Some(()), // Nothing is.
            (Matching::Alike, Value::Array(keys)) => keys
                .iter()
                .try_for_each(|key| self.alike(&text(key), probe.once)),
            (Matching::Alike, key) => self.alike(&text(key), probe.once),
            (Matching::AmongEntries, Value::Object(entries)) => {
                let mut postings = entries.iter().filter_map(|entry| self.entry(entry));
                let postings: Vec<_> = postings.by_ref().collect();
                postings
                    .into_iter()
                    .try_for_each(|posting| self.extend(posting))
            }
            (Matching::HasEntries, Value::Object(entries)) if !entries.is_empty() => {
                let postings = entries.iter().map(|entry| self.entry(entry));
                let length = |posting: &Option<&Posting>| posting.map_or(0, Posting::len);
                let rarest = postings.min_by_key(length).flatten();
                rarest.map_or(Some(()), |posting| self.extend(posting))
            }
            _ => None,
        }
    }

    fn entry(&self, (name, value): (&String, &Value)) -> Option<&'i Posting> {
        let entry = Scalar::entry(name, Scalar::of_json(value)?);
        self.index.by_value.get(&entry)
    }

    fn equal(&mut self, value: &Value, once: bool) -> Option<()> {
        let posting = Scalar::of_json(value).and_then(|value| self.index.by_value.get(&value));
        match posting {
            None => Some(()),
            Some(posting) if once => self.one_of(posting).map(drop),
            Some(posting) => self.extend(posting),
        }
    }

    /// Objects that have a value that is alike a key.
    fn alike(&mut self, key: &str, once: bool) -> Option<()> {
        let index = self.index;
        // Whoever has such a number may have written it in another way.
        for value in Scalar::spelled(key) {
            if let Some(posting) = index.by_value.get(&value) {
                self.extend(posting)?;
            }
        }
        if let Some(posting) = index.by_value.get(&Scalar::Text(key.into()))
            && self.found_in(posting, once)?
        {
            return Some(());
        }
        let matches = index.language.matches;
        for pattern in &index.patterns {
            self.step()?;
            if matches(pattern, key)
                && let Some(posting) = index.by_value.get(&Scalar::Text(pattern.clone()))
                && self.found_in(posting, once)?
            {
                return Some(());
            }
        }
        match is_pattern(key) {
            true => self.matched(key, once),
            false => Some(()),
        }
    }

    /// Objects that have a value that a key with wildcards matches.
    fn matched(&mut self, key: &str, once: bool) -> Option<()> {
        let matches = self.index.language.matches;
        for (value, posting) in &self.index.by_value {
            self.step()?;
            if let Scalar::Text(text) = value {
                if matches(key, text) && self.found_in(posting, once)? {
                    return Some(());
                }
            } else if value.spellings().iter().any(|text| matches(key, text)) {
                self.extend(posting)?;
            }
        }
        Some(())
    }

    /// Takes objects that are certain to agree. Whether that settles it.
    fn found_in(&mut self, posting: &Posting, once: bool) -> Option<bool> {
        match once {
            true => self.one_of(posting),
            false => self.extend(posting).map(|()| false),
        }
    }

    /// Takes one that is asked for; says whether there is one.
    fn one_of(&mut self, posting: &Posting) -> Option<bool> {
        for object in posting.iter() {
            self.step()?;
            if (self.terms.admits)(object) {
                self.push(object)?;
                return Some(true);
            }
        }
        Some(false)
    }

    fn extend(&mut self, posting: &Posting) -> Option<()> {
        posting.iter().try_for_each(|object| self.push(object))
    }

    fn push(&mut self, object: &Object) -> Option<()> {
        let room = self.found.len() < self.terms.objects_max;
        room.then(|| self.found.push(object.clone()))
    }

    fn step(&mut self) -> Option<()> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        Some(())
    }
}

/// A value as text: a string as it is, anything else as JSON.
fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}
