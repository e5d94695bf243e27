//! Objects with one value.

use std::{collections::BTreeSet, ops::Bound, slice};

use anteroom_view::Object;

/// The size of an object in an ordered set, unused room included.
pub(super) const IN_SET_BYTES: usize = size_of::<Object>() * 3 / 2 + 16;

/// At least one object.
#[derive(Debug)]
pub(super) enum Posting {
    One(Object),
    Many(BTreeSet<Object>),
}

impl Posting {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(objects) => objects.len(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Object> {
        let (one, many) = match self {
            Self::One(object) => (slice::from_ref(object), None),
            Self::Many(objects) => (&[][..], Some(objects)),
        };
        one.iter().chain(many.into_iter().flatten())
    }

    /// The objects from `from` on, in order.
    pub(super) fn from(&self, from: Bound<&Object>) -> impl Iterator<Item = &Object> {
        let (one, many) = match self {
            Self::One(object) => (Some(object), None),
            Self::Many(objects) => (None, Some(objects.range((from, Bound::Unbounded)))),
        };
        let one = one.filter(move |object| match from {
            Bound::Included(from) => from <= *object,
            Bound::Excluded(from) => from < *object,
            Bound::Unbounded => true,
        });
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Returns the bytes that it takes more. An object of the same key is replaced.
    pub(super) fn insert(&mut self, object: &Object) -> usize {
        match self {
            Self::Many(objects) => {
                let before = objects.len();
                objects.replace(object.clone());
                (objects.len() - before) * IN_SET_BYTES
            }
            Self::One(held) if held == object => {
                *held = object.clone();
                0
            }
            Self::One(first) => {
                *self = Self::Many(BTreeSet::from([first.clone(), object.clone()]));
                2 * IN_SET_BYTES
            }
        }
    }

    /// Removes the object. Returns the bytes that were freed; `None`: no object is left.
    pub(super) fn remove(&mut self, object: &Object) -> Option<usize> {
        let Self::Many(objects) = self else {
            return None;
        };
        let before = objects.len();
        objects.remove(object);
        if objects.len() > 1 {
            return Some((before - objects.len()) * IN_SET_BYTES);
        }
        *self = Self::One(objects.pop_first()?);
        Some(2 * IN_SET_BYTES)
    }
}
