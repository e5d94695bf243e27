//! Keys: expressions on single objects, whose values are looked up.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use anteroom_cel::KeyPath;
use anteroom_jmespath::Expression;

use crate::Probe;

/// The key of each object: a program over it, and the part of the result that is looked up. A clone shares it.
#[derive(Clone)]
pub struct Key(Arc<KeyData>);

/// The content of a key, which its clones share.
struct KeyData {
    program: KeyProgram,
    reading: Reading,
    shown: Box<str>,
    hash: u64,
}

/// The way to a key's value.
#[derive(Clone, Debug)]
pub enum KeyProgram {
    /// An expression of JMESPath.
    Query(Expression),
    /// A path as CEL takes it.
    Path(KeyPath),
}

/// The part of a key's value that is looked up. Objects whose value is anything else are looked at in
/// every query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// The number of nested lists around the values to look up; 0: the key's value itself.
    pub depth: u8,
    /// The elements of the innermost lists.
    pub leaf: Leaf,
}

impl Reading {
    /// The value itself, without parts.
    pub const VALUE: Self = Self {
        depth: 0,
        leaf: Leaf::Value,
    };
}

/// The elements that are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leaf {
    /// A value without parts.
    Value,
    /// The first entry of an object, by its name.
    FirstEntry,
    /// Every entry of an object.
    Entries,
}

impl Key {
    pub(crate) fn new(expression: Expression, reading: Reading, shown: String) -> Self {
        let mut hasher = DefaultHasher::new();
        (expression.as_str(), reading).hash(&mut hasher);
        Self(Arc::new(KeyData {
            hash: hasher.finish(),
            program: KeyProgram::Query(expression),
            reading,
            shown: shown.into(),
        }))
    }

    /// The key that CEL looks objects up by.
    pub fn path(path: &KeyPath) -> Self {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        Self(Arc::new(KeyData {
            hash: hasher.finish(),
            shown: path.to_string().into(),
            program: KeyProgram::Path(path.clone()),
            reading: Reading::VALUE,
        }))
    }

    /// The way to its value.
    pub fn program(&self) -> &KeyProgram {
        &self.0.program
    }

    /// The text of the expression, or of the path.
    pub fn text(&self) -> &str {
        match &self.0.program {
            KeyProgram::Query(expression) => expression.as_str(),
            KeyProgram::Path(_) => self.shown(),
        }
    }

    /// The part of the key's value to look up.
    pub fn reading(&self) -> Reading {
        self.0.reading
    }

    /// The key as people write it, as in `spec.rules[].host`.
    pub fn shown(&self) -> &str {
        &self.0.shown
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Key").field(&self.shown()).finish()
    }
}

/// Compares the texts of expressions: different trees have different texts.
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other)
            || (one.hash == other.hash
                && one.reading == other.reading
                && match (&one.program, &other.program) {
                    (KeyProgram::Query(one), KeyProgram::Query(other)) => {
                        one.as_str() == other.as_str()
                    }
                    (KeyProgram::Path(one), KeyProgram::Path(other)) => one == other,
                    _ => false,
                })
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

/// Identifies an index. A clone is cheap, and so is a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexKey {
    /// The key that is evaluated on each object.
    pub key: Key,
    /// A field that an object lacks is an error, as in
    /// [`MissingKey::Error`](anteroom_jmespath::MissingKey).
    pub missing_key_is_error: bool,
    /// Objects are looked at as in lists of the API server's own types, without `apiVersion` and
    /// `kind`.
    pub bare: bool,
}

impl IndexKey {
    /// Returns the key of the index that a probe needs, under this rule for missing fields.
    pub fn of(probe: &Probe, missing_key_is_error: bool, bare: bool) -> Self {
        Self {
            key: probe.key.clone(),
            missing_key_is_error,
            bare,
        }
    }

    /// The key of the index that CEL needs for a path.
    pub fn of_path(path: &KeyPath) -> Self {
        Self {
            key: Key::path(path),
            missing_key_is_error: false,
            bare: false,
        }
    }
}
