//! Paths to the values that objects are looked up by.

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use anteroom_jmespath::Scalar;

/// A path from an object to values in it, as an expression takes it. A clone shares it.
#[derive(Clone)]
pub struct KeyPath(Arc<KeyPathData>);

/// The content of a path, which its clones share.
struct KeyPathData {
    steps: Box<[KeyStep]>,
    hash: u64,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyStep {
    /// A step to a field of a map.
    Field {
        /// The field's name.
        name: Box<str>,
        /// The outcome where the map has no such field.
        missing: Missing,
    },
    /// A step to each element of a list, or to each key of a map.
    Each,
}

/// The outcome of an expression at a field that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Missing {
    /// An error.
    Error,
    /// A decision without the value: `has()` before it, an empty optional.
    Skip,
    /// A decision without the value where a map lacks it, behind `'field' in map`. Of a scalar that is an error.
    SkipInMap,
    /// The outcome is as if the field of the next step were missing, not this field.
    AsNext,
    /// The value here, and the path ends.
    Default(Scalar),
    /// An empty list, and the path goes on.
    EmptyList,
    /// An empty map, and the path goes on.
    EmptyMap,
}

impl KeyPath {
    pub(crate) fn new(steps: Vec<KeyStep>) -> Self {
        let mut hasher = DefaultHasher::new();
        steps.hash(&mut hasher);
        Self(Arc::new(KeyPathData {
            hash: hasher.finish(),
            steps: steps.into(),
        }))
    }

    /// The steps.
    pub fn steps(&self) -> &[KeyStep] {
        &self.0.steps
    }
}

/// Formats the path as people write it: `spec.rules[].host`, with `?` behind a field that may be missing.
impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps().is_empty() {
            return f.write_str("@");
        }
        for (at, step) in self.steps().iter().enumerate() {
            match step {
                KeyStep::Each => f.write_str("[]")?,
                KeyStep::Field { name, missing } => {
                    let dot = if at > 0 { "." } else { "" };
                    let mark = if *missing == Missing::Error { "" } else { "?" };
                    write!(f, "{dot}{name}{mark}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPath").field(&self.to_string()).finish()
    }
}

impl PartialEq for KeyPath {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.hash == other.0.hash && self.0.steps == other.0.steps)
    }
}

impl Eq for KeyPath {}

impl Hash for KeyPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(names: &[&str]) -> KeyPath {
        let steps = names.iter().map(|name| KeyStep::Field {
            name: (*name).into(),
            missing: Missing::Error,
        });
        KeyPath::new(steps.collect())
    }

    fn hash(path: &KeyPath) -> u64 {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn paths_are_equal_by_their_steps() {
        let (one, same, other) = (path(&["a", "b"]), path(&["a", "b"]), path(&["a", "c"]));
        assert_eq!(one, one.clone());
        assert_eq!(one, same);
        assert_eq!(hash(&one), hash(&same));
        assert_ne!(one, other);
        assert_ne!(hash(&one), hash(&other));
        // Hashes may collide.
        let collided = KeyPath(Arc::new(KeyPathData {
            steps: other.steps().to_vec().into(),
            hash: one.0.hash,
        }));
        assert_ne!(one, collided);
    }
}
