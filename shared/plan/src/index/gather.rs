//! Objects found in an index.

use std::borrow::Cow;

use anteroom_jmespath::{Parameters, Shape};
use anteroom_view::{Object, ViewNode};
use serde_json::Value;

use super::{Index, Posting, is_pattern, ordered::Ordered};
use crate::{Matching, Operand, Probe, Scalar};

/// The limits, the filter and the parameters of a lookup.
#[derive(Clone, Copy)]
pub struct LookupOptions<'t> {
    /// The most objects.
    pub objects_max: usize,
    /// The most values and objects that may be looked at to find them.
    pub steps_max: usize,
    /// Returns true for an object that the query asks for. An object that represents a group of alike objects has to
    /// be admitted.
    pub admits: &'t dyn Fn(&Object) -> bool,
    /// The request's.
    pub parameters: &'t dyn Parameters,
}

/// The most objects that are returned unchecked. For more, one object is checked on behalf of all alike ones.
const UNCHECKED_MAX: usize = 4;

/// The cost of a check, in values that are looked at.
const CHECK_STEPS: usize = 16;

/// Objects that are being found.
struct Gathering<'i, 't> {
    index: &'i Index,
    probe: &'t Probe,
    options: LookupOptions<'t>,
    steps_left: usize,
    found: Vec<Object>,
}

impl Index {
    /// Returns the objects that a probe finds, and the objects that the index cannot judge; some come more than once.
    /// `None`: the search exceeds the limits of `subexpressions`, or the operand is no value that an index can look up.
    pub fn gather(&self, probe: &Probe, options: LookupOptions<'_>) -> Option<Vec<Object>> {
        let operand = match &probe.operand {
            Operand::Literal(value) => Some(value),
            // One that is not bound is the evaluation's to complain of.
            Operand::Parameter(name) => options.parameters.parameter(name),
        };
        let mut gathering = Gathering {
            index: self,
            probe,
            options,
            steps_left: options.steps_max,
            found: Vec::new(),
        };
        if let Some(operand) = operand {
            gathering.probe(operand)?;
        }
        gathering.has_room(self.always.len())?;
        for object in &self.always {
            gathering.push(object)?;
        }
        Some(gathering.found)
    }
}

impl<'i> Gathering<'i, '_> {
    fn probe(&mut self, operand: &Value) -> Option<()> {
        match (self.probe.matching, operand) {
            (Matching::Equal, value) => self.equal(value),
            (Matching::Among, Value::Array(values)) => {
                values.iter().try_for_each(|value| self.equal(value))
            }
            (Matching::AlikeOne, Value::Array(_)) => None,
            // Nothing is.
            (Matching::Alike | Matching::AlikeOne, Value::Null | Value::Object(_)) => Some(()),
            (Matching::Alike, Value::Array(keys)) => {
                keys.iter().try_for_each(|key| self.alike(&text(key)))
            }
            (Matching::Alike | Matching::AlikeOne, key) => self.alike(&text(key)),
            (Matching::AmongEntries, Value::Object(entries)) => {
                let mut postings = entries
                    .iter()
                    .filter_map(|(name, value)| self.entry(name, value));
                let postings: Vec<_> = postings.by_ref().collect();
                postings
                    .into_iter()
                    .try_for_each(|posting| self.extend(posting))
            }
            (Matching::HasEntries, Value::Object(entries)) if !entries.is_empty() => {
                let postings = entries.iter().map(|(name, value)| self.entry(name, value));
                let length = |posting: &Option<&Posting>| posting.map_or(0, Posting::len);
                let rarest = postings.min_by_key(length).flatten();
                rarest.map_or(Some(()), |posting| self.extend(posting))
            }
            _ => None,
        }
    }

    fn entry(&self, name: &str, value: &Value) -> Option<&'i Posting> {
        let entry = Scalar::entry(name, Scalar::of_json(value)?);
        self.index.by_value.get(&entry)
    }

    fn equal(&mut self, value: &Value) -> Option<()> {
        match Scalar::of_json(value) {
            Some(value) => self.having(&value).map(drop),
            None => Some(()),
        }
    }

    /// Objects that have a value that is alike a key.
    fn alike(&mut self, key: &str) -> Option<()> {
        let index = self.index;
        // Objects may have written the same number in several spellings.
        for value in Scalar::spelled(key) {
            if let Some(posting) = index.by_value.get(&value) {
                self.extend(posting)?;
            }
        }
        if self.having(&Scalar::Text(key.into()))? {
            return Some(());
        }
        let matches = index.language.matches;
        for pattern in &index.patterns {
            self.step()?;
            if matches(pattern, key) && self.having(&Scalar::Text(pattern.clone()))? {
                return Some(());
            }
        }
        match is_pattern(key) {
            true => self.matched(key),
            false => Some(()),
        }
    }

    /// Takes the objects with a value that matches a key with wildcards. All values are compared, or only the values
    /// with the key's beginning or end.
    fn matched(&mut self, key: &str) -> Option<()> {
        let wildcards = ['*', '?'];
        let before = key.split(wildcards).next().unwrap_or_default();
        let after = key.rsplit(wildcards).next().unwrap_or_default();
        let index = self.index;
        match (before, after) {
            ("", "") => self.matched_of_all(key),
            ("", end) => self.matched_in(&index.backward, end, key),
            (begin, _) => self.matched_in(&index.forward, begin, key),
        }
    }

    fn matched_in(&mut self, ordered: &Ordered, end: &str, key: &str) -> Option<()> {
        let index = self.index;
        if ordered.get().is_none() {
            self.steps_left = self.steps_left.checked_sub(index.by_value.len())?;
        }
        let values = ordered.get_or_sort(&index.by_value);
        for text in values.with_end(end) {
            self.step()?;
            if (index.language.matches)(key, &text) && self.having(&Scalar::Text((*text).into()))? {
                return Some(());
            }
        }
        values
            .others()
            .try_for_each(|value| self.matched_other(key, value))
    }

    /// Matches a value that is no text. It may be written in two ways.
    fn matched_other(&mut self, key: &str, value: &Scalar) -> Option<()> {
        self.step()?;
        let matches = self.index.language.matches;
        let spellings = value.spellings();
        match self.index.by_value.get(value) {
            Some(posting) if spellings.iter().any(|text| matches(key, text)) => {
                self.extend(posting)
            }
            _ => Some(()),
        }
    }

    fn matched_of_all(&mut self, key: &str) -> Option<()> {
        let matches = self.index.language.matches;
        for (value, posting) in &self.index.by_value {
            let Scalar::Text(text) = value else {
                self.matched_other(key, value)?;
                continue;
            };
            self.step()?;
            if matches(key, text) && self.found_in(value, posting)? {
                return Some(());
            }
        }
        Some(())
    }

    /// Takes the objects that certainly have the value; returns whether the search is complete.
    fn having(&mut self, value: &Scalar) -> Option<bool> {
        match self.index.by_value.get(value) {
            Some(posting) => self.found_in(value, posting),
            None => Some(false),
        }
    }

    fn found_in(&mut self, value: &Scalar, posting: &Posting) -> Option<bool> {
        let checks = self.probe.check.is_some();
        if !self.probe.once || (checks && posting.len() <= UNCHECKED_MAX) {
            return self.extend(posting).map(|()| false);
        }
        for object in posting.iter() {
            self.step()?;
            let newest = self.index.newest.version_of(object);
            if (self.options.admits)(newest) && self.contributes(newest, value)? {
                self.push(object)?;
                return Some(true);
            }
        }
        Some(false)
    }

    /// Returns true if an object has a value, by the probe's check and not only by its key. `None`:
    /// that is not known.
    fn contributes(&mut self, object: &Object, value: &Scalar) -> Option<bool> {
        let Some(check) = &self.probe.check else {
            return Some(true);
        };
        self.steps_left = self.steps_left.checked_sub(CHECK_STEPS)?;
        let (key, language) = (&self.index.key, self.index.language);
        let environment = key.environment(language, self.options.parameters, 0);
        let node = ViewNode::listed(object, key.bare);
        let list = check.evaluate(node, &environment).ok()?;
        if !matches!(list.shape(), Shape::Array(_)) {
            return None; // A function refuses something: it is no list, and so is all of it.
        }
        let mut elements = list.elements();
        Some(elements.any(|element| Scalar::of(element.shape()).as_ref() == Some(value)))
    }

    fn extend(&mut self, posting: &Posting) -> Option<()> {
        self.has_room(posting.len())?; // Too many are not copied first.
        posting.iter().try_for_each(|object| self.push(object))
    }

    fn has_room(&self, objects: usize) -> Option<()> {
        let room = self.options.objects_max - self.found.len();
        (objects <= room).then_some(())
    }

    fn push(&mut self, object: &Object) -> Option<()> {
        let room = self.found.len() < self.options.objects_max;
        let newest = self.index.newest.version_of(object);
        room.then(|| self.found.push(newest.clone()))
    }

    fn step(&mut self) -> Option<()> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        Some(())
    }
}

/// Returns a key as the text that conditions about lists compare it as: a string unchanged, any other value as JSON.
fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Null => Cow::Borrowed(Scalar::NULL_TEXT),
        other => Cow::Owned(anteroom_jmespath::json_text(other)),
    }
}
