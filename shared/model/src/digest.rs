//! An order-free digest of a view's content.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::{ObjectKey, ResourceVersion};

/// The wrapping sum of a 128-bit hash over every (key, version) of a view.
///
/// Independent of order, kept up in constant time as objects come and go, and equal in two places
/// only if nothing was lost between them (a chance of 2⁻¹²⁸ aside). It is a check against faults,
/// not against an adversary.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    high: u64,
    low: u64,
}

impl Digest {
    /// The digest of nothing.
    pub const EMPTY: Self = Self { high: 0, low: 0 };

    /// Takes an object in.
    pub fn add(&mut self, key: &ObjectKey, version: &ResourceVersion) {
        self.set(self.value().wrapping_add(hash(key, version)));
    }

    /// Takes an object out that was taken in before.
    pub fn remove(&mut self, key: &ObjectKey, version: &ResourceVersion) {
        self.set(self.value().wrapping_sub(hash(key, version)));
    }

    /// Returns the difference of the digests of two sets: [`Digest::EMPTY`] for equal sets. Objects in both sets do not
    /// matter.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        let mut difference = Self::EMPTY;
        difference.set(self.value().wrapping_sub(other.value()));
        difference
    }

    fn value(self) -> u128 {
        (u128::from(self.high) << 64) | u128::from(self.low)
    }

    fn set(&mut self, value: u128) {
        self.high = (value >> 64) as u64;
        self.low = value as u64;
    }
}

/// Hashes an object. Each field has its length as a prefix, so that different objects never hash the same text.
fn hash(key: &ObjectKey, version: &ResourceVersion) -> u128 {
    let mut hasher = Xxh3::new();
    for field in [&*key.namespace, &*key.name, version.as_str()] {
        hasher.update(&(field.len() as u64).to_le_bytes());
        hasher.update(field.as_bytes());
    }
    hasher.digest128()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.value())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_digest_ignores_order_and_removing_an_object_undoes_adding_it(
            objects in proptest::collection::btree_map("[a-c]{0,2}", "[0-9]{1,3}", 1..8),
            seed in any::<prop::sample::Index>(),
        ) {
            let objects: Vec<_> = objects
                .iter()
                .map(|(name, rv)| (ObjectKey::new("ns", name.as_str()), ResourceVersion::new(rv.as_str())))
                .collect();
            let mut forward = Digest::default();
            objects.iter().for_each(|(k, v)| forward.add(k, v));
            let mut backward = Digest::default();
            objects.iter().rev().for_each(|(k, v)| backward.add(k, v));
            prop_assert_eq!(forward, backward);

            let (key, version) = &objects[seed.index(objects.len())];
            let mut without = forward;
            without.remove(key, version);
            prop_assert_ne!(without, forward);
            let mut one = Digest::EMPTY;
            one.add(key, version);
            prop_assert_eq!(forward.difference(without), one);
            prop_assert_eq!(forward.difference(backward), Digest::EMPTY);
            without.add(key, version);
            prop_assert_eq!(without, forward);
        }
    }

    #[test]
    fn a_digest_tells_namespace_from_name() {
        let mut one = Digest::default();
        one.add(&ObjectKey::new("a", "bc"), &ResourceVersion::new("1"));
        let mut other = Digest::default();
        other.add(&ObjectKey::new("ab", "c"), &ResourceVersion::new("1"));
        assert_ne!(one, other);
    }

    #[test]
    fn a_digest_is_the_same_in_every_build() {
        let mut digest = Digest::default();
        digest.add(
            &ObjectKey::new("default", "web"),
            &ResourceVersion::new("42"),
        );
        assert_eq!(digest.to_string(), "04fd7b6d638d407cac85fa3bc41d2dca");
    }
}
