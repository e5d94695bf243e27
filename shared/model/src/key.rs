//! The key of an object within a view.

use std::{borrow::Cow, cmp::Ordering, fmt};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::limits::NAME_BYTES_MAX;

/// Stands between the beginning of a long name and its hash. The API server takes no name with a percent
/// sign (`path.IsValidPathSegmentName`), so no other object has such a name.
const HASH_MARK: &str = "%sha256-";

/// The bytes of a long name that stand before its hash.
const NAME_BEGINNING_BYTES: usize = 256;

/// Namespace and name of one object. The namespace is empty for a cluster-scoped object.
///
/// Ordered as the API server lists: see [`KeyBytes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Empty for a cluster-scoped object.
    pub namespace: Box<str>,
    /// Never empty for an object of the Kubernetes API. A long one is short here: see [`ObjectKey::of`].
    pub name: Box<str>,
}

/// A name as keys have it: one of more than [`NAME_BYTES_MAX`] bytes as its beginning and its SHA-256.
///
/// Kubernetes does not limit the names of some types, RBAC's among them, and a subject of the bus has to hold
/// any key. Two names have the same key only if they have the same hash, which nobody can make.
pub fn key_name(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return Cow::Borrowed(name);
    }
    let beginning = &name[..name.floor_char_boundary(NAME_BEGINNING_BYTES)];
    let hash = Sha256::digest(name);
    Cow::Owned(format!("{beginning}{HASH_MARK}{hash:x}"))
}

impl ObjectKey {
    /// A key in `namespace`, which is empty for a cluster-scoped object.
    pub fn new(namespace: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of the object of this name at the API server, whatever the length of the name.
    pub fn of(namespace: &str, name: &str) -> Self {
        Self::new(&*key_name(namespace), &*key_name(name))
    }

    /// The same key, borrowed.
    pub fn as_bytes(&self) -> KeyBytes<'_> {
        KeyBytes::new(&self.namespace, &self.name)
    }

    /// The bytes that the two names take, for accounting.
    pub fn name_bytes(&self) -> usize {
        self.namespace.len() + self.name.len()
    }
}

/// The namespace and name of an [`ObjectKey`], borrowed.
///
/// Ordered as the API server's own list is: by `namespace/name`, byte by byte. So namespace `a-b` comes
/// before `a`, and a namespace's objects stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBytes<'k> {
    /// Empty for a cluster-scoped object.
    pub namespace: &'k [u8],
    /// The name, or a short form of a long one.
    pub name: &'k [u8],
}

impl<'k> KeyBytes<'k> {
    /// A key in `namespace`, which is empty for a cluster-scoped object.
    pub fn new(namespace: &'k str, name: &'k str) -> Self {
        Self {
            namespace: namespace.as_bytes(),
            name: name.as_bytes(),
        }
    }

    /// `namespace/name` behind its first bytes.
    fn rest(self, from: usize) -> impl Iterator<Item = &'k u8> {
        self.namespace[from..].iter().chain(b"/").chain(self.name)
    }
}

impl Ord for KeyBytes<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(other.name);
        }
        let common = self.namespace.len().min(other.namespace.len());
        self.namespace[..common]
            .cmp(&other.namespace[..common])
            .then_with(|| self.rest(common).cmp(other.rest(common)))
            // Only where a name holds a slash, which none of the API server's does.
            .then_with(|| self.namespace.cmp(other.namespace))
    }
}

impl PartialOrd for KeyBytes<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(&other.as_bytes())
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_a_short_key_of_its_own() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        let key = ObjectKey::of("n", &long);
        assert_eq!(key.name.len(), NAME_BEGINNING_BYTES + HASH_MARK.len() + 64);
        assert!(key.name.contains('%') && key.name.starts_with(&long[..NAME_BEGINNING_BYTES]));
        assert_eq!(
            ObjectKey::of("n", &key.name),
            key,
            "a key's name is its own"
        );
        let others = [format!("{long}a"), format!("{}b", &long[1..])];
        for other in others {
            assert_ne!(ObjectKey::of("n", &other), key);
        }
        let edge = &long[1..];
        assert_eq!(&*ObjectKey::of("n", edge).name, edge);
        // The beginning ends between two characters.
        assert!(
            ObjectKey::of("", &format!("a{}", "ü".repeat(600)))
                .name
                .len()
                < NAME_BYTES_MAX
        );
    }

    /// A list from a view has the order of the API server's.
    #[test]
    fn keys_are_ordered_as_their_paths_are() {
        let parts = ["", "a", "a-b", "a.b", "ab", "b", "a0", "-", "b-"];
        let keys: Vec<_> = parts
            .iter()
            .flat_map(|namespace| parts.map(|name| ObjectKey::new(*namespace, name)))
            .collect();
        let path = |key: &ObjectKey| format!("{}/{}", key.namespace, key.name);
        for one in &keys {
            for other in &keys {
                let expected = path(one).cmp(&path(other));
                assert_eq!(one.cmp(other), expected, "{one} and {other}");
                assert_eq!(one.partial_cmp(other), Some(expected));
                let bytes = (one.as_bytes(), other.as_bytes());
                assert_eq!(bytes.0.partial_cmp(&bytes.1), Some(expected));
                assert_eq!(one == other, expected == Ordering::Equal);
            }
        }
        assert!(ObjectKey::new("a-b", "x") < ObjectKey::new("a", "x"));
        assert_ne!(
            ObjectKey::new("a", "b/c").cmp(&ObjectKey::new("a/b", "c")),
            Ordering::Equal
        );
    }
}
