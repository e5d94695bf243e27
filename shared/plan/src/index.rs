//! Objects by what an expression takes of each.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use anteroom_jmespath::{
    Budget, Environment, EvalError, Expression, FunctionTable, MissingKey, ParseError, Shape, Value,
};
use anteroom_view::{Change, Object, Snapshot, ViewNode};

use crate::{Lookup, Scalar};

/// What the key of one object may cost. One that costs more is looked at in every query.
pub(crate) const KEY_BUDGET: Budget = Budget {
    steps: 20_000,
    depth: anteroom_jmespath::DEPTH_MAX,
    built_bytes: 64 * 1024,
};

/// What an index is an index on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexKey {
    /// What is taken of each object.
    pub expression: Arc<str>,
    /// See [`Lookup::any_element`].
    pub any_element: bool,
    /// Whether a key that an object lacks is an error, as in [`MissingKey::Error`].
    pub missing_key_is_error: bool,
    /// Objects are looked at as in lists of the API server's own types, without `apiVersion` and
    /// `kind`.
    pub bare: bool,
}

impl IndexKey {
    /// What a lookup needs, under this rule for missing keys.
    pub fn of(lookup: &Lookup, missing_key_is_error: bool, bare: bool) -> Self {
        Self {
            expression: lookup.key.as_str().into(),
            any_element: lookup.any_element,
            missing_key_is_error,
            bare,
        }
    }
}

/// The objects of one state of a view by a key, to be brought up to another state at any time.
#[derive(Debug)]
pub struct Index {
    key: IndexKey,
    expression: Expression,
    functions: &'static FunctionTable,
    at: Snapshot,
    by_value: HashMap<Scalar, Posting>,
    /// Objects whose key cannot be looked up: it has parts, or there is none because of an error.
    always: BTreeSet<Object>,
    bytes: usize,
}

/// Objects with one value.
#[derive(Debug)]
enum Posting {
    One(Object),
    Many(BTreeSet<Object>),
}

/// What is known of one object.
#[derive(Default)]
struct Keys {
    values: HashSet<Scalar>,
    always: bool,
}

impl Index {
    /// An index of all objects of `at`. It takes as long as evaluating the key on each of them.
    ///
    /// # Errors
    /// The key's expression cannot be parsed.
    pub fn new(
        key: IndexKey,
        functions: &'static FunctionTable,
        at: &Snapshot,
    ) -> Result<Self, ParseError> {
        let mut index = Self {
            expression: Expression::parse(&key.expression)?,
            key,
            functions,
            at: at.clone(),
            by_value: HashMap::new(),
            always: BTreeSet::new(),
            bytes: 0,
        };
        at.read().objects().for_each(|object| index.add(object));
        Ok(index)
    }

    /// Brings it up, or back, to another state. It costs what differs between the two.
    pub fn advance(&mut self, to: &Snapshot) {
        let from = std::mem::replace(&mut self.at, to.clone());
        to.changes_since(&from, |change| match change {
            Change::Added(new) => self.add(new),
            Change::Removed(old) => self.remove(old),
            Change::Replaced { old, new } => {
                self.remove(old);
                self.add(new);
            }
        });
    }

    /// The objects whose key has this value, and those of which that cannot be told; an object may be
    /// among both. `None`: a value with parts.
    pub fn find(&self, value: Option<&Scalar>) -> impl Iterator<Item = &Object> {
        let posting = value.and_then(|value| self.by_value.get(value));
        let (one, many) = match posting {
            Some(Posting::One(object)) => (Some(object), None),
            Some(Posting::Many(objects)) => (None, Some(objects)),
            None => (None, None),
        };
        one.into_iter()
            .chain(many.into_iter().flatten())
            .chain(&self.always)
    }

    /// How many [`Index::find`] has, at most.
    pub fn count(&self, value: Option<&Scalar>) -> usize {
        let posting = value.and_then(|value| self.by_value.get(value));
        let own = match posting {
            Some(Posting::Many(objects)) => objects.len(),
            Some(Posting::One(_)) => 1,
            None => 0,
        };
        own + self.always.len()
    }

    /// How many objects have this value, and no other; `None` where that cannot be told of all.
    pub fn exact(&self, value: &Scalar) -> Option<usize> {
        let tells = self.always.is_empty() && !self.key.any_element;
        tells.then(|| self.count(Some(value)))
    }

    /// The state that it is of.
    pub fn at(&self) -> &Snapshot {
        &self.at
    }

    /// What it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let slots = self.by_value.capacity() * (size_of::<(Scalar, Posting)>() + 1);
        self.bytes + slots + self.always.len() * IN_SET_BYTES
    }

    fn add(&mut self, object: &Object) {
        let keys = self.keys(object);
        if keys.always {
            self.always.insert(object.clone());
        }
        for value in keys.values {
            let bytes = value.bytes();
            match self.by_value.get_mut(&value) {
                None => {
                    self.bytes += bytes;
                    self.by_value.insert(value, Posting::One(object.clone()));
                }
                Some(posting) => self.bytes += posting.insert(object),
            }
        }
    }

    fn remove(&mut self, object: &Object) {
        let keys = self.keys(object);
        if keys.always {
            self.always.remove(object);
        }
        for value in keys.values {
            let Some(posting) = self.by_value.get_mut(&value) else {
                continue;
            };
            match posting.remove(object) {
                Some(bytes) => self.bytes -= bytes,
                None => {
                    self.bytes -= value.bytes();
                    self.by_value.remove(&value);
                }
            }
        }
        if self.by_value.capacity() > 4 * self.by_value.len().max(16) {
            self.by_value.shrink_to_fit();
        }
    }

    fn keys(&self, object: &Object) -> Keys {
        let environment = Environment {
            functions: self.functions,
            parameters: &(),
            missing_key: self.missing_key(),
            budget: KEY_BUDGET,
        };
        let node = ViewNode::listed(object, self.key.bare);
        let mut keys = Keys::default();
        match self.expression.evaluate(node, &environment) {
            // A comparison takes it for null; what takes a list does not.
            Err(EvalError::MissingKey { .. }) if !self.key.any_element => {
                keys.values.insert(Scalar::Null);
            }
            Err(_) => keys.always = true,
            Ok(value) if !self.key.any_element => keys.take(&value),
            Ok(list) => {
                keys.always = !matches!(list.shape(), Shape::Array(_));
                list.elements().for_each(|element| keys.take(&element));
            }
        }
        keys
    }

    fn missing_key(&self) -> MissingKey {
        match self.key.missing_key_is_error {
            true => MissingKey::Error,
            false => MissingKey::Null,
        }
    }
}

impl Keys {
    fn take(&mut self, value: &Value<'_, ViewNode<'_>>) {
        match Scalar::of(value.shape()) {
            Some(scalar) => drop(self.values.insert(scalar)),
            None => self.always = true,
        }
    }
}

/// What an object takes in an ordered set, the room that is not used included.
const IN_SET_BYTES: usize = size_of::<Object>() * 3 / 2 + 16;

impl Posting {
    /// Returns the bytes that it takes more.
    fn insert(&mut self, object: &Object) -> usize {
        match self {
            Self::Many(objects) => {
                objects.insert(object.clone());
                IN_SET_BYTES
            }
            Self::One(first) => {
                *self = Self::Many(BTreeSet::from([first.clone(), object.clone()]));
                2 * IN_SET_BYTES
            }
        }
    }

    /// Returns the bytes that it takes less; `None` where nothing is left.
    fn remove(&mut self, object: &Object) -> Option<usize> {
        let Self::Many(objects) = self else {
            return None;
        };
        objects.remove(object);
        if objects.len() > 1 {
            return Some(IN_SET_BYTES);
        }
        *self = Self::One(objects.pop_first()?);
        Some(2 * IN_SET_BYTES)
    }
}
