//! Objects by a value that an expression takes of each.

mod gather;
mod key_values;
mod newest;
mod ordered;
mod posting;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Bound,
};

use anteroom_jmespath::FunctionTable;
use anteroom_model::RetainedFields;
use anteroom_view::{Object, Snapshot};

use crate::{
    Changes, IndexKey, KeyProgram, Reading, Scalar,
    changes::{Changed, Difference},
    field_reads::{reads_of_one, reads_of_path},
};

pub use gather::LookupOptions;
use key_values::KeyValues;
pub(crate) use key_values::key_budget;
use newest::NewestVersions;
use ordered::{Order, Ordered};
use posting::{IN_SET_BYTES, Posting};

/// The functions and the matching that give expressions their meaning.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// The functions that they may call.
    pub functions: &'static FunctionTable,
    /// Returns true if a pattern, the first, with `*` and `?` in it, matches a whole text.
    pub matches: fn(&str, &str) -> bool,
}

/// An index over the objects of one state of a view, by a key. It can follow the view to another state at any time.
#[derive(Debug)]
pub struct Index {
    key: IndexKey,
    /// The fields of an object that its key depends on.
    reads: RetainedFields,
    language: Language,
    at: Snapshot,
    by_value: HashMap<Scalar, Posting>,
    /// Values that are patterns themselves.
    patterns: HashSet<Box<str>>,
    /// The values in either order, once that is of use.
    forward: Ordered,
    backward: Ordered,
    /// Objects whose key cannot be looked up: it has parts, or there is none because of an error.
    always: BTreeSet<Object>,
    /// The newest versions of the objects above, where the change makes no difference to the index.
    newest: NewestVersions,
    bytes: usize,
}

impl Index {
    /// Builds an index over all objects of `at`. It takes as long as evaluating the key on each object.
    pub fn new(key: IndexKey, language: Language, at: &Snapshot) -> Self {
        let mut index = Self::empty(key, language, at);
        at.read().objects().for_each(|object| index.add(object));
        index
    }

    /// Builds an index over all objects of `at`. `None`: it would take more than `bytes_max`. The build ends with the
    /// object that goes beyond, so that the memory of the build has that limit as well.
    pub fn new_within(
        key: IndexKey,
        language: Language,
        at: &Snapshot,
        bytes_max: usize,
    ) -> Option<Self> {
        let mut index = Self::empty(key, language, at);
        for object in at.read().objects() {
            index.add(object);
            if index.bytes() > bytes_max {
                return None;
            }
        }
        Some(index)
    }

    /// An index of the state `at` to which no object has been added yet.
    fn empty(key: IndexKey, language: Language, at: &Snapshot) -> Self {
        Self {
            reads: match key.key.program() {
                KeyProgram::Query(expression) => reads_of_one(expression),
                KeyProgram::Path(path) => reads_of_path(path),
            },
            key,
            language,
            at: at.clone(),
            by_value: HashMap::new(),
            patterns: HashSet::new(),
            forward: Ordered::new(Order::Forward),
            backward: Ordered::new(Order::Backward),
            always: BTreeSet::new(),
            newest: NewestVersions::default(),
            bytes: 0,
        }
    }

    /// Moves the index forward, or back, to the state `to`. The cost grows with the difference of the two states.
    pub fn advance(&mut self, to: &Snapshot) {
        self.follow(&Changes::between(&self.at, to));
    }

    /// Brings the index to another state by known changes. `changes` must lead from the state that the index is of.
    pub fn follow(&mut self, changes: &Changes) {
        self.at = changes.to().clone();
        for change in changes.iter() {
            match change {
                Changed::Added(new) => self.add(new),
                Changed::Removed(old) => {
                    let key = self.key_values(old);
                    self.take_out(old, &key.values, key.always);
                    self.newest.forget(old);
                }
                Changed::Replaced { old, new, by } => self.replace(old, new, by),
            }
        }
    }

    /// The number of objects with this value and no other; `None` where the index does not know it for every object.
    pub fn exact(&self, value: &Scalar) -> Option<usize> {
        let tells = self.always.is_empty() && self.key.key.reading() == Reading::VALUE;
        tells.then(|| self.by_value.get(value).map_or(0, Posting::len))
    }

    /// The number of objects that have this value, alone or among further values.
    pub fn having(&self, value: &Scalar) -> usize {
        self.by_value.get(value).map_or(0, Posting::len)
    }

    /// Calls `each` with every object that has this value, in order. Fields that the index does not read may have
    /// changed in an object since.
    pub fn each_having(&self, value: &Scalar, each: &mut dyn FnMut(&Object)) {
        let posting = self.by_value.get(value);
        posting.into_iter().flat_map(Posting::iter).for_each(each);
    }

    /// Returns at most `count` of the objects that have this value, in order, from `from` on.
    pub fn having_from(&self, value: &Scalar, from: Bound<&Object>, count: usize) -> Vec<Object> {
        let posting = self.by_value.get(value);
        let objects = posting.into_iter().flat_map(|posting| posting.from(from));
        objects.take(count).cloned().collect()
    }

    /// Returns at most `count` of the objects that are candidates in every query, in order, from `from` on.
    pub fn always_from(&self, from: Bound<&Object>, count: usize) -> Vec<Object> {
        let objects = self.always.range((from, Bound::Unbounded));
        objects.take(count).cloned().collect()
    }

    /// The state that it is of.
    pub fn at(&self) -> &Snapshot {
        &self.at
    }

    /// The number of different values of its objects.
    pub fn values(&self) -> usize {
        self.by_value.len()
    }

    /// The number of objects that are looked at in every query.
    pub fn always(&self) -> usize {
        self.always.len()
    }

    /// Returns the index's size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let slots = self.by_value.capacity() * (size_of::<(Scalar, Posting)>() + 1);
        let patterns = self.patterns.capacity() * (size_of::<Box<str>>() + 1);
        let always = self.always.len() * IN_SET_BYTES;
        let in_order = self.forward.bytes() + self.backward.bytes();
        self.bytes + slots + patterns + in_order + always + self.newest.bytes()
    }

    fn key_values(&self, object: &Object) -> KeyValues {
        KeyValues::of(object, &self.key, self.language)
    }

    fn replace(&mut self, old: &Object, new: &Object, by: &Difference) {
        if !by.concerns(&self.reads) {
            return self.renew(old, new);
        }
        let (was, is) = (self.key_values(old), self.key_values(new));
        let gone = was.values.into_iter();
        let gone: Vec<_> = gone
            .filter(|value| is.values.binary_search(value).is_err())
            .collect();
        self.take_out(old, &gone, was.always && !is.always);
        // What stayed is put again, with the new object.
        self.put(new, is.values, is.always);
        self.newest.forget(new);
    }

    /// Replaces an object by its new version, if both have the same keys.
    fn renew(&mut self, old: &Object, new: &Object) {
        if !self.newest.note(old, new) {
            return self.add(new);
        }
        while let Some(one) = self.newest.take_one_over() {
            self.add(&one);
        }
    }

    /// Puts an object in by its present key values. An object of the same key is replaced.
    fn add(&mut self, object: &Object) {
        let is = self.key_values(object);
        self.put(object, is.values, is.always);
    }

    fn put(&mut self, object: &Object, values: Vec<Scalar>, always: bool) {
        if always {
            self.always.replace(object.clone());
        }
        for value in values {
            if let Some(posting) = self.by_value.get_mut(&value) {
                self.bytes += posting.insert(object);
                continue;
            }
            self.bytes += value.bytes();
            if let Some(pattern) = pattern(&value) {
                self.bytes += value.bytes();
                self.patterns.insert(pattern.into());
            }
            self.forward.insert(&value);
            self.backward.insert(&value);
            self.by_value.insert(value, Posting::One(object.clone()));
        }
    }

    fn take_out(&mut self, object: &Object, values: &[Scalar], always: bool) {
        if always {
            self.always.remove(object);
        }
        for value in values {
            let Some(posting) = self.by_value.get_mut(value) else {
                continue;
            };
            if let Some(bytes) = posting.remove(object) {
                self.bytes -= bytes;
                continue;
            }
            self.bytes -= value.bytes();
            self.forward.remove(value);
            self.backward.remove(value);
            self.by_value.remove(value);
            if let Some(pattern) = pattern(value) {
                self.bytes -= value.bytes();
                self.patterns.remove(pattern);
            }
        }
        if self.by_value.capacity() > 4 * self.by_value.len().max(16) {
            self.by_value.shrink_to_fit();
        }
    }
}

/// Returns the text, if it is a pattern.
fn pattern(value: &Scalar) -> Option<&str> {
    match value {
        Scalar::Text(text) if is_pattern(text) => Some(text),
        _ => None,
    }
}

/// Returns true if a text has wildcards.
fn is_pattern(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'*' | b'?'))
}

#[cfg(test)]
mod tests;
