//! The values of an index in order, for keys with wildcards that begin in the same way.
//!
//! Put in order when the first such key is asked for, and kept so from then on: most indexes never are.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Bound,
    sync::OnceLock,
};

use super::{Posting, posting::IN_SET_BYTES};
use crate::Scalar;

#[derive(Debug, Default)]
pub(super) struct Ordered(OnceLock<Values>);

#[derive(Debug, Default)]
pub(super) struct Values {
    texts: BTreeSet<Box<str>>,
    /// Values that are no texts; there are few.
    others: HashSet<Scalar>,
    bytes: usize,
}

impl Ordered {
    /// `None`: nobody has asked for it yet.
    pub(super) fn get(&self) -> Option<&Values> {
        self.0.get()
    }

    /// Puts all values in order, unless they are. It takes a step for each of them.
    pub(super) fn get_or_sort(&self, by_value: &HashMap<Scalar, Posting>) -> &Values {
        self.0.get_or_init(|| {
            let mut values = Values::default();
            by_value.keys().for_each(|value| values.insert(value));
            values
        })
    }

    pub(super) fn insert(&mut self, value: &Scalar) {
        if let Some(values) = self.0.get_mut() {
            values.insert(value);
        }
    }

    pub(super) fn remove(&mut self, value: &Scalar) {
        if let Some(values) = self.0.get_mut() {
            values.remove(value);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.get().map_or(0, |values| values.bytes)
    }
}

impl Values {
    /// The texts that begin so.
    pub(super) fn beginning<'v>(&'v self, prefix: &'v str) -> impl Iterator<Item = &'v str> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let texts = self.texts.range::<str, _>(from);
        let texts = texts.take_while(move |text| text.starts_with(prefix));
        texts.map(|text| &**text)
    }

    /// The values that are no texts.
    pub(super) fn others(&self) -> impl Iterator<Item = &Scalar> {
        self.others.iter()
    }

    fn insert(&mut self, value: &Scalar) {
        self.bytes += IN_SET_BYTES + value.bytes();
        match value {
            Scalar::Text(text) => self.texts.insert(text.clone()),
            other => self.others.insert(other.clone()),
        };
    }

    fn remove(&mut self, value: &Scalar) {
        self.bytes -= IN_SET_BYTES + value.bytes();
        match value {
            Scalar::Text(text) => self.texts.remove(text),
            other => self.others.remove(other),
        };
    }
}
