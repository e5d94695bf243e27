//! One object of a view, in one allocation.

use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
    sync::Arc,
};

use anteroom_model::{Epoch, KeyBytes, ObjectKey, ResourceVersion};
use anteroom_wire::body::BodyNode;

use crate::size;

/// One object: namespace, name and body behind each other, in an allocation of their own or in one with others
/// (see `pack`). Two states of a view share it where the object did not change between them.
///
/// Ordered, as the API server does, and equal by key alone: it is its own key in the store's tree.
#[derive(Clone, Debug)]
pub struct Object {
    data: Arc<[u8]>,
    start: u32,
    body_bytes: u32,
    namespace_bytes: u16,
    name_bytes: u16,
    epoch: Epoch,
    version: Version,
}

impl Object {
    /// `None` if a name is longer than 64 KiB or the body than 4 GiB, which no bus carries.
    pub(crate) fn new(
        key: &ObjectKey,
        epoch: Epoch,
        version: &ResourceVersion,
        body: &[u8],
    ) -> Option<Self> {
        let parts = [key.namespace.as_bytes(), key.name.as_bytes(), body];
        Some(Self {
            data: joined(parts.into_iter()),
            start: 0,
            body_bytes: u32::try_from(body.len()).ok()?,
            namespace_bytes: u16::try_from(key.namespace.len()).ok()?,
            name_bytes: u16::try_from(key.name.len()).ok()?,
            epoch,
            version: Version::new(version),
        })
    }

    /// The object's namespace; empty for a cluster-scoped one.
    pub fn namespace(&self) -> &str {
        text(self.namespace_part())
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        text(self.name_part())
    }

    /// The body, validated when it was decoded.
    pub fn body(&self) -> &[u8] {
        &self.data()[self.key_bytes()..]
    }

    /// The body as a document.
    pub fn node(&self) -> BodyNode<'_> {
        BodyNode::new(self.body())
    }

    /// The epoch in which it was written.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Its resource version.
    pub fn version(&self) -> ResourceVersion {
        self.version.text()
    }

    /// The bytes of the object's namespace and name.
    pub(crate) fn key_bytes(&self) -> usize {
        usize::from(self.namespace_bytes) + usize::from(self.name_bytes)
    }

    /// The bytes of the object's names and body.
    pub(crate) fn len(&self) -> usize {
        self.key_bytes() + self.body_bytes as usize
    }

    /// The text of the names and the body of the object.
    pub(crate) fn data(&self) -> &[u8] {
        let start = self.start as usize;
        &self.data[start..start + self.len()]
    }

    /// Returns true if it has an allocation of its own.
    pub fn is_alone(&self) -> bool {
        self.data.len() == self.len()
    }

    /// Returns true if nobody else holds its allocation.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.data) == 1
    }

    /// An identifier of the object's allocation, unique among all live allocations.
    pub(crate) fn allocation(&self) -> usize {
        self.data.as_ptr().addr()
    }

    /// The bytes of all objects that its allocation was made for: as long as anybody holds this one, all of
    /// them are held.
    pub fn allocation_bytes(&self) -> usize {
        self.data.len()
    }

    /// Moves the object to the bytes of `data` from `start` on, which equal its present bytes.
    pub(crate) fn move_into(&mut self, data: &Arc<[u8]>, start: usize) {
        debug_assert_eq!(data.get(start..start + self.len()), Some(self.data()));
        // An allocation that is shared is far smaller than 4 GiB.
        if let Ok(start) = u32::try_from(start) {
            self.data = Arc::clone(data);
            self.start = start;
        }
    }

    /// Moves the object to an allocation of its own.
    pub(crate) fn move_out(&mut self) {
        self.data = self.data().into();
        self.start = 0;
    }

    /// The bytes of its version beyond the slot.
    pub(crate) fn version_bytes(&self) -> usize {
        match &self.version {
            Version::Number(_) => 0,
            Version::Text(text) => size::allocated(text.len()),
        }
    }

    /// The bytes of its allocation beside names and body (two counters, and the rest up to the size
    /// class), or its share of them.
    pub(crate) fn spare_bytes(&self) -> usize {
        let spare = size::shared(self.data.len());
        match self.is_alone() {
            true => spare,
            false => spare * self.len() / self.data.len(),
        }
    }

    /// Its key.
    pub(crate) fn key(&self) -> KeyBytes<'_> {
        KeyBytes {
            namespace: self.namespace_part(),
            name: self.name_part(),
        }
    }

    /// Returns true if its place in the order is not before the objects of this namespace.
    pub(crate) fn is_under(&self, namespace: &str) -> bool {
        let KeyBytes {
            namespace: own,
            name,
        } = self.key();
        let path = own.iter().chain(b"/").chain(name);
        let prefix = namespace.as_bytes().iter().chain(b"/");
        own == namespace.as_bytes() || path.take(namespace.len() + 1).eq(prefix)
    }

    /// Takes over the place of `other` where it is the same object, byte by byte.
    pub(crate) fn share(&mut self, other: &Self) {
        if self.namespace_bytes == other.namespace_bytes && self.data() == other.data() {
            self.data = Arc::clone(&other.data);
            self.start = other.start;
        }
    }

    /// Returns true if both are at the same place in memory.
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.data, &other.data) && self.start == other.start
    }

    /// Returns true if both have the same content, wherever the two are in memory.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.shares_with(other)
            || (self.version == other.version
                && self.epoch == other.epoch
                && self.namespace_bytes == other.namespace_bytes
                && self.data() == other.data())
    }

    fn namespace_part(&self) -> &[u8] {
        &self.data()[..usize::from(self.namespace_bytes)]
    }

    fn name_part(&self) -> &[u8] {
        &self.data()[usize::from(self.namespace_bytes)..self.key_bytes()]
    }
}

/// Joins the parts in the allocation where they stay: a vector on the way would be one allocation more.
pub(crate) fn joined<'p>(parts: impl Iterator<Item = &'p [u8]> + Clone) -> Arc<[u8]> {
    let bytes = parts.clone().map(<[u8]>::len).sum();
    let mut data: Arc<[u8]> = std::iter::repeat_n(0, bytes).collect();
    if let Some(mut rest) = Arc::get_mut(&mut data) {
        for part in parts {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
    }
    data
}

/// Names are UTF-8 from [`Object::new`] on; the check costs less than an allocation for each would.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// A resource version in 16 bytes. All of Kubernetes' own are numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// A decimal number without a leading zero, from which the text can be restored.
    Number(u64),
    /// Anything else.
    Text(Box<str>),
}

impl Version {
    pub(crate) fn new(version: &ResourceVersion) -> Self {
        let text = version.as_str();
        let canonical = text == "0" || text.starts_with(|c: char| matches!(c, '1'..='9'));
        match text.parse() {
            Ok(number) if canonical => Self::Number(number),
            _ => Self::Text(text.into()),
        }
    }

    pub(crate) fn text(&self) -> ResourceVersion {
        match self {
            Self::Number(number) => ResourceVersion::new(number.to_string()),
            Self::Text(text) => ResourceVersion::new(text.clone()),
        }
    }
}

impl Ord for Object {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Object {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Object {}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Both names in one: they stand behind each other, and few keys differ in where one ends.
        state.write(&self.data()[..self.key_bytes()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_takes_one_slot_of_56_bytes() {
        assert_eq!(size_of::<Object>(), 56);
    }

    #[test]
    fn resource_versions_keep_their_text() {
        for text in ["0", "1", "42", "18446744073709551615"] {
            let version = Version::new(&ResourceVersion::new(text));
            assert!(matches!(version, Version::Number(_)), "{text}");
            assert_eq!(version.text().as_str(), text);
        }
        for text in ["", "00", "01", "+1", "-1", "a", "18446744073709551616"] {
            let version = Version::new(&ResourceVersion::new(text));
            assert!(matches!(version, Version::Text(_)), "{text}");
            assert_eq!(version.text().as_str(), text);
        }
    }

    #[test]
    fn an_object_tells_namespace_from_name() {
        let object = |namespace: &str, name: &str| {
            let key = ObjectKey::new(namespace, name);
            Object::new(&key, Epoch(1), &ResourceVersion::new("1"), b"\xc0").unwrap()
        };
        let (one, mut other) = (object("a", "bc"), object("ab", "c"));
        assert!(one < other && one != other);
        other.share(&one);
        assert!(!other.shares_with(&one));
        assert_eq!((one.namespace(), one.name()), ("a", "bc"));
        assert_eq!(one.body(), b"\xc0");
    }
}
