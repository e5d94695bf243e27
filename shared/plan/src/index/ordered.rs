//! The values of an index in order, for keys with wildcards that begin or end in the same way.
//!
//! Put in order when the first such key is asked for, and kept so from then on: most indexes never are.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    ops::Bound,
    sync::OnceLock,
};

use super::{Posting, posting::IN_SET_BYTES};
use crate::Scalar;

/// The end of texts by which they are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The values by their first characters.
    Forward,
    /// The values by their last characters.
    Backward,
}

#[derive(Debug)]
pub(super) struct Ordered {
    order: Order,
    values: OnceLock<Values>,
}

#[derive(Debug)]
pub(super) struct Values {
    order: Order,
    /// Each as [`Order::turned`] has it.
    texts: BTreeSet<Box<str>>,
    /// Values that are no texts; there are few.
    others: HashSet<Scalar>,
    bytes: usize,
}

impl Order {
    /// Turns a text so that the end that decides the order comes first. Turning a text twice restores the text.
    fn turned<'t>(self, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Forward => text.into(),
            Self::Backward => text.chars().rev().collect(),
        }
    }
}

impl Ordered {
    pub(super) fn new(order: Order) -> Self {
        Self {
            order,
            values: OnceLock::new(),
        }
    }

    /// Returns the values in order; `None`: they have not been sorted yet.
    pub(super) fn get(&self) -> Option<&Values> {
        self.values.get()
    }

    /// Returns all values in order. The first call sorts them, with a step for each value.
    pub(super) fn get_or_sort(&self, by_value: &HashMap<Scalar, Posting>) -> &Values {
        self.values.get_or_init(|| {
            let mut values = Values {
                order: self.order,
                texts: BTreeSet::new(),
                others: HashSet::new(),
                bytes: 0,
            };
            by_value.keys().for_each(|value| values.insert(value));
            values
        })
    }

    pub(super) fn insert(&mut self, value: &Scalar) {
        if let Some(values) = self.values.get_mut() {
            values.insert(value);
        }
    }

    pub(super) fn remove(&mut self, value: &Scalar) {
        if let Some(values) = self.values.get_mut() {
            values.remove(value);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.get().map_or(0, |values| values.bytes)
    }
}

impl Values {
    /// The texts that have these characters at the end by which they are in order.
    pub(super) fn with_end<'v>(&'v self, end: &str) -> impl Iterator<Item = Cow<'v, str>> {
        let end = self.order.turned(end).into_owned();
        let from = (Bound::Included(&*end), Bound::Unbounded);
        let texts = self.texts.range::<str, _>(from);
        let texts = texts.take_while(move |text| text.starts_with(&end));
        texts.map(|text| self.order.turned(text))
    }

    /// The values that are no texts.
    pub(super) fn others(&self) -> impl Iterator<Item = &Scalar> {
        self.others.iter()
    }

    fn insert(&mut self, value: &Scalar) {
        self.bytes += IN_SET_BYTES + value.bytes();
        match value {
            Scalar::Text(text) => self.texts.insert(self.order.turned(text).into()),
            other => self.others.insert(other.clone()),
        };
    }

    fn remove(&mut self, value: &Scalar) {
        self.bytes -= IN_SET_BYTES + value.bytes();
        match value {
            Scalar::Text(text) => self.texts.remove(&*self.order.turned(text)),
            other => self.others.remove(other),
        };
    }
}
