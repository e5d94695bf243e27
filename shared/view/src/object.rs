//! One object of a view, in one allocation.

use std::{borrow::Borrow, cmp::Ordering, sync::Arc};

use anteroom_model::{Epoch, ObjectKey, ResourceVersion};
use anteroom_wire::body::BodyNode;

/// One object: namespace, name and body behind each other in one allocation, which two states of a
/// view share where the object did not change between them.
///
/// Ordered, as the API server does, and equal by key alone: it is its own key in the store's tree.
#[derive(Clone, Debug)]
pub struct Object {
    data: Arc<[u8]>,
    namespace_bytes: u32,
    name_bytes: u32,
    epoch: Epoch,
    version: Version,
}

impl Object {
    /// What an object takes beside its names and body: the tree's slot, and the two counters of the
    /// allocation.
    pub(crate) const SLOT_BYTES: usize = size_of::<Self>() + 2 * size_of::<usize>();

    /// `None` if a name is longer than 4 GiB, which no bus carries.
    pub(crate) fn new(
        key: &ObjectKey,
        epoch: Epoch,
        version: &ResourceVersion,
        body: &[u8],
    ) -> Option<Self> {
        let data = [key.namespace.as_bytes(), key.name.as_bytes(), body].concat();
        Some(Self {
            data: data.into(),
            namespace_bytes: u32::try_from(key.namespace.len()).ok()?,
            name_bytes: u32::try_from(key.name.len()).ok()?,
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
        &self.data[self.key_bytes()..]
    }

    /// The body as a document.
    pub fn node(&self) -> BodyNode<'_> {
        BodyNode::new(self.body())
    }

    /// The tenure in which it was written.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Its resource version.
    pub fn version(&self) -> ResourceVersion {
        self.version.text()
    }

    /// The bytes of its two names.
    pub(crate) fn key_bytes(&self) -> usize {
        self.namespace_bytes as usize + self.name_bytes as usize
    }

    /// The bytes of its version beyond the slot.
    pub(crate) fn version_bytes(&self) -> usize {
        match &self.version {
            Version::Number(_) => 0,
            Version::Text(text) => text.len(),
        }
    }

    /// Takes over the allocation of `other` where it is the same object, byte by byte.
    pub(crate) fn share(&mut self, other: &Self) {
        if self.data == other.data && self.namespace_bytes == other.namespace_bytes {
            self.data = Arc::clone(&other.data);
        }
    }

    #[cfg(test)]
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.data, &other.data)
    }

    fn namespace_part(&self) -> &[u8] {
        &self.data[..self.namespace_bytes as usize]
    }

    fn name_part(&self) -> &[u8] {
        &self.data[self.namespace_bytes as usize..self.key_bytes()]
    }
}

/// Names are UTF-8 from [`Object::new`] on; the check costs less than an allocation for each would.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// A resource version in 16 bytes. All of Kubernetes' own are numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// A decimal number without a leading zero, so that its text is known.
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

/// The API server's order, which is that of its own keys, `namespace/name`: `a-b` stands before `a`,
/// since `-` comes before `/`.
fn in_order(one: (&[u8], &[u8]), other: (&[u8], &[u8])) -> Ordering {
    let ((namespace, name), (other_namespace, other_name)) = (one, other);
    let common = namespace.len().min(other_namespace.len());
    let after = |namespace: &[u8]| namespace.get(common).copied();
    let ends = match (after(namespace), after(other_namespace)) {
        (None, None) => Ordering::Equal,
        // No namespace has a slash; where one had, the shorter would come first.
        (None, Some(next)) => b'/'.cmp(&next).then(Ordering::Less),
        (Some(next), None) => next.cmp(&b'/').then(Ordering::Greater),
        (Some(_), Some(_)) => Ordering::Equal, // Unreachable: one of them ends there.
    };
    namespace[..common]
        .cmp(&other_namespace[..common])
        .then(ends)
        .then_with(|| name.cmp(other_name))
}

/// Whatever has a namespace and a name: lets the tree be searched by borrowed parts.
pub(crate) trait Keyed {
    /// Namespace, then name.
    fn key(&self) -> (&[u8], &[u8]);
}

impl Keyed for Object {
    fn key(&self) -> (&[u8], &[u8]) {
        (self.namespace_part(), self.name_part())
    }
}

impl Keyed for (&str, &str) {
    fn key(&self) -> (&[u8], &[u8]) {
        (self.0.as_bytes(), self.1.as_bytes())
    }
}

impl<'a> Borrow<dyn Keyed + 'a> for Object {
    fn borrow(&self) -> &(dyn Keyed + 'a) {
        self
    }
}

impl Ord for dyn Keyed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        in_order(self.key(), other.key())
    }
}

impl PartialOrd for dyn Keyed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Keyed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for dyn Keyed + '_ {}

impl Ord for Object {
    fn cmp(&self, other: &Self) -> Ordering {
        in_order(self.key(), other.key())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_takes_one_slot_of_48_bytes() {
        assert_eq!(size_of::<Object>(), 48);
    }

    #[test]
    fn versions_keep_their_text() {
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
    fn the_order_is_the_api_servers() {
        let keys = [
            ("", "z"),
            ("a-b", "a"),
            ("a-b", "z"),
            ("a", "-"),
            ("a", "b"),
            ("a0", "a"),
            ("b", ""),
        ];
        let joined: Vec<_> = keys[1..]
            .iter()
            .map(|(ns, n)| format!("{ns}/{n}"))
            .collect();
        assert!(joined.is_sorted());
        for (at, one) in keys.iter().enumerate() {
            for (other_at, other) in keys.iter().enumerate() {
                let [one, other]: [&dyn Keyed; 2] = [one, other];
                assert_eq!(one.cmp(other), at.cmp(&other_at));
            }
        }
    }

    #[test]
    fn parts_do_not_run_together() {
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
